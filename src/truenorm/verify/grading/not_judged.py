"""What was not judged: cases that take longer than the time limit, and what the subject refuses.

A subject refuses a type, or an eps, if every call with it raises an exception before there is a
result.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from truenorm.tools.text import short_number
from truenorm.verify.grading.report import TooSlow, Unsupported
from truenorm.verify.grading.symptoms import Symptom
from truenorm.verify.operation import Case
from truenorm.verify.running.records import Record


def is_too_slow(record: Record) -> bool:
    """Return True for the record of a call that was left out since it is too slow."""
    return record.predicted > 0


def find_too_slow(
    cases: Iterable[Case], run: Collection[str], records: Sequence[Record]
) -> tuple[TooSlow, ...]:
    """Return what was left out, by type and family; `run` are the names of cases with a result."""
    case_of = {case.name: case for case in cases}
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in filter(is_too_slow, records):
        if case := case_of.get(record.case):
            groups[case.dtype, case.family].append(record)
    return tuple(
        TooSlow(
            *place,
            len({record.case for record in group} - {*run}),
            sum(record.case in run for record in group),
            sum(record.predicted for record in group),
        )
        for place, group in groups.items()
    )


class Refusal(NamedTuple):
    """The cases of a type that a subject refuses, and the record of the first call.

    `eps` are the numbers that it refuses; if there are none, it refuses the type.
    """

    dtype: str
    eps: tuple[float, ...]
    cases: Sequence[Case]
    record: Record

    @property
    def outcome(self) -> Unsupported:
        """The entry of the report."""
        message = self.record.failure.removeprefix("raised ")
        return Unsupported(self.dtype, self.eps, message, len(self.cases))

    @property
    def symptom(self) -> Symptom:
        """The symptom, which says what to do."""
        case = next(each for each in self.cases if each.name == self.record.case)
        if self.eps:
            numbers = ", ".join(map(short_number, self.eps))
            text = f"eps = {numbers} is unsupported: it {self.record.failure}"
        else:
            text = f"{self.dtype} is unsupported: it {self.record.failure}"
        return Symptom("unsupported", case, self.record, "", text)


def find_refusals(
    cases: Sequence[Case], by_case: Mapping[str, Sequence[Record]]
) -> tuple[Refusal, ...]:
    """Return the types that a subject refuses, if it does not refuse all, and what eps."""
    of_type: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        if by_case.get(case.name):
            of_type[case.dtype].append(case)
    refused = {dtype for dtype, some in of_type.items() if _refuses(some, by_case)}
    if len(refused) == len(of_type):
        return ()
    refusals = []
    for dtype, some in of_type.items():
        if dtype in refused:
            refusals.append(Refusal(dtype, (), some, by_case[some[0].name][0]))
        else:
            refusals += _refused_eps(dtype, some, by_case)
    return tuple(refusals)


def without_refused(cases: Sequence[Case], refusals: Iterable[Refusal]) -> list[Case]:
    """Return the cases that a subject does not refuse."""
    refused = {case.name for each in refusals for case in each.cases}
    return [case for case in cases if case.name not in refused]


def _refused_eps(
    dtype: str, cases: Sequence[Case], by_case: Mapping[str, Sequence[Record]]
) -> Iterator[Refusal]:
    """Yield the eps that a subject refuses, above or below all others, for several shapes."""
    of_eps: dict[float, list[Case]] = defaultdict(list)
    for case in cases:
        of_eps[case.eps].append(case)
    accepted = [eps for eps, some in of_eps.items() if not _refuses(some, by_case)]
    beyond = (
        [eps for eps in sorted(of_eps) if eps > max(accepted)],
        [eps for eps in sorted(of_eps) if eps < min(accepted)],
    )
    for numbers in beyond:
        refused = [case for eps in numbers for case in of_eps[eps]]
        ordinary = [case for case in refused if case.kind == "ordinary"]
        if len({case.shape for case in ordinary}) > 1:  # else it may refuse the shape
            yield Refusal(dtype, tuple(numbers), refused, by_case[ordinary[0].name][0])


def _refuses(cases: Iterable[Case], by_case: Mapping[str, Sequence[Record]]) -> bool:
    """Return True if every call of some cases raised an exception before it returned a result."""
    return all(
        record.failure.startswith("raised ") and not record.results
        for case in cases
        for record in by_case[case.name]
    )
