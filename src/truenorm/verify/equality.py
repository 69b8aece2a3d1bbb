"""What there is to say of two subjects that should have equal bits. Plain data, as of one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify.grading.errors import all_misplaced, apart
from truenorm.verify.grading.grades import parted
from truenorm.verify.operation import Case, Operation
from truenorm.verify.oracle import Expected, expected, output_types
from truenorm.verify.running.records import Call, GaveUpError, Record, Runner
from truenorm.verify.running.runners import runner_for, try_a_call
from truenorm.verify.subject import Subject
from truenorm.verify.suite import cases as cases_of
from truenorm.verify.types import FORMATS, Array, Float64s, ulps_of
from truenorm.verify.user_cases import is_user_case


@dataclass(frozen=True)
class Difference:
    """A result of one case that has other bits from the second subject than from the first.

    `elements` of `total` differ, by at most `ulp`, of the larger one; where the largest distance
    is, `at`, the two have the values `first` and `second`, and `exact` is the answer, rounded.
    Of the elements that were `judged` against exact answers, the first is nearer in
    `first_nearer`, the second in `second_nearer`, and their largest errors in ulp are `first_ulp`
    and `second_ulp`. `words` say what differs if it is not numbers: then all of these are 0.
    """

    case: str
    dtype: str
    output: str  # empty where a call failed
    why: str  # what the case is there to show
    elements: int = 0
    total: int = 0
    ulp: float = 0.0
    at: tuple[int, ...] = ()
    first: float = 0.0
    second: float = 0.0
    exact: float | None = None
    judged: int = 0
    first_nearer: int = 0
    second_nearer: int = 0
    first_ulp: float = 0.0
    second_ulp: float = 0.0
    words: str = ""


@dataclass(frozen=True)
class Summary:
    """All cases of one result in one type, in numbers that mean what those of a case mean."""

    dtype: str
    output: str
    cases: int
    cases_that_differ: int
    total: int
    elements: int
    ulp: float
    judged: int
    first_nearer: int
    second_nearer: int
    first_ulp: float
    second_ulp: float
    worst_case: str


@dataclass(frozen=True)
class Equality:
    """Two subjects, case by case.

    Attributes
    ----------
    first, second : str
        Their names.
    level : str
    cases : int
        Those in which at least one of the two returned.
    summaries : tuple of Summary
        By type and output.
    differences : tuple of Difference
        By case and output.
    failed : int
        Cases in which neither returned.
    not_run : int
        Cases that were given up, because one of them crashed or hung too often.
    """

    first: str
    second: str
    level: str
    cases: int
    summaries: tuple[Summary, ...]
    differences: tuple[Difference, ...] = field(repr=False)
    failed: int = 0
    not_run: int = 0
    left_out: int = 0  # cases beyond the domain of one of them
    machine: dict[str, str] = field(default_factory=dict)
    operation: Operation = field(kw_only=True, repr=False)

    @property
    def passed(self) -> bool:
        """Whether something was compared, nothing was given up, and all bits are equal."""
        return bool(self.summaries) and not self.differences and not self.not_run


ANSWERED = 2**14
"""Elements of a case of one's own for which integers are asked: more would take minutes."""


def distances(first: Array, second: Array) -> Float64s:
    """Return how far two arrays are apart, in ulp of the larger; infinite where one is not finite.

    Not in numbers of the type between the two: of these there are millions between 1e-30 and
    -1e-30, and the worst element would always be one next to zero.

    Examples
    --------
    >>> distances(np.float32([1, 2, np.nan, 0.0]), np.float32([1, 2.0000002, 3, -0.0])).tolist()
    [0.0, 1.0, inf, 0.0]
    """
    with np.errstate(all="ignore"):
        one, other = (each.astype(np.float64) for each in (first, second))
        finite = np.isfinite(one) & np.isfinite(other)
        larger = np.where(finite, np.maximum(np.abs(one), np.abs(other)), 0.0)
        ulps = ulps_of(larger, first.dtype.name)
        apart = np.where(finite, np.abs(one / ulps - other / ulps), np.inf)
    return np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, apart)


def difference(case: Case, output: str, first: Array, second: Array) -> Difference | None:
    """Compare a result of two subjects, each as it was returned; return nothing if it is equal."""
    place = (case.name, case.dtype, output, case.why)
    if first.shape != second.shape or first.dtype != second.dtype:
        one, other = (f"{each.dtype.name} of shape {each.shape}" for each in (first, second))
        return Difference(
            *place, words=f"{output} is {one} from the first, {other} from the other"
        )
    shape = case.shape if case.operation.is_rows(output) else (1, case.shape[1])
    known = first.dtype.name in FORMATS and output in output_types(case)
    if not known or first.size != shape[0] * shape[1]:  # both are wrong, perhaps not equally so
        equal = np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")
        what = f"{first.dtype.name} of shape {first.shape}"
        words = f"{output} is {what} from both, as it should not be, and not equal"
        return None if equal else Difference(*place, words=words)
    first, second = (np.ascontiguousarray(each).reshape(shape) for each in (first, second))
    bits = f"u{first.dtype.itemsize}"
    differs = first.view(bits) != second.view(bits)
    differs &= ~(np.isnan(first) & np.isnan(second))
    if not differs.any():
        return None
    apart = distances(first, second)
    spot = np.unravel_index(int(np.argmax(np.where(differs, apart, -1.0))), apart.shape)
    at = tuple(map(int, spot))
    return _judged(
        case,
        Difference(
            *place,
            int(differs.sum()),
            differs.size,
            float(apart[at]),
            at if case.operation.is_rows(output) else at[1:],
            float(first[at]),
            float(second[at]),
        ),
        differs,
        (first, second),
        at,
    )


def _judged(
    case: Case,
    found: Difference,
    differs: NDArray[np.bool_],
    results: tuple[Array, Array],
    at: tuple[int, ...],
) -> Difference:
    """Add to a difference which of the two is nearer to the exact answer."""
    rows = _judged_rows(case, found.output, differs, at[0])
    if rows is None:
        return found
    if len(rows) < len(differs):
        case = case.with_inputs(**{name: array[rows] for name, array in case.rows.items()})
    exact, here = expected(case), differs[rows]
    one, other = (_errors(exact, found.output, each[rows])[here] for each in results)
    spot = int(np.flatnonzero(rows == at[0])[0]), at[1]
    return replace(
        found,
        exact=float(exact.wide[found.output].reshape(here.shape)[spot]),
        judged=int(here.sum()),
        first_nearer=int((one < other).sum()),
        second_nearer=int((other < one).sum()),
        first_ulp=float(one.max()),
        second_ulp=float(other.max()),
    )


def _judged_rows(
    case: Case, output: str, differs: NDArray[np.bool_], worst: int
) -> NDArray[np.intp] | None:
    """Return the rows to hold against exact answers: all, or as many as there is time for."""
    if not is_user_case(case) or case.shape[0] * case.shape[1] <= ANSWERED:
        return np.arange(len(differs))
    if not case.operation.is_rows(output):
        return None  # every row has a part in it
    rows = np.flatnonzero(differs.any(axis=1))
    rest = rows[rows != worst][: max(ANSWERED // case.shape[1] - 1, 0)]
    return np.sort(np.append(rest, worst))


def _errors(exact: Expected, output: str, result: Array) -> Float64s:
    """Return errors in ulp: infinite where one is finite that should not be, or the reverse."""
    got = result.reshape(exact.wide[output].shape)
    error = apart(exact, output, got).in_ulp
    return np.where(all_misplaced(exact, output, got), np.inf, error).reshape(result.shape)


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
    runners = (runner_for(first), runner_for(second))
    return compared(*runners, suite, level=level if cases is None else "own", progress=progress)


def common(first: Subject, second: Subject, level: str) -> list[Case]:
    """Return the cases of all that both subjects claim."""
    operation = first.operation
    if operation.spec != second.operation.spec:
        raise ValueError(
            f"{first.name} is {operation.spec}, {second.name} {second.operation.spec}: "
            "bits are compared of one operation"
        )
    dtypes = [dtype for dtype in first.dtypes if dtype in second.dtypes]
    if not dtypes:
        raise ValueError(f"{first.name} and {second.name} have no type in common")
    also = set(first.also) & set(second.also)
    return [case for dtype in dtypes for case in cases_of(dtype, level, also, operation=operation)]


def compared(
    first: Runner,
    second: Runner,
    suite: Sequence[Case],
    *,
    level: str = "quick",
    progress: Progress | None = None,
) -> Equality:
    """Run each case with both subjects, up to where one is given up, and compare the bits."""
    tell = progress or (lambda *_: None)
    steps = 2 * len(suite)
    # First: a subject may leave the processor in a state in which subnormal numbers are zero.
    for done, case in enumerate(suite):
        tell(done, steps, f"exact answers: {case.name}")
        if not is_user_case(case):
            expected(case)
    within, beyond = parted(suite, first.subject.domain)
    within, more = parted(within, second.subject.domain)
    for runner in (first, second):
        try_a_call(runner, within)
    outputs = [each for each in first.subject.outputs if each in second.subject.outputs]
    seen: list[tuple[Case, str, int]] = []
    found: list[Difference] = []
    failed = 0
    not_run = len(within)
    for done, case in enumerate(within, start=len(suite)):
        tell(done, steps, case.name)
        try:
            records = [runner.run(case, Call()) for runner in (first, second)]
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
