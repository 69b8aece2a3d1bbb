"""Derivatives from the forward pass alone: central differences, one element at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["central_difference", "step_for"]

FloatArray = NDArray[np.floating[Any]]


def step_for(values: FloatArray) -> float:
    """Return the step for the elements of one input: u**(1/5) times their spread.

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
    cancels their errors of second order. The step is rounded to a power of two of at least
    8 ulp, so that value + h and value - h are floating-point numbers and lie symmetrically.
    """
    nudged = list(inputs)
    nudged[which] = inputs[which].copy()
    value = inputs[which][index]
    power_of_two = 2.0 ** round(float(np.log2(step)))
    h = max(power_of_two, 8 * float(np.spacing(np.abs(value))))

    def slope(h: float) -> float:
        nudged[which][index] = value + h
        above = forward(*nudged).astype(np.float64)
        nudged[which][index] = value - h
        below = forward(*nudged).astype(np.float64)
        # Subtracted before they are summed: outputs that did not move cancel exactly.
        return float(np.sum(dy * (above - below)) / (2 * h))

    return (4 * slope(h) - slope(2 * h)) / 3
