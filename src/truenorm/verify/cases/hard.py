"""Rows that are hard for a reason: a mean that grows step by step, and many kinds of rows."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from truenorm.verify.cases.family import EPS, PLAIN_X, Family, single
from truenorm.verify.cases.ordinary import SEEDS
from truenorm.verify.cases.patterns import Pattern, number
from truenorm.verify.operation import Case, Operation
from truenorm.verify.types import FORMATS

__all__ = ["hard", "sweeps"]

SWEEP_WIDTHS = {"quick": (67,), "full": (5, 67, 512, 2049)}
HARD_WIDTHS = {"quick": (67,), "full": (3, 16, 67, 513, 4096)}


def sweeps(operation: Operation, dtype: str, level: str, first: int = 0) -> Iterator[Case]:
    """Yield rows of standard deviation 1 whose mean grows until a spacing of the type is 1."""
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
        "small-scale": (
            {"pattern": "normal", "scale": least**0.5},
            "squares are far below eps",
        ),
        "spread-of-eps": ({"pattern": "normal", "scale": EPS**0.5}, "squares are about eps"),
        "constant": ({"pattern": "constant", "value": 0.1}, "constant rows"),
        "decades": ({"pattern": "decades", "reach": spread}, "magnitudes over many decades"),
        "sorted": ({"pattern": "sorted", "offset": 10.0, "scale": 1.0}, "ascending rows"),
        "integers": ({"pattern": "integers", "limit": 8}, "whole numbers: ties and zeros"),
    }
    large_dy = {"pattern": "normal", "offset": 512.0, "scale": 1024.0}  # so that dx is normal
    for slug, (x, why) in patterns.items():
        yield Family(slug, x, "hard", why, {"dy": large_dy} if slug == "large-scale" else {})
    small = single(1e-6 if dtype == "float16" else 1e-12)
    for slug, eps in (("small-eps", small), ("large-eps", 1024.0)):
        scale = {"pattern": "normal", "scale": float(f"{eps**0.5:.1g}")}
        yield Family(slug, scale, "hard", f"eps = {eps:g} beside squares of that size", eps=eps)
    along = {"dy": "proportional"}
    yield Family(
        "gradient-along-x", PLAIN_X[0], "hard", "dy in proportion to x: dx cancels", along
    )
    yield Family("one-hot-dy", PLAIN_X[1], "hard", "a single element of dy", {"dy": "one-hot"})


def hard(operation: Operation, dtype: str, level: str, first: int = 0) -> Iterator[Case]:
    """Yield rows that are hard for a reason, at several widths."""
    for seed in range(first, first + SEEDS[level]):
        for size in HARD_WIDTHS[level]:
            for family in _families(dtype):
                yield family.case(operation, dtype, 4 if size < 1000 else 2, size, seed)
