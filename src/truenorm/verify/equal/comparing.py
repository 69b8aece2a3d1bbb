"""Put each case to two subjects, and compare the bits that come back."""

from collections.abc import Sequence
from typing import NamedTuple

from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify.answers.expected import expected
from truenorm.verify.equal.bits import difference
from truenorm.verify.equal.report import Difference, Equality, Summary
from truenorm.verify.grading.beyond import parted
from truenorm.verify.operation import Case
from truenorm.verify.own.cases import is_own
from truenorm.verify.runs.calls import Call, GaveUpError, Record, Runner
from truenorm.verify.runs.runners import runner_for
from truenorm.verify.runs.trial import try_a_call
from truenorm.verify.subject import Subject
from truenorm.verify.suite import cases as cases_of

__all__ = ["Side", "common", "compare", "compared"]


class Side(NamedTuple):
    """One of two subjects, and what runs it."""

    subject: Subject
    runner: Runner


def compare(
    first: Subject,
    second: Subject,
    *,
    level: str = "quick",
    cases: Sequence[Case] | None = None,
    progress: Progress | None = None,
) -> Equality:
    """Compare two subjects that should have equal bits.

    Their functions are called in this process; ``truenorm verify A --equal-to B`` calls each
    in a process of its own.

    Parameters
    ----------
    first, second : Subject
        Of one operation.
    level : str
        ``quick`` or ``full``: the cases of all types that both have.
    cases : sequence of Case, optional
        These cases in place of a level's.
    progress : callable, optional
        Called with the number of cases done, the number of all, and the name of the next.

    Returns
    -------
    Equality
        ``equality.passed``, ``equality.summaries``, ``equality.differences``.

    Examples
    --------
    >>> import truenorm as tn
    >>> import truenorm.verify as tv
    >>> def plain(x, gamma, beta, eps):
    ...     c = x - x.mean(axis=-1, keepdims=True)
    ...     var = (c * c).mean(axis=-1, keepdims=True)
    ...     return gamma * c / (var + x.dtype.type(eps)) ** 0.5 + beta
    >>> def ours(x, gamma, beta, eps):
    ...     return tn.layer_norm(x, gamma, beta, eps=eps)
    >>> one, other = tv.Subject(plain, name="plain"), tv.Subject(ours, name="truenorm")
    >>> equality = tv.compare(one, other, cases=[tv.case("float32-normal-4x17")])
    >>> found = equality.differences[0]
    >>> equality.passed, found.output, found.second_nearer > found.first_nearer
    (False, 'y', True)
    """
    suite = common(first, second, level) if cases is None else list(cases)
    sides = (Side(first, runner_for(first)), Side(second, runner_for(second)))
    return compared(*sides, suite, level=level if cases is None else "own", progress=progress)


def common(first: Subject, second: Subject, level: str) -> list[Case]:
    """Return the cases of all that both subjects claim."""
    operation = first.operation
    if operation.words != second.operation.words:
        raise ValueError(
            f"{first.name} is {operation.words}, {second.name} {second.operation.words}: "
            "bits are compared of one operation"
        )
    dtypes = [dtype for dtype in first.dtypes if dtype in second.dtypes]
    if not dtypes:
        raise ValueError(f"{first.name} and {second.name} have no type in common")
    also = set(first.also) & set(second.also)
    return [case for dtype in dtypes for case in cases_of(dtype, level, also, operation=operation)]


def compared(
    first: Side,
    second: Side,
    suite: Sequence[Case],
    *,
    level: str = "quick",
    progress: Progress | None = None,
) -> Equality:
    """Put each case to both, as far as they last, and note where bits differ."""
    tell = progress or (lambda *_: None)
    steps = 2 * len(suite)
    # First: a subject may leave the processor in a state in which subnormal numbers are zero.
    for done, case in enumerate(suite):
        tell(done, steps, f"exact answers: {case.name}")
        if not is_own(case):
            expected(case)
    within, beyond = parted(suite, first.subject.domain)
    within, more = parted(within, second.subject.domain)
    for side in (first, second):
        try_a_call(side.subject, side.runner, within)
    outputs = [each for each in first.subject.outputs if each in second.subject.outputs]
    seen: list[tuple[Case, str, int]] = []
    found: list[Difference] = []
    failed = 0
    not_run = len(within)
    for done, case in enumerate(within, start=len(suite)):
        tell(done, steps, case.name)
        try:
            records = [side.runner.run(case, Call()) for side in (first, second)]
        except GaveUpError:
            break
        not_run -= 1
        if all(record.failure for record in records):
            failed += 1
            continue
        sizes, differences = _of_case(case, records[0], records[1], outputs)
        seen += [(case, output, size) for output, size in sizes.items()]
        found += differences
    return Equality(
        first.subject.name,
        second.subject.name,
        level,
        len(within) - not_run - failed,
        _summaries(seen, found),
        tuple(found),
        failed,
        not_run,
        len(beyond) + len(more),
        describe("date", "python", "numpy", "machine"),
        operation=first.subject.operation,
    )


def _of_case(
    case: Case, first: Record, second: Record, outputs: Sequence[str]
) -> tuple[dict[str, int], list[Difference]]:
    """Return how many elements each result has that was compared, and what differs."""
    for failure, which in ((first.failure, "first"), (second.failure, "second")):
        if failure:
            words = f"the {which} {failure}, the other returned"
            return {}, [Difference(case.name, case.dtype, "", case.why, words=words)]
    sizes, found = {}, []
    for output in outputs:
        if output not in first.results or output not in second.results:
            continue  # a command may have no backward pass
        one, other = first.results[output], second.results[output]
        if one is None and other is None:
            continue
        if one is None or other is None:
            words = f"{output} is None from the {'first' if one is None else 'second'} alone"
            found.append(Difference(case.name, case.dtype, output, case.why, words=words))
            continue
        sizes[output] = one.size
        if differs := difference(case, output, one, other):
            found.append(differs)
    return sizes, found


def _summaries(
    seen: Sequence[tuple[Case, str, int]], found: Sequence[Difference]
) -> tuple[Summary, ...]:
    """Add up the cases of each type and output."""
    summaries = []
    for dtype, output in dict.fromkeys((case.dtype, output) for case, output, _ in seen):
        sizes = [size for case, each, size in seen if (case.dtype, each) == (dtype, output)]
        here = [each for each in found if (each.dtype, each.output) == (dtype, output)]
        worst = max(here, key=lambda each: (bool(each.words), each.ulp), default=None)
        summaries.append(
            Summary(
                dtype,
                output,
                len(sizes),
                len(here),
                sum(sizes),
                sum(each.elements for each in here),
                max((each.ulp for each in here), default=0.0),
                sum(each.judged for each in here),
                sum(each.first_nearer for each in here),
                sum(each.second_nearer for each in here),
                max((each.first_ulp for each in here), default=0.0),
                max((each.second_ulp for each in here), default=0.0),
                worst.case if worst else "",
            )
        )
    return tuple(summaries)
