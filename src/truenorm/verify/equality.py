"""Compare two subjects that should have equal bits, case by case."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify.calls import Call
from truenorm.verify.grading.domain import split_by_domain
from truenorm.verify.judge import try_a_call
from truenorm.verify.operation import EVERYWHERE, Case, Operation
from truenorm.verify.oracle import Expected, expected, output_types
from truenorm.verify.running.process import START_SECONDS, SubjectProcess
from truenorm.verify.running.records import GaveUpError, Record, Runner
from truenorm.verify.running.runners import runner_for
from truenorm.verify.subject import Subject, SubjectOptions, require_subject
from truenorm.verify.suite import cases as cases_of
from truenorm.verify.types import CODE_TYPES, FORMATS, Array, Float64s, ulps_of
from truenorm.verify.user_cases import is_user_case, listed_cases


@dataclass(frozen=True)
class Difference:
    """A result of one case whose bits differ between two subjects.

    `elements` of `total` differ, by at most `ulp` (of the larger value). At the largest
    difference, `at`, the values are `first` and `second`, and `exact` is the rounded answer. Of
    the differing elements, `judged` were compared with exact answers. The first subject is nearer
    in `first_nearer` elements, the second in `second_nearer`; the largest errors are `first_ulp`
    and `second_ulp`. `words` describes a difference other than of values; then all numbers are 0.
    """

    case: str
    dtype: str
    output: str  # empty if a call failed
    why: str  # the purpose of the case
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
    """The differences of one output in one type, over all cases; fields as in `Difference`."""

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
    """The comparison of two subjects.

    Attributes
    ----------
    first, second : str
        The names of the subjects.
    level : str
    cases : int
        Cases in which at least one subject returned.
    summaries : tuple of Summary
        By type and output.
    differences : tuple of Difference
        By case and output.
    failed : int
        Cases in which neither subject returned.
    not_run : int
        Cases that were skipped, because a subject crashed or hung too often.
    """

    first: str
    second: str
    level: str
    cases: int
    summaries: tuple[Summary, ...]
    differences: tuple[Difference, ...] = field(repr=False)
    failed: int = 0
    not_run: int = 0
    left_out: int = 0  # cases outside the domain of a subject
    machine: dict[str, str] = field(default_factory=dict)
    operation: Operation = field(kw_only=True, repr=False)

    @property
    def passed(self) -> bool:
        """True if results were compared, no case was skipped, and all bits are equal."""
        return bool(self.summaries) and not self.differences and not self.not_run


EXACT_ELEMENTS = 2**14
"""Elements of a user case that are compared with exact answers; more would take minutes."""


def ulp_distances(first: Array, second: Array) -> Float64s:
    """Return the distances of two arrays in ulp of the larger value; inf if one is not finite.

    The number of floating-point numbers between two values is no useful distance: there are
    millions between 1e-30 and -1e-30, and the worst element would always be next to zero.

    Examples
    --------
    >>> ulp_distances(np.float32([1, 2, np.nan, 0]), np.float32([1, 2.0000002, 3, -0.0]))
    array([ 0.,  1., inf,  0.])
    """
    with np.errstate(all="ignore"):
        one, other = (each.astype(np.float64) for each in (first, second))
        finite = np.isfinite(one) & np.isfinite(other)
        larger = np.where(finite, np.maximum(np.abs(one), np.abs(other)), 0.0)
        ulps = ulps_of(larger, first.dtype.name)
        distances = np.where(finite, np.abs(one / ulps - other / ulps), np.inf)
    return np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, distances)


def output_difference(case: Case, output: str, first: Array, second: Array) -> Difference | None:
    """Compare a result of two subjects as they returned it; return None if it is equal."""
    place = (case.name, case.dtype, output, case.why)
    if first.shape != second.shape or first.dtype != second.dtype:
        one, other = (f"{each.dtype.name} of shape {each.shape}" for each in (first, second))
        words = f"{output} is {one} from the first, {other} from the second"
        return Difference(*place, words=words)
    shape = case.shape if case.operation.is_rows(output) else (1, case.shape[1])
    kind = output_types(case).get(output, "")
    if kind not in FORMATS and first.dtype.name in CODE_TYPES:
        differ = int((first.view(np.uint8) != second.view(np.uint8)).sum())
        words = f"{differ} of {first.size} {output} differ"
        return Difference(*place, differ, first.size, words=words) if differ else None
    known = first.dtype.name in FORMATS and kind
    if not known or first.size != shape[0] * shape[1]:
        equal = np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")
        form = f"{first.dtype.name} of shape {first.shape}"
        words = f"{output} is {form} from both, which is wrong, and its values differ"
        return None if equal else Difference(*place, words=words)
    first, second = (np.ascontiguousarray(each).reshape(shape) for each in (first, second))
    bits = f"u{first.dtype.itemsize}"
    differs = first.view(bits) != second.view(bits)
    differs &= ~(np.isnan(first) & np.isnan(second))
    if not differs.any():
        return None
    distances = ulp_distances(first, second)
    worst = np.unravel_index(int(np.argmax(np.where(differs, distances, -1.0))), shape)
    at = (int(worst[0]), int(worst[1]))
    difference = Difference(
        *place,
        int(differs.sum()),
        differs.size,
        float(distances[at]),
        at if case.operation.is_rows(output) else at[1:],
        float(first[at]),
        float(second[at]),
    )
    rows = _rows_to_measure(case, output, differs, at[0])
    if rows is None:
        return difference
    if len(rows) < len(differs):
        case = case.with_inputs(**{name: array[rows] for name, array in case.rows.items()})
    exact, here = expected(case), differs[rows]
    one_ulp, other_ulp = (_errors(exact, output, each[rows])[here] for each in (first, second))
    exact_at = int(np.flatnonzero(rows == at[0])[0]), at[1]
    return replace(
        difference,
        exact=float(exact.wide[output].reshape(here.shape)[exact_at]),
        judged=int(here.sum()),
        first_nearer=int((one_ulp < other_ulp).sum()),
        second_nearer=int((other_ulp < one_ulp).sum()),
        first_ulp=float(one_ulp.max()),
        second_ulp=float(other_ulp.max()),
    )


def _rows_to_measure(
    case: Case, output: str, differs: NDArray[np.bool_], worst: int
) -> NDArray[np.intp] | None:
    """Return the rows to compare with exact answers: all, or some of the differing rows.

    Return None for a sum over the rows of a large case.
    """
    if not is_user_case(case) or case.shape[0] * case.shape[1] <= EXACT_ELEMENTS:
        return np.arange(len(differs))
    if not case.operation.is_rows(output):
        return None
    rows = np.flatnonzero(differs.any(axis=1))
    rest = rows[rows != worst][: max(EXACT_ELEMENTS // case.shape[1] - 1, 0)]
    return np.sort(np.append(rest, worst))


def _errors(exact: Expected, output: str, result: Array) -> Float64s:
    """Return errors in ulp: infinite if either the result or the answer is not finite."""
    values = result.reshape(exact.wide[output].shape)
    error = exact.element_errors(output, values).in_ulp
    return np.where(exact.misplaced(output, values), np.inf, error).reshape(result.shape)


def compare(
    first: Subject,
    second: Subject,
    *,
    level: str = "quick",
    cases: Sequence[Case] | None = None,
    progress: Progress | None = None,
) -> Equality:
    """Compare two subjects that should have equal bits.

    Their functions are called in this process; ``truenorm compare A B`` calls each
    in a process of its own.

    Parameters
    ----------
    first, second : Subject
        Subjects of the same operation.
    level : str
        ``quick`` or ``full``: the cases of all types that both subjects have.
    cases : sequence of Case, optional
        Cases to use instead of the cases of a level.
    progress : callable, optional
        Called as ``progress(done, total, name)`` before each case.

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
    >>> worst = equality.differences[0]
    >>> equality.passed, worst.output, worst.second_nearer > worst.first_nearer
    (False, 'y', True)
    """
    require_subject(first)
    require_subject(second)
    runners = (runner_for(first), runner_for(second))
    suite = common_cases(first, second, level) if cases is None else list(cases)
    level = level if cases is None else "own"
    return compare_runners(*runners, suite, level=level, progress=progress)


def compare_targets(
    first: str,
    second: str,
    *,
    level: str = "quick",
    progress: Progress | None = None,
    start_seconds: float = START_SECONDS,
    **options: Unpack[SubjectOptions],
) -> Equality:
    """Compare the bits of two subjects, each of which runs in a process of its own."""
    start = partial(SubjectProcess, strict=True, start_seconds=start_seconds, **options)
    with start(first) as one, start(second) as other:
        suite = common_cases(one.subject, other.subject, level)
        dtypes = {case.dtype for case in suite}
        shapes, data = options.get("shapes", ()), options.get("data", ())
        listed = listed_cases(shapes, data, one.subject.operation, one.subject.dtypes)
        suite += [case for case in listed if case.dtype in dtypes]
        return compare_runners(one, other, suite, level=level, progress=progress)


def common_cases(first: Subject, second: Subject, level: str) -> list[Case]:
    """Return the cases of the types and extensions that both subjects claim."""
    operation = first.operation
    if operation.spec != second.operation.spec:
        raise ValueError(
            f"both subjects must have the same operation; {first.name} is {operation.spec}, "
            f"{second.name} is {second.operation.spec}"
        )
    dtypes = [dtype for dtype in first.dtypes if dtype in second.dtypes]
    if not dtypes:
        raise ValueError(f"{first.name} and {second.name} have no type in common")
    also = set(first.also) & set(second.also)
    return [case for dtype in dtypes for case in cases_of(dtype, level, also, operation=operation)]


def compare_runners(
    first: Runner,
    second: Runner,
    suite: Sequence[Case],
    *,
    level: str = "quick",
    progress: Progress | None = None,
) -> Equality:
    """Run each case with both subjects and compare the results."""
    tell = progress or (lambda *_: None)
    steps = 2 * len(suite)
    # Compute all answers first: a subject may set the processor to flush subnormal numbers.
    for done, case in enumerate(suite):
        tell(done, steps, f"exact answers: {case.name}")
        if not is_user_case(case):
            expected(case)
    within, beyond = split_by_domain(suite, first.subject.domain or EVERYWHERE)
    within, more_beyond = split_by_domain(within, second.subject.domain or EVERYWHERE)
    for runner in (first, second):
        try_a_call(runner, within)
    outputs = [each for each in first.subject.outputs if each in second.subject.outputs]
    sizes: list[tuple[str, str, int]] = []
    differences: list[Difference] = []
    failed = 0
    not_run = len(within)
    for done, case in enumerate(within, start=len(suite)):
        tell(done, steps, case.name)
        try:
            one, other = (runner.run(case, Call()) for runner in (first, second))
        except GaveUpError:
            break
        not_run -= 1
        if one.failure and other.failure:
            failed += 1
            continue
        more_sizes, more_differences = _compare_case(case, one, other, outputs)
        sizes += more_sizes
        differences += more_differences
    return Equality(
        first.subject.name,
        second.subject.name,
        level,
        len(within) - not_run - failed,
        _summaries(sizes, differences),
        tuple(differences),
        failed,
        not_run,
        len(beyond) + len(more_beyond),
        describe("date", "python", "numpy", "machine"),
        operation=first.subject.operation,
    )


def _compare_case(
    case: Case, first: Record, second: Record, outputs: Sequence[str]
) -> tuple[list[tuple[str, str, int]], list[Difference]]:
    """Return type, output and size of each compared result, and the differences."""
    for failure, which in ((first.failure, "first"), (second.failure, "second")):
        if failure:
            words = f"the {which} {failure}, the other returned"
            return [], [Difference(case.name, case.dtype, "", case.why, words=words)]
    sizes, differences = [], []
    for output in outputs:
        if output not in first.results or output not in second.results:
            continue  # a command may have no backward pass
        one, other = first.results[output], second.results[output]
        if one is None and other is None:
            continue
        if one is None or other is None:
            words = f"{output} is None from the {'first' if one is None else 'second'} only"
            differences.append(Difference(case.name, case.dtype, output, case.why, words=words))
            continue
        sizes.append((case.dtype, output, one.size))
        if difference := output_difference(case, output, one, other):
            differences.append(difference)
    return sizes, differences


def _summaries(
    sizes: Sequence[tuple[str, str, int]], differences: Sequence[Difference]
) -> tuple[Summary, ...]:
    summaries = []
    for dtype, output in dict.fromkeys((dtype, output) for dtype, output, _ in sizes):
        totals = [size for *place, size in sizes if place == [dtype, output]]
        here = [each for each in differences if (each.dtype, each.output) == (dtype, output)]
        worst = max(here, key=difference_size, default=None)
        summaries.append(
            Summary(
                dtype,
                output,
                len(totals),
                len(here),
                sum(totals),
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


def difference_size(difference: Difference) -> tuple[bool, float]:
    """Return a sort key: failures and wrong forms come before differing values."""
    return bool(difference.words), difference.ulp
