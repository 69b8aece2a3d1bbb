"""Kernels of PyTorch, as far as no PyTorch is needed: arguments, targets, messages."""

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

import truenorm.verify as tv
from shared.programs import python
from truenorm.tools.user_files import NotThereError
from truenorm.verify.running.array_functions import Arguments, arguments_of
from truenorm.verify.running.loading import dotted_path, load

PLAIN = ["x", "gamma", "eps"]


def call(function: Callable[..., Any], wanted: list[str], signature: str = "") -> Any:
    values = {each: each for each in ("x", "residual", "gamma", "beta", "eps", "out")}
    known = {each: values[each] for each in wanted}
    known |= {"shape": [8], "size": 8}  # type: ignore[dict-item]
    return arguments_of(function, wanted, signature).call(function, known)


@pytest.mark.parametrize("function", [
    lambda x, weight, eps: (x, weight, eps),
    lambda eps, W, X: (X, W, eps),  # noqa: N803
    lambda hidden_states, gamma, epsilon=None: (hidden_states, gamma, epsilon),
    lambda input, *, scale, variance_epsilon: (input, scale, variance_epsilon),
    lambda x, w, /, eps, cache=None: (x, w, eps),
    lambda *arguments: arguments,
])  # fmt: skip
def test_arguments_by_name(function: Callable[..., Any]) -> None:
    assert call(function, PLAIN) == ("x", "gamma", "eps")


def test_more_arguments_than_the_operation() -> None:
    """As in flash-linear-attention: a required argument without a value is None."""

    def rms_norm(x: Any, weight: Any, bias: Any, residual: Any = 1, eps: Any = 0) -> Any:
        return x, weight, bias, residual, eps

    assert call(rms_norm, PLAIN) == ("x", "gamma", None, 1, "eps")


def test_row_length() -> None:
    def rms_norm(x: Any, normalized_shape: Any, weight: Any, eps: Any) -> Any:
        return normalized_shape

    assert call(rms_norm, PLAIN) == [8]
    assert call(lambda hidden_size, eps: hidden_size, ["eps"]) == 8


def test_explicit_signature() -> None:
    written = "out, residual, X, weight, eps"
    wanted = ["out", "x", "residual", "gamma", "eps"]
    assert call(lambda *arguments: arguments, wanted, written) == (
        *("out", "residual", "x", "gamma", "eps"),
    )


def test_no_signature() -> None:
    assert arguments_of(dict, PLAIN) == Arguments(("x", "gamma", "eps"))


@pytest.mark.parametrize(("function", "signature", "message"), [
    (lambda x, weight: x, "", "no argument for eps (eps, epsilon, variance_epsilon)"),
    (lambda x, weight, eps, z: x, "", "unknown arguments z;"),
    (lambda x, weight, w, eps: x, "", "unknown arguments w;"),
    (print, "x, weights, magic", "unknown arguments magic; no argument for eps"),
    (lambda x, weight: x, "", "write them in order, as signature='input, weight, eps'"),
])  # fmt: skip
def test_unmatched_arguments(function: Callable[..., Any], signature: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        arguments_of(function, PLAIN, signature)


@pytest.fixture
def _no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


def test_verify_does_not_import_torch() -> None:
    done = python("-c", "import sys, truenorm.verify; print('torch' in sys.modules)")
    assert done.stdout == "False\n", done.stderr


@pytest.mark.usefixtures("_no_torch")
def test_torch_is_missing() -> None:
    with pytest.raises(ValueError, match=r"needs PyTorch.*: pip install torch"):
        tv.torch_subject(print, operation="rms_norm")


@pytest.mark.usefixtures("_no_torch")
@pytest.mark.parametrize(("target", "operation", "message"), [
    ("torch:torch.nn.functional.rms_norm", "rms_norm", "there is no module 'torch'"),
    ("torch:math.sqrt", "rms_norm", "needs PyTorch"),
    ("torch:math.root", "rms_norm", "math has no 'root'"),
    ("torch:math.sqrt", "", "give --operation rms_norm"),
    ("torch:sqrt", "rms_norm", "is no path such as torch:package.module.function"),
    ("torch:my-kernels.norm", "rms_norm", "is no path such as"),
    ("torch:no_such_package.norm", "rms_norm", "is it installed in this environment"),
])  # fmt: skip
def test_invalid_targets(
    target: str, operation: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(NotThereError, match=message):
        load(target, operation)


@pytest.mark.parametrize(("options", "message"), [
    ({"operation": "rms_norm", "form": "in place"}, "out, inplace, module; got 'in place'"),
    ({"operation": "rms"}, "operation must be one of layer_norm"),
])  # fmt: skip
def test_invalid_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tv.torch_subject(print, **options)  # type: ignore[arg-type]


def test_a_file_whose_name_begins_with_torch() -> None:
    assert dotted_path("torch.py:a") == dotted_path("folder/torch:a") == ""
