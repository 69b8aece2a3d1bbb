"""What is kept of cases once they are judged: its size does not depend on how many they are."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from truenorm.verify.collecting.spread import Outcome
from truenorm.verify.grading.report import CaseResult

__all__ = ["SHOWN", "Count", "Key", "Part", "Tally"]

SHOWN = 4
"""Cases that are kept of each kind of failure, for findings and their causes."""
Key = tuple[str, str, str]
"""Guard, type and output."""


class Part(NamedTuple):
    """Some of the cases of a type that a seed draws."""

    dtype: str
    seed: int
    start: int
    stop: int


@dataclass
class Count:
    """Of one output in one type; the errors by the kind of case, the largest of each."""

    cases: int = 0
    elements: int = 0
    answers: int = 0
    wrong: int = 0
    worst: dict[str, CaseResult] = field(default_factory=dict)

    def add(self, other: "Count") -> None:
        """Add what was counted elsewhere, later in the order of cases."""
        self.cases += other.cases
        self.elements += other.elements
        self.answers += other.answers
        self.wrong += other.wrong
        for kind, result in other.worst.items():
            self.worst[kind] = _worse(self.worst.get(kind, result), result)


def _worse(one: CaseResult, other: CaseResult) -> CaseResult:
    """Return what holds of both, with the name of the case that is worse."""
    shown = max(one, other, key=lambda each: (each.needs, each.natural, each.ulp))
    return replace(
        shown,
        ulp=max(one.ulp, other.ulp),
        natural=max(one.natural, other.natural),
        correct=one.correct and other.correct,
    )


@dataclass
class Tally:
    """Of some cases.

    Attributes
    ----------
    cases, failed, left_out : int
        Those that were judged; of them, those in which something is wrong; those beyond the
        domain.
    deaths : int
        How often the subject has died.
    worked, called : float
        Processor time, and time in calls of the subject.
    counts : dict
        By type and output.
    seen : Counter
        By kind of failure, the cases that show it.
    shown : list
        The first few of those, and the part that each is of.
    """

    cases: int = 0
    failed: int = 0
    left_out: int = 0
    deaths: int = 0
    worked: float = 0.0
    called: float = 0.0
    counts: dict[tuple[str, str], Count] = field(default_factory=dict)
    seen: Counter[Key] = field(default_factory=Counter)
    shown: list[tuple[Part, Outcome, frozenset[Key]]] = field(default_factory=list)

    def whole(self) -> Count:
        """Return the sum over all types and outputs."""
        found = Count()
        for count in self.counts.values():
            found.add(count)
        return found

    def add(self, other: "Tally") -> None:
        """Add what was counted elsewhere, later in the order of cases."""
        self.cases += other.cases
        self.failed += other.failed
        self.left_out += other.left_out
        self.deaths += other.deaths
        self.worked += other.worked
        self.called += other.called
        for place, count in other.counts.items():
            self.counts.setdefault(place, Count()).add(count)
        kept: Counter[Key] = Counter(key for *_, keys in self.shown for key in keys)
        for each in other.shown:
            if any(kept[key] < SHOWN for key in each[2]):
                self.shown.append(each)
                kept.update(each[2])
        self.seen.update(other.seen)
