"""`torch_subject`: all forms of kernels, their gradients, and kernels that do not match."""

import re
import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import truenorm.verify as tv
from needs_torch import kernels
from needs_torch.kernels import Tensor
from truenorm.verify.calls import LARGE, Call
from truenorm.verify.running.pytorch import Tensors
from truenorm.verify.running.runners import InProcess
from truenorm.verify.running.torch_subject import FormName

Case = tuple[Any, str, FormName]
RIGHT: dict[str, Case] = {
    "functional": (kernels.rms_norm, "rms_norm", "functional"),
    "functional layer norm": (kernels.layer_norm, "layer_norm", "functional"),
    "functional, adds": (kernels.add_rms_norm, "add_rms_norm", "functional"),
    "out": (kernels.rms_norm_out, "rms_norm", "out"),
    "inplace": (kernels.fused_add_rms_norm, "add_rms_norm", "inplace"),
    "module": (kernels.RMSNorm, "rms_norm", "module"),
    "module, adds": (kernels.AddLayerNorm, "add_layer_norm", "module"),
    "factory": (lambda D, eps: kernels.RMSNorm(D, eps), "rms_norm", "module"),  # noqa: N803
}


def ordinary(subject: tv.Subject) -> list[tv.Case]:
    """Return small ordinary cases, which every kernel has to get right."""
    return [
        case
        for dtype in subject.dtypes
        for case in tv.cases(dtype, also=subject.also, operation=subject.operation)
        if case.kind == "ordinary" and case.x.size < 10_000
    ]


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels(name: str) -> None:
    function, operation, form = RIGHT[name]
    subject = tv.torch_subject(
        function, operation=operation, form=form, dtypes=["float16", "bfloat16", "float32"]
    )
    written = form in ("out", "inplace")  # autograd does not see it
    assert (subject.backward is None) == written
    for case in ordinary(subject):
        tv.check(subject, case)


@pytest.mark.parametrize("name", ["functional", "inplace", "module, adds"])
def test_reports(name: str) -> None:
    function, operation, form = RIGHT[name]
    subject = tv.torch_subject(function, operation=operation, form=form, dtypes=["bfloat16"])
    report = tv.verify(subject)
    forward = [each for each in report.findings if each.output in ("y", "sum", "")]
    assert forward == []
    assert [each.name for each in report.recipes] == ["late"]
    assert report.verdicts["saved kept"] == ("not judged" if form == "inplace" else "pass")


def test_types_of_parameters_and_results() -> None:
    operation = tv.norm("rms_norm", parameters="float32", result="float32")

    def out(out: Tensor, x: Tensor, weight: Tensor, eps: float) -> None:
        assert (out.dtype, weight.dtype) == (torch.float32, torch.float32)
        out.copy_(kernels.rms_norm(x.double(), weight, eps))

    subject = tv.torch_subject(out, operation=operation, form="out", dtypes=["bfloat16"])
    tv.check(subject, tv.case("bfloat16-normal-4x17", operation=operation))


def unwritten(out: Tensor, x: Tensor, weight: Tensor, eps: float) -> None:
    out[:-1].copy_(kernels.rms_norm(x, weight, eps)[:-1])


def stale_residual(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> None:
    x.copy_(kernels.add_rms_norm(x, residual, weight, eps)[0])


def overwriting(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    y = kernels.rms_norm(x, weight, eps).detach()
    x.detach().zero_()
    return y


class Unweighted(kernels.RMSNorm):
    def forward(self, hidden_states: Tensor) -> Tensor:
        return kernels.rms_norm(hidden_states, torch.ones_like(self.weight), self.variance_epsilon)


WRONG: dict[str, tuple[Case, str]] = {
    "a row is not written": ((unwritten, "rms_norm", "out"), r"y\[3, 0\] is nan"),
    "the residual stays": ((stale_residual, "add_rms_norm", "inplace"), r"sum\["),
    "x is overwritten": ((overwriting, "rms_norm", "functional"), "x changed during the call"),
    "no weight": ((Unweighted, "rms_norm", "module"), r"y\["),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels(name: str) -> None:
    (function, operation, form), message = WRONG[name]
    subject = tv.torch_subject(function, operation=operation, form=form, dtypes=["float32"])
    with pytest.raises(AssertionError, match=message):
        tv.check(subject, tv.case("float32-normal-4x17", operation=subject.operation))


@pytest.mark.parametrize("form", ["functional", "inplace"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_strides_of_padded_rows(form: FormName, dtype: str) -> None:
    seen = []
    kernel = kernels.add_rms_norm if form == "functional" else kernels.fused_add_rms_norm

    def noting(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Any:
        seen.extend([x.stride(), residual.stride()])
        return kernel(x, residual, weight, eps)

    subject = tv.torch_subject(
        noting, operation="add_rms_norm", form=form, dtypes=[dtype], also=["padded-rows"]
    )
    padded = [case for case in ordinary(subject) if case.layout == "padded"]
    assert padded
    for case in padded:
        seen.clear()
        tv.check(subject, case)
        assert set(seen) == {(3 * case.shape[1], 1)}


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory: 8 GB")],
)
def test_lack_of_memory_is_not_a_finding(error: Exception) -> None:
    def large(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        if len(x) > 4:
            raise error
        return kernels.rms_norm(x, weight, eps)

    subject = tv.torch_subject(large, operation="rms_norm", dtypes=["float32"])
    case = tv.case("float32-normal-4x17", operation=tv.RMS_NORM)
    record = InProcess(subject).run(case, Call(LARGE, 0, 8))
    assert record.left_out.startswith("there was not enough memory for 8 rows of 17")


def test_ranks_and_absent_parameters() -> None:
    subject = tv.torch_subject(
        torch.nn.functional.layer_norm,
        operation="layer_norm",
        dtypes=["float32"],
        also=["ranks", "strides", "no-gamma", "no-beta", "empty"],
    )
    extended = [case for case in ordinary(subject) if case.needs]
    assert {each for case in extended for each in case.needs} >= {"ranks", "strides", "no-gamma"}
    for case in extended:
        tv.check(subject, case)


def of_rms_norm(function: Any, **options: Any) -> tv.Subject:
    return tv.torch_subject(function, operation=tv.RMS_NORM, dtypes=["float32"], **options)


CASE = tv.case("float32-normal-4x17", operation=tv.RMS_NORM)


def test_explicit_backward() -> None:
    subject = of_rms_norm(kernels.saving_rms_norm, backward=kernels.rms_norm_backward)
    assert subject.outputs == ("y", "dx", "dgamma")
    tv.check(subject, CASE)
    report = tv.verify(subject)
    assert {each.output for each in report.findings} <= {"dx"}  # where it cancels down to eps
    assert report.verdicts["saved kept"] == report.verdicts["own state"] == "pass"


def test_explicit_backward_in_place() -> None:
    def forward(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> list[Any]:
        total = x + residual
        y, *saved = kernels.saving_rms_norm(total, weight, eps)
        x.copy_(y)
        residual.copy_(total)
        return saved

    def backward(dy: Tensor, dsum: Tensor, saved: Any) -> tuple[Tensor, ...]:
        dx, dgamma = kernels.rms_norm_backward(dy.double(), *saved)
        both = (dx + dsum.double()).to(dy.dtype)
        return both, both, dgamma.to(dy.dtype)

    subject = tv.torch_subject(
        forward, operation="add_rms_norm", form="inplace", backward=backward, dtypes=["bfloat16"]
    )
    assert subject.outputs == ("y", "sum", "dx", "dresidual", "dgamma")
    tv.check(subject, tv.case("bfloat16-normal-4x17", operation=subject.operation))


def test_wrong_explicit_backward() -> None:
    def doubled(*arguments: Any) -> tuple[Tensor, Tensor]:
        dx, dgamma = kernels.rms_norm_backward(*arguments)
        return 2 * dx, dgamma

    subject = of_rms_norm(kernels.saving_rms_norm, backward=doubled)
    with pytest.raises(AssertionError, match=r"dx\["):
        tv.check(subject, CASE)


def test_detached_results_have_no_gradients() -> None:
    def detached(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return kernels.rms_norm(x.detach(), weight.detach(), eps)

    assert of_rms_norm(detached).backward is None
    assert of_rms_norm(kernels.rms_norm).backward is not None
    assert of_rms_norm(kernels.rms_norm, backward=False).backward is None


def test_kernels_without_gradient_tensors() -> None:
    def through_numpy(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return kernels.rms_norm(torch.from_numpy(x.numpy()), weight, eps)

    subject = of_rms_norm(through_numpy)
    assert subject.backward is None
    tv.check(subject, CASE)


def test_detached_weight() -> None:
    def frozen(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return kernels.rms_norm(x, weight.detach(), eps)

    with pytest.raises(AssertionError, match="dgamma"):
        tv.check(of_rms_norm(frozen), CASE)


def test_no_warnings() -> None:
    subject = of_rms_norm(torch.nn.functional.rms_norm)
    assert subject.forward is not None
    assert subject.backward is not None
    x = CASE.x.copy()
    x.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y, saved = subject.forward(x, CASE.gamma, CASE.eps)
        first = subject.backward(CASE.dy, saved)
        second = subject.backward(CASE.dy, saved)
    assert y.dtype == x.dtype
    assert [each.tobytes() for each in first] == [each.tobytes() for each in second]


@pytest.mark.parametrize(("function", "options", "message"), [
    (lambda q, weight, eps: q, {}, "unknown arguments q; no argument for x (input"),
    (kernels.rms_norm, {"operation": "layer_norm"}, "no argument for beta (bias"),
    (torch.nn.LayerNorm(8), {"form": "module"}, "expected a class of modules"),
    (kernels.rms_norm_out, {"form": "out", "operation": "add_rms_norm"}, "for residual"),
    (
        lambda x, weight, eps: 1 / 0,
        {},
        "it cannot be called with x=x, weight=gamma, eps=eps: ZeroDivisionError: division by "
        'zero\n  File "',
    ),
    (torch.rms_norm, {"signature": "input, weight, eps"}, "if its arguments are others"),
    (torch.nn.Linear, {"form": "module"}, "unknown arguments in_features"),
    (lambda D, eps: torch.nn.Linear(D, D), {"form": "module"}, None),  # noqa: N803
    (lambda D, eps: torch.nn.ReLU(), {"form": "module"}, "no parameter for gamma"),  # noqa: N803
    (kernels.rms_norm, {"signature": "x, weight"}, "no argument for eps"),
    (kernels.rms_norm, {"device": "nowhere"}, None),
])  # fmt: skip
def test_kernels_that_do_not_match(
    function: Any, options: dict[str, Any], message: str | None
) -> None:
    options = {"operation": "rms_norm", **options}
    with pytest.raises((ValueError, RuntimeError), match=message and re.escape(message)):
        tv.torch_subject(function, **options)


def test_signature_of_a_builtin() -> None:
    names = "input, normalized_shape, weight, eps"
    subject = tv.torch_subject(
        torch.rms_norm, operation="rms_norm", signature=names, dtypes=["bfloat16"]
    )
    tv.check(subject, tv.case("bfloat16-normal-4x17", operation=tv.RMS_NORM))


def test_with_operation() -> None:
    """The arguments are matched again."""
    subject = tv.torch_subject(
        torch.nn.functional.layer_norm, operation="layer_norm", dtypes=["float32"]
    )
    without = subject.with_operation("layer_norm,beta=false")
    assert without.outputs == ("y", "dx", "dgamma")
    tv.check(without, tv.case("float32-normal-4x17", operation=without.operation))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_copies_keep_numbers_and_strides(dtype: str) -> None:
    """Copies as for another device, which this machine does not need."""
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
