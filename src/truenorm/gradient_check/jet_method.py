"""Derivatives with a proof: forward, run on jets, encloses each in a ball."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.directions import Direction, moved
from truenorm.gradient_check.method import Estimate, RefusedError
from truenorm.gradient_check.problem import Array, Problem
from truenorm.gradient_check.resolution import last_places, norm_of
from truenorm.gradient_check.steps import MOST_WEIGHT_BITS, spread_of

__all__ = ["JetMethod"]

FIRST_BITS, MOST_BITS = 128, 4096
CLOSE = 2.0**-60
TAYLOR_BITS = 400
FLAT = (
    "forward is flat in its type there: its formula has the derivative {value:.2g}, what it "
    "returns has 0"
)


class JetMethod:
    """A rigorous enclosure of the derivative, for functions that NumPy runs on objects."""

    name = "jet"
    reason = "jet: forward run on numbers that carry an enclosure of their derivative"
    tolerance = 1e-12
    least_scale = 1 / 64
    most_elements = 96

    def __init__(self, problem: Problem) -> None:
        try:
            import flint  # noqa: F401 (to see if it is there)
        except ImportError:
            raise RefusedError(
                "python-flint is not installed: pip install truenorm[verify]"
            ) from None
        self._problem = problem
        self._bits = FIRST_BITS
        still = [np.zeros(value.shape) for value in problem.inputs]
        try:
            with _precision(self._bits):
                problem.outputs([_jets(*pair) for pair in zip(problem.inputs, still, strict=True)])
        except Exception as error:
            raise RefusedError(
                f"forward cannot be run on arrays of objects ({type(error).__name__}: {error})"
            ) from error
        self._last_place = norm_of(last_places(problem, problem.inputs))

    def weight_bits(self, _: int) -> int:
        """Return how fine the weights of a projection may be: every number is exact here."""
        return MOST_WEIGHT_BITS

    def derivative(self, direction: Direction) -> Estimate:
        """Enclose the derivative, with ever more bits until the enclosure is narrow."""
        while True:
            found = self._enclosed(direction)
            if found.floor <= CLOSE * found.scale or self._bits >= MOST_BITS:
                break
            self._bits *= 2
        if not found.scale:
            # Exactly 0, and no gradient that is rounded has to be.
            spread = spread_of(self._problem.inputs[direction.which])
            return found._replace(leeway=self._last_place / spread)
        if found.value and self._is_flat(direction):
            return found._replace(leeway=abs(found.value), why=FLAT.format(value=found.value))
        return found

    def _is_flat(self, direction: Direction) -> bool:
        """Whether forward, rounded to its type, does not move: its derivative is then 0, too."""
        spread = spread_of(self._problem.inputs[direction.which])
        still, *elsewhere = (
            self._problem.outputs(moved(self._problem.inputs, direction, share * spread))
            for share in (0.0, 0.25, -0.25)
        )
        return all(map(np.array_equal, still * 2, elsewhere[0] + elsewhere[1]))

    def _enclosed(self, direction: Direction) -> Estimate:
        from flint import arb

        with _precision(self._bits):
            arguments = [
                _jets(value, direction.step if which == direction.which else None)
                for which, value in enumerate(self._problem.inputs)
            ]
            total, scale = arb(0), arb(0)
            for weight, number in self._weighted(arguments):
                share = weight * getattr(number, "slope", 0)
                total += share
                scale += abs(share)
            return Estimate(float(total.mid()), _finite(total.rad()), _finite(scale.mid()))

    def change_of_loss(
        self, directions: list[NDArray[np.float64]]
    ) -> Callable[[float, float], float]:
        """Return a function for loss(x + h*v) - loss(x) - expected, computed with many bits."""

        def loss(h: float) -> Any:
            moved = [
                _moved(value, h, direction)
                for value, direction in zip(self._problem.inputs, directions, strict=True)
            ]
            return sum(
                weight * getattr(number, "value", number)
                for weight, number in self._weighted(moved)
            )

        with _precision(TAYLOR_BITS):
            start = loss(0.0)

        def change(h: float, expected: float) -> float:
            with _precision(TAYLOR_BITS):
                return float((loss(h) - start - expected).mid())

        return change

    def _weighted(self, arguments: list[NDArray[Any]]) -> Iterator[tuple[Any, Any]]:
        """Run forward, and yield each element of dy as a ball and that of y beside it."""
        from flint import arb

        for dy, y in zip(self._problem.dys, self._problem.outputs(arguments), strict=True):
            for weight, number in zip(dy.flat, np.ravel(y), strict=True):
                yield arb(float(weight)), number


def _moved(values: Array, h: float, direction: NDArray[np.float64]) -> NDArray[Any]:
    """Return x + h*v as jets that do not move, without rounding."""
    from flint import arb

    jets = _jets(values, None)
    for jet, step in zip(jets.flat, direction.flat, strict=True):
        jet.value += arb(h) * arb(float(step))
    return jets


def _finite(ball: Any) -> float:
    """Return a ball's middle as a float, infinity where it is not a number."""
    value = float(ball)
    return math.inf if math.isnan(value) else value


def _jets(values: Array, slopes: NDArray[np.float64] | None) -> NDArray[Any]:
    """Return an array of jets; without slopes they do not move."""
    from flint import arb

    from truenorm.gradient_check.jets import Jet

    jets = np.empty(values.shape, dtype=object)
    moving = np.zeros(values.shape) if slopes is None else slopes
    for position, (value, slope) in enumerate(zip(values.flat, moving.flat, strict=True)):
        jets.flat[position] = Jet(arb(float(value)), arb(float(slope)))
    return jets


@contextmanager
def _precision(bits: int) -> Iterator[None]:
    """Compute with so many bits."""
    from flint import ctx

    before = ctx.prec
    ctx.prec = bits
    try:
        yield
    finally:
        ctx.prec = before
