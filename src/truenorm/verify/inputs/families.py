"""Families of cases, which differ in type, shape and seed.

gamma, beta and dy are never ones: with ones, half of the bugs in backward passes cancel.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from truenorm.verify.inputs.patterns import Pattern, filled, number
from truenorm.verify.operation import MODEL_INPUT, Case, Input, Operation
from truenorm.verify.types import FORMATS, Array, dtype_of


def to_float32(value: float) -> float:
    """Round to float32, so that every kernel can get the exact eps."""
    return float(np.float32(value))


EPSILONS = tuple(map(to_float32, (1e-5, 1e-6, 0.125, 1e-3)))
EPS = EPSILONS[0]
PLAIN_X: tuple[Mapping[str, Any], ...] = (
    {"pattern": "normal"},
    {"pattern": "normal", "offset": 3.0, "scale": 2.0},
    {"pattern": "normal", "offset": -0.5, "scale": 0.25},
)
PLAIN_DY: Mapping[str, Any] = {"pattern": "normal", "offset": 0.5}
PLAIN: Mapping[str, Pattern] = {"gamma": "random", "beta": "normal", "dy": PLAIN_DY}
"""The default patterns of inputs beside x; an operation uses the patterns of its inputs."""


BY_ROLE: Mapping[str, Pattern] = {"data": "normal", "parameter": "random", "gradient": PLAIN_DY}
"""The patterns of inputs of other names, by their roles."""


def _column(each: Input, pattern: Pattern, dtype: str, rows: int, seed: str) -> Array:
    """Return one number for each row, without numbers that are put at places of wider rows."""
    if not isinstance(pattern, str):
        put = [spot for spot in pattern.get("put", ()) if spot[1] == 0]
        pattern = {**pattern, "put": put}
    if pattern in ("proportional", "one-hot"):
        pattern = BY_ROLE[each.role]
    return filled(pattern, dtype, (rows, 1), seed)


@dataclass(frozen=True)
class Family:
    """Cases with the same patterns of x and of other inputs."""

    slug: str
    x: Pattern
    kind: str
    why: str
    others: Mapping[str, Pattern] = field(default_factory=dict)
    eps: float = EPS
    repeats: int = 1

    def case(self, operation: Operation, dtype: str, rows: int, size: int, seed: int = 0) -> Case:
        """Return the case of a shape; `rows` is the number before repetition."""
        size += -size % operation.multiple
        name = f"{dtype}-{self.slug}-{rows * self.repeats}x{size}" + (f"-{seed}" if seed else "")
        first = operation.inputs[0].name
        x = filled(self.x, dtype, (rows, size), f"{name} {first}")
        patterns = {**PLAIN, **self.others}
        inputs = {first: x}
        for each in operation.inputs[1:]:
            pattern, seeds = patterns.get(each.name, BY_ROLE[each.role]), f"{name} {each.name}"
            shape = (size,) if each.role == "parameter" else (rows, size)
            if each.name in operation.columns:
                inputs[each.name] = _column(each, pattern, dtype, rows, seeds)
            else:
                inputs[each.name] = filled(pattern, dtype, shape, seeds, x=x)
        for index in operation.indices:
            places = np.random.default_rng(zlib.crc32(f"{name} {index}".encode()))
            inputs[index] = places.integers(size, size=(rows, 1))
        for limited, (low, high) in operation.ranges.items():
            inputs[limited] = np.clip(inputs[limited], low, high).astype(dtype_of(dtype))
        case = Case(
            operation,
            name,
            dtype,
            inputs,
            self.eps if operation.takes_eps else 0.0,
            self.kind,
            self.slug,
            self.why,
        )
        return case.tiled(self.repeats)


WIDTHS = {
    "quick": (
        *(2, 3, 5, 8, 12, 17, 64, 67, 96, 128, 256, 257, 768, 1000, 1024, 1025),
        *(3072, 4096, 4097, 5120, 8193),
    ),
    "full": (
        *(4, 7, 15, 16, 20, 24, 31, 33, 48, 192, 384, 511, 512, 513, 1536, 2048),
        *(3000, 6144, 7168, 8192, 12288, 16385, 65536),
    ),
}
"""Widths where kernels change their algorithm: tiles, warps, and hidden sizes of models."""
RANDOM_WIDTHS = ((9, 64), (64, 512), (512, 2048))
"""Ranges: the seed draws one more width from each."""
WIDE = 2048
"""From this width on, one row is repeated: exact answers of two rows would be expensive."""
WIDTHS_BY_ENCLOSURE = (1536, 2560, 3584, 6144, 7168, 12288, 20480)
"""More widths, whose answers come from enclosures: hidden sizes, and rows beyond 16384."""
SERVED_SHAPES = ((64, 1024), (64, 2048), (32, 4096), (32, 5120), (32, 8192))
"""Hidden sizes at which rows are passed in batches of several sizes, and how many rows differ:
another block size changes the bits of about 7 % of rows of float32 (vLLM#48271)."""
ROWS = (7, 32, 100, 128, 256)
SEEDS = {"quick": 1, "full": 3}

MANY = Family(
    "many-rows",
    PLAIN_X[2],
    "ordinary",
    "sums over many rows of one sign",
    {"dy": "positive"},
    repeats=64,
)
ROW_LIMIT = Family(
    "row-limit", PLAIN_X[0], "ordinary", "more rows than 16 bits can count", repeats=1600
)
BATCH = Family(
    "batch", PLAIN_X[1], "ordinary", "the same rows in batches of several sizes", repeats=10
)
# An odd number of rows, repeated: each row is at every position of a block.
BATCH_SIZES = Family(
    "batch-sizes", PLAIN_X[1], "ordinary", "the same rows in larger batches", repeats=376
)
SERVED = Family(
    "served", PLAIN_X[1], "ordinary", "rows of a hidden size in batches of several sizes"
)
ROW_COUNTS = Family(
    "row-counts", PLAIN_X[1], "ordinary", "the same rows over and over, up to 65536 of them"
)
REPEATED = Family("repeated", PLAIN_X[1], "ordinary", "one small call over and over")
PADDING = Family(
    "padding",
    PLAIN_X[1],
    "ordinary",
    "rows of padding: their dy is zero, and so is their dx",
    {"dy": {"pattern": "normal", "offset": [0.5, 0.0], "scale": [1.0, 0.0]}},
)
LARGE_BETA = Family(
    "large-beta",
    PLAIN_X[0],
    "ordinary",
    "beta from 100 on, beside which gamma*xhat still counts",
    {
        "gamma": {"pattern": "alternating", "high": 32.0, "ripple": 4.0},
        "beta": {"pattern": "alternating", "high": 300.0, "ripple": 40.0},
    },
)
LARGE_VALUES = "large-values"
"""The family of rows whose elements reach the largest |x| of the default domain."""
# No dx of float16 is then subnormal.
DY_OF_LARGE_VALUES: Mapping[str, Pattern] = {
    "dy": {"pattern": "normal", "offset": 32.0, "scale": 64.0}
}
UP_TO_LIMIT = Family(
    LARGE_VALUES,
    {
        "pattern": "normal",
        "scale": [30.0, 300.0, 1000.0, 3000.0],
        "clip": MODEL_INPUT.largest,
        "put": [[3, 5, MODEL_INPUT.largest], [3, 41, -MODEL_INPUT.largest]],
    },
    "ordinary",
    "standard deviations from 30 to 3000, elements to 1e4",
    DY_OF_LARGE_VALUES,
)
# Two columns of large language models are like this, in every row.
MASSIVE = Family(
    "massive-activations",
    {
        "pattern": "normal",
        "put": [
            [row, column, sign * size]
            for row, size in enumerate((300.0, 1200.0, 4000.0, 9000.0))
            for column, sign in ((7, 1), (50, -0.5))
        ],
    },
    "ordinary",
    "standard deviation 1, and two elements of up to 9000 in each row",
    DY_OF_LARGE_VALUES,
)
ENDS = (*range(8), *range(59, 67))
STARTS_PLAIN = Family(
    "starts-plain",
    {**PLAIN_X[1], "put": [[row, place, 3.0] for row in range(4) for place in ENDS]},
    "ordinary",
    "the first and the last numbers of each input are equal",
    {
        "gamma": {"pattern": "random", "put": [[place, 1.0] for place in ENDS]},
        "beta": {"pattern": "normal", "put": [[place, 0.0] for place in ENDS]},
        "dy": {**PLAIN_DY, "put": [[row, place, 1.0] for row in range(4) for place in ENDS]},
    },
)
SQUARE = Family("square", PLAIN_X[1], "ordinary", "as many rows as columns")
UNALIGNED = Family(
    "unaligned", PLAIN_X[1], "ordinary", "rows at an address that is no multiple of 16 bytes"
)
EQUAL_SIZES = Family(
    "equal-magnitudes",
    {"pattern": "alternating", "high": 0.7},
    "hard",
    "wide rows of 0.7 and -0.7: the errors of a sum in sequence have one sign",
)
# D is no power of two, and no row begins 2^24 elements after another: an index that wraps around
# there reads other numbers.
LARGE = Family(
    "large", PLAIN_X[1], "ordinary", "these rows over and over, to beyond element 2^24 of a call"
)


def random_widths(dtype: str, seed: int) -> Iterator[int]:
    """Yield a few widths that `WIDTHS` does not have, by type and seed."""
    random = np.random.default_rng([zlib.crc32(dtype.encode()), seed])
    listed = {width for each in WIDTHS.values() for width in each}
    for low, high in RANDOM_WIDTHS:
        yield int(random.choice([width for width in range(low, high) if width not in listed]))


def _of_width(operation: Operation, dtype: str, size: int, seed: int, index: int) -> Case:
    """Return ordinary input of one width; the index selects mean, spread and eps."""
    family = Family(
        "normal",
        PLAIN_X[index % 3],
        "ordinary",
        f"ordinary input, D = {size}",
        eps=EPSILONS[index % 4],
        repeats=2 if size >= WIDE else 1,
    )
    rows = 1 if size >= WIDE else 2 if size >= 500 else 4
    return family.case(operation, dtype, rows, size, seed)


def served(operation: Operation, dtype: str, seed: int) -> Iterator[Case]:
    """Yield rows of hidden sizes; two rows of dy are repeated, so recordings stay small."""
    for rows, size in SERVED_SHAPES:
        case = SERVED.case(operation, dtype, rows, size, seed)
        gradients = {
            name: np.resize(array[:2], array.shape)
            for name in operation.inputs_of("gradient")
            if (array := case.inputs[name]) is not None
        }
        yield replace(case.with_inputs(**gradients), enclosed=True, compared=True)


def ordinary(operation: Operation, dtype: str, level: str, first: int = 0) -> Iterator[Case]:
    """Yield easy input; `first` is the first seed."""
    widths = WIDTHS["quick"] + (WIDTHS["full"] if level == "full" else ())
    for seed in range(first, first + SEEDS[level]):
        # A case has the same name, and the same index, at both levels.
        random = enumerate(random_widths(dtype, seed), len(WIDTHS["quick"]))
        for k, size in (*enumerate(widths), *random):
            yield _of_width(operation, dtype, size, seed, k + seed)
    for k, size in enumerate(WIDTHS_BY_ENCLOSURE):
        why = f"ordinary input, D = {size}"
        family = Family("wide", PLAIN_X[k % 3], "ordinary", why, eps=EPSILONS[k % 4], repeats=2)
        yield replace(family.case(operation, dtype, 1, size, first), enclosed=True)
    yield from served(operation, dtype, first)
    for rows in ROWS:
        why = f"sums over {rows} rows"
        yield Family("rows", PLAIN_X[1], "ordinary", why).case(operation, dtype, rows, 5, first)
    yield MANY.case(operation, dtype, 64, 8, first)
    yield ROW_LIMIT.case(operation, dtype, 41, 4, first)
    yield BATCH.case(operation, dtype, 30, 67, first)
    yield BATCH_SIZES.case(operation, dtype, 11, 33, first)
    yield REPEATED.case(operation, dtype, 8, 64, first)
    yield ROW_COUNTS.case(operation, dtype, 5, 8, first)
    yield LARGE.case(operation, dtype, 2, 500, first)
    yield PADDING.case(operation, dtype, 4, 67, first)
    yield STARTS_PLAIN.case(operation, dtype, 4, 67, first)
    yield UP_TO_LIMIT.case(operation, dtype, 4, 67, first)
    if dtype != "float64":  # there dbeta of four rows has ties, which no enclosure decides
        yield replace(UP_TO_LIMIT.case(operation, dtype, 4, 1024, first), enclosed=True)
    yield replace(MASSIVE.case(operation, dtype, 4, 67, first), family=LARGE_VALUES)
    yield SQUARE.case(operation, dtype, 17, 17, first)
    yield replace(UNALIGNED.case(operation, dtype, 4, 67, first), layout="unaligned")
    yield replace(EQUAL_SIZES.case(operation, dtype, 1, 16384, first), enclosed=True)
    if "beta" in operation.inputs_of("parameter"):
        yield LARGE_BETA.case(operation, dtype, 4, 67, first)
    if level == "full":
        yield ROW_LIMIT.case(operation, dtype, 43, 67, first)
        yield BATCH.case(operation, dtype, 33, 1000, first)


HALF_MAX = number("max", "float16")
SWEEP_WIDTHS = {"quick": (67,), "full": (5, 67, 512, 2049)}
HARD_WIDTHS = {"quick": (67,), "full": (3, 16, 67, 513, 4096)}


def sweeps(operation: Operation, dtype: str, level: str, first: int = 0) -> Iterator[Case]:
    """Yield rows of standard deviation 1 whose mean grows until an ulp is 1."""
    last = FORMATS[dtype].precision * np.log10(2.0)
    halves = range(int(2 * last) + 1)
    for seed in range(first, first + SEEDS[level]):
        for size in SWEEP_WIDTHS[level]:
            for half in halves:
                offset = float(f"{10 ** (half / 2):.3g}")
                family = Family(
                    f"offset-{offset:.3g}".replace("e+0", "e").replace("e+", "e"),
                    {"pattern": "normal", "offset": offset},
                    "sweep",
                    f"standard deviation 1, mean {offset:g}",
                )
                yield replace(family.case(operation, dtype, 4, size, seed), family="offset")


def _families(dtype: str) -> Iterator[Family]:
    top = number("max", dtype)
    least = number("smallest-normal", dtype)
    spread = {"float16": 9, "bfloat16": 30, "float32": 30, "float64": 30}[dtype]
    patterns: dict[str, tuple[Pattern, str]] = {
        "large-scale": ({"pattern": "normal", "scale": top / 16}, "squares overflow"),
        "root-of-large": (
            {"pattern": "normal", "scale": top**0.5},
            "the sum of squares overflows",
        ),
        "small-scale": ({"pattern": "normal", "scale": least**0.5}, "squares are far below eps"),
        "spread-of-eps": ({"pattern": "normal", "scale": EPS**0.5}, "squares are about eps"),
        "constant": ({"pattern": "constant", "value": 0.1}, "constant rows"),
        "decades": ({"pattern": "decades", "reach": spread}, "magnitudes over many decades"),
        "sorted": ({"pattern": "sorted", "offset": 10.0, "scale": 1.0}, "ascending rows"),
        "integers": ({"pattern": "integers", "limit": 8}, "whole numbers: ties and zeros"),
    }
    large_dy = {"pattern": "normal", "offset": 512.0, "scale": 1024.0}  # so that dx is normal
    for slug, (x, why) in patterns.items():
        yield Family(slug, x, "hard", why, {"dy": large_dy} if slug == "large-scale" else {})
    small = to_float32(1e-6 if dtype == "float16" else 1e-12)
    for slug, eps in (("small-eps", small), ("large-eps", 1024.0)):
        scale = {"pattern": "normal", "scale": float(f"{eps**0.5:.1g}")}
        yield Family(slug, scale, "hard", f"eps = {eps:g} beside squares of that size", eps=eps)
    along = {"dy": "proportional"}
    yield Family(
        "gradient-along-x", PLAIN_X[0], "hard", "dy in proportion to x: dx cancels", along
    )
    yield Family("one-hot-dy", PLAIN_X[1], "hard", "a single element of dy", {"dy": "one-hot"})
    if top > HALF_MAX:
        why = "parameters, dy and all results beyond 65504, the largest number of float16"
        beyond = {"pattern": "alternating", "high": 4.0 * HALF_MAX, "ripple": HALF_MAX}
        others = dict.fromkeys(("gamma", "beta", "dy"), beyond)
        yield Family("beyond-65504", PLAIN_X[1], "hard", why, others)


def hard(operation: Operation, dtype: str, level: str, first: int = 0) -> Iterator[Case]:
    """Yield hard rows, at several widths."""
    for seed in range(first, first + SEEDS[level]):
        for size in HARD_WIDTHS[level]:
            for family in _families(dtype):
                if family.eps != EPS and not operation.takes_eps:
                    continue
                yield family.case(operation, dtype, 4 if size < 1000 else 2, size, seed)


def extensions(operation: Operation, dtype: str, seed: int = 0) -> Iterator[Case]:
    """Yield one or two cases for each extension of an operation."""
    for case in _of_extensions(operation, dtype, seed):
        if case.needs <= operation.extensions.keys():
            yield case


def _of_extensions(operation: Operation, dtype: str, seed: int) -> Iterator[Case]:
    def plain(slug: str, why: str, needs: str, repeats: int = 1) -> Case:
        family = Family(slug, PLAIN_X[1], "ordinary", why, repeats=repeats)
        case = family.case(operation, dtype, 6, 67, seed)
        return replace(case, needs=frozenset([needs]))

    parameters = operation.inputs_of("parameter")
    for name in parameters:
        case = plain(f"no-{name}", f"{name} is None", f"no-{name}")
        yield case.with_inputs(**{name: None})
    case = plain("three-axes", "x has the shape (2, 3, 67)", "ranks")
    yield replace(case, layout="three-axes")
    case = plain("one-axis", "x has the shape (67,)", "ranks")
    yield replace(case.part(slice(0, 1)), layout="one-axis")
    case = plain("strided", "x and dy have gaps along the last axis", "strides")
    yield replace(case, layout="strided")
    case = plain("padded-rows", "x and dy are slices of a wider array", "padded-rows")
    yield replace(case, layout="padded")
    why = "dy lies in memory otherwise than x"
    yield plain("layouts-of-gradients", why, "layouts-of-gradients")
    why = "rows whose dy is zero come in, below the others and among them"
    yield plain("idle-rows", why, "idle-rows", repeats=50)
    yield replace(plain("zero-eps", "eps is 0", "zero-eps"), eps=0.0)
    yield replace(plain("tiny-eps", "eps is a float64", "tiny-eps"), eps=1e-5)
    yield plain("empty", "x has no rows", "empty").part(slice(0, 0))
    if dtype != "float32":
        why = f"{', '.join(parameters)} are float32"
        case = plain("wide-parameters", why, "float32-parameters")
        wide = (filled("random", "float32", (67,), f"{case.name} {k}") for k in range(9))
        yield case.with_inputs(**dict(zip(parameters, wide, strict=False)))
