"""Derivatives by jets: forward runs on numbers that carry an enclosure of their derivative."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from truenorm.gradient_check.central_differences import Central
from truenorm.gradient_check.method import Estimate, NotApplicableError
from truenorm.gradient_check.noise import (
    CLOSE,
    MAX_WEIGHT_BITS,
    output_ulps,
    root_sum_square,
    spread_of,
)
from truenorm.gradient_check.problem import Array, Contributions, Direction, Problem, move_inputs

FIRST_BITS, MAX_BITS = 128, 4096
NARROW = 2.0**-60
"""The relative width of an enclosure that needs no more bits."""
TAYLOR_BITS = 400
MANY_ELEMENTS, MAX_ELEMENTS = 2**13, 2**17
"""Each element is a Python object: they take seconds above the first number, and minutes above
the second."""
TIE = (
    "Forward compares equal numbers (max, where, abs, ...), or rounds a number at a step: there "
    "may be a kink, without a derivative. Choose inputs without ties."
)
FLAT_IN_TYPE = (
    "forward is flat in its type there: its formula has the derivative {value:.2g}, what it "
    "returns has 0"
)


class JetMethod:
    """A rigorous enclosure of the derivative, for functions that NumPy runs on objects."""

    name = "jet"
    reason = "jet: forward run on numbers that carry an enclosure of their derivative"
    tolerance = 1e-12
    least_scale = 1 / 64

    def __init__(self, problem: Problem) -> None:
        try:
            import flint
        except ImportError:
            raise NotApplicableError(
                "python-flint is not installed: pip install 'truenorm[verify]'"
            ) from None
        from truenorm.gradient_check.jets import Jet, UndecidedError, jets_of  # need python-flint

        self._arb, self._precision, self._jets_of = flint.arb, flint.ctx.workprec, jets_of
        self._problem = problem
        self._central = Central(problem)
        self.found_staircase = False
        self._bits = FIRST_BITS
        elements = sum(value.size for value in problem.inputs)
        if elements > MAX_ELEMENTS:
            raise NotApplicableError(
                f"inputs have {elements} elements, and jets take {MAX_ELEMENTS}"
            )
        Jet.branched = False
        zeros = [np.zeros(value.shape) for value in problem.inputs]
        try:
            with self._precision(self._bits):
                problem.outputs(list(map(jets_of, problem.inputs, zeros)))
        except UndecidedError as error:
            raise NotApplicableError(str(error), TIE) from error
        except Exception as error:
            raise NotApplicableError(
                f"forward cannot be run on arrays of objects ({type(error).__name__}: {error})"
            ) from error
        self._branches = Jet.branched
        self._resolution = root_sum_square(output_ulps(problem, problem.inputs))

    def weight_bits(self, _: int) -> int:
        """Return the largest number of bits of projection weights: jets are exact."""
        return MAX_WEIGHT_BITS

    def derivative(self, direction: Direction) -> Estimate:
        """Enclose the derivative, with ever more bits until the enclosure is narrow."""
        while True:
            estimate = self._enclosure(direction)
            if estimate.floor <= NARROW * estimate.scale or self._bits >= MAX_BITS:
                break
            self._bits *= 2
        spread = spread_of(self._problem.inputs[direction.input_index])
        if self._branches:
            staircase = self._central.staircase(direction, estimate)
            if staircase:
                self.found_staircase = True
                return staircase
        if not estimate.scale:
            # The derivative is exactly 0, but a rounded gradient need not be.
            return estimate._replace(leeway=self._resolution / spread)
        if estimate.value and self._is_flat(direction, spread):
            size = abs(estimate.value)
            why = FLAT_IN_TYPE.format(value=estimate.value)
            return estimate._replace(leeway=size, why=why, lost=size)
        return estimate

    def _is_flat(self, direction: Direction, spread: float) -> bool:
        """Return True if forward, rounded to its type, does not change: its derivative is then 0.

        The step is as long as the lines along which rounding errors of backward are measured.
        """
        inputs = self._problem.inputs
        moving = np.abs(inputs[direction.input_index][direction.step != 0])
        step = 4 * CLOSE * min(spread, float(moving.min()) or spread)
        step = max(step, 4 * float(np.spacing(moving.max())))  # or it would be rounded away
        here, above, below = (
            self._problem.outputs(move_inputs(inputs, direction, by)) for by in (0.0, step, -step)
        )
        return all(map(np.array_equal, here * 2, above + below))

    def _enclosure(self, direction: Direction) -> Estimate:
        with self._precision(self._bits):
            steps = [np.zeros(value.shape) for value in self._problem.inputs]
            steps[direction.input_index] = direction.step
            total, scale = self._arb(0), self._arb(0)
            for dy, y in self._dy_and_y(list(map(self._jets_of, self._problem.inputs, steps))):
                contribution = dy * getattr(y, "slope", 0)
                total += contribution
                scale += abs(contribution)
            return Estimate(float(total.mid()), _to_float(total.rad()), _to_float(scale.mid()))

    def change_of_loss(self, steps: Contributions) -> Callable[[float, float], float]:
        """Return a function for loss(x + h*v) - loss(x) - expected, computed with many bits."""

        def loss(h: float) -> Any:
            inputs = list(map(self._jets_of, self._problem.inputs, steps))
            for array in inputs:
                for jet in array.flat:
                    jet.value += self._arb(h) * jet.slope
            return sum(dy * getattr(y, "value", y) for dy, y in self._dy_and_y(inputs))

        with self._precision(TAYLOR_BITS):
            start = loss(0.0)

        def change(h: float, expected: float) -> float:
            with self._precision(TAYLOR_BITS):
                return float((loss(h) - start - expected).mid())

        return change

    def _dy_and_y(self, inputs: list[Array]) -> Iterator[tuple[Any, Any]]:
        """Run forward, and yield the elements of dy, as balls, and of y."""
        for dy, y in zip(self._problem.dys, self._problem.outputs(inputs), strict=True):
            for weight, number in zip(dy.flat, np.ravel(y), strict=True):
                yield self._arb(float(weight)), number


def _to_float(ball: Any) -> float:
    """Return the midpoint of a ball as a float, infinity for NaN."""
    value = float(ball)
    return math.inf if math.isnan(value) else value
