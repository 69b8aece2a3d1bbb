"""Layer norm of rows around 1e8 with a spread of 1e-3.

The textbook's mean is a float64 near 1e8, and those lie 1.5e-8 apart: xhat is off by 1e-5. What is
computed from that forward in float64 can neither clear nor convict a backward.
"""

from typing import Any

import numpy as np
import pytest

import truenorm as tn
from gradient_check.checking import FAIL, INCONCLUSIVE, PASS, demand, forbid
from gradient_check.pairs import EPS, PAIRS, Array, data, layer_norm

backward = PAIRS["layer norm"].backward


def recentred(x: Array, gamma: Array, beta: Array) -> Any:
    """Subtract the mean of what is left, too: its rounding is that of a small number."""
    c = x - x.mean(axis=-1, keepdims=True)
    c = c - c.mean(axis=-1, keepdims=True)
    return gamma * c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + EPS) + beta


def rows(shape: tuple[int, ...], seed: int = 0) -> list[Array]:
    x, gamma, beta = data(shape, shape[-1:], shape[-1:], seed=seed)
    return [1e8 + 1e-3 * x, gamma, beta]


SHAPES = [(1, 16), (2, 16), (1, 1024)]
DRAWN = [((1, 16), 0), ((1, 16), 1), ((2, 16), 2), ((1, 1024), 0), ((1, 1024), 1)]
OFTEN = [
    # The gate has each method once of each width.
    pytest.param(method, *each, marks=pytest.mark.slow if each[1] else ())
    for method in ("complex", "central")
    for each in DRAWN
]


@pytest.mark.parametrize(("method", "shape", "seed"), OFTEN)
def test_float64_does_not_judge(shape: tuple[int, ...], seed: int, method: str) -> None:
    result = demand(INCONCLUSIVE, layer_norm, backward, rows(shape, seed), method=method)
    assert result.floor > result.tol
    assert "The floor is above the tolerance" in str(result)


@pytest.mark.slow
def test_one_hard_row_among_easy_ones() -> None:
    """No step suits both, and far from a row the function is flat: no derivative of zero."""
    inputs = rows((2, 16))
    inputs[0][0] = data((16,), seed=2)[0]
    demand(INCONCLUSIVE, layer_norm, backward, inputs, method="central")


@pytest.mark.parametrize(("shape", "seed"), DRAWN)
def test_a_forward_that_keeps_its_digits_judges(shape: tuple[int, ...], seed: int) -> None:
    result = demand(PASS, recentred, backward, rows(shape, seed), method="complex")
    assert result.error <= 1e-14


@pytest.mark.parametrize("shape", SHAPES)
def test_jets_judge_the_textbook(shape: tuple[int, ...]) -> None:
    pytest.importorskip("flint")
    result = demand(PASS, layer_norm, backward, rows(shape), method="jet")
    assert result.error <= 1e-14
    assert result.floor <= 1e-16


def test_jets_convict_the_textbook_backward() -> None:
    """Its xhat is off by half a unit in the last place of the mean over sigma, 1e-5."""
    pytest.importorskip("flint")

    def textbook(dy: Array, x: Array, gamma: Array, beta: Array) -> tuple[Array, ...]:
        return tn.textbook.backward(dy, tn.textbook.forward(x, gamma, beta)[1])

    pair = (layer_norm, textbook, rows((4, 17)))
    result = demand(FAIL, *pair, method="jet", tol=1e-12)
    assert 1e-9 < result.error < 16 * np.spacing(1e8) / 1e-3
    # By default, what rounding accounts for is no error.
    forbid(FAIL, *pair, method="jet")


@pytest.mark.parametrize("shape", [(1, 16), pytest.param((1, 1024), marks=pytest.mark.slow)])
@pytest.mark.parametrize("forward", [layer_norm, recentred])
def test_on_easy_rows_all_agree(shape: tuple[int, ...], forward: Any, method: str) -> None:
    demand(PASS, forward, backward, data(shape, shape[-1:], shape[-1:]), method=method)
