"""Causes of NaN, infinity and subnormal numbers in wrong places."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from truenorm.verify.answers.expected import Expected, computed, expected
from truenorm.verify.causes.holding import apart
from truenorm.verify.causes.seen import Seen, right_in
from truenorm.verify.operation import Case
from truenorm.verify.types import FORMATS, Array, Float64s

__all__ = ["of_special", "of_subnormal"]

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
    exact = Expected(other, computed(other))
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
    exact = Expected(other, computed(other))
    return _explained(expected(case), exact.wide[output], output, result)


def _explained(exact: Expected, predicted: Float64s, output: str, result: Float64s) -> int:
    """Count the zeros that are no right answers, if each element is as predicted."""
    with np.errstate(all="ignore"):
        near = apart(result, predicted) <= np.where(predicted == 0, 0.0, exact.allowed(output))
    wrong = (predicted == 0) & (exact.wide[output] != 0)
    return int(wrong.sum()) if near.all() else AGAINST
