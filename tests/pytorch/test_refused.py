"""What cannot be called is said at once, with what to do."""

import re
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import truenorm.verify as tv
from pytorch import kernels
from truenorm.verify.running.pytorch import Tensors


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (lambda q, weight, eps: q, {}, "nothing is known of q; x is none of its arguments (input"),
        (kernels.rms_norm, {"operation": "layer_norm"}, "beta is none of its arguments (bias"),
        (torch.nn.LayerNorm(8), {"form": "module"}, "give its class, or a function of both"),
        (kernels.rms_norm_out, {"form": "out", "operation": "add_rms_norm"}, "has two"),
        (lambda x, weight, eps: 1 / 0, {}, "it cannot be called with x=x, weight=gamma, eps=eps"),
        (torch.nn.Linear, {"form": "module"}, "nothing is known of in_features"),
        (lambda D, eps: torch.nn.Linear(D, D), {"form": "module"}, None),  # noqa: N803
        (lambda D, eps: torch.nn.ReLU(), {"form": "module"}, "no parameter for gamma"),  # noqa: N803
        (kernels.rms_norm, {"signature": "x, weight"}, "eps is none of its arguments"),
        (kernels.rms_norm, {"device": "nowhere"}, None),
    ],
)
def test_refused(function: Any, options: dict[str, Any], said: str | None) -> None:
    options = {"operation": "rms_norm", **options}
    with pytest.raises((ValueError, RuntimeError), match=said and re.escape(said)):
        tv.torch_subject(function, **options)


def test_a_signature_for_what_has_none() -> None:
    names = "input, normalized_shape, weight, eps"
    subject = tv.torch_subject(
        torch.rms_norm, operation="rms_norm", signature=names, dtypes=["bfloat16"]
    )
    tv.check(subject, tv.case("bfloat16-normal-4x17", operation=tv.RMS_NORM))


def test_taken_for_another_operation() -> None:
    """Its arguments are matched anew."""
    subject = tv.torch_subject(
        torch.nn.functional.layer_norm, operation="layer_norm", dtypes=["float32"]
    )
    without = subject.with_operation("layer_norm,beta=false")
    assert without.outputs == ("y", "dx", "dgamma")
    tv.check(without, tv.case("float32-normal-4x17", operation=without.operation))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_copy_keeps_numbers_and_strides(dtype: str) -> None:
    """As tensors go to another device, of which there is none here."""
    tensors = Tensors("cpu")
    case = tv.case(f"{dtype}-normal-4x17")
    for rows in (case.x, np.repeat(case.x, 2, axis=1)[:, ::2], np.tile(case.x, 3)[:, 17:34]):
        copied = tensors.copied(tensors.of(rows))
        assert [step * rows.itemsize for step in copied.stride()] == list(rows.strides)
        back = tensors.array(copied)
        assert back is not None
        assert back.dtype == rows.dtype
        assert back.tobytes() == case.x.tobytes()
    nothing = tensors.copied(tensors.of(case.x[:0]))
    assert nothing.shape == (0, 17)
