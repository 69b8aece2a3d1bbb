"""Rows with results next to midpoints of a type, which decide the grade *correct*.

Results of ordinary rows are farther away: float64 results without a rounding test, rounded to
float32, would be correct too. Here some inputs are chosen one after the other. Each chosen input
removes most of the distance between a result and a midpoint. For y the chosen inputs are small
elements that add to the mean square; for dx and dgamma, elements of dy. dbeta is a tie, or one
subnormal beside a tie.
"""

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import isqrt
from operator import mul

import numpy as np

from truenorm.exact import ExactRow, round_ratio
from truenorm.verify.inputs.families import EPSILONS, SEEDS, Family
from truenorm.verify.operation import Case, Operation
from truenorm.verify.types import FORMATS, Float64s, dtype_of

NEXT_TO_MIDPOINTS = "next-to-midpoints"
"""The family of these cases."""
WIDTHS = {"y": (22, 64, 130), "dx": (21, 64, 131), "dgamma": (257, 67), "dbeta": (67,)}
"""Widths by output; the quick level has the first."""
ROWS = 48
"""Rows for y and dx, with one chosen element in each; dgamma and dbeta have one in each column."""
SHORT, SHORT_ROWS = 10, 192
"""The first width for y and dx in float64: errors of double-double are far below their bounds, and
come closest to them in a few short rows."""
LARGER = 4.0
"""The factor of the chosen element, so that errors of other elements matter less."""
BITS = 256  # of a root: many more than needed
STEPS = {"float16": 5, "bfloat16": 8, "float32": 2, "float64": 2}
"""Inputs chosen for a result: each reduces the distance by about 2^-precision."""


class RowMaker:
    """Random numbers of a type, by a fixed seed, and fractions rounded to the type."""

    def __init__(self, name: str, dtype: str, eps: float, *, centred: bool) -> None:
        self.random = np.random.default_rng(zlib.crc32(name.encode()))
        self.kind = FORMATS[dtype]
        self.narrow = dtype == "float16"  # its few exponents must be shared among the inputs
        self.steps, self.eps, self.centred = STEPS[dtype], eps, centred

    def numbers(self, *shape: int, exponent: int = 0) -> Float64s:
        """Return numbers of the type with magnitudes from 1/2 to 2 times a power of two."""
        sizes = self.random.uniform(0.5, 2, shape) * self.random.choice([-1, 1], shape)
        narrow = np.ldexp(sizes, exponent).astype(dtype_of(self.kind.name))
        rounded: Float64s = narrow.astype(np.float64)
        return rounded

    def nearest(self, value: Fraction) -> float:
        """Round to the type."""
        return round_ratio(value.numerator, value.denominator, self.kind)

    def ulp(self, size: Fraction) -> Fraction:
        """Return the ulp at a number."""
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent -= size < Fraction(2) ** exponent
        return Fraction(2) ** max(exponent + 1 - self.kind.precision, self.kind.quantum)

    def midpoint_below(self, value: Fraction) -> Fraction:
        """Return the next midpoint towards zero."""
        ulp = self.ulp(abs(value))
        size = ((abs(value) / ulp - Fraction(1, 2)) // 1 + Fraction(1, 2)) * ulp
        power = ulp * 2 ** (self.kind.precision - 1)
        if size < power:  # below it numbers are twice as dense
            size = power - ulp / 4
        return size if value > 0 else -size

    def root_below(self, value: Fraction) -> float:
        """Return the largest number of the type whose square is not above a value."""
        root = Fraction(isqrt((value.numerator << 2 * BITS) // value.denominator), 1 << BITS)
        ulp = self.ulp(root)
        return float(root // ulp * ulp)

    def normalized(self, x: Sequence[float]) -> tuple[list[Fraction], Fraction]:
        """Return xhat and r of a row."""
        row = ExactRow(x, self.eps, is_centred=self.centred)
        r, one = row.root.scaled(BITS), 1 << BITS
        return [Fraction(c * r // row.scale, one) for c in row.centred], Fraction(r, one)

    def reach_midpoint(self, value: Fraction, factors: Sequence[Fraction]) -> list[float]:
        """Return numbers whose products with the factors sum from a value to a midpoint.

        Where a factor is so small that the type has no such number, it is 0.
        """
        distance, numbers = self.midpoint_below(value) - value, []
        largest = Fraction(2) ** (self.kind.limit - 1)
        for factor in factors:
            in_range = abs(distance) < abs(factor) * largest
            numbers.append(self.nearest(distance / factor) if in_range else 0.0)
            distance -= factor * Fraction(numbers[-1])
        return numbers


Inputs = dict[str, Float64s]


def _rows(size: int) -> int:
    return SHORT_ROWS if size == SHORT else ROWS


def _sum(terms: Iterable[Fraction]) -> Fraction:
    return sum(terms, Fraction(0))


def _of_y(make: RowMaker, size: int) -> Inputs:
    """Lower one y of each row to a midpoint of the type."""
    return rows_of_y(make, size, lambda y: make.midpoint_below(y[0]))


def rows_of_y(
    make: RowMaker,
    size: int,
    below: Callable[[Sequence[Fraction]], Fraction],
    count: int = 0,
    gains: Float64s | float = 1.0,
) -> Inputs:
    """Lower one y of each row by small elements; numbers and their negatives have the mean 0.

    `below` returns the number that the first y of a row is lowered to; the row shrinks with it.
    `gains` are powers of two that multiply gamma. No element is zero: kernels may handle rows with
    zeros differently.
    """
    half = make.numbers(count or _rows(size), size // 2, exponent=9 if make.narrow else 0)
    half[:, 0] *= LARGER
    half[:, 1 : 1 + make.steps] = 0.0
    gamma = np.abs(make.numbers(size)) * gains
    exact_gamma = [Fraction(each) for each in gamma.tolist()]
    for row in half:
        xhat, r = make.normalized([*row, *-row])
        # With r -> middle/(gamma*x), y is the midpoint; w = 1/r^2 is linear in squares of x.
        y = list(map(mul, xhat, exact_gamma))
        distance = ((y[0] / below(y)) ** 2 - 1) / r**2 * size / 2
        for place in range(1, 1 + make.steps):
            row[place] = make.root_below(distance)
            distance -= Fraction(row[place]) ** 2
    return {"x": np.concatenate([half, -half], axis=1), "gamma": gamma, "beta": np.zeros(size)}


def _of_dx(make: RowMaker, size: int) -> Inputs:
    """Move the last dx of each row to a midpoint by the first elements of dy."""
    places = range(make.steps)
    x = make.numbers(_rows(size), size, exponent=8 if make.narrow else 0)
    dy = make.numbers(_rows(size), size, exponent=6 if make.narrow else 0)
    dy[:, -1] *= LARGER
    dy[:, : make.steps] = 0.0
    gamma = np.abs(make.numbers(size, exponent=12 if make.narrow else 0))
    if make.narrow:
        gamma[: make.steps] = np.ldexp(1.0, [9, -2, -13, -24, -24])
    gains = [Fraction(each) for each in gamma.tolist()]
    for row, of_row in zip(x.tolist(), dy, strict=True):
        xhat, r = make.normalized(row)
        g = [gain * Fraction(each) for gain, each in zip(gains, of_row.tolist(), strict=True)]
        mean, projection = _sum(g) / size * make.centred, _sum(map(mul, g, xhat)) / size
        factors = [-r * gains[k] * (make.centred + xhat[-1] * xhat[k]) / size for k in places]
        of_row[: make.steps] = make.reach_midpoint(
            r * (g[-1] - mean - xhat[-1] * projection), factors
        )
    return {"x": x, "gamma": gamma, "dy": dy}


def _of_dgamma(make: RowMaker, size: int) -> Inputs:
    """Move sums over three rows to midpoints by further rows."""
    exponents, of_dy = [0] * (3 + make.steps), 0
    if make.narrow:  # rows far below sqrt(eps) have a small xhat
        exponents, of_dy = [5, 5, 5, 5, 1, -4, -13, -18], 12
    x = np.concatenate([make.numbers(1, size, exponent=each) for each in exponents])
    dy = make.numbers(len(x), size, exponent=of_dy)
    columns = list(zip(*(make.normalized(row)[0] for row in x.tolist()), strict=True))
    for xhat, of_column in zip(columns, dy.T, strict=True):
        total = _sum(map(mul, map(Fraction, of_column[:3].tolist()), xhat))
        of_column[3:] = make.reach_midpoint(total, xhat[3:])
    return {"x": x, "dy": dy}


def _of_dbeta(make: RowMaker, size: int) -> Inputs:
    """Make sums that are ties, or one subnormal away from ties, among numbers that cancel."""
    top = 2 ** (make.kind.precision - 3)
    signs = make.random.choice([-1, 1], size)
    integers = make.random.integers(top + 1, 2 * top, size)
    eighths = (2 * make.random.integers(0, 4, size) + 1) / 8
    least = np.ldexp(make.random.choice([-1.0, 0.0, 1.0], size), make.kind.quantum)
    large = 4.0 * make.random.permutation(integers)
    dy = make.random.permuted([integers, eighths, least, large, -large], axis=0) * signs
    return {"x": make.numbers(len(dy), size), "dy": dy}


MAKERS: dict[str, Callable[[RowMaker, int], Inputs]] = {
    "y": _of_y,
    "dx": _of_dx,
    "dgamma": _of_dgamma,
    "dbeta": _of_dbeta,
}
"""By output: functions that return the inputs on which the output depends."""


@cache  # they are the same for every seed, and take longer than all others
def next_to_midpoints(
    operation: Operation, dtype: str, level: str, *, centred: bool
) -> tuple[Case, ...]:
    """Return rows with results next to midpoints, for each result of a norm."""
    outputs = [each.name for each in operation.outputs if each.name in MAKERS]
    return tuple(
        _case(operation, output, dtype, size, seed, centred=centred)
        for seed in range(SEEDS[level])
        for output in outputs
        for size in _widths(output, dtype)[: None if level == "full" else 1]
    )


def _case(
    operation: Operation, output: str, dtype: str, size: int, seed: int, *, centred: bool
) -> Case:
    """Return the case of an output and a shape."""
    slug = f"{output}-{NEXT_TO_MIDPOINTS}"
    eps = _eps(output, dtype, seed)
    make = RowMaker(f"{dtype}-{slug}-{size}-{seed}", dtype, eps, centred=centred)
    made = MAKERS[output](make, size)
    family = Family(slug, "normal", "hard", f"{output} next to midpoints", eps=eps)
    case = family.case(operation, dtype, len(made["x"]), size, seed)
    chosen = {
        name: array.astype(dtype_of(dtype)) for name, array in made.items() if name in case.inputs
    }
    return replace(case.with_inputs(**chosen), family=NEXT_TO_MIDPOINTS)


def _widths(output: str, dtype: str) -> tuple[int, ...]:
    widths = WIDTHS[output]
    return (SHORT, *widths) if dtype == "float64" and output in ("y", "dx") else widths


def _eps(output: str, dtype: str, seed: int) -> float:
    """Return a usual eps, or one so large that xhat is small.

    float16 needs a large eps for dgamma. In float64 a large eps leaves double-double algorithms
    few errors beside the errors of the last steps, for which bounds are tight.
    """
    large = (output, dtype) == ("dgamma", "float16") or (dtype == "float64" and seed == 0)
    return 1024.0 if large else EPSILONS[seed % len(EPSILONS)]
