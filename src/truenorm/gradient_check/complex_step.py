"""Derivatives by a complex step, with bounds for kinks and for parts that are not analytic."""

import math

import numpy as np

from truenorm.gradient_check.central_differences import AT_KINK, Central
from truenorm.gradient_check.method import (
    CERTAINTY,
    Estimate,
    NotApplicableError,
    measured,
    sum_and_scale,
)
from truenorm.gradient_check.noise import (
    SUSPICIOUS,
    NoiseEstimator,
    output_ulps,
    root_sum_square,
    spread_of,
    weight_bits,
)
from truenorm.gradient_check.problem import (
    Array,
    Contributions,
    Direction,
    Problem,
    move_inputs,
    random_direction,
)

STEP = 2.0**-100
LEAST_STEP = 2.0**-1000
SIDES = tuple(2.0**-k for k in (16, 24, 32, 40, 48))
"""Distances to the left and right at which to look for a kink, relative to the spread."""
INTERVALS = tuple(2.0**-k for k in (1, 2, 4, 6, 10, 14, 18, 22, 26))
"""Lengths of intervals to average over, relative to the spread."""
NEWTON_COTES = np.array([989, 5888, -928, 10496, -4540, 10496, -928, 5888, 989]) / 28350
"""Weights of the mean over an interval from nine equally spaced values, exact to degree nine."""
CENTRAL_TOLERANCE = 1e-10
"""The largest relative difference from a precise central difference."""
SUMMATION = 2.0**-50
"""Rounding errors of a sum of contributions, relative to its scale."""
NEGLIGIBLE = 2.0**-44
"""Errors below this, relative to the derivative, are not bounded more closely."""
JUMP = (
    "the derivatives to the left and to the right differ by {jump:.2g}: there may be none at a "
    "kink"
)
NOT_EXCLUDED = (
    "along the real axis forward changes by what the complex step predicts, but no nearer than "
    "that: a part that is not analytic (abs, a conjugate or the like) could be as large"
)


class ComplexStep:
    """Exact up to rounding, for functions that NumPy extends to complex numbers."""

    name = "complex"
    reason = "complex: a step along the imaginary axis, exact up to rounding"
    tolerance = 1e-12
    least_scale = 1 / 64
    found_staircase = False

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.real: list[Array] = [value.astype(np.float64) for value in problem.inputs]
        self.inputs: list[Array] = [value.astype(np.complex128) for value in problem.inputs]
        self.units = [
            2.0 ** math.floor(math.log2(spread_of(value))) if value.size else 1.0
            for value in problem.inputs
        ]
        self._noise_estimator = NoiseEstimator(self.real)
        try:
            outputs = problem.outputs(self.inputs)
            self._check_analytic()
        except NotApplicableError:
            raise
        except Exception as error:
            raise NotApplicableError(
                f"forward cannot take complex arrays ({type(error).__name__}: {error})"
            ) from error
        if not all(np.issubdtype(y.dtype, np.complexfloating) for y in outputs):
            raise NotApplicableError(
                "forward drops the imaginary part: it uses abs, or casts to a type"
            )
        self.ulps = output_ulps(problem, self.real)

    def weight_bits(self, input_index: int) -> int:
        """Return the number of bits of projection weights for which intervals are straight."""
        return weight_bits(self.real[input_index], INTERVALS[0] / 16)

    def _check_analytic(self) -> None:
        """Compare with central differences, which also take abs and conjugates."""
        random = np.random.default_rng(0)
        central = Central(self.problem)
        for input_index, value in enumerate(self.inputs):
            if not value.size:
                continue
            bits = central.weight_bits(input_index)
            direction = random_direction(input_index, value.shape, bits, random)
            slope, scale = sum_and_scale(self.contributions(direction, self.inputs))
            other = central.derivative(direction)
            allowed = CERTAINTY * (other.floor + other.jump) + CENTRAL_TOLERANCE * max(
                scale, other.scale
            )
            if abs(slope - other.value) > allowed:
                raise NotApplicableError(
                    "forward is not analytic (abs, a conjugate or the like): a complex step "
                    f"gives a derivative of {slope:.6g} where differences give {other.value:.6g}"
                )

    def derivative(self, direction: Direction) -> Estimate:
        """Take one complex step.

        It ignores parts that are not analytic. The floor includes how large they may be.
        """
        line = _Line(self, direction)
        value, scale = sum_and_scale(line.contributions_here)
        noise = SUMMATION * scale + float(
            self._noise_estimator.noise(
                lambda inputs: sum_and_scale(self.contributions(direction, inputs))[0],
                self.inputs,
                NEGLIGIBLE * scale,
                SUSPICIOUS * scale,
            ).bound
        )
        jump = line.jump(enough=noise)
        share = scale / math.sqrt(np.count_nonzero(direction.step))
        non_analytic = line.non_analytic(enough=max(noise, NEGLIGIBLE * share))
        # A step of h has an error of h**2 times the third derivative, as of x**3 at 0.
        truncation = STEP * max(abs(line.slope(side)) for side in (SIDES[0], -SIDES[0]))
        floor, width = noise + non_analytic + truncation, 0.0
        why = NOT_EXCLUDED if non_analytic > noise else ""
        if jump > CERTAINTY * floor:
            value, width = line.kink()
            why = AT_KINK.format(low=value - width / 2, high=value + width / 2)
        else:
            floor += jump
            why = JUMP.format(jump=jump) if jump > noise else why
        return measured(value, floor, scale, why=why, lost=noise + non_analytic, jump=width)

    def contributions(
        self, direction: Direction, start: list[Array], by: float = 0.0
    ) -> Contributions:
        """Return each output's contribution to the derivative at a distance from a start."""
        moving = np.abs(self.real[direction.input_index][direction.step != 0])
        size = float(moving.min(where=moving > 0, initial=self.units[direction.input_index]))
        step = max(STEP * 2.0 ** math.floor(math.log2(size)), LEAST_STEP)
        outputs = self.problem.outputs(move_inputs(start, direction, by + 1j * step))
        return self.problem.times_dy(y.imag / step for y in outputs)


class _Line:
    """Forward along one direction: its outputs, and their contributions to the derivative."""

    def __init__(self, method: ComplexStep, direction: Direction) -> None:
        self._method, self._direction = method, direction
        self._unit = method.units[direction.input_index]
        self.contributions_here = self._contributions(0.0)
        self._outputs_here = self._outputs(0.0)
        self._slopes: dict[float, float] = {}

    def _outputs(self, distance: float) -> list[Array]:
        moved = move_inputs(self._method.real, self._direction, distance)
        return self._method.problem.outputs(moved)

    def _contributions(self, distance: float) -> Contributions:
        return self._method.contributions(self._direction, self._method.inputs, distance)

    def slope(self, units: float) -> float:
        """Return the derivative so many units away."""
        if units not in self._slopes:
            self._slopes[units] = sum_and_scale(self._contributions(units * self._unit))[0]
        return self._slopes[units]

    def jump(self, enough: float) -> float:
        """Bound the jump of the derivative at the point; stop at a bound that is small enough.

        Derivatives on the two sides of a point differ by a multiple of the distance, which is
        extrapolated to 0.
        """
        bound = math.inf
        for side in SIDES:
            near, far = (
                self.slope(distance) - self.slope(-distance) for distance in (side, 2 * side)
            )
            jump = abs(2 * near - far)
            bound = min(bound, jump) if math.isfinite(jump) else bound
            if bound <= enough:
                break
        return bound

    def kink(self) -> tuple[float, float]:
        """Return the mean of right and left derivatives, and how far they are apart.

        The distance is summed over all outputs, whose jumps may cancel in the loss.
        """
        right, left = (self._contributions(side * SIDES[-1] * self._unit) for side in (1, -1))
        pairs = list(zip(right, left, strict=True))
        mean, _ = sum_and_scale([(r + each) / 2 for r, each in pairs])
        return mean, sum_and_scale([r - each for r, each in pairs])[1]

    def non_analytic(self, enough: float) -> float:
        """Bound the part of the derivative that a complex step does not show.

        Over an interval, forward must change by the integral of its derivative, on each side of
        the point separately: over both sides together, abs does not change. The interval must be
        long compared with rounding errors and short compared with the function. The best of
        several lengths counts. The mismatch is doubled, since it is an average.
        """
        bound = math.inf
        for length in INTERVALS:
            sides = [self._mismatch(side * length * self._unit) for side in (1, -1)]
            largest = max(2 * mismatch + rounding for mismatch, rounding in sides)
            bound = min(bound, largest) if math.isfinite(largest) else bound
            if bound <= enough or max(rounding for _, rounding in sides) >= bound:
                break  # rounding only grows from here
        return bound

    def _mismatch(self, length: float) -> tuple[float, float]:
        """Compare the mean derivative over an interval with the change of forward.

        Return the difference, and the part of it that rounding may cause.
        """
        nodes = np.linspace(0, length, NEWTON_COTES.size)
        at_nodes = [
            self.contributions_here,
            *(self._contributions(float(node)) for node in nodes[1:]),
        ]
        pairs = zip(self._outputs(length), self._outputs_here, strict=True)
        changes = self._method.problem.times_dy(y - y0 for y, y0 in pairs)
        mismatches, rounding = [], []
        for change, ulp, *slopes in zip(changes, self._method.ulps, *at_nodes, strict=True):
            predicted = np.tensordot(NEWTON_COTES, slopes, axes=1)
            actual = change / length
            mismatches.append(predicted - actual)
            rounding.append(np.where((actual != 0) | (predicted != 0), ulp, 0.0))
        if not any(each.any() for each in rounding):  # nothing changes: forward may be flat
            rounding = self._method.ulps
        return abs(sum_and_scale(mismatches)[0]), root_sum_square(rounding) / abs(length)
