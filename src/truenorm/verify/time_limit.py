"""A limit on the time of a subject's calls: which cases and calls are made within it.

`WithinLimit` makes the calls as they come while they are fast. Once they have taken a part of the
limit, it predicts the time of all other calls. If that exceeds the limit, it chooses: cheap calls
first, and some of each family. Where a kernel is compiled for each shape, it chooses few shapes.
It predicts again after twice the time, or twice the calls: the first calls of a program are slower
than later ones.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from truenorm.tools.text import duration
from truenorm.verify.calls import (
    MOST_SECONDS,
    ROWS,
    Call,
)
from truenorm.verify.grading.large_calls import PATIENCE, planned_calls
from truenorm.verify.operation import Case
from truenorm.verify.running.records import Record, Runner
from truenorm.verify.subject import Subject
from truenorm.verify.user_cases import is_user_case

SECONDS = 60.0
"""The limit by default."""
FIRST_SECONDS, FIRST_PART = 1.0, 1 / 10
"""Calls are made as they come until they have taken so long, or this part of the limit."""
TALL, WIDE = 16, 2048
"""Rows and columns that the first calls must have had for a prediction."""
FAR_MORE = 4.0
"""A first call of a shape that takes this times a second call is one that compiles."""
HANG_PART = 1 / 2
"""A call that is predicted to take this part of the time limit of a call is not made: it would
look like a hang."""
Shape = tuple[str, int, int, float]
"""What a kernel may be compiled for: the type, the rows, the columns and eps."""


class Timed(NamedTuple):
    """A call that was made: its rows and elements, and its seconds, in forward-backward pairs."""

    rows: int
    elements: int
    first: bool  # of its shape
    seconds: float


class Cost(NamedTuple):
    """The seconds of a call, and those that each row, each element and a new shape add."""

    call: float
    row: float
    element: float
    shape: float

    @classmethod
    def fitted(cls, timed: Sequence[Timed]) -> "Cost":
        """Fit the cost to calls that were made; no part of it is below zero."""
        again = [each for each in timed if not each.first] or timed
        parts = _fit(again)
        cost = cls(*parts, 0.0)
        first = [each for each in timed if each.first]
        more = [each.seconds - cost.of(each.rows, each.elements) for each in first]
        shape = float(np.median(more)) if more else 0.0
        usual = float(np.median([each.seconds for each in again]))
        return cls(*parts, shape if shape > (FAR_MORE - 1) * usual else 0.0)

    def of(self, rows: int, elements: int) -> float:
        """Return the seconds of a call of a known shape."""
        return self.call + self.row * rows + self.element * elements


def _fit(timed: Sequence[Timed]) -> tuple[float, float, float]:
    """Return the parts of a cost with the least relative errors, none of them below zero."""
    seconds = np.array([max(each.seconds, 1e-9) for each in timed])
    columns = np.array([[1.0, each.rows, each.elements] for each in timed]) / seconds[:, None]
    best, least = np.zeros(3), math.inf
    for count in (1, 2, 3):
        for places in combinations(range(3), count):
            some = columns[:, places]
            found = np.linalg.lstsq(some, np.ones(len(timed)), rcond=None)[0]
            error = float(((some @ found - 1) ** 2).sum())
            if found.min() >= 0 and error < least:
                best, least = np.zeros(3), error
                best[list(places)] = found
    return float(best[0]), float(best[1]), float(best[2])


def rows_of(case: Case, call: Call) -> int:
    """Return the number of rows of a call."""
    if call.kind == ROWS:
        return call.stop - call.start
    return call.stop if call.how.repeats_rows else case.shape[0]


def calls_to_make(case: Case) -> Counter[Call]:
    """Count the calls of a case by kind and rows, also calls whose results are not kept."""
    return Counter(each.call for each in planned_calls(case))


class WithinLimit:
    """Runs a subject, and leaves out calls that do not fit a limit of seconds."""

    def __init__(self, runner: Runner, suite: Sequence[Case], seconds: float) -> None:
        self._runner, self._remaining, self._seconds = runner, list(suite), seconds
        self._spent, self._look_at = 0.0, min(FIRST_SECONDS, seconds * FIRST_PART)
        self._timed: list[Timed] = []
        self._looked_at = 0
        self._shapes: set[Shape] = set()
        self._cost: Cost | None = None
        self._chosen: set[tuple[str, Call]] | None = None  # None: all

    @property
    def subject(self) -> Subject:
        """The subject that is called."""
        return self._runner.subject

    def cases(self) -> Iterator[Case]:
        """Yield the cases in the order in which they are to be run."""
        while self._remaining:
            if self._is_time_to_look() and not (self._chosen is None and self._take_samples()):
                self._look()
            if self._chosen is not None and self._spent >= self._seconds:
                self._chosen = set()
            yield self._remaining.pop(0)

    def _is_time_to_look(self) -> bool:
        """Return True if the calls have taken long, or if many were made since a choice."""
        many = self._chosen is not None and len(self._timed) > 2 * self._looked_at
        return self._spent > self._look_at or many

    def run(self, case: Case, call: Call) -> Record:
        """Make a call, or leave it out."""
        rows = rows_of(case, call)
        if is_user_case(case):
            return self._runner.run(case, call)
        if not self._fits(case, call):
            predicted = self._predict(case, call)
            reason = f"too slow: it would take about {duration(predicted)}"
            return Record(case.name, call, left_out=reason, predicted=predicted)
        record = self._runner.run(case, call)
        self._spent += record.seconds
        shape = _shape(case, call)
        if not record.failure and not call.how.until_different:
            first = shape not in self._shapes
            seconds = record.seconds / call.how.pairs
            self._timed.append(Timed(rows, rows * case.shape[1], first, seconds))
        self._shapes.add(shape)
        return record

    def _fits(self, case: Case, call: Call) -> bool:
        """Return True if a call is to be made."""
        if self._cost is not None:
            most = HANG_PART * self.subject.seconds
            if not call.how.until_different and self._predict(case, call) > most:
                return False
        return self._chosen is None or (case.name, call) in self._chosen

    def _predict(self, case: Case, call: Call) -> float:
        """Return the seconds of a call, without those of a new shape."""
        assert self._cost is not None
        rows = rows_of(case, call)
        seconds = self._cost.of(rows, rows * case.shape[1]) * call.how.pairs
        if call.how.until_different:
            return min(call.stop * seconds, max(MOST_SECONDS, seconds))
        return seconds

    def _take_samples(self) -> bool:
        """Move a case with many rows or columns to the front, if none was run; return True then.

        Without them it is not known what a row and an element cost.
        """
        for axis, least in ((0, TALL), (1, WIDE)):
            seen = [
                each.rows if axis == 0 else each.elements / max(each.rows, 1)
                for each in self._timed
            ]
            if not any(each >= least for each in seen):
                plain = [
                    case
                    for case in self._remaining
                    if case.shape[axis] >= least and not is_user_case(case) and case.shape[0]
                ]
                if plain:
                    sample = min(plain, key=lambda case: math.prod(case.shape))
                    self._remaining.remove(sample)
                    self._remaining.insert(0, sample)
                    return True
        return False

    def _look(self) -> None:
        """Predict the time of the remaining calls, and choose if they exceed the limit."""
        # The first calls may say little of others.
        self._look_at, self._looked_at = 2 * self._spent, len(self._timed)
        timed = [each for each in self._timed if each.rows]
        if not timed:  # each call failed
            return
        self._cost, self._chosen = Cost.fitted(timed), None
        items = self._items()
        if self._spent + sum(item.seconds for item in items) > self._seconds:
            self._choose(items)

    def _items(self) -> list["_Item"]:
        """Return the calls of the remaining cases, each with its share of a new shape."""
        assert self._cost is not None
        calls = [
            (place, call, count)
            for place, case in enumerate(self._remaining)
            if not is_user_case(case)
            for call, count in calls_to_make(case).items()
        ]
        users = Counter(_shape(self._remaining[place], call) for place, call, _ in calls)
        earlier: Counter[tuple[str, str]] = Counter()
        items, plain = [], dict[int, float]()
        for place, call, count in calls:
            case = self._remaining[place]
            seconds, shape = self._predict(case, call), _shape(case, call)
            if call.how.large and seconds > PATIENCE:
                continue  # it is not made in any case
            seconds *= count  # equal calls are made together, or none of them
            if shape not in self._shapes:
                seconds += self._cost.shape / users[shape]
            # The first of a family or of a kind of call shows more than the second.
            like = case.dtype, case.family if place not in plain else call.kind
            weight = max(seconds * (1 + earlier[like]), plain.get(place, 0.0))
            earlier[like] += 1
            plain.setdefault(place, weight)
            items.append(_Item(weight, place, call, seconds))
        return items

    def _choose(self, items: Sequence["_Item"]) -> None:
        """Choose calls that fit, the cheap ones first, and put the cases into this order."""
        self._chosen, left = set(), self._seconds - self._spent
        order: dict[int, None] = {}
        for item in sorted(items, key=lambda item: item.weight):
            is_plain = item.place not in order
            order.setdefault(item.place)
            name = self._remaining[item.place].name
            if item.seconds <= left and (is_plain or (name, Call()) in self._chosen):
                left -= item.seconds
                self._chosen.add((name, item.call))
        first = [place for place, case in enumerate(self._remaining) if is_user_case(case)]
        self._remaining = [self._remaining[place] for place in (*first, *order)]


class _Item(NamedTuple):
    """Equal calls that may be made; of two items, that of lower weight is made first."""

    weight: float
    place: int
    call: Call
    seconds: float


def _shape(case: Case, call: Call) -> Shape:
    return case.dtype, rows_of(case, call), case.shape[1], case.eps
