"""How a gradient compares with derivatives of forward, element by element or by projections."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.method import Estimate, Method
from truenorm.gradient_check.noise import Noise, Surroundings, norm_of, spread_of
from truenorm.gradient_check.problem import (
    REPEATED,
    Array,
    Direction,
    Problem,
    along_element,
    projection,
)
from truenorm.gradient_check.result import SEVERITY, InputCheck, Verdict
from truenorm.tools.progress import with_progress

RELAXED = 1e-6
"""Rounding errors of backward relax a default tolerance up to that of central differences."""
MOST_REFINED = 64
MOST_WITHOUT = 8
"""Of screened elements that leave doubt, so many are refined at most, and so many that are
INCONCLUSIVE even then; the others stay INCONCLUSIVE."""
LAST_PLACES = 64.0
MOVES = (1.0, 2.0**-10, 2.0**-20)
"""By how much an input without a gradient is moved, beside its spread."""
MAGNITUDES = 16
GROUPS = 4
"""Projections are taken of elements within so many powers of two, in so many groups."""
BACKWARD_NOT_REPEATED = (
    "backward is not deterministic: two calls with the same inputs return different gradients"
)


class Asked(NamedTuple):
    """How to check one gradient; `relax` allows for rounding errors of backward."""

    check: InputCheck
    method: Method
    problem: Problem
    which: int
    relax: bool


def compare_elements(asked: Asked, gradient: Array) -> InputCheck:
    """Check every element of a gradient by itself."""
    indices = list(np.ndindex(gradient.shape))
    compared = _Compared(
        asked,
        given=[float(gradient[index]) for index in indices],
        directions=[along_element(asked.which, gradient.shape, index) for index in indices],
        read=lambda other: other.astype(np.float64).ravel(),
        are_small=[False] * len(indices),
    )
    if asked.method.screens:
        estimates, largest = _refined(compared)
    else:
        estimates = compared.derivatives(asked.method.derivative)
        largest = max(estimate.scale for estimate in estimates)
    checks = [
        replace(compared.check(k, estimate, estimate.scale, largest), worst=index)
        for k, (index, estimate) in enumerate(zip(indices, estimates, strict=True))
    ]
    return replace(worst_of(checks), checked=len(indices))


def compare_projections(
    asked: Asked, gradient: Array, probes: int, random: np.random.Generator
) -> InputCheck:
    """Check sums of elements with random weights.

    Elements of very different magnitude are summed by themselves: beside the largest, the
    smallest could all be wrong. Of those, one sum is enough for gross errors.
    """
    bits = asked.method.weight_bits(asked.which)
    wide: NDArray[np.float64] = gradient.astype(np.float64)
    first, *smaller = _by_magnitude(wide)
    groups = [first] * probes + smaller
    directions = [
        drawn._replace(step=np.where(group, drawn.step, 0.0))
        for group in groups
        for drawn in [projection(asked.which, gradient.shape, bits, random)]
    ]

    def read(other: Array) -> NDArray[np.float64]:
        return np.array([(other * direction.step).sum() for direction in directions])

    given = [_exact_sum(wide, direction) for direction in directions]
    largest = np.abs(wide[groups[0]]).max(initial=0.0)
    are_small = [
        bool((np.abs(wide[group]) < largest * 2.0**-MAGNITUDES).all()) for group in groups
    ]
    compared = _Compared(asked, given, directions, read, are_small)
    estimates = compared.derivatives(asked.method.derivative)
    lengths = [float(np.linalg.norm(wide[group])) for group in groups]
    # A gradient of zero has no length; then the derivative has a scale.
    scales = [length or each.scale for length, each in zip(lengths, estimates, strict=True)]
    return worst_of(
        [
            compared.check(k, estimate, scales[k], float(np.linalg.norm(wide)))
            for k, estimate in enumerate(estimates)
        ]
    )


def compare_missing(asked: Asked, probes: int, random: np.random.Generator) -> InputCheck:
    """Check that forward does not depend on an input for which backward returned None."""
    problem, which = asked.problem, asked.which
    value = problem.inputs[which]
    here = problem.outputs(problem.inputs)
    for distance in MOVES * probes:
        step = distance * spread_of(value) * random.standard_normal(value.shape)
        moved = list(problem.inputs)
        moved[which] = value + step.astype(value.dtype)
        try:
            same = all(map(np.array_equal, here, problem.outputs(moved)))
        except Exception:  # outside of the domain: then forward looks at it
            same = False
        if not same:
            without_rounding = asked._replace(relax=False)
            return compare_projections(without_rounding, np.zeros(value.shape), probes, random)
    return asked.check


@dataclass(frozen=True)
class _Compared:
    """Numbers of one gradient, and what to compare them with.

    Attributes
    ----------
    given : list of float
        The numbers: elements or projections.
    directions : list of Direction
        Along which each of them is a derivative.
    read : callable
        Returns these numbers of any gradient.
    are_small : list of bool
        True for sums of elements that are small beside others: rounding errors of some of them may
        not vary nearby.
    """

    asked: Asked
    given: list[float]
    directions: list[Direction]
    read: Callable[[Array], NDArray[np.float64]]
    are_small: list[bool]

    def derivatives(self, method: Callable[[Direction], Estimate]) -> list[Estimate]:
        """Return the derivative along each direction."""
        name = f"gradient of {self.asked.check.name}"
        return [
            method(direction)
            for direction in with_progress(self.directions, len(self.directions), name)
        ]

    def check(self, k: int, estimate: Estimate, own: float, largest: float) -> InputCheck:
        """Compare one number, relative to its own scale.

        Digits that are lost beside larger elements are no error, as in 1 - tanh(x)**2 at 8: the
        scale is raised by what was measured to be lost, up to a share of the largest scale. Of a
        derivative that is known to be zero, the scale is at most the outputs over the spread.
        """
        tol, most = self.asked.check.tol, self.asked.method.least_scale * largest

        def against(rounding: float, hidden: float) -> InputCheck:
            lost = estimate.lost + rounding + hidden
            scale = max(own, min(2 * lost / tol, most)) if math.isfinite(most) else own
            if not scale and not estimate.floor:
                scale = min(2 * rounding / tol, self._over_spread(np.abs))
            seen = estimate._replace(leeway=estimate.leeway + hidden)
            return compare(self.asked.check, self.given[k], seen, scale, rounding)

        check = against(0.0, 0.0)
        if not self.asked.relax or not check.error > tol:
            return check
        if self._rounding is None:
            return replace(check, why=BACKWARD_NOT_REPEATED)
        bound, hides = self._rounding
        last_place = self._over_spread(lambda y: np.spacing(np.abs(y)))
        return against(float(bound[k]), LAST_PLACES * last_place * float(hides[k]))

    def _over_spread(self, size: Callable[[Array], Array]) -> float:
        """Return some size of all outputs as a derivative: over the spread of the input."""
        problem = self.asked.problem
        sizes = problem.weighted(size(y).astype(np.float64) for y in self._outputs)
        spread = spread_of(problem.inputs[self.asked.which])
        return norm_of([np.abs(each) for each in sizes]) / spread

    @cached_property
    def _outputs(self) -> list[Array]:
        return self.asked.problem.outputs(self.asked.problem.inputs)

    @cached_property
    def _rounding(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]] | None:
        """Bound the rounding errors of backward, from points next to the inputs.

        Also return where it does not vary nearby, as 1 - tanh(x)**2 at 20: there it may hide some
        last places of the outputs. None if backward is not deterministic.
        """
        problem = self.asked.problem

        def numbers(inputs: Sequence[Array]) -> NDArray[np.float64]:
            try:
                gradient = problem.gradients_at(inputs)[self.asked.which]
                return self.read(np.asarray(gradient, np.float64))
            except Exception:  # outside of the domain
                return np.full(len(self.given), np.nan)

        given = np.array(self.given)
        again = numbers(problem.inputs)
        finite = np.isfinite(given)
        change = np.abs(again - given)[finite].max(initial=0.0)
        if not change <= REPEATED * np.abs(given[finite]).max(initial=0.0):
            return None
        allowed = self.asked.check.tol * np.abs(given)

        def noise(*, move_zeros: bool) -> Noise:
            surroundings = Surroundings(problem.inputs, move_zeros=move_zeros)
            return surroundings.noise(numbers, problem.inputs, 0.0, allowed)

        bound, is_flat, _ = noise(move_zeros=True)
        if any((value == 0).any() for value in problem.inputs):
            # Where zeros move and backward jumps, that is a kink and no rounding.
            still = noise(move_zeros=False)
            jumps = bound > RELAXED * np.abs(given)
            bound = np.where(jumps, still.bound, bound)
            is_flat = np.where(jumps, still.is_flat, is_flat)
        return bound, is_flat | np.array(self.are_small)


def _refined(compared: _Compared) -> tuple[list[Estimate], float]:
    """Screen all elements by cheap estimates, and refine those that leave doubt.

    The most suspicious come first, and one that fails decides. An element that was not refined
    cannot fail. Also return the largest scale.
    """
    method = compared.asked.method
    estimates = compared.derivatives(method.screen)
    largest = max(estimate.scale for estimate in estimates)

    def checked(k: int) -> InputCheck:
        return compared.check(k, estimates[k], estimates[k].scale, largest)

    checks = [checked(k) for k in range(len(estimates))]
    doubtful = [k for k, check in enumerate(checks) if check.verdict is not Verdict.PASS]
    doubtful.sort(key=lambda k: _badness(checks[k]), reverse=True)
    without_answer = 0
    for count, k in enumerate(doubtful):
        estimates[k] = method.derivative(compared.directions[k])
        verdict = checked(k).verdict
        without_answer += verdict is Verdict.INCONCLUSIVE
        if verdict is Verdict.FAIL or without_answer == MOST_WITHOUT or count + 1 == MOST_REFINED:
            for other in doubtful[count + 1 :]:
                estimates[other] = estimates[other]._replace(leeway=math.inf)
            break
    return estimates, largest


def _by_magnitude(wide: NDArray[np.float64]) -> Iterator[NDArray[np.bool_]]:
    """Yield groups of elements of similar magnitude, the largest first; no group is empty."""
    _, exponent = np.frexp(wide)
    largest = exponent.max(where=wide != 0, initial=np.iinfo(exponent.dtype).min // 2)
    number = np.clip((largest - np.int64(exponent)) // MAGNITUDES, 0, GROUPS - 1)
    number = np.where((wide == 0) | ~np.isfinite(wide), GROUPS - 1, number)
    for k in range(GROUPS):
        if (number == k).any():
            yield number == k


def _exact_sum(wide: NDArray[np.float64], direction: Direction) -> float:
    """Return a projection, rounded once; NaN if an element that takes part is not finite."""
    terms = wide[direction.step != 0] * direction.step[direction.step != 0]
    return math.fsum(terms.flat) if np.isfinite(terms).all() else math.nan


def compare(
    asked: InputCheck, given: float, estimate: Estimate, scale: float, rounding: float = 0.0
) -> InputCheck:
    """Compare one number of backward with its derivative, relative to a scale."""
    error, floor, excess = math.inf, math.inf, 0.0
    allowed = _relative(rounding, scale)
    if not math.isfinite(given):
        error, floor, excess = math.nan, estimate.floor, math.nan
    elif math.isfinite(estimate.value) and math.isfinite(estimate.floor):
        difference = abs(given - estimate.value)
        error = _relative(difference, scale)
        floor = _relative(max(estimate.floor, rounding), scale)
        # A floor as large as what moves sees nothing; where nothing moves, it is all there is.
        if estimate.floor < max(scale, estimate.scale) or not estimate.scale:
            accounted = estimate.floor + estimate.leeway + rounding
            excess = _relative(max(0.0, difference - accounted), scale)
    return replace(
        asked,
        tol=max(asked.tol, min(allowed, RELAXED)),
        error=error,
        floor=floor,
        excess=excess,
        analytic=given,
        numeric=estimate.value,
        why="" if excess > asked.tol else estimate.why,
        rounding=allowed,
    )


def worst_of(checks: Sequence[InputCheck]) -> InputCheck:
    """Return the worst of the numbers that were compared, with the largest floor of all."""
    worst = max(checks, key=_badness)
    vaguest = max(checks, key=lambda check: check.floor)
    if worst.verdict is Verdict.PASS:
        # Each is within its own tolerance, so all are within the largest.
        loosest = max(checks, key=lambda check: check.tol)
        worst = replace(worst, tol=loosest.tol, rounding=loosest.rounding)
    return replace(worst, floor=vaguest.floor, why=worst.why or vaguest.why)


def _badness(check: InputCheck) -> tuple[int, bool, float, float]:
    """Put what is not a number first, then by verdict, then what fails by most."""
    failing = check.excess if check.excess > check.tol else 0.0
    return SEVERITY.index(check.verdict), math.isnan(check.error), failing, check.error


def _relative(difference: float, scale: float) -> float:
    if not difference:
        return 0.0
    return difference / scale if scale else math.inf
