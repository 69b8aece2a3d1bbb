"""PyTorch's own kernels of operations that formulas define."""

from typing import Any

import pytest

import truenorm.verify as tv
from truenorm.verify.running.functions import function_subject
from truenorm.verify.subject import Subject

pytest.importorskip("torch")

PLACES = ("normal-4x17", "normal-2x1024", "large-values-4x67", "one-large-4x67", "special-0-6x67")
FUNCTIONS = ("softmax", "log_softmax", "gelu", "cross_entropy")


def subject_of(name: str) -> Subject:
    return tv.load(f"torch:torch.nn.functional.{name}", operation=name)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_of_pytorch_pass(name: str, dtype: str) -> None:
    subject = subject_of(name)
    assert subject.backward is not None
    for place in PLACES:
        tv.check(subject, tv.case(f"{dtype}-{place}", operation=subject.operation))


def test_a_wrong_kernel_on_tensors_fails() -> None:
    def softmax(x: Any) -> Any:
        return x.exp() / x.exp().sum(dim=-1, keepdim=True)

    subject = function_subject(softmax, "softmax", "softmax")
    assert subject.name == "softmax on PyTorch tensors"
    tv.check(subject, tv.case("float32-normal-4x17", operation=subject.operation))
    with pytest.raises(AssertionError, match="nan"):
        tv.check(subject, tv.case("float32-large-values-4x67", operation=subject.operation))
