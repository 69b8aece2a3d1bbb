"""Enclosures of derivatives: narrow enough, and only where they are derivatives."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from gradient_check import checking
from gradient_check.checking import FAIL, PASS
from gradient_check.pairs import Array, data

flint = pytest.importorskip("flint")
demand = partial(checking.demand, method="jet")
forbid = partial(checking.forbid, method="jet")


def cancelling(x: Array) -> Array:
    """(x/3)**2 on a detour that costs 100 bits."""
    return ((x / 3 + 2.0**100) - 2.0**100) ** 2


def square_backward(dy: Array, x: Array) -> Array:
    return 2 * dy * x / 9


def test_more_bits_are_taken_where_128_are_not_enough() -> None:
    assert demand(PASS, cancelling, square_backward, data((3,))).floor <= 2.0**-60


def test_the_precision_of_the_caller_is_left_alone() -> None:
    def failing(x: Array) -> Array:
        if flint.ctx.prec > 128:
            raise ArithmeticError
        return cancelling(x)

    with flint.ctx.workprec(77):
        with pytest.raises(ArithmeticError):
            tn.gradcheck(failing, square_backward, data((3,)), method="jet")
        assert flint.ctx.prec == 77


def test_a_kink_is_refused() -> None:
    """At 0 the slope of relu is anything from 0 to 1."""
    x = np.array([-1.0, 0.0, 2.0])
    with pytest.raises(ValueError, match=r"not jet, since a comparison .*the derivative may jump"):
        tn.gradcheck(lambda x: np.maximum(x, 0), lambda dy, x: dy * (x > 0), x, method="jet")


def test_a_sum_that_cancels_to_zero() -> None:
    """sin**2 + cos**2: the enclosure of a slope of zero is never narrow beside its own size."""

    def forward(x: Array) -> Any:
        return np.sin(x) ** 2 + np.cos(x) ** 2

    forbid(FAIL, forward, lambda dy, _: 0 * dy, data((2,)))
    demand(FAIL, forward, lambda dy, _: dy, data((2,)))


def test_a_constant_output() -> None:
    """What forward returns as plain numbers does not move."""
    demand(PASS, lambda x: (2 * x, np.ones(3)), lambda dys, _: 2 * dys[0], data((4,)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_inputs_are_taken_without_an_error(dtype: Any) -> None:
    def backward(dy: Array, x: Array) -> Array:
        return 2 * dy.astype(np.float64) * x.astype(np.float64)

    demand(PASS, lambda x: x * x, backward, np.array([0.1, 0.3], dtype), tol=1e-15)
