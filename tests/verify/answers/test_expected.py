"""The answers of the judge, against ball arithmetic and rationals that share nothing with it."""

from dataclasses import replace

import numpy as np
import pytest

from promise.oracle import correct_backward, correct_forward
from truenorm.verify.operation import Case
from truenorm.verify.operations import OUTPUTS, layer_norm_case
from truenorm.verify.oracle import expected
from truenorm.verify.suite import cases
from truenorm.verify.types import FORMATS, Array
from verify.answers.rounded_once import assert_rounded_once

SMALL = 600  # elements of x: beyond, ball arithmetic takes its time


def _small_cases() -> list[Case]:
    also = ("no-gamma", "no-beta", "zero-eps", "tiny-eps", "float32-parameters")
    return [each for kind in FORMATS for each in cases(kind, "quick", also) if each.x.size < SMALL]


def _right(case: Case) -> dict[str, Array | None]:
    y = correct_forward(case.x, case.gamma, case.beta, case.eps)
    gradients = correct_backward(case.dy, case.x, case.gamma, case.beta, case.eps)
    return dict(zip(OUTPUTS, (y, *gradients), strict=True))


@pytest.mark.parametrize("case", _small_cases(), ids=str)
def test_every_answer_is_rounded_correctly(case: Case) -> None:
    assert_rounded_once(expected(case), _right(case))


def _case(x: list[list[float]]) -> Case:
    rows = np.array(x, np.float32)
    size = rows.shape[1]
    ones = np.ones(size, np.float32)
    return layer_norm_case("made here", (rows, ones, 0 * ones, np.ones_like(rows)), 8.0)


def test_what_the_rounding_left_over_is_exact() -> None:
    # xhat = 1/3, gamma = 3 and beta = 2^-24: the tie of docs/error-analysis.md
    gamma, beta = np.full(2, 3, np.float32), np.full(2, 2.0**-24, np.float32)
    found = expected(_case([[1, -1]]).with_inputs(gamma=gamma, beta=beta))
    assert found.wide["y"][0, 0] == 1.0
    assert found.remainders["y"][0, 0] == 0.5
    # 1/3 = 0x1.555554p-2 and 2/3 of an ulp below the next number
    found = expected(_case([[1, -1]]))
    assert found.wide["y"][0, 0] + found.remainders["y"][0, 0] * 2.0**-25 == pytest.approx(
        1 / 3, 1e-15
    )


def test_float64_does_not_decide_what_it_cannot_see() -> None:
    """Beside a tie by less than float64 has: rounded twice, both would be even."""
    tiny = _case([[1, -1]]).with_inputs(gamma=np.full(2, 2.0**-100))
    found = expected(tiny.with_inputs(beta=np.full(2, 1 + 2.0**-24)))
    assert found.wide["y"].tolist() == [[1 + 2.0**-23, 1.0]]
    found = expected(tiny.with_inputs(beta=np.ones(2)))
    assert found.remainders["y"][0, 0] > 0 > found.remainders["y"][0, 1]


def test_repeated_rows_are_the_rows_repeated() -> None:
    base = cases("float32")[3]
    many = base.tiled(5)
    once, plain = expected(many), expected(replace(many, repeats=1))
    for output in OUTPUTS:
        assert (once.wide[output] == plain.wide[output]).all()
        assert (once.remainders[output] == plain.remainders[output]).all()
        assert once.allowed(output) == pytest.approx(plain.allowed(output), 1e-12)


def test_no_rows_give_zeros() -> None:
    found = expected(_case([[1, 2, 3]]).part(slice(0, 0)))
    assert found.wide["y"].shape == (0, 3)
    assert (found.wide["dgamma"] == 0).all()
    assert (found.allowed("dbeta") > 0).all()


def test_an_answer_is_computed_once() -> None:
    case = cases("float32")[0]
    assert expected(case) is expected(cases("float32")[0])
