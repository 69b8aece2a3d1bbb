"""What a complex step cannot see: kinks at the point, and parts that are not analytic."""

import math
from collections.abc import Callable

import numpy as np

from truenorm.gradient_check.central_differences import Central
from truenorm.gradient_check.method import SURE, Estimate, RefusedError, added
from truenorm.gradient_check.noise import (
    VAGUE,
    Surroundings,
    last_places,
    norm_of,
    spread_of,
    weight_bits,
)
from truenorm.gradient_check.problem import Array, Direction, Problem, Shares, moved, projection

SIDES = tuple(2.0**-k for k in (16, 24, 32, 40, 48))
"""How far to the left and right to look for a kink, beside the spread."""
REACHES = tuple(2.0**-k for k in (1, 2, 4, 6, 10, 14, 18, 22, 26))
"""Lengths of intervals to average over, beside the spread."""
NEWTON_COTES = np.array([989, 5888, -928, 10496, -4540, 10496, -928, 5888, 989]) / 28350
"""Weights of the mean over an interval from nine equally spaced values, exact to degree nine."""


class Interval:
    """Forward along one direction: its outputs, and their shares in the derivative.

    Parameters
    ----------
    problem : Problem
        Whose loss it is.
    outputs, shares : callable
        Of how far to move; shares are those of a complex step.
    last_places : list of ndarray
        One for each output: see `last_places`.
    unit : float
        The spread of the input.
    """

    def __init__(
        self,
        problem: Problem,
        outputs: Callable[[float], list[Array]],
        shares: Callable[[float], Shares],
        last_places: Shares,
        unit: float,
    ) -> None:
        self.problem, self.outputs, self.shares = problem, outputs, shares
        self.last_places, self.unit = last_places, unit
        self.shares_here = shares(0.0)
        self._here = outputs(0.0)
        self._slopes: dict[float, float] = {}

    def slope(self, moved: float) -> float:
        """Return the derivative so many units away."""
        if moved not in self._slopes:
            self._slopes[moved] = added(self.shares(moved * self.unit))[0]
        return self._slopes[moved]

    def mismatch(self, reach: float) -> tuple[float, float]:
        """Compare the mean of the derivative over an interval with the change of forward.

        Return the difference, and what rounding accounts for at least.
        """
        nodes = np.linspace(0, reach, NEWTON_COTES.size)
        shares = [self.shares_here, *(self.shares(float(node)) for node in nodes[1:])]
        there = self.outputs(reach)
        moves = self.problem.weighted(y - y0 for y, y0 in zip(there, self._here, strict=True))
        misses, rounding = [], []
        for move, last_place, *slopes in zip(moves, self.last_places, *shares, strict=True):
            predicted = np.tensordot(NEWTON_COTES, slopes, axes=1)
            change = move / reach
            misses.append(predicted - change)
            rounding.append(np.where((change != 0) | (predicted != 0), last_place, 0.0))
        if not any(each.any() for each in rounding):  # nothing moves: all of it may be flat
            rounding = self.last_places
        return abs(added(misses)[0]), norm_of(rounding) / abs(reach)


def jump_at(interval: Interval, enough: float) -> float:
    """Return by how much the derivative jumps at the point, or too near to tell.

    On the two sides of a point, derivatives differ by a multiple of the distance, which is
    extrapolated to 0.
    """
    least = math.inf
    for side in SIDES:
        near, far = (
            interval.slope(distance) - interval.slope(-distance) for distance in (side, 2 * side)
        )
        jump = abs(2 * near - far)
        least = min(least, jump) if math.isfinite(jump) else least
        if least <= enough:
            break
    return least


def not_excluded(interval: Interval, enough: float) -> float:
    """Return how large a part of the derivative may be that a complex step does not see.

    Over an interval, forward must change by the integral of its derivative, on each side of the
    point by itself: over both together, abs changes by nothing. The interval is long beside
    rounding errors and short beside the function: which one is, is not known, so several are
    tried, and the best counts. Twice the mismatch, since it is an average.
    """
    least = math.inf
    for reach in REACHES:
        sides = [interval.mismatch(side * reach * interval.unit) for side in (1, -1)]
        found = max(2 * miss + rounding for miss, rounding in sides)
        least = min(least, found) if math.isfinite(found) else least
        if least <= enough or max(rounding for _, rounding in sides) >= least:
            break  # rounding only grows from here
    return least


STEP = 2.0**-100
LEAST_STEP = 2.0**-1000
OFF_AXIS = (0.1, 1e-3, 1e-5, 1e-7)
"""How far off the real axis to look for symmetry, beside the spread; the first may overflow."""
ALIKE = 0.01
ROUGHLY = 1e-10
"""How closely mirror images, and derivatives that central differences see well, must agree."""
NEGLIGIBLE = 2.0**-44
"""What is less beside the derivative needs no closer look: a tenth of the tolerance."""
JUMP = "left and right of it the derivative differs by {jump:.2g}: there may be none at a kink"
UNSEEN = (
    "along the real axis forward changes by what the complex step predicts, but no nearer than "
    "that: a part that is not analytic (abs, a conjugate or the like) could be as large"
)


class ComplexStep:
    """Exact but for rounding, for functions that NumPy extends to complex numbers."""

    name = "complex"
    reason = "complex: a step along the imaginary axis, exact but for rounding"
    tolerance = 1e-12
    least_scale = 1 / 64
    most_elements = 512
    screens = False

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._real: list[Array] = [value.astype(np.float64) for value in problem.inputs]
        self._inputs: list[Array] = [value.astype(np.complex128) for value in problem.inputs]
        self._units = [
            2.0 ** math.floor(math.log2(spread_of(value))) if value.size else 1.0
            for value in problem.inputs
        ]
        self._surroundings = Surroundings(self._real)
        try:
            outputs = problem.outputs(self._inputs)
            self._refuse_if_not_real()
            self._refuse_if_not_analytic()
        except RefusedError:
            raise
        except Exception as error:
            raise RefusedError(
                f"forward cannot take complex arrays ({type(error).__name__}: {error})"
            ) from error
        if not all(np.issubdtype(y.dtype, np.complexfloating) for y in outputs):
            raise RefusedError("forward drops the imaginary part: it uses abs, or casts to a type")
        self._last_places = last_places(problem, self._real)

    def weight_bits(self, which: int) -> int:
        """Return how fine the weights of a projection may be, so that intervals are straight."""
        return weight_bits(self._real[which], REACHES[0] / 16)

    def _refuse_if_not_real(self) -> None:
        """Compare forward off the real axis with its mirror image: f(conj z) = conj f(z)."""
        for distance in OFF_AXIS:
            above, below = (
                self._problem.outputs(
                    [z + side * unit for z, unit in zip(self._inputs, self._units, strict=True)]
                )
                for side in (1j * distance, -1j * distance)
            )
            if all(np.isfinite(y).all() for y in above + below):
                break
        else:
            raise RefusedError("forward is not finite next to the real axis")
        for y, mirrored in zip(above, below, strict=True):
            size = max(np.abs(y).max(initial=0.0), np.abs(mirrored).max(initial=0.0))
            if not np.abs(np.conj(y) - mirrored).max(initial=0.0) <= ALIKE * size:
                raise RefusedError("forward is not real on real numbers: f(conj z) != conj f(z)")

    def _refuse_if_not_analytic(self) -> None:
        """Compare with central differences: abs, conjugates and the like are mirrored, too."""
        random = np.random.default_rng(0)
        central = Central(self._problem)
        for which, value in enumerate(self._inputs):
            if not value.size:
                continue
            bits = central.weight_bits(which)
            direction = projection(which, value.shape, bits, random)
            seen, scale = added(self._slopes(direction, self._inputs))
            other = central.derivative(direction)
            if abs(seen - other.value) > SURE * other.floor + ROUGHLY * max(scale, other.scale):
                raise RefusedError(
                    "forward is not analytic (abs, a conjugate or the like): a complex step sees "
                    f"a derivative of {seen:.6g} where differences see {other.value:.6g}"
                )

    def derivative(self, direction: Direction) -> Estimate:
        """Take one complex step.

        What is not analytic, however small, it does not see: what cannot be excluded is part of
        the floor.
        """
        interval = Interval(
            self._problem,
            lambda by: self._problem.outputs(moved(self._real, direction, by)),
            lambda by: self._slopes(direction, self._inputs, by),
            self._last_places,
            self._units[direction.which],
        )
        value, scale = added(interval.shares_here)
        noise = 2.0**-50 * scale + float(
            self._surroundings.noise(
                lambda near: added(self._slopes(direction, near))[0],
                self._inputs,
                NEGLIGIBLE * scale,
                VAGUE * scale,
            ).bound
        )
        jump = jump_at(interval, enough=noise)
        share = scale / math.sqrt(np.count_nonzero(direction.step))
        unseen = not_excluded(interval, enough=max(noise, NEGLIGIBLE * share))
        # A step of h leaves h**2 of the curvature, as of x**3 at 0.
        left_over = STEP * max(abs(interval.slope(side)) for side in (SIDES[0], -SIDES[0]))
        floor = noise + jump + unseen + left_over
        why = UNSEEN if unseen > noise else ""
        if jump > noise:
            why = JUMP.format(jump=jump)
        return Estimate(value, floor, scale, (SURE - 1) * floor, why, lost=noise + unseen)

    screen = derivative

    def _slopes(self, direction: Direction, start: list[Array], by: float = 0.0) -> Shares:
        """Return each output's share in the derivative, so far from a start along a direction."""
        moving = np.abs(self._real[direction.which][direction.step != 0])
        size = float(moving.min(where=moving > 0, initial=self._units[direction.which]))
        step = max(STEP * 2.0 ** math.floor(math.log2(size)), LEAST_STEP)
        outputs = self._problem.outputs(moved(start, direction, by + 1j * step))
        return self._problem.weighted(y.imag / step for y in outputs)
