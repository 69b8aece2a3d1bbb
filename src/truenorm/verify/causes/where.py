"""In which cases something is wrong, if it is not in all: by D, or by the number of rows."""

from collections.abc import Collection

from truenorm.verify.operation import Case

__all__ = ["where"]

LISTED = 3
"""So many sizes are listed one by one."""


def where(wrong: Collection[Case], right: Collection[Case]) -> str:
    """Return words for what sets some cases apart from others, or nothing if no size does."""
    if not right:
        return ""
    for axis, name in ((1, "D"), (0, "the number of rows")):
        these = {case.shape[axis] for case in wrong}
        others = {case.shape[axis] for case in right}
        if not these & others:
            return f"where {name} is {_sizes(these, others)}"
    return ""


def _sizes(these: Collection[int], others: Collection[int]) -> str:
    """Return sizes in words: a range, a multiple, or a list."""
    least, largest = min(these), max(these)
    if len(these) <= LISTED:
        return " or ".join(map(str, sorted(these)))
    if not any(least <= size <= largest for size in others):
        return (
            f"from {least} to {largest}"
            if max(others, default=0) > largest
            else f"{least} or more"
        )
    block = min(size & -size for size in these)
    if block > 1 and not any(size % block == 0 for size in others):
        return f"a multiple of {block}"
    return "one of " + ", ".join(map(str, sorted(these)))
