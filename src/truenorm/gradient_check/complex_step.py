"""Derivatives by a complex step: Im forward(x + ih)/h, where nothing is subtracted."""

import math

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.central_differences import Central
from truenorm.gradient_check.method import Direction, Estimate, RefusedError, added
from truenorm.gradient_check.noise import noise_of
from truenorm.gradient_check.problem import Problem
from truenorm.gradient_check.steps import Neighbours, spread_of

__all__ = ["ComplexStep"]

Complex = NDArray[np.complex128]

STEP = 2.0**-100
ALIKE = 0.01
ROUGHLY = 1e-10
"""How closely mirror images, and derivatives that central differences see well, must agree."""


class ComplexStep:
    """Exact but for rounding, for functions that NumPy extends to complex numbers."""

    name = "complex"
    reason = "complex: a step along the imaginary axis, exact but for rounding"
    tolerance = 1e-12
    least_scale = 1 / 64
    most_elements = 512

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._inputs: list[Complex] = [value.astype(np.complex128) for value in problem.inputs]
        self._units = [
            2.0 ** math.floor(math.log2(spread_of(value))) if value.size else 1.0
            for value in problem.inputs
        ]
        self._neighbours = Neighbours([value.astype(np.float64) for value in problem.inputs])
        try:
            with np.errstate(all="ignore"):
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
            direction = Direction(which, random.choice([-1.0, 1.0], value.shape))
            seen, scale = self._slope(direction)
            other = central.derivative(direction)
            if abs(seen - other.value) > 4 * other.floor + ROUGHLY * max(scale, other.scale):
                raise RefusedError(
                    "forward is not analytic (abs, a conjugate or the like): a complex step sees "
                    f"a derivative of {seen:.6g} where differences see {other.value:.6g}"
                )

    def derivative(self, direction: Direction) -> Estimate:
        """Take one complex step."""
        value, scale = self._slope(direction)
        noise = noise_of(lambda *at: self._slope(direction, at)[0])
        return Estimate(value, noise + 2.0**-50 * scale, scale)

    def _slope(
        self, direction: Direction, neighbour: tuple[int, int] = (0, 0)
    ) -> tuple[float, float]:
        """Return the derivative at a neighbour of the point, and its scale."""
        arguments = self._neighbours.at(*neighbour, self._inputs)
        step = STEP * self._units[direction.which]
        arguments[direction.which] = arguments[direction.which] + 1j * step * direction.step
        with np.errstate(all="ignore"):
            outputs = self._problem.outputs(arguments)
        dys = self._problem.dys
        return added([dy * (y.imag / step) for dy, y in zip(dys, outputs, strict=True)])
