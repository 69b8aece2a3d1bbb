"""Generated cases: ordinary input of every width, condition numbers step by step, hard rows.

Powers of two hide bugs, so each has a neighbour that is none; and they have bugs of their own, in
kernels that were written for them. gamma, beta and dy are never ones:
with those, half of the mistakes that are made in a backward pass cancel.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from truenorm.verify.inputs import Case
from truenorm.verify.recipes import build, number
from truenorm.verify.types import FORMATS

__all__ = ["extensions", "hard", "ordinary", "sweeps"]

Recipe = Mapping[str, Any]


def _single(value: float) -> float:
    """Return the float32 next to a number: an eps that every kernel can be given exactly."""
    return float(np.float32(value))


EPSILONS = tuple(map(_single, (1e-5, 1e-6, 0.125, 1e-3)))
EPS = EPSILONS[0]
PLAIN_X: tuple[Recipe, ...] = (
    {"recipe": "normal"},
    {"recipe": "normal", "offset": 3.0, "scale": 2.0},
    {"recipe": "normal", "offset": -0.5, "scale": 0.25},
)
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
SWEEP_WIDTHS = {"quick": (67,), "full": (5, 67, 512, 2049)}
HARD_WIDTHS = {"quick": (67,), "full": (3, 16, 67, 513, 4096)}


@dataclass(frozen=True)
class Family:
    """Cases that differ in type, shape and seed."""

    slug: str
    x: Recipe
    kind: str
    why: str
    dy: Recipe | str = "random"
    gamma: Recipe | str = "random"
    beta: Recipe | str = "normal"
    eps: float = EPS
    repeats: int = 1

    def case(self, dtype: str, rows: int, size: int, seed: int = 0) -> Case:
        """Return the case of a shape; rows counts those that are not repeated."""
        name = f"{dtype}-{self.slug}-{rows * self.repeats}x{size}" + (f"-{seed}" if seed else "")
        shape = (rows, size)
        x = build(self.x, dtype, shape, f"{name} x")
        dy_recipe = NORMAL_DY if self.dy == "random" else self.dy
        return Case(
            name,
            dtype,
            np.tile(x, (self.repeats, 1)),
            build(self.gamma, dtype, (size,), f"{name} gamma"),
            build(self.beta, dtype, (size,), f"{name} beta"),
            np.tile(build(dy_recipe, dtype, shape, f"{name} dy", x=x), (self.repeats, 1)),
            self.eps,
            self.kind,
            self.slug,
            self.why,
            repeats=self.repeats,
        )


NORMAL_DY: Recipe = {"recipe": "normal", "offset": 0.5}
MANY = Family(
    "many-rows",
    PLAIN_X[2],
    "ordinary",
    "sums over many rows of one sign",
    dy="positive",
    repeats=64,
)
ROW_LIMIT = Family(
    "row-limit", PLAIN_X[0], "ordinary", "more rows than 16 bits can count", repeats=1600
)
BATCH = Family(
    "batch", PLAIN_X[1], "ordinary", "the same rows in batches of several sizes", repeats=10
)
PADDING = Family(
    "padding",
    PLAIN_X[1],
    "ordinary",
    "rows of padding: their dy is zero, and so is their dx",
    dy={"recipe": "normal", "offset": [0.5, 0.0], "scale": [1.0, 0.0]},
)
LARGE_BETA = Family(
    "large-beta",
    PLAIN_X[0],
    "ordinary",
    "beta from 100 on, beside which gamma*xhat still counts",
    gamma={"recipe": "alternating", "high": 32.0, "ripple": 4.0},
    beta={"recipe": "alternating", "high": 300.0, "ripple": 40.0},
)
# D is no power of two, and no row begins 2^24 elements after another: where a place wraps around
# there, other numbers are read.
LARGE = Family(
    "large", PLAIN_X[1], "ordinary", "these rows over and over, to beyond element 2^24 of a call"
)


def _drawn_widths(dtype: str, seed: int) -> Iterator[int]:
    """Yield a few widths that no list has, other ones for each type and seed."""
    random = np.random.default_rng([zlib.crc32(dtype.encode()), seed])
    known = {width for each in WIDTHS.values() for width in each}
    for low, high in DRAWN:
        yield int(random.choice([width for width in range(low, high) if width not in known]))


def _of_width(dtype: str, size: int, seed: int, turn: int) -> Case:
    """Return ordinary input of one width; the turn says which mean, spread and eps it has."""
    family = Family(
        "normal",
        PLAIN_X[turn % 3],
        "ordinary",
        f"ordinary input, D = {size}",
        eps=EPSILONS[turn % 4],
        repeats=2 if size >= WIDE else 1,
    )
    return family.case(dtype, 1 if size >= WIDE else 2 if size >= 500 else 4, size, seed)


def ordinary(dtype: str, level: str) -> Iterator[Case]:
    """Yield input on which every implementation is meant to be right."""
    widths = WIDTHS["quick"] + (WIDTHS["full"] if level == "full" else ())
    for seed in range(SEEDS[level]):
        for k, size in enumerate([*widths, *_drawn_widths(dtype, seed)]):
            yield _of_width(dtype, size, seed, k + seed)
    for rows in ROWS:
        why = f"sums over {rows} rows"
        yield Family("rows", PLAIN_X[1], "ordinary", why).case(dtype, rows, 5)
    yield MANY.case(dtype, 64, 8)
    yield ROW_LIMIT.case(dtype, 41, 4)
    yield BATCH.case(dtype, 30, 67)
    yield LARGE.case(dtype, 2, 500)
    yield PADDING.case(dtype, 4, 67)
    yield LARGE_BETA.case(dtype, 4, 67)
    if level == "full":
        yield ROW_LIMIT.case(dtype, 43, 67)
        yield BATCH.case(dtype, 33, 1000)


def sweeps(dtype: str, level: str) -> Iterator[Case]:
    """Yield rows of standard deviation 1 whose mean grows until a spacing of the type is 1."""
    last = FORMATS[dtype].precision * np.log10(2.0)
    halves = range(int(2 * last) + 1)
    for seed in range(SEEDS[level]):
        for size in SWEEP_WIDTHS[level]:
            for half in halves:
                offset = float(f"{10 ** (half / 2):.3g}")
                family = Family(
                    f"offset-{offset:.3g}".replace("e+0", "e").replace("e+", "e"),
                    {"recipe": "normal", "offset": offset},
                    "sweep",
                    f"standard deviation 1, mean {offset:g}",
                )
                yield replace(family.case(dtype, 4, size, seed), family="offset")


def _hard_families(dtype: str) -> Iterator[Family]:
    top = number("max", dtype)
    least = number("smallest-normal", dtype)
    spread = {"float16": 9, "bfloat16": 30, "float32": 30, "float64": 30}[dtype]
    recipes: dict[str, tuple[Recipe, str]] = {
        "large-scale": ({"recipe": "normal", "scale": top / 16}, "squares overflow"),
        "root-of-large": ({"recipe": "normal", "scale": top**0.5}, "the sum of squares overflows"),
        "small-scale": (
            {"recipe": "normal", "scale": least**0.5},
            "the variance is far below eps",
        ),
        "spread-of-eps": ({"recipe": "normal", "scale": EPS**0.5}, "the variance is about eps"),
        "constant": ({"recipe": "constant", "value": 0.1}, "a constant row: y is beta"),
        "decades": ({"recipe": "decades", "reach": spread}, "magnitudes over many decades"),
        "sorted": ({"recipe": "sorted", "offset": 10.0, "scale": 1.0}, "ascending rows"),
        "integers": ({"recipe": "integers", "limit": 8}, "whole numbers: ties and zeros"),
    }
    large_dy = {"recipe": "normal", "offset": 512.0, "scale": 1024.0}  # so that dx is normal
    for slug, (x, why) in recipes.items():
        yield Family(slug, x, "hard", why, large_dy if slug == "large-scale" else "random")
    small = _single(1e-6 if dtype == "float16" else 1e-12)
    for slug, eps in (("small-eps", small), ("large-eps", 1024.0)):
        scale = {"recipe": "normal", "scale": float(f"{eps**0.5:.1g}")}
        yield Family(slug, scale, "hard", f"eps = {eps:g} beside a variance of that size", eps=eps)
    yield Family(
        "gradient-along-x", PLAIN_X[0], "hard", "dy in proportion to x: dx cancels", "proportional"
    )
    yield Family("one-hot-dy", PLAIN_X[1], "hard", "a single element of dy", "one-hot")


def hard(dtype: str, level: str) -> Iterator[Case]:
    """Yield rows that are hard for a reason, at several widths."""
    for seed in range(SEEDS[level]):
        for size in HARD_WIDTHS[level]:
            for family in _hard_families(dtype):
                yield family.case(dtype, 4 if size < 1000 else 2, size, seed)


def extensions(dtype: str) -> Iterator[Case]:
    """Yield what is judged only where it is asked for."""

    def variant(slug: str, why: str, needs: str, **changes: Any) -> Case:
        plain = Family(slug, PLAIN_X[1], "ordinary", why).case(dtype, 6, 67)
        return replace(plain, needs=frozenset([needs]), **changes)

    yield variant("no-gamma", "gamma is None", "no-gamma", gamma=None)
    yield variant("no-beta", "beta is None", "no-beta", beta=None)
    yield variant("three-axes", "x has the shape (2, 3, 67)", "ranks", layout="three-axes")
    plain = variant("one-axis", "x has the shape (67,)", "ranks", layout="one-axis")
    yield replace(plain, x=plain.x[:1], dy=plain.dy[:1])
    yield variant("strided", "x and dy have gaps along the last axis", "strides", layout="strided")
    yield variant("zero-eps", "eps is 0", "zero-eps", eps=0.0)
    yield variant("tiny-eps", "eps is a float64", "tiny-eps", eps=1e-5)
    plain = variant("empty", "x has no rows", "empty")
    yield replace(plain, x=plain.x[:0], dy=plain.dy[:0])
    if dtype != "float32":
        plain = variant("wide-parameters", "gamma, beta are float32", "float32-parameters")
        parameters = (build("random", "float32", (67,), f"{plain.name} {k}") for k in range(2))
        gamma, beta = parameters
        yield replace(plain, gamma=gamma, beta=beta)
