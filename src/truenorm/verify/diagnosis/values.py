"""What a result of very many elements is from where on it is wrong."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.diagnosis.evidence import Seen, apart, right_in
from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.oracle import Expected, compute_exact, expected
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of, unit_roundoff

FLOAT32 = 24
"""The bits of a place that float32 can count to."""


def beyond(copies: Array) -> str:
    """Say what stands beyond some power of two elements, where copies are no longer the first.

    Examples
    --------
    >>> import numpy as np
    >>> copies = np.tile(np.arange(1.0, 4.0), (6, 1))
    >>> copies.reshape(-1)[16:] = 0
    >>> beyond(copies)
    '0 from element 2^4 on: these are not written'
    """
    flat, right = copies.reshape(-1), copies[0].reshape(-1)
    wrong = (copies != copies[0]).reshape(-1)
    at = int(np.argmax(wrong))
    if not wrong[at] or not np.isfinite(right).all():
        return ""
    power = at.bit_length() - 1
    places = np.arange(1 << power, flat.size)
    came = flat[places]

    def is_at(others: NDArray[np.int64]) -> bool:
        return np.array_equal(came, right[np.minimum(others, flat.size - 1) % right.size])

    if not came.any():
        return f"0 from element 2^{power} on: these are not written"
    if power == FLOAT32 and is_at(places.astype(np.float32).astype(np.int64)):
        return f"wrong from element 2^{power} on: places are counted in float32"
    if is_at(places - (1 << power)):
        return f"wrong from element 2^{power} on: there it begins anew"
    return ""


SEVERAL = 3
"""So many elements at least must be what a cause says, and not what they should be."""
AGAINST = -1
Told = Callable[[Case, str, Float64s], int]
"""Returns how many elements of a result a cause explains, or that one speaks against it."""


def _named(output: str, seen: Sequence[Seen], causes: Mapping[str, Told]) -> list[str]:
    """Return the causes that no case speaks against, and several elements for."""
    results = [
        (each.case, result.astype(np.float64))
        for each in seen
        if (result := each.result(output)) is not None
    ]
    found = []
    for words, told in causes.items():
        counts = [told(case, output, result) for case, result in results]
        if min(counts, default=AGAINST) > AGAINST and sum(counts) >= SEVERAL:
            found.append(words)
    return found


def of_special(output: str, seen: Sequence[Seen]) -> str:
    """Say what becomes of NaN and infinity."""
    special = [each for each in seen if each.case.kind == "special"]
    causes: dict[str, Told] = {
        f"NaN in {output} is replaced by 0": _nan_is_zero,
        f"NaN in {output} is replaced by 0, and infinity by the largest number": _all_finite,
    }
    for name in special[0].case.inputs if special else ():
        causes[f"a number of {name} that is not finite is taken as 0"] = partial(_as_zero, name)
        causes[f"a number of {name} that is not finite makes all of {output} NaN"] = partial(
            _spread, name
        )
    found = _named(output, special, causes)
    return found[0] if len(found) == 1 else ""


def _finite_right(case: Case, output: str, result: Float64s) -> bool:
    """Tell whether all is right that should be finite."""
    exact = expected(case)
    finite = np.isfinite(exact.wide[output])
    return bool(right_in(exact, output, result)[finite].all())


def _nan_is_zero(case: Case, output: str, result: Float64s) -> int:
    others = result[~np.isfinite(expected(case).wide[output])]
    zeros = others == 0
    if not (zeros | np.isinf(others)).all() or not _finite_right(case, output, result):
        return AGAINST
    return int(zeros.sum())


def _all_finite(case: Case, output: str, result: Float64s) -> int:
    exact = expected(case)
    others = result[~np.isfinite(exact.wide[output])]
    largest = np.ldexp(1.0, FORMATS[exact.types[output]].limit)
    clipped = np.isfinite(others) & (np.abs(others) > largest / 2)
    if not ((others == 0) | clipped).all() or not _finite_right(case, output, result):
        return AGAINST
    return int(clipped.sum())


def _not_finite(case: Case, name: str) -> bool:
    given: Array | None = case.inputs[name]
    return given is not None and not np.isfinite(given.astype(np.float64)).all()


def _spread(name: str, case: Case, output: str, result: Float64s) -> int:
    should = np.isfinite(expected(case).wide[output])
    if _not_finite(case, name):
        return int(should.sum()) if np.isnan(result).all() else AGAINST
    right = _finite_right(case, output, result) and not np.isfinite(result[~should]).any()
    return 0 if right else AGAINST


def _as_zero(name: str, case: Case, output: str, result: Float64s) -> int:
    given: Array | None = case.inputs[name]
    if given is None or not _not_finite(case, name):
        return _spread(name, case, output, result)
    wide = given.astype(np.float64)
    other = case.with_inputs(**{name: np.where(np.isfinite(wide), wide, 0.0).astype(given.dtype)})
    exact = Expected(other, compute_exact(other))
    if not right_in(exact, output, result).all():
        return AGAINST
    return int((~right_in(expected(case), output, result)).sum())


def of_subnormal(output: str, seen: Sequence[Seen]) -> str:
    """Say whether subnormal inputs or results are taken as 0; often both would do."""
    subnormal = [each for each in seen if each.case.kind == "subnormal"]
    causes: dict[str, Told] = {
        "inputs": _inputs_flushed,
        "results": _results_flushed,
    }
    found = _named(output, subnormal, causes)
    return f"subnormal {' or '.join(found)} are taken as 0" if found else ""


def _flushed(values: Float64s, kind: str) -> Float64s:
    """Return numbers with 0 for those below the normal range of a type."""
    format_ = FORMATS[kind]
    return np.where(
        np.abs(values) < np.ldexp(1.0, format_.quantum + format_.precision - 1), 0.0, values
    )


def _results_flushed(case: Case, output: str, result: Float64s) -> int:
    exact = expected(case)
    predicted = _flushed(exact.wide[output], exact.types[output])
    return _explained(exact, predicted, output, result)


def _inputs_flushed(case: Case, output: str, result: Float64s) -> int:
    flushed = {
        name: _flushed(array.astype(np.float64), array.dtype.name).astype(array.dtype)
        for name, array in case.inputs.items()
        if array is not None
    }
    other = case.with_inputs(**flushed)
    exact = Expected(other, compute_exact(other))
    return _explained(expected(case), exact.wide[output], output, result)


def _explained(exact: Expected, predicted: Float64s, output: str, result: Float64s) -> int:
    """Count the zeros that are no right answers, if each element is as predicted."""
    with np.errstate(all="ignore"):
        near = apart(result, predicted) <= np.where(predicted == 0, 0.0, exact.allowed(output))
    wrong = (predicted == 0) & (exact.wide[output] != 0)
    return int(wrong.sum()) if near.all() else AGAINST


FITS = 0.99
"""The share of elements whose bits must be those of a hypothesis, as they must for a recipe."""
Came = tuple[Case, Array]
Rounded = Callable[[Case], Float64s]


def of_recipe(says: Mapping[str, str], output: str, name: str) -> str:
    """Say what a recipe is, by its name and what each of them is."""
    known, of, other_sum = name.partition(", of the ")
    words = f"{known}, {says[known]}" if says.get(known) else known
    return f"{output} has the bits of {words}{of}{other_sum}"


def of_bits(came: Sequence[Came], output: str, asked: str) -> str:
    """Name the hypothesis that has the bits of a result, rounded once; several, if all do.

    A parameter of a wider type than x may also be rounded to that type first, and what comes of
    it as is asked.
    """
    order = sorted(came, key=lambda one: -one[1].size)  # in the largest most of them fall
    candidates: dict[str, Rounded] = {
        words: partial(_once, output, each)
        for words, each in order[0][0].operation.hypotheses(output).items()
    }
    for name in order[0][0].operation.inputs_of("parameter"):
        words = f"{name} is rounded to the type of x first, and the rest as {asked} asks"
        candidates[words] = partial(_narrowed, name, asked)
    found: dict[str, list[Float64s]] = {}
    for words, rounded in candidates.items():
        if numbers := _fitting(order, rounded):
            found[words] = numbers
    if not found:
        return ""
    first = next(iter(found.values()))
    if not all(_alike(first, others) for others in found.values()):
        return ""
    return f"{output} has the bits of what comes out if {', or '.join(found)}"


def _once(output: str, hypothesis: Hypothesis, case: Case) -> Float64s:
    exact = expected(case)
    with np.errstate(all="ignore"):
        numbers = np.broadcast_to(hypothesis(case), exact.wide[output].shape)
        return numbers.astype(dtype_of(exact.types[output])).astype(np.float64)


def _narrowed(name: str, asked: str, case: Case) -> Float64s:
    given: Array | None = case.inputs[name]
    if given is None or unit_roundoff(given.dtype.name) >= unit_roundoff(case.dtype):
        return np.full(case.shape, np.nan)
    narrow = given.astype(dtype_of(case.dtype)).astype(given.dtype)
    return case.operation.recipes(case.with_inputs(**{name: narrow}))[asked].values


def _fitting(order: Sequence[Came], rounded: Rounded) -> list[Float64s]:
    """Return what a hypothesis gives in each case; nothing as soon as too many bits are others."""
    left = (1 - FITS) * sum(result.size for _, result in order)
    found = []
    for case, result in order:
        numbers = rounded(case)
        left -= float((numbers != result.astype(np.float64)).sum())
        if left < 0:
            return []
        found.append(numbers)
    return found


def _alike(one: Sequence[Float64s], other: Sequence[Float64s]) -> bool:
    """Tell whether two hypotheses have the same bits, but for a few."""
    same = sum(int((mine == theirs).sum()) for mine, theirs in zip(one, other, strict=True))
    return same >= FITS * sum(each.size for each in one)
