"""Recipes of formulas: the bits of a softmax show which of its steps is rounded to 16 bits."""

from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from full.verify.formulas.test_more_formulas import logsumexp
from shared.verify.formulas import along, report_of
from truenorm.verify.types import Array

PLACES = ("normal-4x17", "normal-4x67", "normal-4x128")


class Softmax:
    """A softmax of rows of a type of 16 bits in float32, with some steps rounded to the type."""

    def __init__(self, *rounded: str) -> None:
        self.rounded = rounded

    def __call__(self, x: Any) -> Array:
        wide = x.astype(np.float32)
        e = self.step("e", np.exp(wide - wide.max(axis=-1, keepdims=True)), x.dtype)
        y: Array = e / self.step("s", along(e), x.dtype)
        return y.astype(x.dtype)

    def step(self, name: str, values: Array, kind: Any) -> Array:
        return values.astype(kind).astype(np.float32) if name in self.rounded else values


def judged(kernel: Softmax, dtype: str, recipe: str = "") -> Any:
    subject = tv.Subject(kernel, operation="softmax", dtypes=[dtype], recipe=recipe)
    suite = [tv.case(f"{dtype}-{place}", operation=subject.operation) for place in PLACES]
    return report_of(subject, suite)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("rounded", "recipe"), [((), "late"), (("e",), "e"), (("s",), "s"), (("e", "s"), "stepwise")]
)
def test_bits_show_which_step_is_rounded(
    rounded: tuple[str, ...], recipe: str, dtype: str
) -> None:
    assert judged(Softmax(*rounded), dtype).recipes[0].name == recipe


def test_float32_shows_no_recipe() -> None:
    assert not judged(Softmax(), "float32").recipes


def test_a_recipe_of_one_number_for_each_row() -> None:
    def kernel(x: Any) -> Array:
        wide = x.astype(np.float32)
        top = wide.max(axis=-1, keepdims=True)
        y: Array = top + np.log(along(np.exp(wide - top)))
        return y[:, 0].astype(x.dtype)

    operation = tv.formula(logsumexp)
    subject = tv.Subject(kernel, operation=operation, dtypes=["bfloat16"])
    suite = [tv.case("bfloat16-normal-4x67", operation=operation)]
    assert report_of(subject, suite).recipes[0].name == "late"


def test_a_recipe_that_is_claimed_is_required() -> None:
    assert judged(Softmax("e"), "bfloat16", recipe="e").passed
    other = judged(Softmax(), "bfloat16", recipe="e")
    assert [each.guard for each in other.findings] == ["recipe"]
    with pytest.raises(ValueError, match="recipe must be one of late, top, e, s, stepwise; got"):
        tv.Subject(Softmax(), operation="softmax", recipe="x")
