"""Cases and calls that were not judged: they take longer than the time limit."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from truenorm.verify.grading.report import TooSlow
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
