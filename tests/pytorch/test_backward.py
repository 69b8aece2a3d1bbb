"""Gradients: by autograd where it knows the results, or by a function; else none are claimed."""

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import truenorm.verify as tv
from pytorch import kernels
from pytorch.kernels import Tensor


def of_rms_norm(function: Any, **options: Any) -> tv.Subject:
    return tv.torch_subject(function, operation=tv.RMS_NORM, dtypes=["float32"], **options)


CASE = tv.case("float32-normal-4x17", operation=tv.RMS_NORM)


def test_explicit() -> None:
    subject = of_rms_norm(kernels.saving_rms_norm, backward=kernels.rms_norm_backward)
    assert subject.outputs == ("y", "dx", "dgamma")
    tv.check(subject, CASE)
    report = tv.verify(subject)
    assert {each.output for each in report.findings} <= {"dx"}  # where it cancels down to eps
    assert report.verdicts["saved kept"] == report.verdicts["own state"] == "pass"


def test_explicit_of_what_is_written_in_place() -> None:
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


def test_a_wrong_explicit_one_is_found() -> None:
    def doubled(*given: Any) -> tuple[Tensor, Tensor]:
        dx, dgamma = kernels.rms_norm_backward(*given)
        return 2 * dx, dgamma

    subject = of_rms_norm(kernels.saving_rms_norm, backward=doubled)
    with pytest.raises(AssertionError, match=r"dx\["):
        tv.check(subject, CASE)


def test_what_autograd_does_not_know_has_no_gradients() -> None:
    def detached(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return kernels.rms_norm(x.detach(), weight.detach(), eps)

    assert of_rms_norm(detached).backward is None
    assert of_rms_norm(kernels.rms_norm).backward is not None
    assert of_rms_norm(kernels.rms_norm, backward=False).backward is None


def test_what_takes_no_tensors_with_gradients() -> None:
    def through_numpy(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return kernels.rms_norm(torch.from_numpy(x.numpy()), weight, eps)

    subject = of_rms_norm(through_numpy)
    assert subject.backward is None
    tv.check(subject, CASE)


def test_a_weight_that_autograd_does_not_reach() -> None:
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
