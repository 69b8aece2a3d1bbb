"""How far a result is from the exact answer: in ulp, and in natural units. NaN is never near."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.oracle import Expected
from truenorm.verify.types import Array, Float64s

UNEXPLAINED = 3
"""What stands for the power of kappa where none up to 2 explains an error."""


class Bounds(NamedTuple):
    """How well answers are known, where they are not exact.

    `radius` is how far each can be from what is taken for it; `low` and `high` are the ends of
    that, rounded to the type of the result. Errors are less by the radius: nobody is blamed for
    what may be the judge's.
    """

    radius: Float64s
    low: Float64s
    high: Float64s


class Apart(NamedTuple):
    """How far each element is off, by itself and in ulp, and whether it is correctly rounded.

    What should be NaN or infinite is not off: see `misplaced`.
    """

    error: Float64s
    in_ulp: Float64s
    right: NDArray[np.bool_]


@dataclass(frozen=True)
class Error:
    """The error of one output of one case.

    Attributes
    ----------
    ulp, natural : float
        The largest error.
    needs : int
        The smallest power of kappa that explains every element, or `UNEXPLAINED`.
    correct : bool
        Whether each is the exact answer rounded once, ties to even.
    at : tuple of int
        The element that exceeds what is allowed by most.
    ulp_there : float
        Its error.
    not_finite : bool
        Whether that element should have been finite, and was not.
    excess : float
        By how much it exceeds that: how many times what is allowed its error is.
    """

    ulp: float
    natural: float
    needs: int
    correct: bool
    at: tuple[int, ...]
    ulp_there: float
    not_finite: bool
    excess: float = 0.0


def measure(
    expected: Expected,
    output: str,
    got: Array,
    *,
    finite: bool = True,
    known: Bounds | None = None,
) -> Error:
    """Measure the elements whose exact answer is finite.

    Without `finite`, elements that are not finite are passed over: what a judge does that compares
    by ``abs(error) > tolerance``. `known` says how well the answers are, unless they are exact.
    """
    away = apart(expected, output, got, finite=finite, known=known)
    error, in_ulp = away.error, away.in_ulp
    with np.errstate(all="ignore"):
        ulps = expected.ulps[output]
        # Beyond an ulp, which nobody is blamed for.
        natural = (error - ulps).clip(0) / (expected.unit(output) * expected.scale(output))
        excess = error / expected.allowed(output).clip(ulps)
    if error.size == 0:
        return Error(0.0, 0.0, 0, True, (), 0.0, False)
    at = tuple(map(int, np.unravel_index(int(np.argmax(excess)), excess.shape)))
    return Error(
        float(in_ulp.max()),
        float(np.nan_to_num(natural, nan=0.0, posinf=np.inf).max()),
        _power(expected, output, error),
        bool(away.right.all()),
        at,
        float(in_ulp[at]),
        not np.isfinite(float(np.real(got[at]))),
        float(excess[at]),
    )


def apart(
    expected: Expected,
    output: str,
    got: Array,
    *,
    finite: bool = True,
    known: Bounds | None = None,
) -> Apart:
    """Return how far each element is off: see `measure`."""
    exact, ulps, rest = (
        found[output] for found in (expected.wide, expected.ulps, expected.remainders)
    )
    with np.errstate(all="ignore"):
        result = got.astype(np.float64)
        judged = np.isfinite(exact) if finite else np.isfinite(exact) & np.isfinite(result)
        error = np.abs((result - exact) - rest * ulps)
        in_ulp = np.abs((result - exact) / ulps - rest)
        right = result == exact
        if known is not None:
            judged &= np.isfinite(known.low) & np.isfinite(known.high)
            error, in_ulp = (error - known.radius).clip(0), (in_ulp - known.radius / ulps).clip(0)
            right = (known.low <= result) & (result <= known.high)
        return Apart(_away(error, judged), _away(in_ulp, judged), right | ~judged)


def _away(error: Float64s, judged: NDArray[np.bool_]) -> Float64s:
    """Return the errors, infinite where a result is NaN and 0 where nothing is judged."""
    return np.where(judged, np.where(np.isnan(error), np.inf, error), 0.0)


def _power(expected: Expected, output: str, error: Float64s) -> int:
    for power in range(UNEXPLAINED):
        if (error <= expected.allowed(output, power)).all():
            return power
    return UNEXPLAINED


def misplaced(expected: Expected, output: str, got: Array) -> tuple[int, ...] | None:
    """Return an element that should have been NaN or infinite and is not, or None."""
    wrong = all_misplaced(expected, output, got)
    return tuple(map(int, np.argwhere(wrong)[0])) if wrong.any() else None


def all_misplaced(
    expected: Expected, output: str, got: Array, known: Bounds | None = None
) -> NDArray[np.bool_]:
    """Tell of each element whether it should have been NaN or infinite and is not.

    Anything that is not finite will do, since infinity times a number that an algorithm rounds to
    zero is NaN; but an infinity must not have the other sign. What may be finite, by what is
    `known`, may be anything.
    """
    with np.errstate(all="ignore"):
        exact, result = expected.wide[output], got.astype(np.float64)
    wrong = ~np.isfinite(exact) & np.isfinite(result) | np.isinf(exact) & (result == -exact)
    if known is not None:
        wrong &= ~(np.isfinite(known.low) | np.isfinite(known.high))
    return np.asarray(wrong)
