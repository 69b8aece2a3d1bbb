"""Compare one gradient with derivatives of forward, element by element or by projections."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.method import Estimate, Method
from truenorm.gradient_check.noise import Noise, NoiseEstimator, root_sum_square, spread_of
from truenorm.gradient_check.problem import (
    REPEATABILITY,
    Array,
    Direction,
    Problem,
    random_direction,
    unit_direction,
)
from truenorm.gradient_check.result import SEVERITY, InputCheck, Verdict
from truenorm.tools.progress import with_progress

MAX_RELAXED_TOLERANCE = 1e-6
"""Rounding errors of backward relax a default tolerance up to that of central differences."""
MAX_LOCATED = 96
"""Larger gradients are checked by random projections."""
HIDDEN_ULPS = 64.0
DISPLACEMENTS = (1.0, 2.0**-10, 2.0**-20)
"""Displacements of an input without a gradient, relative to its spread."""
GROUP_EXPONENTS = 16
MAX_GROUPS = 4
"""A projection sums elements within this many powers of two; there are so many groups at most."""
BACKWARD_NOT_DETERMINISTIC = (
    "backward is not deterministic: two calls with the same inputs return different gradients"
)


class GradientTask(NamedTuple):
    """One gradient to check; `relax` allows for rounding errors of backward."""

    problem: Problem
    method: Method
    input_index: int
    check: InputCheck
    relax: bool


def compare_elements(task: GradientTask, gradient: Array) -> InputCheck:
    """Check every element of a gradient."""
    indices = list(np.ndindex(gradient.shape))
    directions = [unit_direction(task.input_index, gradient.shape, index) for index in indices]
    comparison = _Comparison(task, gradient, directions)
    scales = [estimate.scale for estimate in comparison.estimates]
    checks = zip(comparison.checks(scales, max(scales)), indices, strict=True)
    located = [replace(check, worst=index) for check, index in checks]
    return replace(worst_of(located), checked=len(indices))


def compare_projections(
    task: GradientTask, gradient: Array, probes: int, random: np.random.Generator
) -> InputCheck:
    """Check sums of elements with random weights.

    Elements of very different magnitude are summed separately: next to the largest, the smallest
    could all be wrong. One sum of these is enough for gross errors.
    """
    bits = task.method.weight_bits(task.input_index)
    wide: NDArray[np.float64] = gradient.astype(np.float64)
    first, *smaller = _by_magnitude(wide)
    groups = [first] * probes + smaller
    drawn = [random_direction(task.input_index, gradient.shape, bits, random) for _ in groups]
    directions = [
        direction._replace(step=np.where(group, direction.step, 0.0))
        for group, direction in zip(groups, drawn, strict=True)
    ]
    small = np.abs(wide[first]).max(initial=0.0) * 2.0**-GROUP_EXPONENTS
    are_small = [bool((np.abs(wide[group]) < small).all()) for group in groups]
    comparison = _Comparison(task, gradient, directions, are_small)
    # A gradient of zero has the scale of the derivative.
    scales = [
        float(np.linalg.norm(wide[group])) or estimate.scale
        for group, estimate in zip(groups, comparison.estimates, strict=True)
    ]
    return worst_of(comparison.checks(scales, float(np.linalg.norm(wide))))


def compare_missing(task: GradientTask, probes: int, random: np.random.Generator) -> InputCheck:
    """Check that forward does not depend on an input for which backward returned None."""
    problem = task.problem
    value = problem.inputs[task.input_index]
    outputs = problem.outputs(problem.inputs)
    for displacement in DISPLACEMENTS * probes:
        step = displacement * spread_of(value) * random.standard_normal(value.shape)
        moved = list(problem.inputs)
        moved[task.input_index] = value + step.astype(value.dtype)
        try:
            same = all(map(np.array_equal, outputs, problem.outputs(moved)))
        except Exception:  # outside of the domain: forward depends on it
            same = False
        if not same:
            strict = task._replace(relax=False)
            return compare_projections(strict, np.zeros(value.shape), probes, random)
    return task.check


@dataclass(frozen=True)
class _Comparison:
    """Sums of elements of one gradient along directions, and derivatives along these.

    `are_small` marks sums of elements that are small compared with others: rounding errors of
    some of them may not vary nearby.
    """

    task: GradientTask
    gradient: Array
    directions: list[Direction]
    are_small: Sequence[bool] = (False,)

    @cached_property
    def estimates(self) -> list[Estimate]:
        """The derivative along each direction."""
        title = f"gradient of {self.task.check.name}"
        directions = with_progress(self.directions, len(self.directions), title)
        return [self.task.method.derivative(direction) for direction in directions]

    @cached_property
    def _numbers(self) -> list[float]:
        """The sums, rounded once; NaN if an element is not finite."""
        wide = self.gradient.astype(np.float64)
        terms = [_terms(wide, direction) for direction in self.directions]
        return [math.fsum(each) if np.isfinite(each).all() else math.nan for each in terms]

    def checks(self, scales: Sequence[float], largest: float) -> list[InputCheck]:
        """Compare each sum with the derivative, relative to its scale."""
        return [
            self._check(k, estimate, scales[k], largest)
            for k, estimate in enumerate(self.estimates)
        ]

    def _check(self, k: int, estimate: Estimate, own: float, largest: float) -> InputCheck:
        """Compare one number, relative to its own scale.

        Digits lost next to larger elements are no error, as in 1 - tanh(x)**2 at 8: the scale is
        raised by the measured loss, up to a share of the largest scale. If the derivative is known
        to be zero, the scale is at most the outputs over the spread.
        """
        tol, limit = self.task.check.tol, self.task.method.least_scale * largest

        def compare_with(rounding: float, hidden: float) -> InputCheck:
            lost = estimate.lost + rounding + hidden
            scale = max(own, min(2 * lost / tol, limit)) if math.isfinite(limit) else own
            if not scale and not estimate.floor:
                scale = min(2 * rounding / tol, self._over_spread(np.abs))
            widened = estimate._replace(leeway=estimate.leeway + hidden)
            return compare(self.task.check, self._numbers[k], widened, scale, rounding)

        check = compare_with(0.0, 0.0)
        if not self.task.relax or not check.error > tol:
            return check
        if self._rounding is None:
            return replace(check, why=BACKWARD_NOT_DETERMINISTIC)
        bound, may_hide = self._rounding
        ulp = self._over_spread(lambda y: np.spacing(np.abs(y)))
        return compare_with(float(bound[k]), HIDDEN_ULPS * ulp * float(may_hide[k]))

    def _over_spread(self, size: Callable[[Array], Array]) -> float:
        """Return a size of all outputs as a derivative: divided by the spread of the input."""
        problem = self.task.problem
        sizes = problem.times_dy(size(y).astype(np.float64) for y in self._outputs)
        spread = spread_of(problem.inputs[self.task.input_index])
        return root_sum_square([np.abs(each) for each in sizes]) / spread

    @cached_property
    def _outputs(self) -> list[Array]:
        return self.task.problem.outputs(self.task.problem.inputs)

    @cached_property
    def _rounding(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]] | None:
        """Bound the rounding errors of backward, from points next to the inputs.

        Also return where it does not vary nearby, as 1 - tanh(x)**2 at 20: there it may hide
        some last places of the outputs. Return None if backward is not deterministic.
        """
        problem = self.task.problem

        def numbers_at(inputs: Sequence[Array]) -> NDArray[np.float64]:
            try:
                gradient = problem.gradients_at(inputs)[self.task.input_index]
                wide = np.asarray(gradient, np.float64)
                return np.array([_terms(wide, each).sum() for each in self.directions])
            except Exception:  # outside of the domain
                return np.full(len(self.directions), np.nan)

        numbers = np.array(self._numbers)
        finite = np.isfinite(numbers)
        change = np.abs(numbers_at(problem.inputs) - numbers)[finite].max(initial=0.0)
        if not change <= REPEATABILITY * np.abs(numbers[finite]).max(initial=0.0):
            return None
        allowed = self.task.check.tol * np.abs(numbers)

        def noise(*, move_zeros: bool) -> Noise:
            estimator = NoiseEstimator(problem.inputs, move_zeros=move_zeros)
            return estimator.noise(numbers_at, problem.inputs, 0.0, allowed)

        bound, is_flat, _ = noise(move_zeros=True)
        if any((value == 0).any() for value in problem.inputs):
            # If backward jumps where zeros move, that is a kink and no rounding.
            with_zeros = noise(move_zeros=False)
            jumps = bound > MAX_RELAXED_TOLERANCE * np.abs(numbers)
            bound = np.where(jumps, with_zeros.bound, bound)
            is_flat = np.where(jumps, with_zeros.is_flat, is_flat)
        return bound, is_flat | np.array(self.are_small)


def _by_magnitude(wide: NDArray[np.float64]) -> Iterator[NDArray[np.bool_]]:
    """Yield masks of elements of similar magnitude, the largest first; no group is empty."""
    _, exponent = np.frexp(wide)
    largest = exponent.max(where=wide != 0, initial=np.iinfo(exponent.dtype).min // 2)
    group = np.clip((largest - np.int64(exponent)) // GROUP_EXPONENTS, 0, MAX_GROUPS - 1)
    group = np.where((wide == 0) | ~np.isfinite(wide), MAX_GROUPS - 1, group)
    for k in range(MAX_GROUPS):
        if (group == k).any():
            yield group == k


def _terms(wide: NDArray[np.float64], direction: Direction) -> NDArray[np.float64]:
    """Return the elements of a gradient along a direction, times its steps."""
    moving = direction.step != 0
    terms: NDArray[np.float64] = wide[moving] * direction.step[moving]
    return terms


def compare(
    check: InputCheck, number: float, estimate: Estimate, scale: float, rounding: float = 0.0
) -> InputCheck:
    """Compare one number of a gradient with its derivative, relative to a scale.

    Where there are two derivatives, a gradient that is not between them has the error to the
    nearest one, and the jump is no part of the floor. If no output changes, the scale is that of
    the number itself.
    """
    scale = scale or abs(number)
    error, floor, excess = math.inf, math.inf, 0.0
    allowed = _relative(rounding, scale)
    tol = max(check.tol, min(allowed, MAX_RELAXED_TOLERANCE))
    fails = False
    if not math.isfinite(number):
        error, floor, excess = math.nan, estimate.floor, math.nan
    elif math.isfinite(estimate.value) and math.isfinite(estimate.floor):
        difference = abs(number - estimate.value)
        outside = max(0.0, difference - estimate.jump / 2)
        # A floor as large as the contributions shows nothing, unless there are none.
        if estimate.floor < estimate.scale or not estimate.scale:
            accounted = estimate.floor + estimate.leeway + rounding
            excess = _relative(max(0.0, outside - accounted), scale)
        fails = excess > tol
        error = _relative(outside if fails else difference, scale)
        floor = _relative(estimate.floor + (0.0 if fails else estimate.jump), scale)
    return replace(
        check,
        tol=tol,
        error=error,
        floor=floor,
        excess=excess,
        analytic=number,
        numeric=estimate.value,
        why="" if fails and not estimate.jump else estimate.why,
        rounding=allowed,
    )


def worst_of(checks: Sequence[InputCheck]) -> InputCheck:
    """Return the worst of the checks; if all pass, with the largest floor and tolerance."""
    worst = max(checks, key=_badness)
    if worst.verdict is not Verdict.PASS:
        return worst  # the numbers that decided
    # Each is within its own tolerance, so all are within the largest.
    loosest = max(checks, key=lambda check: check.tol)
    floor = max(check.floor for check in checks)
    return replace(worst, tol=loosest.tol, rounding=loosest.rounding, floor=floor)


def _badness(check: InputCheck) -> tuple[int, bool, float, float]:
    """Return a sort key: by verdict, then NaN, then the largest excess, then the largest error."""
    excess = check.excess if check.excess > check.tol else 0.0
    return SEVERITY.index(check.verdict), math.isnan(check.error), excess, check.error


def _relative(difference: float, scale: float) -> float:
    if not difference:
        return 0.0
    return difference / scale if scale else math.inf
