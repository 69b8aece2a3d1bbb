"""Test cases: families of difficult rows by name, and mixtures of them, all reproducible.

`cases` mixes the families with every eps, width, kind of dy, gamma and beta, and type of
parameter, until a budget of elements is used up. Inputs are finite, except in
`non_finite_cases`; results need not be.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.promise.oracle import FORMATS

Array = NDArray[Any]
Float64s = NDArray[np.float64]

DTYPES = tuple(FORMATS)
EPSILONS = (1e-5, 0.0, 1.0, 5e-324, 1e-300, 1e300)


@dataclass(frozen=True, eq=False)
class Case:
    """The arguments of a forward and a backward pass."""

    name: str
    x: Array
    gamma: Array | None
    beta: Array | None
    dy: Array
    eps: float
    columns: tuple[int, ...] | None = None  # the columns to compare; None means all
    centred: bool = True  # True for layer norm, False for RMSNorm, which has no beta

    def __str__(self) -> str:
        return self.name

    @property
    def parameters(self) -> tuple[Array, Array]:
        """Gamma and beta, with ones and zeros for absent ones."""
        size, dtype = self.x.shape[1], self.x.dtype
        return (
            np.ones(size, dtype) if self.gamma is None else self.gamma,
            np.zeros(size, dtype) if self.beta is None else self.beta,
        )

    @property
    def has_constant_rows(self) -> bool:
        rows = self.x.astype(np.float64)
        return bool((rows.max(axis=1) == rows.min(axis=1)).any())

    @property
    def has_undefined_rows(self) -> bool:
        has_zero_w = self.has_constant_rows if self.centred else not self.x.any(axis=1).all()
        return self.eps == 0 and has_zero_w

    def as_rms_norm(self) -> "Case":
        """Return the case for RMSNorm, without beta."""
        return replace(self, name=f"rms_norm {self.name}", beta=None, centred=False)

    def rows(self, part: Any) -> "Case":
        """Return the case with some of the rows."""
        return replace(self, x=self.x[part], dy=self.dy[part])


@dataclass(frozen=True)
class Range:
    """The parameters of the families in a type, limited by its range and precision."""

    offset: float  # with a standard deviation of 1, about one ulp
    typical: float = 1.0  # size of the elements beside an outlier
    outlier: float = 1e8
    far_outlier: float = 1e30
    cancelling: float = 1e18
    decades: float = 18.0  # to either side of one
    ripple: float = 1e-3  # on top of +-1e3


RANGES = {
    "float16": Range(1e3, 3e-4, 3e4, 6e4, 3e4, 4.5, 2.0),  # its range has 12 decades
    "bfloat16": Range(200.0, ripple=8.0),
    "float32": Range(1e7),
    "float64": Range(1e15),
}


class Generator:
    """Random numbers and the parameters of a type, from which families are made."""

    def __init__(self, dtype: np.dtype[Any], rows: int, size: int, *seeds: int) -> None:
        self.rng = np.random.default_rng(seeds)
        self.shape = (rows, size)
        self.z = self.rng.standard_normal(self.shape)
        self.dtype = dtype
        self.range = RANGES[dtype.name]
        into = FORMATS[dtype]
        self.ulp_of_one = 2.0 ** (1 - into.precision)
        self.subnormal = 2.0**into.quantum
        self.normal = self.subnormal / self.ulp_of_one
        self.largest = (2 - self.ulp_of_one) * (2 / self.normal)

    def decades(self) -> Float64s:
        decades = self.range.decades
        return self.z * 10.0 ** self.rng.uniform(-decades, decades, self.shape)

    def one_outlier(self, typical: float, outlier: float) -> Float64s:
        x = self.z * typical
        x[:, self.shape[1] // 2] = outlier
        return x

    def cancelling_pairs(self) -> Float64s:
        third = self.shape[1] // 3
        x = self.z.copy()
        x[:, :third] *= self.range.cancelling
        x[:, third : 2 * third] = -x[:, :third]
        return x

    def one_ulp_off(self) -> Float64s:
        x = np.full(self.shape, 1024.0)
        x[:, 0] *= 1 + self.ulp_of_one
        return x

    def mirrored(self, *factors: float) -> Float64s:
        period = len(factors)
        rows = [factors[i % period] * self.z[i - i % period] for i in range(self.shape[0])]
        return np.reshape(rows, self.shape)

    def mixed(self) -> Float64s:
        """Mix zeros, ones, subnormals, values near the largest one, and all magnitudes."""
        zero, z = np.zeros(self.shape), self.z
        tiny, huge = z * self.subnormal * 8, z * (self.largest / 8)
        options = [zero, zero + 1, tiny, huge, self.decades(), z]
        return np.choose(self.rng.integers(0, 6, self.shape), options)

    def cast(self, values: Float64s) -> Array:
        with np.errstate(all="ignore"):
            result: Array = np.clip(values, -self.largest, self.largest).astype(self.dtype)
        result.setflags(write=False)
        return result


X_FAMILIES: dict[str, Callable[[Generator], Float64s]] = {
    "normal": lambda m: m.z,
    "offset_half": lambda m: m.range.offset**0.5 + m.z,
    "offset": lambda m: m.range.offset + m.z,
    "offset_negative": lambda m: -m.range.offset + 3 * m.z,
    "scale_subnormal": lambda m: m.z * m.subnormal * 4,
    "scale_least_normal": lambda m: m.z * m.normal,
    "scale_small": lambda m: m.z * m.normal**0.5,
    "scale_large": lambda m: m.z * m.largest**0.5,
    "scale_top": lambda m: m.z * (m.largest / 8),
    "outlier": lambda m: m.one_outlier(m.range.typical, m.range.outlier),
    "outlier_far": lambda m: m.one_outlier(
        1.0 if m.range.typical == 1 else 4 * m.subnormal, m.range.far_outlier
    ),
    "alternating": lambda m: np.where(np.arange(m.shape[1]) % 2, 1e3, -1e3) + m.range.ripple * m.z,
    "sorted": lambda m: np.sort(100 * m.z + 1000, axis=1),
    "decades": Generator.decades,
    "cancelling": Generator.cancelling_pairs,
    "one_ulp_off": Generator.one_ulp_off,
    "constant": lambda m: np.full(m.shape, 0.1),
    "zero": lambda m: np.zeros(m.shape),
    "integers": lambda m: m.rng.integers(-8, 9, m.shape).astype(np.float64),
    "plus_minus_max": lambda m: np.where(m.z > 0, m.largest, -m.largest),
    "plus_minus_one": lambda m: np.where(m.z > 0, 1.0, -1.0),
    "mirrored": lambda m: m.mirrored(1.0, -1.0),
    "mirrored_doubled": lambda m: m.mirrored(1.0, -1.0, 2.0),
}
PROPORTIONAL = "proportional"
DY_KINDS: dict[str, Callable[[Generator], Float64s]] = {
    "random": lambda m: m.z,
    "constant": lambda m: np.full(m.shape, 0.7),
    "one_hot": lambda m: np.eye(m.shape[1])[m.rng.integers(0, m.shape[1], m.shape[0])],
    "same_in_all_rows": lambda m: np.repeat(m.z[:1], m.shape[0], axis=0),
    "decades": Generator.decades,
    PROPORTIONAL: lambda m: m.z,  # replaced by x/2 where x is known
}
PARAMETER_KINDS: dict[str, Callable[[Generator], Float64s]] = {
    "random": lambda m: m.z,
    "ones": lambda m: np.ones(m.shape),
    "zeros": lambda m: np.copysign(0.0, m.z),
    "tiny": lambda m: m.z * m.normal**0.75,
    "mixed": Generator.mixed,
}
ABSENT = "None"


def make_x(family: str, dtype: np.dtype[Any], rows: int, size: int, seed: int) -> Array:
    generator = Generator(dtype, rows, size, seed, list(X_FAMILIES).index(family))
    return generator.cast(X_FAMILIES[family](generator))


def make_dy(kind: str, x: Array, seed: int) -> Array:
    generator = Generator(x.dtype, *x.shape, seed, 100 + list(DY_KINDS).index(kind))
    values = x.astype(np.float64) / 2 if kind == PROPORTIONAL else DY_KINDS[kind](generator)
    return generator.cast(values)


def make_parameter(kind: str, dtype: np.dtype[Any], size: int, seed: int) -> Array | None:
    if kind == ABSENT:
        return None
    generator = Generator(dtype, 1, size, seed, 200 + list(PARAMETER_KINDS).index(kind))
    return generator.cast(PARAMETER_KINDS[kind](generator)[0])


@dataclass(frozen=True)
class CaseSpec:
    """One case, by the names of its parts."""

    family: str
    rows: int
    size: int
    eps: float
    dy: str
    gamma: tuple[str, np.dtype[Any]]
    beta: tuple[str, np.dtype[Any]]

    def build(self, dtype: np.dtype[Any], seed: int) -> Case:
        x = make_x(self.family, dtype, self.rows, self.size, seed)
        return Case(
            f"{dtype.name} {self.family} {self.rows}x{self.size} eps={self.eps:g} dy={self.dy} "
            f"gamma={self.gamma[0]}:{self.gamma[1].name} beta={self.beta[0]}:{self.beta[1].name} "
            f"seed={seed}",
            x,
            make_parameter(*self.gamma, self.size, seed),
            make_parameter(*self.beta, self.size, seed + 1),
            make_dy(self.dy, x, seed),
            self.eps,
        )


def usual_case(family: str, rows: int, size: int, dtype: Any, seed: int = 0) -> Case:
    """Return a case of a family with eps = 1e-5, and random dy and parameters of the same type."""
    kind = np.dtype(dtype)
    parameter = ("random", kind)
    choice = CaseSpec(family, rows, size, 1e-5, "random", parameter, parameter)
    return choice.build(kind, seed)


# Powers of two hide bugs: each has a neighbour that is not one.
WIDTHS = (1, 2, 3, 5, 16, 17, 64, 67, 513, 1000, 1024, 4096)
SMALL_ODD_WIDTHS = (17, 67, 5, 3)
ROWS = (1, 2, 7)
SHAPE = (7, 67)  # of `every_family_cases`


def _shapes() -> Iterator[tuple[str, int, int]]:
    """Yield every family at a small width that is not a power of two, every width, many rows."""
    families = list(X_FAMILIES)
    for k, family in enumerate(families):
        # Two mirrored rows cancel in dgamma; of seven, one remains.
        rows = {"mirrored": 2, "mirrored_doubled": 7}.get(family, ROWS[k % len(ROWS)])
        yield family, rows, SMALL_ODD_WIDTHS[k % len(SMALL_ODD_WIDTHS)]
    for k, size in enumerate(WIDTHS):
        yield families[7 * k % len(families)], 7 if size < 10 else 1, size
    yield "mirrored_doubled", 1000, 5


def cases(dtype: Any, budget: int, seed: int = 0) -> Iterator[Case]:
    """Yield cases with about `budget` elements of x in total, at least 13,785.

    The first 13,785 have every family, width, eps, kind and pair of types; the others are random
    combinations (with a fixed seed).
    """
    wanted = np.dtype(dtype)
    rng = np.random.default_rng([seed, DTYPES.index(wanted)])
    present = list(PARAMETER_KINDS)
    parameters = [*present, ABSENT]
    kinds = list(DY_KINDS)
    used = 0
    for k, (family, rows, size) in enumerate(_shapes()):
        # The strides are coprime to the lengths, so every element is used.
        gamma_type, beta_type = DTYPES[k % 4], DTYPES[(k // 4) % 4]
        if k % 3 == 0:
            gamma_type = beta_type = wanted
        # These test sums over rows, which absent parameters do not have.
        mirrored = family.startswith("mirrored")
        choice = CaseSpec(
            family, rows, size, EPSILONS[5 * k // 2 % 6], kinds[k % len(kinds)],
            (present[k // 2 % 5] if mirrored else parameters[k // 2 % 6], gamma_type),
            (present[k // 3 % 5] if mirrored else parameters[k // 3 % 6], beta_type),
        )  # fmt: skip
        used += rows * size
        yield choice.build(wanted, seed + k)
    number = 1000
    while used < budget:
        fitting = [size for size in WIDTHS if size <= max(1, budget - used)]
        size = int(rng.choice(fitting))
        rows = min(int(rng.choice(ROWS)), max(1, (budget - used) // size))
        types = [wanted if rng.random() < 0.5 else DTYPES[rng.integers(4)] for _ in range(2)]
        choice = CaseSpec(
            str(rng.choice(list(X_FAMILIES))), rows, size, float(rng.choice(EPSILONS)),
            str(rng.choice(kinds)), (str(rng.choice(parameters)), types[0]),
            (str(rng.choice(parameters)), types[1]),
        )  # fmt: skip
        used += rows * size
        number += 1
        yield choice.build(wanted, seed + number)


def every_family_cases(dtype: np.dtype[Any]) -> Iterator[Case]:
    """Yield every family with the same number of elements and eps = 1e-5."""
    for family in X_FAMILIES:
        for seed in range(3):
            yield usual_case(family, *SHAPE, dtype, seed)


def _full_range(random: np.random.Generator, dtype: np.dtype[Any], *shape: int) -> Array:
    """Return numbers with exponents over the whole range of the type, and some zeros."""
    form = FORMATS[dtype]
    top = form.quantum + 2 ** (form.width - form.precision) + form.precision - 3
    exponents = random.integers(form.quantum, top, shape)
    values: Array = np.ldexp(random.choice([-1.0, 1.0, 1.0], shape), exponents)
    values[random.random(shape) < 0.2] = 0.0
    rounded: Array = values.astype(dtype)
    return rounded


def full_range_cases(dtype: np.dtype[Any], count: int) -> Iterator[Case]:
    """Yield small cases of huge and tiny numbers; the type of the parameters alternates."""
    random = np.random.default_rng(0)
    for seed in range(count):
        rows, size = int(random.integers(1, 4)), int(random.integers(1, 7))
        eps = float(random.choice(EPSILONS))
        other = DTYPES[seed % 4]
        x, dy = (_full_range(random, dtype, rows, size) for _ in range(2))
        gamma, beta = (_full_range(random, other, size) for _ in range(2))
        yield Case(f"full range {seed}", x, gamma, beta, dy, eps)


def uneven_cases(dtype: np.dtype[Any]) -> Iterator[Case]:
    """Yield rows whose parameters and dy are tiny or huge, in all columns or in all but one.

    A row of ordinary mean squares then has columns whose products underflow or overflow. The rows
    are equal, so that errors of dgamma add up.
    """
    generator = Generator(dtype, 1, 17, 300)
    limit = min(29, int(np.log2(generator.largest)) - 3)  # beyond 2**30 rows are float64
    scales = {
        "subnormal": generator.subnormal,
        "least normal": generator.normal,
        "tiny": generator.normal * 2.0**10,
        "ordinary": 1.0,
        "huge": generator.largest / 2**10,
    }
    rng = np.random.default_rng(301)

    def draw(scale: float, *, but_one: bool) -> Array:
        values = scale * rng.uniform(1, 2, 17)
        if but_one:
            values[3] = 1.0
        return generator.cast(values)

    for spread, gamma, dy in product((-limit, 0, limit), scales, scales):
        x = generator.cast(np.repeat(generator.z * 2.0**spread, 12, axis=0))
        for but_one in (False, True):
            parameter, row = (draw(scales[name], but_one=but_one) for name in (gamma, dy))
            name = f"{dtype.name} x 2**{spread}, {gamma} gamma, {dy} dy"
            name += ", one ordinary column" if but_one else ""
            yield Case(name, x, parameter, None, np.repeat(row[None], 12, axis=0), 1e-5)


def non_finite_cases(
    dtype: np.dtype[Any], count: int, rows: tuple[int, ...], widths: tuple[int, ...]
) -> Iterator[Case]:
    """Yield cases with infinities and NaN: none, few or many in each array.

    Shapes are drawn from `rows` and `widths`; the type of the parameters alternates.
    """
    random = np.random.default_rng(DTYPES.index(dtype))

    def draw(kind: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        array: Array = random.standard_normal(shape).astype(kind)
        chosen = random.random(shape) < random.choice([0.0, 0.01, 0.3])
        array[chosen] = random.choice([np.inf, -np.inf, np.nan], int(chosen.sum()))
        return array

    for seed in range(count):
        shape = int(random.choice(rows)), int(random.choice(widths))
        other = DTYPES[seed % 4]
        x, dy = draw(dtype, shape), draw(dtype, shape)
        gamma, beta = draw(other, shape[1:]), draw(other, shape[1:])
        eps = float(random.choice(EPSILONS))
        yield Case(f"{dtype.name} not finite {shape} {seed}", x, gamma, beta, dy, eps)
