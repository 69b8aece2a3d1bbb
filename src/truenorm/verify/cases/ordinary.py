"""Ordinary input, of every width and number of rows.

Powers of two hide bugs, so each has a neighbour that is none; and they have bugs of their own, in
kernels that were written for them.
"""

import zlib
from collections.abc import Iterator

import numpy as np

from truenorm.verify.cases.family import EPSILONS, PLAIN_X, Family
from truenorm.verify.operation import Case, Operation

__all__ = ["DRAWN", "SEEDS", "WIDTHS", "drawn_widths", "ordinary"]

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
"""Where kernels change their ways: at tiles and warps, and at the widths of models."""
DRAWN = ((9, 64), (64, 512), (512, 2048))
"""From each of these ranges one width more, by the seed: nobody wrote a kernel for it."""
WIDE = 2048
"""From here on one row stands twice: the exact answers of another would cost too much."""
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
# An odd number of rows, over and over: each of them stands at every place of a block.
BATCH_SIZES = Family(
    "batch-sizes", PLAIN_X[1], "ordinary", "the same rows in larger batches", repeats=376
)
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
# D is no power of two, and no row begins 2^24 elements after another: where a place wraps around
# there, other numbers are read.
LARGE = Family(
    "large", PLAIN_X[1], "ordinary", "these rows over and over, to beyond element 2^24 of a call"
)


def drawn_widths(dtype: str, seed: int) -> Iterator[int]:
    """Yield a few widths that no list has, other ones for each type and seed."""
    random = np.random.default_rng([zlib.crc32(dtype.encode()), seed])
    known = {width for each in WIDTHS.values() for width in each}
    for low, high in DRAWN:
        yield int(random.choice([width for width in range(low, high) if width not in known]))


def _of_width(operation: Operation, dtype: str, size: int, seed: int, turn: int) -> Case:
    """Return ordinary input of one width; the turn says which mean, spread and eps it has."""
    family = Family(
        "normal",
        PLAIN_X[turn % 3],
        "ordinary",
        f"ordinary input, D = {size}",
        eps=EPSILONS[turn % 4],
        repeats=2 if size >= WIDE else 1,
    )
    rows = 1 if size >= WIDE else 2 if size >= 500 else 4
    return family.case(operation, dtype, rows, size, seed)


def ordinary(operation: Operation, dtype: str, level: str, first: int = 0) -> Iterator[Case]:
    """Yield input on which every implementation is meant to be right; `first` is its seed."""
    widths = WIDTHS["quick"] + (WIDTHS["full"] if level == "full" else ())
    for seed in range(first, first + SEEDS[level]):
        # A case has one name at both levels: its turn is the same at both, too.
        drawn = enumerate(drawn_widths(dtype, seed), len(WIDTHS["quick"]))
        for k, size in (*enumerate(widths), *drawn):
            yield _of_width(operation, dtype, size, seed, k + seed)
    for rows in ROWS:
        why = f"sums over {rows} rows"
        yield Family("rows", PLAIN_X[1], "ordinary", why).case(operation, dtype, rows, 5, first)
    yield MANY.case(operation, dtype, 64, 8, first)
    yield ROW_LIMIT.case(operation, dtype, 41, 4, first)
    yield BATCH.case(operation, dtype, 30, 67, first)
    yield BATCH_SIZES.case(operation, dtype, 11, 33, first)
    yield LARGE.case(operation, dtype, 2, 500, first)
    yield PADDING.case(operation, dtype, 4, 67, first)
    if "beta" in operation.inputs_of("parameter"):
        yield LARGE_BETA.case(operation, dtype, 4, 67, first)
    if level == "full":
        yield ROW_LIMIT.case(operation, dtype, 43, 67, first)
        yield BATCH.case(operation, dtype, 33, 1000, first)
