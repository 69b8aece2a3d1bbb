"""How a gradient compares with derivatives of forward, element by element or all at once."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.directions import along_element, projection
from truenorm.gradient_check.method import Estimate, Method
from truenorm.gradient_check.problem import Array
from truenorm.gradient_check.result import InputCheck
from truenorm.tools.progress import with_progress

__all__ = ["compare", "compare_elements", "compare_projections"]


class _Compared(NamedTuple):
    """Error, floor and excess of one number, relative to its scale: see `InputCheck`."""

    error: float
    floor: float
    excess: float


def compare_elements(asked: InputCheck, method: Method, which: int, gradient: Array) -> InputCheck:
    """Check every element of a gradient by itself."""
    indices = list(np.ndindex(gradient.shape))
    progress = with_progress(indices, len(indices), f"gradient of {asked.name}")
    found = [method.derivative(along_element(which, gradient.shape, index)) for index in progress]
    analytic = [float(gradient[index]) for index in indices]
    largest = max(estimate.scale for estimate in found)
    scales = [max(estimate.scale, method.least_scale * largest) for estimate in found]
    worst, check = compare(asked, analytic, found, scales)
    return replace(check, checked=len(indices), worst=indices[worst])


def compare_projections(
    asked: InputCheck,
    method: Method,
    which: int,
    gradient: Array,
    probes: int,
    random: np.random.Generator,
) -> InputCheck:
    """Check sums of all elements with random weights."""
    bits = method.weight_bits(which)
    directions = [projection(which, gradient.shape, bits, random) for _ in range(probes)]
    wide: NDArray[np.float64] = gradient.astype(np.float64)
    progress = with_progress(directions, probes, f"gradient of {asked.name}")
    found = [method.derivative(direction) for direction in progress]
    finite = bool(np.isfinite(wide).all())
    analytic = [
        math.fsum((wide * direction.step).flat) if finite else math.nan for direction in directions
    ]
    length = float(np.linalg.norm(wide))
    # A gradient of zero has no length; then the derivative has a scale.
    scales = [length or estimate.scale for estimate in found]
    return compare(asked, analytic, found, scales)[1]


def compare(
    asked: InputCheck,
    analytic: Sequence[float],
    found: Sequence[Estimate],
    scales: Sequence[float],
) -> tuple[int, InputCheck]:
    """Return which number is worst, and the largest error, floor and excess of all."""
    each = [_compared(*numbers) for numbers in zip(analytic, found, scales, strict=True)]

    def badness(k: int) -> tuple[bool, float, float]:
        """Put first what is not a number, then what fails, then the largest error."""
        error, _, excess = each[k]
        return math.isnan(error), excess if excess > asked.tol else 0.0, error

    worst = max(range(len(each)), key=badness)
    vaguest = max(range(len(each)), key=lambda k: each[k].floor)
    return worst, replace(
        asked,
        error=each[worst].error,
        floor=each[vaguest].floor,
        excess=each[worst].excess,
        analytic=analytic[worst],
        numeric=found[worst].value,
        why=found[worst].why or found[vaguest].why,
    )


def _compared(given: float, estimate: Estimate, scale: float) -> _Compared:
    if not math.isfinite(given):
        return _Compared(math.nan, estimate.floor, math.nan)
    if not (math.isfinite(estimate.value) and math.isfinite(estimate.floor)):
        return _Compared(math.inf, math.inf, 0.0)
    difference = abs(given - estimate.value)
    floor = _relative(estimate.floor, scale)
    excess = 0.0
    # A floor as large as what moves sees nothing; where nothing moves, it is all that is known.
    if estimate.floor < max(scale, estimate.scale) or not estimate.scale:
        excess = _relative(max(0.0, difference - estimate.floor - estimate.leeway), scale)
    return _Compared(_relative(difference, scale), floor, excess)


def _relative(difference: float, scale: float) -> float:
    if not difference:
        return 0.0
    return difference / scale if scale else math.inf
