"""Derivatives by a complex step: Im forward(x + ih)/h, where nothing is subtracted."""

import math

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.central_differences import Central
from truenorm.gradient_check.directions import Direction, projection
from truenorm.gradient_check.method import SURE, Estimate, RefusedError, added
from truenorm.gradient_check.noise import noise_of
from truenorm.gradient_check.problem import Array, Problem
from truenorm.gradient_check.resolution import last_places, norm_of
from truenorm.gradient_check.steps import Neighbours, spread_of, weight_bits

__all__ = ["ComplexStep"]

Complex = NDArray[np.complex128]

STEP = 2.0**-100
ALIKE = 0.01
ROUGHLY = 1e-10
"""How closely mirror images, and derivatives that central differences see well, must agree."""
NEWTON_COTES = np.array([989, 5888, -928, 10496, -4540, 10496, -928, 5888, 989]) / 28350
"""Weights of the mean over an interval from nine equally spaced values, exact to degree nine."""
REACHES = tuple(2.0**-k for k in (2, 4, 6, 10, 14, 18, 22, 26))
"""Half the length of intervals to average over, beside the spread."""
SIDES = tuple(2.0**-k for k in (16, 24, 32, 40, 48))
"""How far to the left and right to look for a kink, beside the spread."""
KINK = "left and right of it the derivative differs by {jump:.2g}: there may be none at a kink"
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

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._real: list[Array] = [value.astype(np.float64) for value in problem.inputs]
        self._inputs: list[Complex] = [value.astype(np.complex128) for value in problem.inputs]
        self._units = [
            2.0 ** math.floor(math.log2(spread_of(value))) if value.size else 1.0
            for value in problem.inputs
        ]
        self._neighbours = Neighbours(self._real)
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
        above, below = (
            self._problem.outputs(
                [z + side * unit for z, unit in zip(self._inputs, self._units, strict=True)]
            )
            for side in (0.1j, -0.1j)
        )
        for y, mirrored in zip(above, below, strict=True):
            size = max(float(np.linalg.norm(y)), float(np.linalg.norm(mirrored)))
            if not np.linalg.norm(np.conj(y) - mirrored) <= ALIKE * size:
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
            seen, scale = added(self._slopes(direction))
            other = central.derivative(direction)
            if abs(seen - other.value) > 4 * other.floor + ROUGHLY * max(scale, other.scale):
                raise RefusedError(
                    "forward is not analytic (abs, a conjugate or the like): a complex step sees "
                    f"a derivative of {seen:.6g} where differences see {other.value:.6g}"
                )

    def derivative(self, direction: Direction) -> Estimate:
        """Take one complex step.

        What is not analytic, however small, it does not see: what cannot be excluded is part of
        the floor.
        """
        value, scale = added(self._slopes(direction))
        noise = noise_of(lambda *at: added(self._slopes(direction, at))[0]) + 2.0**-50 * scale
        jump = self._jump(direction, enough=noise)
        unseen = self._not_excluded(direction, enough=noise)
        floor = noise + jump + unseen
        why = UNSEEN if unseen > noise else ""
        if jump > noise:
            why = KINK.format(jump=jump)
        return Estimate(value, floor, scale, (SURE - 1) * floor, why)

    def _jump(self, direction: Direction, enough: float) -> float:
        """Return by how much the derivative jumps at the point, or too near to tell.

        On the two sides of a point, derivatives differ by a multiple of the distance, which is
        extrapolated to 0.
        """
        least = math.inf
        for close in SIDES:
            near, far = (
                added(self._slopes(direction, moved=distance))[0]
                - added(self._slopes(direction, moved=-distance))[0]
                for distance in (
                    close * self._units[direction.which],
                    2 * close * self._units[direction.which],
                )
            )
            jump = abs(2 * near - far)
            least = min(least, jump) if math.isfinite(jump) else least
            if least <= enough:
                break
        return least

    def _not_excluded(self, direction: Direction, enough: float) -> float:
        """Return how large a part of the derivative may be that a complex step does not see.

        Over an interval, forward must change by the integral of its derivative. The interval is
        long beside rounding errors and short beside the function: which one is, is not known, so
        several are tried, and the best counts.
        """
        least = math.inf
        for reach in REACHES:
            least = min(least, self._mismatch(direction, reach * self._units[direction.which]))
            if least <= enough:
                break
        return least

    def _mismatch(self, direction: Direction, reach: float) -> float:
        """Compare the mean of the derivative over an interval with the change of forward.

        On each side of the point by itself: of both together, abs changes by nothing.
        """
        here, above, below = (
            self._problem.outputs(self._moved(self._real, direction, side))
            for side in (0.0, reach, -reach)
        )
        return max(
            self._mismatch_beside(direction, reach, here, above),
            self._mismatch_beside(direction, -reach, here, below),
        )

    def _mismatch_beside(
        self, direction: Direction, reach: float, here: list[Array], there: list[Array]
    ) -> float:
        nodes = np.linspace(0, reach, NEWTON_COTES.size)
        slopes = [self._slopes(direction, moved=float(node)) for node in nodes]
        misses, rounding, moves = [], [], False
        for position, dy in enumerate(self._problem.dys):
            predicted = np.tensordot(NEWTON_COTES, [each[position] for each in slopes], axes=1)
            change = dy * (there[position] - here[position]) / reach
            misses.append(predicted - change)
            moved = (change != 0) | (predicted != 0)
            rounding.append(np.where(moved, self._last_places[position], 0.0))
            moves = moves or bool(moved.any())
        # Where nothing moves, all of it may be flat.
        rounded = norm_of(rounding if moves else self._last_places) / abs(reach)
        found = 2 * abs(added(misses)[0]) + rounded
        return found if math.isfinite(found) else math.inf

    def _slopes(
        self, direction: Direction, neighbour: tuple[int, int] = (0, 0), moved: float = 0.0
    ) -> list[NDArray[np.float64]]:
        """Return each output's share in the derivative, at a neighbour or along the direction."""
        arguments = self._neighbours.at(*neighbour, self._inputs)
        step = STEP * self._units[direction.which]
        arguments = self._moved(arguments, direction, moved + 1j * step)
        dys = self._problem.dys
        return [
            dy * (y.imag / step)
            for dy, y in zip(dys, self._problem.outputs(arguments), strict=True)
        ]

    def _moved(self, arguments: list[Array], direction: Direction, by: complex) -> list[Array]:
        """Return the arguments with one of them moved along the direction."""
        moved = list(arguments)
        moved[direction.which] = moved[direction.which] + by * direction.step
        return moved
