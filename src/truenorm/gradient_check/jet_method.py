"""Derivatives by jets: forward runs on numbers that carry an enclosure of their derivative."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from truenorm.gradient_check.method import Estimate, RefusedError
from truenorm.gradient_check.noise import CLOSE, MOST_WEIGHT_BITS, last_places, norm_of, spread_of
from truenorm.gradient_check.problem import Array, Direction, Problem, Shares, moved

FIRST_BITS, MOST_BITS = 128, 4096
NARROW = 2.0**-60
"""An enclosure that is no wider, beside its scale, needs no more bits."""
TAYLOR_BITS = 400
MOST_ELEMENTS = 2**17
"""Each element is an object: more of them take minutes."""
TIE = (
    "Forward compares equal numbers (max, where, abs, ...), or rounds a number at a step: there "
    "may be a kink, without a derivative. Choose inputs without ties."
)
FORMULA_MOVES = (
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
    screens = False

    def __init__(self, problem: Problem) -> None:
        try:
            import flint
        except ImportError:
            raise RefusedError(
                "python-flint is not installed: pip install truenorm[verify]"
            ) from None
        from truenorm.gradient_check.jets import UndecidedError, jets_of

        self._ball, self._precision, self._jets_of = flint.arb, flint.ctx.workprec, jets_of
        self._problem = problem
        self._bits = FIRST_BITS
        elements = sum(value.size for value in problem.inputs)
        if elements > MOST_ELEMENTS:
            raise RefusedError(f"inputs have {elements} elements, and jets take {MOST_ELEMENTS}")
        still = [np.zeros(value.shape) for value in problem.inputs]
        try:
            with self._precision(self._bits):
                problem.outputs(list(map(jets_of, problem.inputs, still)))
        except UndecidedError as undecided:
            raise RefusedError(str(undecided), TIE) from undecided
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
            if found.floor <= NARROW * found.scale or self._bits >= MOST_BITS:
                break
            self._bits *= 2
        spread = spread_of(self._problem.inputs[direction.which])
        if not found.scale:
            # Exactly 0, and no gradient that is rounded has to be.
            return found._replace(leeway=self._last_place / spread)
        if found.value and self._is_flat(direction, spread):
            why = FORMULA_MOVES.format(value=found.value)
            return found._replace(leeway=abs(found.value), why=why, lost=abs(found.value))
        return found

    screen = derivative

    def _is_flat(self, direction: Direction, spread: float) -> bool:
        """Return True if forward, rounded to its type, does not move: its derivative is then 0.

        The step is as long as the lines along which rounding errors of backward are measured.
        """
        moving = np.abs(self._problem.inputs[direction.which][direction.step != 0])
        step = 4 * CLOSE * min(spread, float(moving.min()) or spread)
        step = max(step, 4 * float(np.spacing(moving.max())))  # or it would be rounded away
        here, above, below = (
            self._problem.outputs(moved(self._problem.inputs, direction, by))
            for by in (0.0, step, -step)
        )
        return all(map(np.array_equal, here * 2, above + below))

    def _enclosed(self, direction: Direction) -> Estimate:
        with self._precision(self._bits):
            directions = [np.zeros(value.shape) for value in self._problem.inputs]
            directions[direction.which] = direction.step
            total, scale = self._ball(0), self._ball(0)
            for weight, number in self._weighted(
                list(map(self._jets_of, self._problem.inputs, directions))
            ):
                share = weight * getattr(number, "slope", 0)
                total += share
                scale += abs(share)
            return Estimate(float(total.mid()), _finite(total.rad()), _finite(scale.mid()))

    def change_of_loss(self, directions: Shares) -> Callable[[float, float], float]:
        """Return a function for loss(x + h*v) - loss(x) - expected, computed with many bits."""

        def loss(h: float) -> Any:
            arguments = list(map(self._jets_of, self._problem.inputs, directions))
            for argument in arguments:
                for jet in argument.flat:
                    jet.value += self._ball(h) * jet.slope
            return sum(
                weight * getattr(number, "value", number)
                for weight, number in self._weighted(arguments)
            )

        with self._precision(TAYLOR_BITS):
            start = loss(0.0)

        def change(h: float, expected: float) -> float:
            with self._precision(TAYLOR_BITS):
                return float((loss(h) - start - expected).mid())

        return change

    def _weighted(self, arguments: list[Array]) -> Iterator[tuple[Any, Any]]:
        """Run forward, and yield each element of dy as a ball and that of y beside it."""
        for dy, y in zip(self._problem.dys, self._problem.outputs(arguments), strict=True):
            for weight, number in zip(dy.flat, np.ravel(y), strict=True):
                yield self._ball(float(weight)), number


def _finite(ball: Any) -> float:
    """Return a ball's middle as a float, infinity where it is not a number."""
    value = float(ball)
    return math.inf if math.isnan(value) else value
