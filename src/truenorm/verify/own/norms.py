"""Results of norms as balls: some rows at a time, since a large case is not held in memory twice.

The formulas are written out again from the definitions, and the bound comes from the arithmetic
(`truenorm.verify.own.balls`): in pairs of float64 it is some 2^-98 of the terms that a result is
made of, which no tolerance notices, not even that of float64.
"""

from collections.abc import Iterator

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.operations.norms import Norm
from truenorm.verify.own.balls import LIMIT, Ball, two_sum
from truenorm.verify.types import Array

__all__ = ["Near", "condition", "near", "parts", "refusal"]

AT_ONCE = 2**15
"""Elements, or one row: a few arrays of them are in a processor's own memory."""
Near = dict[str, Ball]


def parts(case: Case) -> Iterator[slice]:
    """Yield the rows of a case, a few at a time."""
    rows, size = case.shape
    step = max(1, AT_ONCE // max(size, 1))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def refusal(case: Case) -> str:
    """Return why there is no bound for a case; nothing if there is one."""
    if not isinstance(case.operation, Norm):
        return f"own shapes and data are for norms, and not for {case.operation.title}"
    for name, array in case.inputs.items():
        if array is None:
            continue
        for start in range(0, len(array), 64):
            sizes = np.abs(array[start : start + 64].astype(np.float64))
            if not (sizes <= LIMIT).all():
                wrong = np.argwhere(~(sizes <= LIMIT))[0]
                at = [start + int(wrong[0]), *map(int, wrong[1:])]
                return (
                    f"{name}{at} is {array[tuple(at)]}: there are bounds for finite numbers up to "
                    f"{LIMIT:.1g}; others are among the judge's own cases"
                )
    if case.eps < 2.0**-240:
        centred = case.operation.centred
        for some in parts(case):
            rows = case.operation.normalized(case.part(some))
            spread = np.ptp(rows, axis=1) if centred else np.abs(rows).max(axis=1)
            if (spread < 2.0**-240).any():
                at = some.start + int(np.argmin(spread))
                what = "constant" if centred else "zero"
                return f"row {at} of x is {what}, and eps is {case.eps:g}: it has no norm"
    return ""


@np.errstate(all="ignore")  # what is not finite is found in the radius
def near(case: Case) -> Near:
    """Return the results of a case, and r and xhat of each row.

    Of sums over rows, what these rows have of them, as one row.
    """
    norm = case.operation
    if not isinstance(norm, Norm):
        raise TypeError(refusal(case))
    size = case.shape[1]
    x = Ball.of(norm.normalized(case))
    centred = x - x.sum(1).over(size) if norm.centred else x
    eps = Ball.of(np.full((1, 1), case.eps))
    r = ((centred * centred).sum(1).over(size) + eps).inverse_root()
    xhat = centred * r
    gain, beta = _gain(case, norm), _parameter(case.inputs.get("beta"))
    dy = Ball.of(case.dy.astype(np.float64))
    y = xhat if gain is None else gain * xhat
    found = {"r": r, "xhat": xhat, "y": y if beta is None else y + beta}
    g = dy if gain is None else gain * dy
    along = xhat * (g * xhat).sum(1).over(size)
    slope = g - along - g.sum(1).over(size) if norm.centred else g - along
    found["dx"] = r * slope
    found["dgamma"] = (dy * xhat).sum(0)
    found["dbeta"] = dy.sum(0)
    if norm.adds:
        summands = case.x.astype(np.float64), case.residual.astype(np.float64)
        total, left = two_sum(*summands)
        found["sum"] = Ball(total, left, np.zeros_like(total))
        found["dx"] = found["dx"] + Ball.of(case.dsum.astype(np.float64))
        found["dresidual"] = found["dx"]
    return found


def _parameter(given: Array | None) -> Ball | None:
    """Return a parameter as one row, exactly."""
    return None if given is None else Ball.of(given.astype(np.float64)[np.newaxis])


def _gain(case: Case, norm: Norm) -> Ball | None:
    """Return what a column is multiplied by; nothing if by 1."""
    gain = _parameter(case.gamma)
    if gain is None or norm.gain == "plain":
        return gain
    return gain + Ball.of(np.ones((1, 1)))


def condition(case: Case) -> float:
    """Return the largest kappa of a row, to some digits."""
    norm = case.operation
    if not isinstance(norm, Norm) or not norm.centred:
        return 1.0
    largest = 0.0
    for some in parts(case):
        rows = norm.normalized(case.part(some))
        squares = (rows * rows).mean(axis=1)
        variance = np.square(rows - rows.mean(axis=1, keepdims=True)).mean(axis=1)
        largest = max(largest, float(np.sqrt(squares / (variance + case.eps)).max(initial=0.0)))
    return largest
