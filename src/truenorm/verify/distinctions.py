"""What tells wrong results from right ones, and one computation from another: sizes and bits."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.operation import Case

Mask = NDArray[np.bool_]
FEW, MOST = 8, 0.95
"""Of two computations, one is the likelier if at least this many results have the bits of one
alone, and this share of them those of this one."""

MAX_LISTED = 3
"""Sizes that are listed one by one."""
LISTED = "one of "
"""The beginning of sizes that no rule describes."""


def is_likelier(mine: Mask, theirs: Mask) -> bool:
    """Return True if most results with the bits of one of two computations have mine."""
    of_one = mine != theirs
    return bool(of_one.sum() >= FEW and mine[of_one].mean() >= MOST)


def distinguishing_size(wrong: Collection[Case], controls: Collection[Case]) -> str:
    """Describe the D and the number of rows of the failing cases that no control case has.

    Where both distinguish the cases, either may be the reason.
    """
    if not controls:
        return ""
    texts = []
    for axis, name in ((1, "D"), (0, "the number of rows")):
        sizes = {case.shape[axis] for case in wrong}
        others = {case.shape[axis] for case in controls}
        if sizes and not sizes & others:
            texts.append(f"{name} is {_describe_sizes(sizes, others)}")
    return " and ".join(texts)


def _describe_sizes(sizes: Collection[int], others: Collection[int]) -> str:
    least, largest = min(sizes), max(sizes)
    if len(sizes) <= MAX_LISTED:
        return " or ".join(map(str, sorted(sizes)))
    if not any(least <= size <= largest for size in others):
        bounded = max(others, default=0) > largest
        return f"from {least} to {largest}" if bounded else f"{least} or more"
    block = min(size & -size for size in sizes)
    if block > 1 and not any(size % block == 0 for size in others):
        return f"a multiple of {block}"
    block = min(size & -size for size in others)
    if block > 1 and not any(size % block == 0 for size in sizes):
        return f"not a multiple of {block}"
    return LISTED + ", ".join(map(str, sorted(sizes)))
