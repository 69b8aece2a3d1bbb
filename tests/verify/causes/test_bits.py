"""Bits that are of no recipe are of a hypothesis, or of none."""

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.diagnosis.values import of_bits, of_recipe
from truenorm.verify.operation import Case
from truenorm.verify.types import Array, Float64s, dtype_of

CASES = [case for case in tv.cases("bfloat16") if tv.LAYER_NORM.recipes(case)]


def rounded(numbers: Float64s) -> Array:
    result: Array = numbers.astype(dtype_of("bfloat16"))
    return result


@pytest.mark.parametrize("words", ["beta is left out", "y is truncated, not rounded"])
def test_the_hypothesis_is_named(words: str) -> None:
    hypothesis = tv.LAYER_NORM.hypotheses("y")[words]
    came = [(case, rounded(hypothesis(case))) for case in CASES]
    assert of_bits(came, "y", "late") == f"y has the bits of what comes out if {words}"


def test_few_other_bits_are_too_many() -> None:
    hypothesis = tv.LAYER_NORM.hypotheses("y")["beta is left out"]

    def mostly(case: Case) -> Array:
        y = hypothesis(case)
        return rounded(np.where(np.arange(y.size).reshape(y.shape) % 50, y, 2 * y))

    assert not of_bits([(case, mostly(case)) for case in CASES], "y", "late")


def test_a_parameter_that_is_narrowed() -> None:
    operation = tv.norm("rms_norm", parameters="float32")
    cases = [case for case in tv.cases("bfloat16", operation=operation) if operation.recipes(case)]
    came = []
    for case in cases:
        narrow = case.gamma.astype(dtype_of("bfloat16")).astype(np.float32)
        bits = operation.recipes(case.with_inputs(gamma=narrow))["early"]
        came.append((case, rounded(bits.values)))
    said = of_bits(came, "y", "early")
    assert "gamma is rounded to the type of x first, and the rest as early asks" in said


def test_a_recipe_in_words() -> None:
    says = tv.LAYER_NORM.recipe_names
    assert of_recipe(says, "y", "late, of the unrounded sum") == (
        "y has the bits of late, [xhat*gain + beta]_V: one rounding, at the end, "
        "of the unrounded sum"
    )
    assert of_recipe({}, "y", "late") == "y has the bits of late"
