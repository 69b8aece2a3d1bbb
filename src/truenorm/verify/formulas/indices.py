"""Wrong indices: elements that a sum leaves out or counts twice, and elements of other places.

A rule works on an axis of any length: of the columns of a row, of the rows of a sum. Kernels read
an axis in blocks, and are often wrong at the end of a block or of the last, partial one.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from truenorm.verify.causes import Cause
from truenorm.verify.types import Array, Float64s

Rule = Callable[[int, Array, int], Any]
"""Returns numbers for indices along an axis, from the size of a block and the size of the axis."""
Size = Callable[[Sequence[int]], float]
"""Returns a divisor from the sizes of axes."""
Indexed = Callable[[int], Array]
"""Returns numbers for all indices along an axis of a size."""
BLOCKS = (2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Elements that kernels read at a time, or hold."""

WEIGHTS: dict[Cause, Rule] = {
    Cause("no-last({sum})", "the last {one} is left out{of}"): lambda _, at, size: at < size - 1,
    Cause("no-first({sum})", "the first {one} is left out{of}"): lambda _, at, __: at > 0,
    Cause(
        "no-second-half({sum})", "the second half of the {many} is left out{of}"
    ): lambda _, at, size: at < max(size // 2, 1),
    Cause("no-every-second({sum})", "every second {one} is left out{of}"): lambda _, at, __: (
        at % 2 == 0
    ),
    Cause("first-twice({sum})", "the first {one} is counted twice{within}"): lambda _, at, __: (
        1 + (at == 0)
    ),
    Cause("last-twice({sum})", "the last {one} is counted twice{within}"): lambda _, at, size: (
        1 + (at == size - 1)
    ),
}
BLOCK_WEIGHTS: dict[Cause, Rule] = {
    Cause(
        "no-partial-block({sum}, {n})", "the last, partial block of {n} {many} is left out{of}"
    ): lambda n, at, size: at < (size - size % n or size) if size > n else at >= 0,
    Cause(
        "no-every-second-block({sum}, {n})", "every second block of {n} {many} is left out{of}"
    ): lambda n, at, _: at // n % 2 == 0,
    Cause(
        "none-beyond({sum}, {n})", "{many} beyond the first {n} are left out{of}"
    ): lambda n, at, _: at < n,
    Cause(
        "none-from-last-multiple({sum}, {n})",
        "the {many} from {N} - {N} % {n} on are left out{of}",
    ): lambda n, at, size: at < size - size % n,
    Cause(
        "last-block-alone({sum}, {n})", "only the last block of {n} {many} is summed{within}"
    ): lambda n, at, size: at // n == (size - 1) // n,
    Cause(
        "no-last-of-every({sum}, {n})", "the last of every {n} {many} is left out{of}"
    ): lambda n, at, _: at % n != n - 1,
    Cause(
        "last-block-overlaps({sum}, {n})",
        "a last, partial block of {n} begins at {N} - {n} and counts {many} twice{within}",
    ): (lambda n, at, size: 1 + ((at >= size - n) & (at < size - size % n) & (size % n > 0))),
    Cause(
        "last-repeated({sum}, {n})",
        "the last {one} is counted again, up to a multiple of {n}{within}",
    ): lambda n, at, size: 1 + (at == size - 1) * (-size % n),
}
"""The weights of the elements of a sum."""
PLACES: dict[Cause, Rule] = {
    Cause("of-next({steps}{one})", "the next {one}"): lambda _, at, size: (at + 1) % size,
    Cause("of-before({steps}{one})", "the {one} before"): lambda _, at, size: (at - 1) % size,
    Cause("of-first({steps}{one})", "the first {one}"): lambda _, at, __: 0 * at,
    Cause("of-last({steps}{one})", "the last {one}"): lambda _, at, size: 0 * at + size - 1,
    Cause("of-other-of-pair({steps}{one})", "the other {one} of a pair"): lambda _, at, size: (
        np.where(at ^ 1 < size, at ^ 1, at)
    ),
}
BLOCK_PLACES: dict[Cause, Rule] = {
    Cause(
        "of-before-in-blocks({steps}{one}, {n})", "the {one} before, within blocks of {n} {many}"
    ): lambda n, at, _: at - (at % n > 0),
    Cause(
        "of-first-of-block({steps}{one}, {n})", "the first {one} of each block of {n}"
    ): lambda n, at, _: at - at % n,
    Cause(
        "of-last-of-block({steps}{one}, {n})", "the last {one} of each block of {n}"
    ): lambda n, at, size: np.minimum(at - at % n + n - 1, size - 1),
    Cause("of-modulo({steps}{one}, {n})", "{one} i % {n}, not i"): lambda n, at, _: at % n,
}
"""The places whose elements are used."""


def weights(one: str, many: str, count: str, of: str = "") -> Iterator[tuple[Cause, Indexed]]:
    """Yield the weights of elements in a wrong sum, by cause.

    Parameters
    ----------
    one, many : str
        The name of an element and of several, such as ``row`` and ``rows``.
    count : str
        The name of their number, such as ``N``.
    of : str, optional
        The name of the sum.

    Examples
    --------
    >>> rules = {each.id: rule for each, rule in weights("column", "columns", "D", of="mean")}
    >>> rules["no-partial-block(mean, column, 4)"](6)
    array([1., 1., 1., 1., 0., 0.])
    """
    names = {"of": f" of {of}" if of else "", "within": f" in {of}" if of else ""}
    names |= {"sum": f"{of}, {one}" if of else one, "one": one, "many": many, "N": count}
    for cause, rule in _named(WEIGHTS, BLOCK_WEIGHTS, names):
        yield cause, lambda size, rule=rule: rule(size).astype(np.float64)  # type: ignore[misc]


def places(one: str, many: str, those: str, steps: str = "") -> Iterator[tuple[Cause, Indexed]]:
    """Yield the indices of wrong places of steps, by causes whose words begin with `those`.

    Examples
    --------
    >>> rules = {each.words: rule for each, rule in places("row", "rows", "beta is that")}
    >>> rules["beta is that of the row before"](3)
    array([2, 0, 1])
    """
    names = {"steps": f"{steps}, " if steps else "", "one": one, "many": many}
    for cause, rule in _named(PLACES, BLOCK_PLACES, names):
        yield cause.with_words(f"{those} of {cause.words}"), rule


def _named(
    rules: Mapping[Cause, Rule], of_blocks: Mapping[Cause, Rule], names: Mapping[str, str]
) -> Iterator[tuple[Cause, Indexed]]:
    for cause, rule in rules.items():
        yield cause.of(**names), partial(_on_axis, rule, 1)
    for n in BLOCKS:
        for cause, rule in of_blocks.items():
            yield cause.of(n=n, **names), partial(_on_axis, rule, n)


def _on_axis(rule: Rule, n: int, size: int) -> Array:
    return np.asarray(rule(n, np.arange(size), size))


def divisors(plurals: Sequence[str]) -> dict[str, Size]:
    """Return wrong divisors of a sum along some axes, by their words.

    Examples
    --------
    >>> divisors(["channels", "places"])["n less the number of places"]([3, 5])
    10
    """
    table: dict[str, Size] = {
        "n - 1": lambda sizes: max(math.prod(sizes) - 1, 1),
        "n + 1": lambda sizes: math.prod(sizes) + 1,
        "the next power of two": lambda sizes: 1 << (math.prod(sizes) - 1).bit_length(),
    }
    for place, plural in enumerate(plurals if len(plurals) > 1 else ()):
        words = f"the number of {plural}"
        table[words] = lambda sizes, place=place: sizes[place]  # type: ignore[misc]
        table[f"n less {words}"] = lambda sizes, place=place: max(  # type: ignore[misc]
            math.prod(sizes) - sizes[place], 1
        )
    return table


def averaged_in_blocks(n: int, values: Float64s) -> Float64s:
    """Return the mean of each block along the first axis, for each element of the block.

    Examples
    --------
    >>> averaged_in_blocks(2, np.array([1.0, 3.0, 5.0]))
    array([2., 2., 5.])
    """
    starts = np.arange(0, len(values), n)
    counts = np.diff([*starts, len(values)])
    sums = np.add.reduceat(values, starts, axis=0)
    means = sums / counts.reshape(-1, *(1,) * (values.ndim - 1))
    return np.repeat(means, counts, axis=0)
