"""Hard cases: results next to a rounding boundary, where a wrong error bound shows.

Random rows never come near enough. In a hard case, an input that enters the result linearly moves
the result onto a midpoint of two neighbouring numbers: beta for y, dy of a column with a small
gamma for dx, dy of another row for dgamma. The rounding of that input is the distance that is
left; a second such input removes most of it, and so on.

The relative distance to the midpoint, measured with balls of 1024 bits and more on 6,000 elements
each. Nine in ten elements are nearer than the first number, half are nearer than the second:

    float16, bfloat16, float32   y 2^-55, 2^-57    dx 2^-60, 2^-63    dgamma 2^-61, 2^-63
    float64                      y 2^-109, 2^-111  dx 2^-107, 2^-108  dgamma 2^-107, 2^-108

A quarter of the cases are ties, or 2^-54 or 2^-1075 from a tie (eps one ulp from the eps that
makes r rational); dbeta is a tie, or one subnormal from a tie. Plain float64 arithmetic gets 37 to
50 % of these y, dx and dgamma wrong (50 to 62 % for float64 data). The bound E of tier 1 accepted
none of 10,000. With E/16, 2 to 6 % of the near ones were accepted and wrong; with E/64, a third.

RMSNorm has no beta: there, ever smaller elements of x increase the mean square and so lower one y
of the row to a midpoint.

float16 and bfloat16 come this near for y only with float32 parameters, or with eps next to a tie:
numbers of the type itself are too coarse.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
from flint import arb, ctx

from shared.promise.families import Array, Case
from shared.promise.oracle import FORMATS

FLOAT64 = np.dtype(np.float64)
Dtype = np.dtype[Any]
_ball = np.frompyfunc(arb, 1, 1)
_ball_rsqrt = np.frompyfunc(arb.rsqrt, 1, 1)
_ball_root = np.frompyfunc(arb.sqrt, 1, 1)


class Maker:
    """Random numbers of one type, and arithmetic wide enough to measure distances to midpoints."""

    def __init__(
        self, dtype: Dtype, parameters: Dtype, seed: list[int], *, centred: bool = True
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype, self.parameters, self.centred = dtype, parameters, centred
        self.precision = FORMATS[dtype].precision
        # The 64 bits of longdouble resolve 2^-60; float64 needs balls.
        self.wide = FLOAT64 in (dtype, parameters)

    def normal(self, rows: int, size: int, scale: float = 1.0, offset: float = 0.0) -> Array:
        return self.cast(self.rng.standard_normal((rows, size)) * scale + offset)

    def cast(self, values: Array, dtype: Dtype | None = None) -> Array:
        narrow = values.astype(np.float64).astype(dtype or self.dtype)
        return np.where(np.isfinite(narrow.astype(np.float64)), narrow, np.ones((), narrow.dtype))

    def lift(self, values: Array) -> Array:
        if self.wide:
            return np.asarray(_ball(values.astype(np.float64)))
        return values.astype(np.longdouble)

    def root(self, values: Array) -> Array:
        return np.asarray(_ball_root(values)) if self.wide else np.sqrt(values)

    def midpoint(self, values: Array, steps: Array | int = 0) -> Array:
        """Return the midpoint next to each value, or another one `steps` away in its binade."""
        head = values.astype(np.float64)
        _, exponent = np.frexp(head)
        ulp = np.copysign(np.ldexp(1.0, exponent - self.precision), head)
        binade = 2.0 ** (self.precision - 1)
        below = binade + (np.floor(head / ulp) - binade + steps) % binade
        return self.lift(below * ulp) + self.lift(ulp / 2)

    def normalized(self, x: Array, eps: float) -> tuple[Array, Array]:
        """Return xhat and r."""
        c = self.lift(x)
        if self.centred:
            c = c - c.sum(axis=1, keepdims=True) / x.shape[1]
        w = (c * c).sum(axis=1, keepdims=True) / x.shape[1] + self.lift(np.array(eps))
        r = np.asarray(_ball_rsqrt(w)) if self.wide else 1 / np.sqrt(w)
        return c * r, r

    def tune(self, value: Array, coefficients: list[Array]) -> tuple[list[Array], Array]:
        """Choose dy so that value + sum of coefficient*dy is near a midpoint.

        Return the dy, and a mask of the elements where it is.
        """
        target, chosen = self.midpoint(value), []
        for coefficient in coefficients:
            dy = self.cast((target - value) / coefficient)
            value = value + coefficient * self.lift(dy)
            chosen.append(dy)
        distance = np.abs(((target - value) / target).astype(np.float64))
        # A coefficient that is zero except for rounding errors would need a huge dy.
        usable = np.all([np.abs(dy.astype(np.float64)) < 1e5 for dy in chosen], axis=0)
        return chosen, (distance <= self.near) & usable

    @property
    def near(self) -> float:
        return 2.0**-98 if self.dtype == FLOAT64 else 2.0**-52


def near_y(make: Maker, size: int, eps: float, offset: float) -> Case:
    """Choose the gamma that comes nearest to a midpoint, and beta for the remaining distance."""
    tries = np.arange(4 if make.wide else 64)[:, np.newaxis]
    x = make.normal(1, size, offset=offset)
    xhat, _ = make.normalized(x, eps)
    start = xhat.astype(np.float64) * make.rng.uniform(0.5, 2, size)
    target = make.midpoint(start, tries)
    gamma = make.cast(target / xhat, make.parameters)
    rest = target - make.lift(gamma) * xhat
    best = np.argmin(np.abs(rest.astype(np.float64)), axis=0), np.arange(size)
    beta = make.cast(rest[best], make.parameters)
    distance = np.abs(((rest[best] - make.lift(beta)) / target[best]).astype(np.float64))
    columns = tuple(np.flatnonzero(distance <= make.near).tolist())
    return Case("near", x, gamma[best], beta, make.normal(1, size), eps, columns)


def near_dx(make: Maker, size: int, eps: float, offset: float) -> Case:
    """Tune the last column by the dy of the first ones, with ever smaller gamma."""
    half = make.dtype == np.float16  # its small range must be shared by gamma, dy and x
    stages = {11: 4, 8: 6, 24: 2, 53: 1}[make.precision]
    step = 9 if half else make.precision + 1
    rows, size = 100 if size > 17 else 1000, max(size, stages + 3)
    x = make.normal(rows, size, 256.0 if half else 1.0, offset)
    gamma = make.rng.uniform(0.5, 1, size) * (4096.0 if half else 1.0)
    gamma[:stages] = 2.0 ** ((12 if half else 0) - step * np.arange(1, stages + 1))
    gamma = make.cast(gamma, make.parameters)
    dy = make.normal(rows, size, 64.0 if half else 1.0)
    dy[:, :stages] = 0
    xhat, r = make.normalized(x, eps)
    g = make.lift(gamma) * make.lift(dy)
    mean, slope = (part.sum(axis=1) / size for part in (g * make.centred, g * xhat))
    last, r = xhat[:, -1], r[:, 0]
    tuning = [
        -r * make.lift(gamma[k : k + 1]) * (make.centred + last * xhat[:, k]) / size
        for k in range(stages)
    ]
    chosen, good = make.tune(r * (g[:, -1] - mean - last * slope), tuning)
    dy[:, :stages] = np.stack(chosen, axis=1)
    return Case("near", x[good], gamma, None, dy[good], eps, (size - 1,))


def near_dgamma(make: Maker, size: int, eps: float, offset: float) -> Case:
    """Tune the sum of three rows by further rows; with small x where the type has no small dy."""
    half = make.dtype == np.float16
    stages = {11: 4, 8: 6, 24: 2, 53: 1}[make.precision]
    scales, dy_scale = [1.0] * (3 + stages), 1.0
    if half:
        scales = [2.0**13] * 3 + [2.0 ** (13 - 8 * k) for k in range(1, stages + 1)]
        eps, dy_scale, offset = 2.0**26, 2.0**10, 0.0
    x = np.concatenate([make.normal(1, size, scale, offset) for scale in scales])
    dy = make.normal(3, size, dy_scale)
    xhat, _ = make.normalized(x, eps)
    value = (make.lift(dy) * xhat[:3]).sum(axis=0)
    chosen, good = make.tune(value, list(xhat[3:]))
    order = make.rng.permutation(len(x))
    dy = np.concatenate([dy, np.stack(chosen)])[order]
    gamma = make.normal(1, size)[0]
    return Case("near", x[order], gamma, None, dy, eps, tuple(np.flatnonzero(good).tolist()))


def rational_or_next(eps: float, root: int, make: Maker) -> tuple[float, int]:
    """Return the eps that makes r rational, or half the time its neighbour."""
    direction = make.rng.choice([0.0, np.inf] if eps == 0 else [0.0, 0.0, -np.inf, np.inf])
    return (float(np.nextafter(eps, direction)) if direction else eps), root


def _signs(make: Maker, rows: int, size: int) -> Array:
    """Return rows with c = +-1, hence v = 1; for layer norm with an integer mean."""
    signs = np.tile([1.0, -1.0], (rows, size // 2)) * make.rng.choice([1, -1], (rows, 1))
    return make.cast(signs + make.centred * make.rng.integers(-60, 60, (rows, 1)))


def _halves(make: Maker, size: int) -> tuple[Array, Array]:
    """Return integers and eighths whose sum and difference are midpoints of the type."""
    top = 2 ** (make.precision - 3)
    integers = make.rng.integers(top + 1, 2 * top, size).astype(np.float64)
    return integers, (2 * make.rng.integers(0, 4, size) + 1) / 8


def tie_y(make: Maker, size: int, eps: float, root: int) -> Case:
    integer, eighths = _halves(make, size)
    gamma, beta = make.cast(root * integer), make.cast(eighths)
    x = _signs(make, 1, size)
    return Case("tie", x, gamma, beta, make.normal(1, size), eps)


def tie_dx(make: Maker, size: int, eps: float, root: int) -> Case:
    """With c = (1, 1, -1, -1) and g = (a, b, 0, 0), dx_0 is a rational of a and b."""
    # dx_0 = (p*a - q*b)/n, where q is odd and n is a power of two times the unit.
    p, unit = {1: (1, 1), 2: (11, 1), 3: (13, 27)}[root]
    rows, top = size, 2 ** (make.precision - 4)
    a = make.rng.integers(-(-5 * top // (4 * p)), 2 * top // p, rows, endpoint=p > 1)
    b = (2 * make.rng.integers(0, 4, rows) + 1) / 16
    dy = np.zeros((rows, 4))
    dy[:, 0], dy[:, 1] = unit * a, unit * b
    dy *= make.rng.choice([1, -1, 2, 0.5], (rows, 1))
    x = np.array([1.0, 1.0, -1.0, -1.0]) + make.rng.integers(-60, 60, (rows, 1))
    return Case("tie", make.cast(x), make.cast(np.ones(4)), None, make.cast(dy), eps, (0,))


def tie_dgamma(make: Maker, size: int, eps: float, root: int) -> Case:
    integer, eighths = _halves(make, size)
    x = _signs(make, 2, size)
    dy = make.cast(root * np.stack([integer, eighths]))
    return Case("tie", x, make.normal(1, size)[0], None, dy, eps)


def tie_dbeta(make: Maker, size: int) -> Case:
    """Add midpoints, exact or one subnormal off, and two large numbers that cancel."""
    integer, eighths = _halves(make, size)
    subnormal = 2.0 ** FORMATS[make.dtype].quantum * make.rng.choice([-1, 0, 0, 1], size)
    large = 4 * make.rng.permutation(integer)
    dy = np.stack([integer, eighths, subnormal, large, -large]) * make.rng.choice([-1, 1], size)
    dy = make.rng.permuted(dy, axis=0)
    x, beta = make.normal(5, size), make.normal(1, size)[0]
    return Case("tie", x, None, beta, make.cast(dy), 1e-5)


def near_y_by_x(make: Maker, size: int, eps: float, offset: float) -> Case:
    """Lower the last y of a row to a midpoint: ever smaller first x increase mean(x^2)."""
    half = make.dtype == np.float16  # its small range needs large x
    stages = {11: 5, 8: 8, 24: 2, 53: 1}[make.precision]
    rows, size = 100 if size > 17 else 1000, max(size, stages + 3)
    x = make.normal(rows, size, 1024.0 if half else 1.0, offset)
    x[:, :stages] = 0
    gamma = make.cast(make.rng.uniform(0.5, 1, size), make.parameters)
    last = make.lift(x[:, -1]) * make.lift(gamma[-1:])
    xhat, r = make.normalized(x, eps)
    value = xhat[:, -1] * make.lift(gamma[-1:])
    target = make.midpoint(value)
    target = np.where(np.abs(target) < np.abs(value), target, make.midpoint(value, -1))
    w = 1 / (r * r)[:, 0]
    target_w = (last / target) ** 2
    for k in range(stages):
        step = make.root((target_w - w) * size)
        # Rounded down, as the next step can only increase w.
        x[:, k] = make.cast(step * (1 - 2.0**-make.precision * 1.5))
        w = w + make.lift(x[:, k]) ** 2 / size
    distance = np.abs(((target_w - w) / w).astype(np.float64)) / 2
    good = (distance <= make.near) & (np.abs(x.astype(np.float64)) < 1e5).all(axis=1)
    return Case("near", x[good], gamma, None, make.normal(rows, size)[good], eps, (size - 1,))


def tie_y_by_product(make: Maker, size: int, eps: float, root: int) -> Case:
    """Make x*gamma an odd number with one bit more than the type has."""
    # The mean square of (7, 1) is 25, and that of (3, 1, 1, 1) is 3.
    odd, ones, multiple = (7, 1, 5) if root == 5 else (3, 3, 1)
    x = np.resize([odd, *[1] * ones], (1, size - size % (ones + 1)))
    top = 2**make.precision
    lowest, highest = -(-top // odd), min(2 * top // odd, top // multiple)
    digits = 2 * make.rng.integers(lowest // 2, (highest - 1) // 2, x.shape[1]) + 1
    gamma = make.cast(digits * float(multiple))
    columns = tuple(range(0, x.shape[1], ones + 1))
    return Case("tie", make.cast(x), gamma, None, make.normal(*x.shape), eps, columns)


def tie_dx_of_two(make: Maker, size: int, eps: float, root: int) -> Case:
    """With x = (1, -1) and g = (a, b), dx_0 = (p*a + b)/n; n is a power of two times the unit."""
    p, unit = {1: (1, 1), 2: (7, 1), 3: (17, 27)}[root]
    top = 2 ** (make.precision - 4)
    a = make.rng.integers(-(-top // p), (2 * top - 1) // p, size, endpoint=True)
    b = (2 * make.rng.integers(0, 4, size) + 1) / 16
    dy = unit * np.stack([a, b], axis=1) * make.rng.choice([1, -1, 2, 0.5], (size, 1))
    x = make.cast(np.tile([1.0, -1.0], (size, 1)))
    return Case("tie", x, make.cast(np.ones(2)), None, make.cast(dy), eps, (0,))


OUTPUTS = ("y", "dx", "dgamma", "dbeta")
RMS_OUTPUTS = OUTPUTS[:3]
PRECISION = 256
SIZES = (17, 64, 67, 513, 1000, 1024)
ROW_SIZES = (7, 8, 9, 12, 17, 64)  # where a row has one hard element
MAX_ROWS = 64  # of an isolated case
EPSILONS = (1e-5, 1.0, 1e-300)
OFFSETS = (0.0, 0.0, 30.0)
FLOAT32 = np.dtype(np.float32)
Nearby = Callable[[Maker, int, float, float], Case]
Tie = Callable[[Maker, int, float, int], Case]
NEAR: dict[str, Nearby] = {"y": near_y, "dx": near_dx, "dgamma": near_dgamma}
TIES: dict[str, Tie] = {"y": tie_y, "dx": tie_dx, "dgamma": tie_dgamma}
RMS_NEAR: dict[str, Nearby] = NEAR | {"y": near_y_by_x}
RMS_TIES: dict[str, Tie] = TIES | {"y": tie_y_by_product, "dx": tie_dx_of_two}
RATIONAL = ((0.0, 1), (3.0, 2), (8.0, 3))  # eps, and 1/r of rows with c = +-1
RMS_RATIONAL_OF_Y = ((0.0, 5), (1.0, 2), (13.0, 4))  # the same for `tie_y_by_product`


def hard_elements(case: Case, output: str) -> int:
    columns = case.x.shape[1] if case.columns is None else len(case.columns)
    return columns * (case.x.shape[0] if output in ("y", "dx") else 1)


def _build(output: str, dtype: Dtype, seed: list[int], k: int, *, centred: bool) -> Case:
    # Tier 1 computes in float64 only without float64 inputs: most cases have none.
    usual = dtype if output != "y" or dtype == FLOAT64 else FLOAT32
    parameters = FLOAT64 if k % 8 == 7 and output in ("y", "dx") else usual
    make = Maker(dtype, parameters, seed, centred=centred)
    size = int(make.rng.choice(SIZES))
    if output == "dbeta":
        return tie_dbeta(make, size)
    if k % 4 == 2:
        rational = RATIONAL if centred or output != "y" else RMS_RATIONAL_OF_Y
        eps, root = rational_or_next(*rational[k // 4 % 3], make)
        return (TIES if centred else RMS_TIES)[output](make, size + size % 2, eps, root)
    one_a_row = output == "dx" or (output == "y" and not centred)
    size = int(make.rng.choice(ROW_SIZES)) if one_a_row else size
    return (NEAR if centred else RMS_NEAR)[output](
        make, size, float(make.rng.choice(EPSILONS)), float(make.rng.choice(OFFSETS))
    )


def hard_case(output: str, dtype: Any, k: int, seed: int = 0, *, centred: bool = True) -> Case:
    """Return case k of a seed."""
    kind = np.dtype(dtype)
    with ctx.workprec(PRECISION), np.errstate(all="ignore"):
        built = _build(output, kind, [seed, k, OUTPUTS.index(output)], k, centred=centred)
    name = f"{kind.name} {output} {built.name} {built.x.shape} eps={built.eps!r} {k}"
    named = replace(built, name=name)
    return named if centred else named.as_rms_norm()


def hard_cases(
    output: str, dtype: Any, elements: int, seed: int = 0, *, centred: bool = True
) -> Iterator[Case]:
    """Yield cases with at least `elements` hard elements of y, dx, dgamma or dbeta in total.

    A quarter of the cases have a rational r, or an eps one ulp from the eps that makes r rational.
    """
    made = 0
    for k in count():
        if made >= elements:
            return
        case = hard_case(output, dtype, k, seed, centred=centred)
        made += hard_elements(case, output)
        yield case


def isolated(case: Case) -> Case:
    """Copy the row for each hard y and permute the other x, on whose order y does not depend."""
    chosen = list(case.columns or ())[:MAX_ROWS]
    rows = np.repeat(case.x, len(chosen), axis=0)
    for row, j in zip(rows, chosen, strict=True):
        others = np.arange(len(row)) != j
        row[others] = np.roll(row[others], 1)
    name = f"{case.name} isolated"
    dy = np.repeat(case.dy, len(chosen), axis=0)
    return Case(name, rows, case.gamma, case.beta, dy, case.eps, tuple(chosen))


def isolated_cases(hard: Iterable[Case], elements: int) -> Iterator[Case]:
    """Yield cases with one hard y per row, at least `elements` in total, from hard cases of y.

    Row i is hard in the i-th column of the case. If a row has several hard elements, a backend may
    recompute all of it for one undecided element, and so correct others that a wrong bound let
    pass.
    """
    made = 0
    for case in hard:
        if " near " in case.name and case.columns:
            one = isolated(case)
            made += len(one.x)
            yield one
            if made >= elements:
                return
    raise ValueError(f"expected at least {elements} hard elements, got {made}")
