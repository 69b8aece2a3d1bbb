"""Derivatives from the forward pass alone: central differences, one element at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["central_difference", "first_step"]

FloatArray = NDArray[np.floating[Any]]

ATTEMPTS = 6
SMALLER = 16.0
AGREEMENT = 1e-5


def first_step(values: FloatArray) -> float:
    """Return the step to try first for the elements of one input: u**(1/5) times their spread.

    The extrapolated difference below is off by about h**4 times the fifth derivative, plus
    u/h times the value. On data of spread s, the derivatives of a smooth function change over
    a distance of about s, so both are small near h = u**(1/5)*s. The size of the values does
    not enter: at x = 1e8 with a spread of 1e-3, a step scaled by |x| would leave the function.
    """
    exact = values.astype(np.float64)
    spread = float(np.abs(exact - exact.mean()).mean())
    scale = spread or float(np.abs(exact).max()) or 1.0
    unit_roundoff = float(np.finfo(values.dtype).eps) / 2
    return float(unit_roundoff**0.2 * scale)


def central_difference(
    forward: Callable[..., FloatArray],
    inputs: Sequence[FloatArray],
    which: int,
    index: tuple[int, ...],
    step: float,
    dy: FloatArray,
) -> float:
    """Estimate the derivative of sum(dy*forward(*inputs)) by one element of one input.

    Two central differences, with steps h and 2h, are extrapolated to h = 0 (Richardson), which
    cancels their errors of second order. Where the two disagree, the function bends within
    the step (a row of small spread among large ones), and smaller steps are tried; the pair
    that agrees best is kept.
    """
    value = inputs[which][index]
    # A power of two of some ulp: value + h and value - h then lie symmetrically, and are
    # rounded by less than u*h if they are rounded at all.
    smallest = 8 * float(np.spacing(np.abs(value)))
    h = max(2.0 ** round(float(np.log2(step))), smallest)

    def slope(h: float) -> float:
        # Subtracted before they are summed: outputs that did not move cancel exactly.
        moved = output_at(value + h) - output_at(value - h)
        return float(np.sum(dy * moved) / (2 * h))

    def output_at(nudged: Any) -> NDArray[np.float64]:
        arguments = [array.copy() for array in inputs]  # forward may write to them
        arguments[which][index] = nudged
        return forward(*arguments).astype(np.float64)

    least = np.inf
    estimate = np.nan
    for _ in range(ATTEMPTS):
        fine, coarse = slope(h), slope(2 * h)
        disagreement = abs(fine - coarse)
        if disagreement < least:
            least = disagreement
            estimate = (4 * fine - coarse) / 3
        if disagreement <= AGREEMENT * abs(fine) or h <= smallest:
            break
        h = max(h / SMALLER, smallest)
    return float(estimate)
