"""Put cases to a subject one after the other, from this process."""

from collections.abc import Iterator, Sequence
from functools import partial

from truenorm.tools.progress import Progress
from truenorm.verify.answers.expected import expected
from truenorm.verify.grading.large import large_call
from truenorm.verify.grading.own.measured import own_records
from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.operation import Case
from truenorm.verify.own.cases import is_own
from truenorm.verify.runs.calls import GaveUpError, Record, Runner, calls_of
from truenorm.verify.subject import Subject

__all__ = ["collect", "outputs_of", "records_of"]


def collect(
    runner: Runner, suite: Sequence[Case], progress: Progress | None = None
) -> list[Record]:
    """Put each case to a subject in every way that belongs to it, as far as it lasts."""
    steps = 2 * len(suite)
    tell = progress or (lambda *_: None)
    # First: a subject may leave the processor in a state in which subnormal numbers are zero.
    for done, case in enumerate(suite):
        if not is_own(case):
            tell(done, steps, f"exact answers: {case.name}")
            expected(case)
    records: list[Record] = []
    for done, case in enumerate(suite, start=len(suite)):
        tell(done, steps, case.name)
        try:
            if is_own(case):
                records += own_records(runner, case, partial(_told, tell, done, steps, case.name))
            else:
                records += records_of(runner, case)
        except GaveUpError:
            return records
    tell(steps, steps, "grading")
    return records


def _told(tell: Progress, done: int, steps: int, name: str, what: str) -> None:
    """Say how far a case is that takes long by itself."""
    tell(done, steps, f"{name}: {what}")


def records_of(runner: Runner, case: Case) -> Iterator[Record]:
    """Yield what comes back from each way of putting a case; after a failure no other is tried."""
    plain = None
    for call in calls_of(case):
        record = runner.run(case, call)
        yield record
        if record.failure:
            return
        plain = plain or record
    if case.family == "large" and plain is not None:
        yield from large_call(runner, case, plain)


def outputs_of(subject: Subject, origin: Origin, records: Sequence[Record]) -> tuple[str, ...]:
    """Return the results that a subject has; of a command they are seen from what it writes."""
    if origin.callable:
        return subject.outputs
    written = {output for record in records for output in record.results}
    return tuple(output for output in subject.outputs if output in written) or subject.outputs
