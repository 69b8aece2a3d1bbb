"""Each named row has its symptom: these algorithms fail on it, the others do not."""

from fractions import Fraction

import numpy as np
import pytest

from exact_row import ExactRow, Vector, exact_dgamma, exact_dx, exact_y, fractions
from truenorm.demo.algorithms import contestants
from truenorm.demo.demonstration import TRIGGERS, Trigger, tried
from truenorm.verify.operation import Case

ONE_PASS = {"one-pass"}
ONE_NUMBER = {*ONE_PASS, "Welford", "two-pass (textbook)", "corrected two-pass"}
ROUNDED = {*ONE_NUMBER, "rounded exact mean"}
IN_THE_TYPE = {*ROUNDED, "pair mean"}
ALL_BUT_OURS = {*IN_THE_TYPE, "textbook in float64 then cast"}

FAIL = {
    ("one-pass cancellation", "float32"): ONE_PASS,
    ("negative variance", "float32"): ONE_PASS,
    ("rounded mean", "float32"): ROUNDED,
    ("variance of a rounded mean", "float32"): {"one-pass", "Welford", "two-pass (textbook)"},
    ("saved mean", "float32"): ROUNDED,
    ("one ulp off", "float32"): ROUNDED,
    ("constant 1234", "float32"): ONE_PASS,
    ("constant 12345.67", "float32"): {"one-pass", "two-pass (textbook)", "corrected two-pass"},
    ("squares overflow", "float32"): IN_THE_TYPE,
    ("squares vanish", "float32"): IN_THE_TYPE,
    ("subnormal", "float32"): IN_THE_TYPE,
    ("alternating", "float32"): {*ONE_NUMBER, "pair mean"},
    ("two elements", "float32"): IN_THE_TYPE,
    ("gradient of y.sum()", "float32"): ALL_BUT_OURS - {"pair mean"},
    ("eps vanishes", "float16"): IN_THE_TYPE,
    # The variance is 60000, which float16 has; only its squares are beyond.
    ("squares overflow", "float16"): IN_THE_TYPE - {"rounded exact mean"},
    ("long sum", "float16"): IN_THE_TYPE,
    ("one-pass cancellation", "float64"): ONE_PASS,
    ("rounded mean", "float64"): ROUNDED,
    ("squares overflow", "float64"): IN_THE_TYPE,
    ("alternating", "float64"): {*ONE_NUMBER, "pair mean"},
    ("two elements", "float64"): IN_THE_TYPE,
}
TOLERANCE = {"float16": 2.0**-9, "float32": 2.0**-20, "float64": 2.0**-48}
"""Eight u: a handful of roundings in rows of five numbers at most, or a constant one."""


def exact(case: Case, output: str) -> Vector:
    """Return the answer as fractions."""
    gamma, beta = case.gamma, case.beta
    assert gamma is not None
    assert beta is not None
    if output == "variance":
        return [ExactRow.of(fractions(row), Fraction(0)).w for row in case.x]
    if output == "y":
        return exact_y(case.x, gamma, beta, case.eps)[0]
    if output == "dx":
        return exact_dx(case.x, gamma, case.dy, case.eps)[0]
    if output == "dgamma":
        return exact_dgamma(case.x, case.dy, case.eps)
    return [sum(fractions(column), Fraction(0)) for column in case.dy.T]


@pytest.mark.parametrize("trigger", TRIGGERS, ids=lambda each: f"{each.dtype}-{each.name}")
def test_who_fails(trigger: Trigger) -> None:
    row = tried(trigger)
    answer = exact(trigger.case(), trigger.output)[: len(row.exact)]
    expected = np.array([float(value) for value in answer])
    with np.errstate(under="ignore"):
        rounded = expected.astype(trigger.dtype).astype(float)
    assert row.exact == rounded.tolist()

    tolerance = np.abs(expected) * TOLERANCE[trigger.dtype] + np.abs(rounded - expected)
    failing = {
        name
        for name, values in row.returned.items()
        if not (np.abs(np.array(values) - expected) <= tolerance).all()
    }
    assert failing == FAIL[trigger.name, trigger.dtype]
    named = set(contestants(trigger.dtype)) - set(row.returned)
    assert named == ({"truenorm"} if trigger.output == "variance" else set())
    assert row.returned.get("truenorm", row.exact) == row.exact


def test_what_is_not_shown_is_the_same() -> None:
    """Of a long row only the first elements are kept, so it must be constant."""
    for trigger in TRIGGERS:
        shown = len(tried(trigger).exact)
        assert len(trigger.x) <= shown or trigger.output == "variance" or len(set(trigger.x)) == 1
