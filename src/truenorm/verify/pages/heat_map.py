"""Case by output, as a table whose cells have a colour: how the error compares with the allowed.

It is a table and not a picture, so that it can be read aloud, searched and scrolled on a phone.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from truenorm.tools.text import number
from truenorm.verify.grading.report import CaseResult

__all__ = ["LEVELS", "Cell", "HeatMap", "Level", "by_case", "by_family"]


class Level(NamedTuple):
    """A colour: the largest error over the allowed one that has it, and what the legend says."""

    name: str
    up_to: float
    words: str


LEVELS = (
    Level("h0", 0.1, "up to 0.1"),
    Level("h1", 1.0, "up to 1: stable"),
    Level("h2", 10.0, "up to 10"),
    Level("h3", 1e3, "up to 10³"),
    Level("h4", 1e6, "up to 10⁶"),
    Level("h5", sys.float_info.max, "more"),
    Level("h6", math.inf, "infinite"),
)


class Cell(NamedTuple):
    """The worst result of a row and a column."""

    level: str
    text: str
    title: str


class HeatMap(NamedTuple):
    """Columns are groups, each with its outputs; a cell is None where nothing was judged."""

    groups: list[tuple[str, list[str]]]
    rows: list[tuple[str, list[Cell | None]]]


def _excess(result: CaseResult) -> float:
    """Return the error over what is allowed; infinity for whatever is not a number."""
    if result.natural == 0:
        return 0.0
    ratio = result.natural / result.allowed if result.allowed > 0 else math.inf
    return math.inf if math.isnan(ratio) else ratio


def _cell(results: Sequence[CaseResult]) -> Cell:
    worst = max(results, key=_excess)
    excess = _excess(worst)
    level = next(level for level in LEVELS if excess <= level.up_to)
    title = f"{worst.case}: {worst.output} is off by {number(worst.ulp)} ulp"
    return Cell(level.name, "∞" if math.isinf(excess) else number(excess), title)


def _heat_map(
    results: Sequence[CaseResult],
    row_of: Callable[[CaseResult], str],
    group_of: Callable[[CaseResult], str],
) -> HeatMap:
    places: dict[tuple[str, str, str], list[CaseResult]] = defaultdict(list)
    outputs_of: dict[str, dict[str, None]] = defaultdict(dict)
    for result in results:
        group = group_of(result)
        places[row_of(result), group, result.output].append(result)
        outputs_of[group][result.output] = None
    columns = [(group, output) for group, outputs in outputs_of.items() for output in outputs]
    rows = []
    for row in dict.fromkeys(map(row_of, results)):
        found = [places.get((row, *column)) for column in columns]
        rows.append((row, [None if each is None else _cell(each) for each in found]))
    return HeatMap([(group, list(outputs)) for group, outputs in outputs_of.items()], rows)


def by_family(results: Sequence[CaseResult]) -> HeatMap:
    """Return a row for each family, a column for each type and output, the worst in the cell."""
    return _heat_map(results, lambda each: each.family, lambda each: each.dtype)


def by_case(results: Sequence[CaseResult]) -> HeatMap:
    """Return a row for each case, and a column for each output."""
    return _heat_map(results, lambda each: each.case, lambda _: "")
