"""Every hypothesis is named for a kernel that is just that, and none for another one."""

from collections.abc import Callable

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.diagnosis.diagnosis import Cause, cause_of
from truenorm.verify.diagnosis.evidence import Came, where
from truenorm.verify.grading.errors import UNEXPLAINED, measure
from truenorm.verify.operation import Case, Operation
from truenorm.verify.oracle import expected
from truenorm.verify.types import Float64s, dtype_of, unit_roundoff

SMALL = 2**12
Made = Callable[[Case], Float64s]


def ordinary(operation: Operation, dtype: str) -> list[Case]:
    every = tv.cases(dtype, operation=operation)
    return [case for case in every if case.kind == "ordinary" and case.x.size <= SMALL]


def came_of(operation: Operation, dtype: str, output: str, made: Made) -> list[Came]:
    """Return what comes back from a kernel that is a rounding of float32 off in each element."""
    random = np.random.default_rng(17)
    unit = min(2.0**-24, unit_roundoff(dtype))
    found = []
    for case in ordinary(operation, dtype):
        exact = expected(case)
        with np.errstate(all="ignore"):
            noise = 1 + unit * random.uniform(-1, 1, exact.wide[output].shape)
            result = (made(case) * noise).astype(dtype_of(exact.types[output]))
        right = measure(exact, output, result).needs < UNEXPLAINED
        found.append(Came(case, output, result, right))
    return found


def named(operation: Operation, dtype: str, output: str, made: Made) -> Cause:
    hypotheses = operation.hypotheses(output)
    return cause_of(came_of(operation, dtype, output, made), hypotheses, partly=True)


ADD_RMS_NORM = tv.norm("add_rms_norm")
PLACES = [
    *((tv.LAYER_NORM, "float32", output) for output in ("y", "dx", "dgamma", "dbeta")),
    *((ADD_RMS_NORM, "bfloat16", output) for output in ("y", "sum", "dx", "dgamma")),
    (tv.norm("rms_norm", gain="zero-centred"), "float16", "y"),
]
GATED = [(tv.LAYER_NORM, "float32", "dx"), (ADD_RMS_NORM, "bfloat16", "sum")]
"""The others are for the slow session, and of these two of three hypotheses."""


@pytest.mark.parametrize(
    ("operation", "dtype", "output", "words"),
    [
        pytest.param(
            *place,
            words,
            id=f"{place[0].name}-{place[1]}-{place[2]}-{words}",
            marks=() if place in GATED and k % 3 == 0 else pytest.mark.slow,
        )
        for place in PLACES
        for k, words in enumerate(place[0].hypotheses(place[2]))
    ],
)
def test_a_hypothesis_is_named_for_a_kernel_that_is_just_that(
    operation: Operation, dtype: str, output: str, words: str
) -> None:
    """Unless fewer than two of these cases show it."""
    hypotheses = operation.hypotheses(output)
    came = came_of(operation, dtype, output, hypotheses[words])
    cause = cause_of(came, hypotheses, partly=False)
    if not cause.words:
        assert sum(not one.right for one in came) < 2, "it should have been named"
        return
    same = {
        other
        for other, each in hypotheses.items()
        if all(_equal(each(one.case), hypotheses[words](one.case)) for one in came)
    }
    assert words in same
    last_words = {each.removeprefix("eps is ") for each in same}
    assert any(each in cause.words for each in last_words), cause


def _equal(one: Float64s, other: Float64s) -> bool:
    """Tell whether two hypotheses are one, written otherwise."""
    return bool(np.isclose(one, other, rtol=1e-12, atol=0.0, equal_nan=True).all())


def reversed_rows(case: Case) -> Float64s:
    return expected(case).wide["y"][:, ::-1]


def two_percent(case: Case) -> Float64s:
    return 1.02 * expected(case).wide["y"]


def one_more(case: Case) -> Float64s:
    return expected(case).wide["y"] + 1


def noisy(case: Case) -> Float64s:
    y = expected(case).wide["y"]
    return y * (1 + 0.05 * np.random.default_rng(3).standard_normal(y.shape))


@pytest.mark.parametrize("made", [reversed_rows, one_more, noisy])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("operation", [tv.LAYER_NORM, tv.RMS_NORM])
def test_nothing_is_named_that_is_no_hypothesis(
    operation: Operation, dtype: str, made: Made
) -> None:
    cause = named(operation, dtype, "y", made)
    assert not cause.words
    assert cause.tried == len(operation.hypotheses("y"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("operation", [tv.LAYER_NORM, tv.RMS_NORM])
def test_a_factor_is_named(operation: Operation, dtype: str) -> None:
    words = named(operation, dtype, "y", two_percent).words
    assert words.endswith("what comes out if it is multiplied by 1.02")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("output", ["y", "dx", "dgamma", "dbeta"])
def test_what_is_right_has_no_cause(dtype: str, output: str) -> None:
    assert not named(tv.LAYER_NORM, dtype, output, lambda case: expected(case).wide[output]).words


def test_what_is_wrong_at_some_widths_is_said_so() -> None:
    beta = tv.LAYER_NORM.hypotheses("y")["beta is left out"]

    def made(case: Case) -> Float64s:
        return beta(case) if case.shape[1] in (12, 17) else expected(case).wide["y"]

    assert named(tv.LAYER_NORM, "float32", "y", made).words == (
        "where D is 12 or 17, y is, to 2 ulp, what comes out if beta is left out; "
        "elsewhere it is right"
    )


def test_sizes_in_words() -> None:
    by_size = {case.shape[1]: case for case in tv.cases("float32") if case.family == "normal"}

    def said(*wrong: int) -> str:
        others = [case for size, case in by_size.items() if size not in wrong]
        return where([by_size[size] for size in wrong], others)

    assert said(12) == "where D is 12"
    assert said(1024, 1025, 3072, 4096, *(size for size in by_size if 1025 < size < 3072)) == (
        "where D is from 1024 to 4096"
    )
    assert said(*(size for size in by_size if size >= 3072)) == "where D is 3072 or more"
    assert said(*(size for size in by_size if size % 64 == 0)) == "where D is a multiple of 64"
    assert not where([by_size[12]], [by_size[12]])
