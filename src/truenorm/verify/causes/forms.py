"""Causes of results in another form than is asked for, or of none: types, shapes, exceptions."""

from collections.abc import Sequence

import numpy as np

from truenorm.verify.answers.expected import expected
from truenorm.verify.causes.seen import Seen, right_in
from truenorm.verify.causes.where import where
from truenorm.verify.runs.calls import PLAIN
from truenorm.verify.types import FORMATS, Array, dtype_of, unit_roundoff

__all__ = ["of_raised", "of_shape", "of_type"]


def of_raised(output: str, seen: Sequence[Seen]) -> str:  # noqa: ARG001 (all of them)
    """Say in which cases it does not return, if a size decides."""
    ended = {record.failure for each in seen for record in each.records} - {""}
    # A case that was given up has no records, and says nothing.
    wrong = [each.case for each in seen if each.wrong]
    place = where(wrong, [each.case for each in seen if each.records and not each.wrong])
    alike = len({failure.split(":")[0] for failure in ended}) == 1
    return f"{place} it ends so, and nowhere else" if place and alike else ""


def of_type(output: str, seen: Sequence[Seen]) -> str:
    """Say whether a result was rounded before it got its type, or whose type that is."""
    results = [(each, result) for each in seen if (result := each.result(output)) is not None]
    kinds = {result.dtype.name for _, result in results}
    asked = {expected(each.case).types[output] for each, _ in results}
    if len(kinds) != 1 or len(asked) != 1 or not all(each.wrong for each, _ in results):
        return ""
    kind, right = kinds.pop(), asked.pop()
    if kind not in FORMATS:
        return ""
    if unit_roundoff(kind) >= unit_roundoff(right):
        same = [
            name
            for name, array in results[0][0].case.inputs.items()
            if array is not None and array.dtype.name == kind
        ]
        return f"{output} is in the type of {same[0]}" if same else ""
    if all(_is_of(result, right) for _, result in results):
        return f"{output} is rounded to {right}, and then turned into {kind}"
    return f"{output} is not rounded to {right}: it is left in {kind}"


def _is_of(result: Array, kind: str) -> bool:
    """Tell whether all numbers are of a narrower type."""
    with np.errstate(all="ignore"):
        narrow = result.astype(dtype_of(kind)).astype(result.dtype)
    return np.array_equal(narrow, result, equal_nan=True)


def of_shape(output: str, seen: Sequence[Seen]) -> str:
    """Say which axis is there that should not be, or where a result is missing."""
    wrong = [each for each in seen if each.wrong]
    results = [_as_returned(each, output) for each in wrong]
    if all(result is None for result in results):
        return _missing(output, wrong, [each for each in seen if not each.wrong])
    said = {
        "" if result is None else _axis(each, output, result)
        for each, result in zip(wrong, results, strict=True)
    }
    return said.pop() if len(said) == 1 else ""


def _as_returned(each: Seen, output: str) -> Array | None:
    return next((record.results.get(output) for record in each.of_kind(PLAIN)), None)


def _axis(each: Seen, output: str, result: Array) -> str:
    """Say what makes a result right: an axis of length 1 left out, or a sum over axes."""
    exact = expected(each.case)
    shape = exact.wide[output].shape
    by_rows = each.case.operation.is_rows(output)
    if result.shape == (each.case.laid_out(each.case.x).shape if by_rows else shape):
        return ""  # another call of the case has another
    if result.size == np.prod(shape) and right_in(exact, output, result.reshape(shape)).all():
        return f"the numbers of {output} are right: it has an axis of length 1 too many"
    axes = tuple(range(result.ndim - len(shape)))
    if not axes or result.shape[len(axes) :] != shape:
        return ""
    total = result.astype(np.float64).sum(axis=axes)
    if not right_in(exact, output, total).all():
        return ""
    return (
        f"not all axes of rows are summed over: the sum of {output} over its first axis is right"
    )


def _missing(output: str, without: Sequence[Seen], others: Sequence[Seen]) -> str:
    """Say which parameter is None wherever a result is missing, and given wherever it came."""
    for name in without[0].case.operation.inputs_of("parameter"):
        absent = {each.case.inputs.get(name) is None for each in without}
        elsewhere = {
            each.case.inputs.get(name) is None
            for each in others
            if _as_returned(each, output) is not None
        }
        if absent == {True} and elsewhere == {False}:
            return f"{output} is left out where {name} is None"
    return ""
