"""Enclosures of the results of wide cases and user cases, in balls."""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from truenorm.verify.formulas.balls import Ball, round_ball, two_sum
from truenorm.verify.norms.norm import Norm, require_norm
from truenorm.verify.operation import Case
from truenorm.verify.oracle import output_types
from truenorm.verify.types import Array, Float64s

LIMIT = 2.0**240
"""The largest input: a product of four is below the largest float64 number."""
BLOCK_ELEMENTS = 2**15
"""Elements of a block, which has at least one row: a few blocks fit in the cache of a CPU."""
Enclosures = dict[str, Ball]


def row_blocks(case: Case) -> Iterator[slice]:
    """Yield the rows of a case in blocks."""
    rows, size = case.shape
    step = max(1, BLOCK_ELEMENTS // max(size, 1))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def unsupported_reason(case: Case) -> str:
    """Return why a case of a norm has no enclosure, or an empty string if it has one."""
    norm = require_norm(case.operation, "an enclosure")
    for name, array in case.inputs.items():
        if array is None:
            continue
        for start in range(0, len(array), 64):
            supported = np.abs(array[start : start + 64].astype(np.float64)) <= LIMIT
            if not supported.all():
                first = np.argwhere(~supported)[0]
                at = [start + int(first[0]), *map(int, first[1:])]
                return (
                    f"{name} must have finite numbers up to {LIMIT:.1g}, since others have no "
                    f"bounds; got {name}{at} = {array[tuple(at)]}"
                )
    if case.eps < 2.0**-240:
        for block in row_blocks(case):
            rows = norm.normalized(case.part(block))
            spread = np.ptp(rows, axis=1) if norm.centred else np.abs(rows).max(axis=1)
            if (spread < 2.0**-240).any():
                at = block.start + int(np.argmin(spread))
                kind = "constant" if norm.centred else "zero"
                return f"row {at} of x is {kind}, and eps is {case.eps:g}: its norm is undefined"
    return ""


@np.errstate(all="ignore")  # an overflow makes the radius infinite or NaN
def enclose_forward(case: Case) -> Enclosures:
    """Return balls of the results of forward, and of r and xhat of each row."""
    norm = require_norm(case.operation, "an enclosure")
    size = case.shape[1]
    x = Ball.of(norm.normalized(case))
    centred = x - x.sum(1).over(size) if norm.centred else x
    eps = Ball.of(np.full((1, 1), case.eps))
    r = ((centred * centred).sum(1).over(size) + eps).inverse_root()
    xhat = centred * r
    gain, beta = _gain(case, norm), _parameter(case.inputs.get("beta"))
    y = xhat if gain is None else gain * xhat
    balls = {"r": r, "xhat": xhat, "y": y if beta is None else y + beta}
    if norm.adds:
        summands = case.x.astype(np.float64), case.residual.astype(np.float64)
        total, error = two_sum(*summands)
        balls["sum"] = Ball(total, error, np.zeros_like(total))
    return balls


@np.errstate(all="ignore")
def enclose(case: Case) -> Enclosures:
    """Return balls of the results of a case, and of r and xhat of each row.

    Sums over rows are one row.
    """
    balls = enclose_forward(case)
    norm = require_norm(case.operation, "an enclosure")
    size, r, xhat, gain = case.shape[1], balls["r"], balls["xhat"], _gain(case, norm)
    dy = Ball.of(case.dy.astype(np.float64))
    g = dy if gain is None else gain * dy
    projected = g - xhat * (g * xhat).sum(1).over(size)
    if norm.centred:
        projected = projected - g.sum(1).over(size)
    balls["dx"] = r * projected
    balls["dgamma"] = (dy * xhat).sum(0)
    balls["dbeta"] = dy.sum(0)
    if norm.adds:
        balls["dx"] = balls["dx"] + Ball.of(case.dsum.astype(np.float64))
        balls["dresidual"] = balls["dx"]
    return balls


def answers_by_enclosure(case: Case) -> dict[str, Float64s] | None:
    """Return the result of `Operation.exact`, or None if a ball does not decide a rounding.

    Values are equal to values from integers. Remainders are off by 2^-29 ulp at most.
    """
    balls = enclose(case.part(slice(case.shape[0] // case.repeats)))
    arrays = {"r": balls["r"].high, "xhat": balls["xhat"].high}
    for output, kind in output_types(case).items():
        ball = balls[output]
        if not case.operation.is_rows(output):
            repeats = float(case.repeats)
            ball = Ball(ball.high[0], ball.low[0], ball.radius[0])
            if case.repeats & (case.repeats - 1):
                ball = ball * Ball.of(np.full(1, repeats))
            else:  # a power of two: nothing is rounded, so that ties are decided
                ball = ball.map(partial(np.multiply, repeats))
        rounded = round_ball(ball, kind)
        if not (rounded.low == rounded.high).all():
            return None
        arrays[output] = np.stack([rounded.value, rounded.remainder], axis=-1)
    return arrays


def _parameter(array: Array | None) -> Ball | None:
    """Return a parameter as one row."""
    return None if array is None else Ball.of(array.astype(np.float64)[np.newaxis])


def _gain(case: Case, norm: Norm) -> Ball | None:
    """Return the gain of each column, or None without gamma."""
    gain = _parameter(case.gamma)
    if gain is None or norm.gain == "plain":
        return gain
    return gain + Ball.of(np.ones((1, 1)))


@np.errstate(all="ignore")  # eps of tiny rows is infinite: kappa is then 0
def largest_kappa(case: Case) -> float:
    """Return the largest kappa of a row, approximately."""
    if case.operation.condition == "1":
        return 1.0
    norm = require_norm(case.operation, "an enclosure")
    largest = 0.0
    for block in row_blocks(case):
        rows = norm.normalized(case.part(block))
        size = np.abs(rows).max(axis=1, keepdims=True)  # squares of large rows overflow
        size[size == 0] = 1.0
        rows = rows / size
        squares = (rows * rows).mean(axis=1)
        variance = np.square(rows - rows.mean(axis=1, keepdims=True)).mean(axis=1)
        eps = np.square(math.sqrt(case.eps) / size[:, 0])
        largest = max(largest, float(np.sqrt(squares / (variance + eps)).max(initial=0.0)))
    return largest
