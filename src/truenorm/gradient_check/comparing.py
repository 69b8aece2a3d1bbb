"""How a gradient compares with derivatives of forward, element by element or all at once."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.directions import Direction, along_element, projection
from truenorm.gradient_check.methods.method import Estimate, Method
from truenorm.gradient_check.problem import Array
from truenorm.gradient_check.result import InputCheck
from truenorm.tools.progress import with_progress

__all__ = ["compare", "compare_elements", "compare_projections", "worst_of"]


def compare_elements(asked: InputCheck, method: Method, which: int, gradient: Array) -> InputCheck:
    """Check every element of a gradient by itself."""
    indices = list(np.ndindex(gradient.shape))
    directions = [along_element(which, gradient.shape, index) for index in indices]
    found = _derivatives(asked, method, directions)
    largest = max(estimate.scale for estimate in found)
    checks = []
    for index, estimate in zip(indices, found, strict=True):
        scale = max(estimate.scale, method.least_scale * largest)
        element = replace(asked, checked=len(indices), worst=index)
        checks.append(compare(element, float(gradient[index]), estimate, scale))
    return worst_of(checks)


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
    finite = bool(np.isfinite(wide).all())
    length = float(np.linalg.norm(wide))
    checks = []
    for direction, estimate in zip(
        directions, _derivatives(asked, method, directions), strict=True
    ):
        given = math.fsum((wide * direction.step).flat) if finite else math.nan
        # A gradient of zero has no length; then the derivative has a scale.
        checks.append(compare(asked, given, estimate, length or estimate.scale))
    return worst_of(checks)


def _derivatives(
    asked: InputCheck, method: Method, directions: Sequence[Direction]
) -> list[Estimate]:
    progress = with_progress(directions, len(directions), f"gradient of {asked.name}")
    return [method.derivative(direction) for direction in progress]


def compare(asked: InputCheck, given: float, estimate: Estimate, scale: float) -> InputCheck:
    """Compare one number of backward with its derivative, relative to a scale."""
    error, floor, excess = math.inf, math.inf, 0.0
    if not math.isfinite(given):
        error, floor, excess = math.nan, estimate.floor, math.nan
    elif math.isfinite(estimate.value) and math.isfinite(estimate.floor):
        difference = abs(given - estimate.value)
        error, floor = _relative(difference, scale), _relative(estimate.floor, scale)
        # A floor as large as what moves sees nothing; where nothing moves, it is all there is.
        if estimate.floor < max(scale, estimate.scale) or not estimate.scale:
            excess = _relative(max(0.0, difference - estimate.floor - estimate.leeway), scale)
    return replace(
        asked,
        error=error,
        floor=floor,
        excess=excess,
        analytic=given,
        numeric=estimate.value,
        why=estimate.why,
    )


def worst_of(checks: Sequence[InputCheck]) -> InputCheck:
    """Return the worst of the numbers that were compared, with the largest floor of all."""

    def badness(check: InputCheck) -> tuple[bool, float, float]:
        """Put first what is not a number, then what fails, then the largest error."""
        failing = check.excess if check.excess > check.tol else 0.0
        return math.isnan(check.error), failing, check.error

    worst = max(checks, key=badness)
    vaguest = max(checks, key=lambda check: check.floor)
    return replace(worst, floor=vaguest.floor, why=worst.why or vaguest.why)


def _relative(difference: float, scale: float) -> float:
    if not difference:
        return 0.0
    return difference / scale if scale else math.inf
