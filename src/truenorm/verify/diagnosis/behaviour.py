"""Find the likely cause of symptoms other than inaccuracy, from the records of all cases.

Each function explains one kind of symptom of one output in one type. It returns the cause, or None
if the records do not determine it.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.calls import (
    INTERLEAVED,
    LATER,
    PAUSED,
    PLAIN,
    ROWS,
    TILED,
    TWICE,
    other_rows,
)
from truenorm.verify.causes import Cause
from truenorm.verify.diagnosis.accuracy import MIN_ELEMENTS, diagnose
from truenorm.verify.diagnosis.matches import Evidence, distance
from truenorm.verify.distinctions import distinguishing_size
from truenorm.verify.operation import Case
from truenorm.verify.oracle import Expected, compute_exact, expected, output_types
from truenorm.verify.running.records import Record
from truenorm.verify.types import (
    FORMATS,
    Array,
    Float64s,
    dtype_of,
    same_bits,
    unit_roundoff,
)


class CaseRecords(NamedTuple):
    """A case and the records of its calls; `wrong` is true if it shows the symptom."""

    case: Case
    records: Sequence[Record]
    wrong: bool

    def of_kind(self, kind: str) -> list[Record]:
        """Return the records of calls of a kind that returned."""
        return [each for each in self.records if each.call.kind == kind and not each.failure]

    def result(self, output: str, kind: str = PLAIN) -> Array | None:
        """Return a result of the first call of a kind, in the shape of the case.

        Return None for a result of another size, which is a finding of its own.
        """
        like = {each.name: each.like for each in self.case.operation.outputs}[output]
        array, result = self.case.inputs[like], self.raw_result(output, kind)
        if array is None or result is None or result.size != array.size:
            return None
        return result.reshape(array.shape)

    def raw_result(self, output: str, kind: str = PLAIN) -> Array | None:
        """Return a result of the first call of a kind as the subject returned it."""
        return next((record.results.get(output) for record in self.of_kind(kind)), None)


Explain = Callable[[str, Sequence[CaseRecords]], Cause | None]


def is_accurate(exact: Expected, output: str, result: Array) -> NDArray[np.bool_]:
    """Return True for each element within the tolerance of `stable`."""
    with np.errstate(all="ignore"):
        errors = distance(result.astype(np.float64), exact.wide[output])
        return np.asarray(errors <= exact.allowed(output))


def computed(case: Case) -> Expected:
    """Return the answers of a case that is made for one comparison and not cached."""
    return Expected(case, compute_exact(case))


def _is_answer(case: Case, output: str, result: Array) -> bool:
    exact = computed(case)
    shape = exact.wide[output].shape
    return result.shape == shape and bool(is_accurate(exact, output, result).all())


def explain_raised(output: str, cases: Sequence[CaseRecords]) -> Cause | None:  # noqa: ARG001
    """Name the size at which calls fail, if they all fail in the same way."""
    failed = [record for each in cases for record in each.records if record.failure]
    kinds = {record.call.kind for record in failed}
    # A case in which no such call was made is no control case.
    controls = [
        each.case
        for each in cases
        if not each.wrong and kinds & {record.call.kind for record in each.records}
    ]
    sizes = distinguishing_size([each.case for each in cases if each.wrong], controls)
    one_kind = len({record.failure.split(":")[0] for record in failed}) == 1
    return Cause("fails-at-sizes", f"calls fail where {sizes}") if sizes and one_kind else None


def explain_type(output: str, cases: Sequence[CaseRecords]) -> Cause | None:
    """Tell a result that was not rounded from one that was rounded and converted back."""
    results = [(each, result) for each in cases if (result := each.result(output)) is not None]
    returned = {result.dtype.name for _, result in results}
    required = {expected(each.case).types[output] for each, _ in results}
    if len(returned) != 1 or len(required) != 1 or not all(each.wrong for each, _ in results):
        return None
    kind, right = returned.pop(), required.pop()
    if kind not in FORMATS:
        return None
    if unit_roundoff(kind) >= unit_roundoff(right):
        for name, array in results[0][0].case.inputs.items():
            if array is not None and array.dtype.name == kind:
                return Cause(f"type-of({name})", f"{output} has the type of {name}")
        return None
    if all(_is_representable(result, right) for _, result in results):
        words = f"{output} is rounded to {right}, then converted to {kind}"
        return Cause(f"converted-to({kind})", words)
    return Cause(f"stays-in({kind})", f"{output} is not rounded to {right}: it stays in {kind}")


def _is_representable(result: Array, kind: str) -> bool:
    with np.errstate(all="ignore"):
        narrow = result.astype(dtype_of(kind)).astype(result.dtype)
    return np.array_equal(narrow, result, equal_nan=True)


def explain_shape(output: str, cases: Sequence[CaseRecords]) -> Cause | None:
    """Name a surplus axis, or the absent parameter with which a result is missing."""
    wrong = [each for each in cases if each.wrong]
    results = [each.raw_result(output) for each in wrong]
    if all(result is None for result in results):
        return _missing_with_parameter(output, wrong, [each for each in cases if not each.wrong])
    causes = {
        None if result is None else _misshapen(each, output, result)
        for each, result in zip(wrong, results, strict=True)
    }
    return causes.pop() if len(causes) == 1 else None


def _misshapen(each: CaseRecords, output: str, result: Array) -> Cause | None:
    """Name an axis of length 1, exchanged axes, or axes over which a result was not summed."""
    case, plain = each.case, each.of_kind(PLAIN)[0].results
    exact = expected(case).given({**plain, output: result.T})
    shape = exact.wide[output].shape
    shapes = case.operation.result_shapes(output, case.given_shape)
    if result.shape in shapes:
        return None  # the symptom is of another call of this case
    if result.shape[::-1] == shape and _is_right(exact, output, result.T):
        return Cause("transposed", f"{output} is transposed")
    if result.size == math.prod(shape) and _is_right(exact, output, result):
        has_surplus = any(_with_ones(result.shape, each) for each in shapes)
        if has_surplus:
            words = f"{output} has an extra axis of length 1; its values are right"
            return Cause("extra-axis", words)
        return Cause("wrong-shape", f"{output} has a wrong shape; its values are right")
    axes = tuple(range(result.ndim - len(shape)))
    if not axes or result.shape[len(axes) :] != shape:
        return None
    if _is_right(exact, output, result.astype(np.float64).sum(axis=axes)):
        words = f"{output} is not summed over all batch axes: its sum over the first axis is right"
        return Cause("batch-axis-not-summed", words)
    return None


def _is_right(exact: Expected, output: str, result: Array) -> bool:
    """Return True if the numbers of a result are within the tolerance, whatever its shape."""
    decoded = exact.decoded(output, result)
    if decoded is None:
        return False
    return bool((exact.element_errors(output, decoded).error <= exact.allowed(output)).all())


def _with_ones(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return True if a shape is another one with more axes of length 1."""
    more = (1,) * (len(shape) - len(other))
    return other in combinations(shape, len(other)) and sorted(shape) == sorted(other + more)


def _missing_with_parameter(
    output: str, missing: Sequence[CaseRecords], controls: Sequence[CaseRecords]
) -> Cause | None:
    """Name the parameter that is None wherever a result is missing, and present elsewhere."""
    for name in missing[0].case.operation.inputs_of("parameter"):
        absent = {each.case.inputs.get(name) is None for each in missing}
        elsewhere = {
            each.case.inputs.get(name) is None
            for each in controls
            if each.raw_result(output) is not None
        }
        if absent == {True} and elsewhere == {False}:
            return Cause(f"missing-without({name})", f"{output} is missing where {name} is None")
    return None


def explain_inputs(output: str, cases: Sequence[CaseRecords]) -> Cause | None:  # noqa: ARG001
    """Name the result that overwrites each damaged input, if it does so in all cases."""
    plain = [record for each in cases for record in each.of_kind(PLAIN)]
    written: list[tuple[str, list[str]]] = []
    for name in dict.fromkeys(name for record in plain for name in record.damaged):
        damaged = [record.holds.get(name, ()) for record in plain if name in record.damaged]
        common = [result for result in damaged[0] if all(result in each for each in damaged)]
        if not common:
            return None
        written.append((name, common))
    ids = ", ".join(f"{'/'.join(results)} over {name}" for name, results in written)
    words = ", and ".join(
        f"{' or '.join(results)} is written over {name}" for name, results in written
    )
    return Cause(f"overwrites({ids})", words) if written else None


def explain_overwritten(output: str, cases: Sequence[CaseRecords]) -> Cause | None:
    """Recognize a thread that writes to a result, and a result buffer that all calls share."""
    if all(_changes_alone(output, each) for each in cases if each.wrong):
        words = f"a thread or an asynchronous copy writes to {output} after the call has returned"
        return Cause("written-after-return", words)
    contents = [record.holds.get(output, ()) for each in cases for record in each.of_kind(LATER)]
    if not contents or not all(output in names for names in contents):
        return None
    words = f"all calls write {output} to the same buffer, which holds the result of the last call"
    return Cause("shared-buffer", words)


def _changes_alone(output: str, case: CaseRecords) -> bool:
    """Return True if a result changes while nothing is called, and not in a later call."""
    kinds = (PLAIN, LATER, PAUSED)
    plain, later, paused = (case.result(output, kind) for kind in kinds)
    if plain is None or later is None or paused is None:
        return False
    return same_bits(plain, later) and not same_bits(plain, paused)


def explain_stale(output: str, cases: Sequence[CaseRecords]) -> Cause | None:
    """Recognize a gradient that is right for the rows of another forward pass."""
    for each in (each for each in cases if each.wrong):
        result, case = each.result(output, INTERLEAVED), each.case
        if result is None or _is_answer(case, output, result):
            return None
        (other,) = other_rows(case)
        data = {name: other.inputs[name] for name in case.operation.inputs_of("data")}
        if not _is_answer(case.with_inputs(**data), output, result):
            return None
    words = f"backward uses the state of the latest forward: {output} is right for its rows"
    return Cause("latest-forward", words)


def explain_spent(output: str, cases: Sequence[CaseRecords]) -> Cause | None:
    """Find a hypothesis for the gradients of a second backward pass."""
    evidence = [
        Evidence(each.case, output, result, correct=False)
        for each in cases
        if each.wrong and (result := each.result(output, TWICE)) is not None
    ]
    if not evidence:
        return None
    hypotheses = evidence[0].case.operation.knowledge.hypotheses(output)
    found = diagnose(evidence, hypotheses, by_size=False)
    if not found.causes:
        return None
    words = f"backward changes the saved state: in the second call, {found.words()}"
    return Cause(f"saved-state-changed({', '.join(found.ids)})", words)


def explain_large(output: str, cases: Sequence[CaseRecords]) -> Cause | None:
    """Return the description of the wrong elements by `describe_wrong_elements`."""
    contents = {
        record.holds.get(output, ())
        for each in cases
        for record in each.records
        if each.wrong and output in record.results
    } - {()}
    if len(contents) != 1:
        return None
    return Cause("wrong-in-one-call", f"in one call, {output} is {contents.pop()[0]}")


def explain_position(output: str, cases: Sequence[CaseRecords]) -> Cause | None:
    """Find the number of rows after which equal rows have the same bits again.

    A block of rows and the alignment of a row in memory are the same where D is odd.
    """
    blocks = {
        block
        for each in cases
        if each.wrong and (result := each.result(output)) is not None
        if (block := _block_size(each.case, np.ascontiguousarray(result)))
    }
    if len(blocks) != 1:
        return None
    block = blocks.pop()
    words = (
        f"the bits of equal rows repeat after {block} rows: they depend on the place of a row in "
        "a block, or on where it starts in memory"
    )
    return Cause(f"bits-by-place-in-block({block})", words)


def _block_size(case: Case, result: Array) -> int:
    """Return the smallest power of two with which the bits of repeated rows are periodic, or 0.

    If the number of distinct rows is odd, a row has the same position in a block after as many
    copies as the block has rows.
    """
    rows, repeats = case.shape[0], case.repeats
    copies = result.view(np.uint8).reshape(repeats, -1)
    if rows // repeats % 2 == 0 or (copies == copies[0]).all():
        return 0
    blocks = [2**power for power in range(1, (repeats // 2).bit_length())]
    return next((block for block in blocks if (copies[block:] == copies[:-block]).all()), 0)


def explain_batch(output: str, cases: Sequence[CaseRecords]) -> Cause | None:
    """Find the numbers of rows, or of elements, of batches between which bits change.

    Which of both it is, only rows of several lengths show.
    """
    changes = [
        (each.case.shape[1], _batch_size_changes(each, output)) for each in cases if each.wrong
    ]
    lengths = {size for size, _ in changes}
    common = {
        "rows": _common_change([some for _, some in changes]),
        "elements": _common_change(
            [{(below * size, above * size) for below, above in some} for size, some in changes]
        ),
    }
    causes = [
        Cause(
            f"bits-change-between({change[0]}, {change[1]} {unit})",
            f"the bits of a row change between batches of {change[0]} and {change[1]} {unit}, and "
            "between no others that were tried",
        )
        for unit, change in common.items()
        if change
    ]
    if len(lengths) == 1 and common["rows"]:
        return causes[0].with_words(f"where D is {lengths.pop()}, {causes[0].words}")
    return causes[0] if len(causes) == 1 else None


def _common_change(changes: Sequence[set[tuple[int, int]]]) -> tuple[int, int] | None:
    """Return the one pair of sizes between which the bits of all cases may change."""
    common = {(0, sys.maxsize)}
    for some in changes:
        both = {(max(a[0], b[0]), min(a[1], b[1])) for a, b in product(common, some)}
        common = {(below, above) for below, above in both if below < above}
    return common.pop() if len(common) == 1 else None


class _Batch(NamedTuple):
    """The results of consecutive rows that were computed in one call of `size` rows."""

    start: int
    result: Array
    size: int

    def agrees(self, other: "_Batch") -> bool:
        """Return True if the rows in both batches have the same bits."""
        start = max(self.start, other.start)
        stop = min(self.start + len(self.result), other.start + len(other.result))
        if start >= stop:
            return True
        mine, theirs = (
            np.ascontiguousarray(each.result[start - each.start : stop - each.start])
            for each in (self, other)
        )
        return mine.dtype == theirs.dtype and same_bits(mine, theirs)


def _batch_size_changes(each: CaseRecords, output: str) -> set[tuple[int, int]]:
    """Return the neighbouring batch sizes between which bits change, and nowhere else."""
    batches = [
        _Batch(record.call.start, result, record.call.stop - record.call.start or len(result))
        for record in (*each.of_kind(PLAIN), *each.of_kind(ROWS), *each.of_kind(TILED))
        if (result := record.results.get(output)) is not None and result.ndim
    ]
    sizes = sorted({batch.size for batch in batches})
    changes = set()
    for below, above in pairwise(sizes):
        small = [batch for batch in batches if batch.size <= below]
        large = [batch for batch in batches if batch.size >= above]
        same = all(
            one.agrees(other) for side in (small, large) for one, other in combinations(side, 2)
        )
        if same and not all(one.agrees(other) for one, other in product(small, large)):
            changes.add((below, above))
    return changes


CONTRADICTED = -1
CountExplained = Callable[[Case, str, Float64s], int]
"""Returns the number of wrong elements that a cause explains, or `CONTRADICTED`."""


def _consistent_causes(
    output: str, cases: Sequence[CaseRecords], kind: str, causes: Mapping[Cause, CountExplained]
) -> list[Cause]:
    """Return the causes that no case of a kind contradicts and that explain several elements.

    They are about floating-point results: there is none for codes.
    """
    results = [
        (each.case, result.astype(np.float64))
        for each in cases
        if each.case.kind == kind and (result := each.result(output)) is not None
        if output_types(each.case)[output] in FORMATS
    ]
    consistent = []
    for cause, count in causes.items():
        counts = [count(case, output, result) for case, result in results]
        if min(counts, default=CONTRADICTED) > CONTRADICTED and sum(counts) >= MIN_ELEMENTS:
            consistent.append(cause)
    return consistent


def explain_special(output: str, cases: Sequence[CaseRecords]) -> Cause | None:
    """Find how NaN and infinity are replaced or spread."""
    both = f"NaN in {output} is replaced by 0, and infinity by the largest number"
    causes: dict[Cause, CountExplained] = {
        Cause("nan-to-0(result)", f"NaN in {output} is replaced by 0"): _nan_replaced,
        Cause("nan-to-0-inf-to-largest(result)", both): _all_replaced,
    }
    special = [each.case for each in cases if each.case.kind == "special"]
    for name in special[0].inputs if special else ():
        contained = f"a row with NaN in {name} has finite elements of {output} in other columns"
        causes |= {
            Cause(
                f"non-finite-to-0({name})", f"non-finite values of {name} are replaced by 0"
            ): partial(_input_replaced, name, _is_not_finite),
            Cause(f"nan-to-0({name})", f"NaN in {name} is replaced by 0"): partial(
                _input_replaced, name, np.isnan
            ),
            Cause(f"nan-contained({name})", contained): partial(_nan_contained, name),
            Cause(
                f"nan-spread({name})", f"a non-finite value of {name} makes all of {output} NaN"
            ): partial(_spread, name),
        }
    consistent = _consistent_causes(output, cases, "special", causes)
    return consistent[0] if len(consistent) == 1 else None


def _finite_are_accurate(case: Case, output: str, result: Float64s) -> bool:
    exact = expected(case)
    finite = np.isfinite(exact.wide[output])
    return bool(is_accurate(exact, output, result)[finite].all())


def _nan_replaced(case: Case, output: str, result: Float64s) -> int:
    special = result[~np.isfinite(expected(case).wide[output])]
    zeros = special == 0
    if not (zeros | np.isinf(special)).all() or not _finite_are_accurate(case, output, result):
        return CONTRADICTED
    return int(zeros.sum())


def _all_replaced(case: Case, output: str, result: Float64s) -> int:
    exact = expected(case)
    special = result[~np.isfinite(exact.wide[output])]
    largest = np.ldexp(1.0, FORMATS[exact.types[output]].limit)
    clipped = np.isfinite(special) & (np.abs(special) > largest / 2)
    if not ((special == 0) | clipped).all() or not _finite_are_accurate(case, output, result):
        return CONTRADICTED
    return int(clipped.sum())


def _is_finite(case: Case, name: str) -> bool:
    array: Array | None = case.inputs[name]
    return array is None or bool(np.isfinite(array.astype(np.float64)).all())


def _spread(name: str, case: Case, output: str, result: Float64s) -> int:
    finite = np.isfinite(expected(case).wide[output])
    if not _is_finite(case, name):
        return int(finite.sum()) if np.isnan(result).all() else CONTRADICTED
    return _right_if_special(case, output, result)


def _right_if_special(case: Case, output: str, result: Float64s) -> int:
    """Return 0 if the finite elements are accurate, and no other element is finite."""
    finite = np.isfinite(expected(case).wide[output])
    right = _finite_are_accurate(case, output, result) and not np.isfinite(result[~finite]).any()
    return 0 if right else CONTRADICTED


def _nan_contained(name: str, case: Case, output: str, result: Float64s) -> int:
    """Count finite elements of rows with a NaN: the statistics of the row have ignored it."""
    array: Array | None = case.rows.get(name)
    nan = np.isnan(array.astype(np.float64)) if array is not None else np.zeros(1, bool)
    if not nan.any() or nan.shape != result.shape:
        return _right_if_special(case, output, result)
    beyond = np.isnan(expected(case).wide[output]) & nan.any(axis=-1, keepdims=True) & ~nan
    contained = np.isnan(result[nan]).all() and np.isfinite(result[beyond]).all()
    return int(beyond.sum()) if contained else CONTRADICTED


def _is_not_finite(values: Float64s) -> Any:
    return ~np.isfinite(values)


def _input_replaced(
    name: str,
    replaced: Callable[[Float64s], Any],
    case: Case,
    output: str,
    result: Float64s,
) -> int:
    array: Array | None = case.inputs[name]
    if array is None or not replaced(wide := array.astype(np.float64)).any():
        return _right_if_special(case, output, result)
    zeros = np.where(replaced(wide), 0.0, wide).astype(array.dtype)
    if not is_accurate(computed(case.with_inputs(**{name: zeros})), output, result).all():
        return CONTRADICTED
    return int((~is_accurate(expected(case), output, result)).sum())


def explain_subnormal(output: str, cases: Sequence[CaseRecords]) -> Cause | None:
    """Find whether inputs or results are flushed to zero; both may be consistent."""
    causes: dict[Cause, CountExplained] = {
        Cause("inputs", "inputs"): _inputs_flushed,
        Cause("results", "results"): _results_flushed,
    }
    flushed = _consistent_causes(output, cases, "subnormal", causes)
    if not flushed:
        return None
    words = f"subnormal {' or '.join(each.words for each in flushed)} are flushed to zero"
    return Cause(f"flushed({'/'.join(each.id for each in flushed)})", words)


def _flushed(values: Float64s, kind: str) -> Float64s:
    smallest_normal = np.ldexp(1.0, FORMATS[kind].quantum + FORMATS[kind].precision - 1)
    return np.where(np.abs(values) < smallest_normal, 0.0, values)


def _results_flushed(case: Case, output: str, result: Float64s) -> int:
    exact = expected(case)
    return _count_zeros(exact, _flushed(exact.wide[output], exact.types[output]), output, result)


def _inputs_flushed(case: Case, output: str, result: Float64s) -> int:
    flushed = {
        name: _flushed(array.astype(np.float64), array.dtype.name).astype(array.dtype)
        for name, array in case.inputs.items()
        if array is not None
    }
    predicted = computed(case.with_inputs(**flushed)).wide[output]
    return _count_zeros(expected(case), predicted, output, result)


def _count_zeros(exact: Expected, predicted: Float64s, output: str, result: Float64s) -> int:
    """Count predicted zeros that are no right answers, if the result is as predicted."""
    with np.errstate(all="ignore"):
        allowed = np.where(predicted == 0, 0.0, exact.allowed(output))
        if not (distance(result, predicted) <= allowed).all():
            return CONTRADICTED
    return int(((predicted == 0) & (exact.wide[output] != 0)).sum())
