"""The judge: both norms and their gradients, correctly rounded, sharing no code with us.

Two routes that share only the rounding. First the formulas as they are written, in ball
arithmetic (arb of python-flint), twice: an element is settled when both ends of its ball round to
the same bits. What is left may be a tie or an exact zero, which no ball can settle. There the
coefficients of A/sqrt(w) + B are taken as exact rationals, so that square roots are the only
thing to refine, and if they are rational or cancel nothing is refined at all.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq

from promise.formats import FORMATS, UNIT_EXPONENT, Array, Format
from promise.rows import Columns, ExactRow, RootBasis, rational

# 128 bits settle nearly all of ordinary data; what 256 do not settle is as a rule exact.
BALL_PRECISIONS = (128, 256)


def _settle(
    into: Format,
    columns: Columns,
    balls: Callable[[Columns], list[arb]],
    exactly: Callable[[int], int],
) -> dict[int, int]:
    """Round one number per column: by balls at first, and what they leave exactly."""
    settled: dict[int, int] = {}
    pending = columns
    for precision in BALL_PRECISIONS:
        with ctx.workprec(precision):
            rounded = list(map(into.of_ball, balls(pending))) if pending else []
        found = zip(pending, rounded, strict=True)
        settled |= {j: value for j, value in found if value is not None}
        pending = [j for j in pending if j not in settled]
    return settled | {j: exactly(j) for j in pending}


def _rows(array: Array) -> list[list[float]]:
    with np.errstate(all="ignore"):  # of signalling NaN
        return array.astype(np.float64).tolist()  # type: ignore[no-any-return]


def _parameter(array: Array | None, size: int, default: float) -> list[float]:
    return [default] * size if array is None else _rows(array[np.newaxis])[0]


def _wanted(x: Array, eps: float, columns: Columns | None) -> Columns:
    if x.ndim != 2 or x.shape[1] == 0 or not 0 <= eps < float("inf"):
        raise ValueError(f"shape {x.shape}, eps {eps}: no such layer normalization")
    return range(x.shape[1]) if columns is None else [int(j) for j in columns]


def _assemble(rows: list[list[int]], columns: Columns, dtype: np.dtype[Any]) -> Array:
    patterns = np.array(rows, FORMATS[dtype].storage).reshape(len(rows), len(columns))
    return patterns.view(dtype)


def correct_forward(
    x: Array,
    gamma: Array | None,
    beta: Array | None,
    eps: float,
    columns: Columns | None = None,
    *,
    centred: bool = True,
) -> Array:
    """Return y; with columns, only those of it. RMSNorm is not centred, and has no beta."""
    wanted, into = _wanted(x, eps, columns), FORMATS[x.dtype]
    scale, shift = _parameter(gamma, x.shape[1], 1.0), _parameter(beta, x.shape[1], 0.0)
    finite = [j for j in wanted if isfinite(scale[j]) and isfinite(shift[j])]

    def row_of_y(values: list[float]) -> list[int]:
        row = ExactRow(values, eps, centred=centred)
        if row.bad:
            return [into.nan] * len(wanted)
        if row.infinite:
            spared = {j: isfinite(values[j]) and isfinite(scale[j]) for j in wanted}
            return [0 if spared[j] else into.nan for j in wanted]
        settled = _settle(
            into,
            finite,
            lambda pending: row.balls().y(scale, shift, pending),
            lambda j: row.basis.round(into, rational(shift[j]), [rational(scale[j]) * row.c(j)]),
        )
        for j in set(wanted).difference(finite):
            settled[j] = into.of_special(scale[j] * row.sign(j) + shift[j])
        return [settled[j] for j in wanted]

    return _assemble([row_of_y(values) for values in _rows(x)], wanted, x.dtype)


def _correct_dx(
    row: ExactRow, scale: list[float], dy: list[float], wanted: Columns, into: Format
) -> list[int]:
    # g is a product of exact numbers: it is non-finite only if a factor is.
    finite = all(map(isfinite, scale)) and all(map(isfinite, dy))
    if row.bad or row.infinite or not finite:
        return [into.nan] * len(wanted)
    exact: list[Callable[[int], fmpq]] = []

    def exactly(j: int) -> int:
        if not exact:
            exact.append(row.gradient(scale, dy))
        return row.basis.round(into, fmpq(0), [exact[0](j)])

    settled = _settle(into, wanted, lambda pending: row.balls().dx(scale, dy, pending), exactly)
    return [settled[j] for j in wanted]


def _correct_dgamma(
    rows: list[ExactRow], dys: list[list[float]], wanted: Columns, into: Format
) -> list[int]:
    if any(row.bad for row in rows):
        return [into.nan] * len(wanted)
    pairs = [(row, dy) for row, dy in zip(rows, dys, strict=True) if not row.infinite]
    spoilt = {j for row in rows if row.infinite for j in wanted if not isfinite(row.x[j])}

    def balls(pending: Columns) -> list[arb]:
        sums = [arb(0)] * len(pending)
        for row, dy in pairs:
            ball = row.balls()
            terms = ((arb(dy[j]) * (ball.c[j] * ball.r)) for j in pending)
            sums = [total + term for total, term in zip(sums, terms, strict=True)]
        return sums

    bases: list[RootBasis] = []

    def exactly(j: int) -> int:
        if not bases:
            bases.append(RootBasis([row.w for row, _ in pairs]))
        terms = [rational(dy[j]) * row.c(j) for row, dy in pairs]
        return bases[0].round(into, fmpq(0), terms)

    finite = [j for j in wanted if j not in spoilt and all(isfinite(dy[j]) for dy in dys)]
    settled = _settle(into, finite, balls, exactly)
    for j in set(wanted).difference(finite):
        # The others add something finite.
        terms = [
            dy[j] * row.sign(j)
            for row, dy in zip(rows, dys, strict=True)
            if not isfinite(dy[j]) or row.infinite
        ]
        settled[j] = into.of_special(sum(terms))
    return [settled[j] for j in wanted]


def _correct_dbeta(dys: list[list[float]], wanted: Columns, into: Format) -> list[int]:
    result = []
    for j in wanted:
        special = [dy[j] for dy in dys if not isfinite(dy[j])]
        if special:
            result.append(into.of_special(sum(special)))
            continue
        ratios = [dy[j].as_integer_ratio() for dy in dys]
        total = sum((a << -UNIT_EXPONENT) // b for a, b in ratios)
        result.append(into.of_dyadic(total, UNIT_EXPONENT))
    return result


def correct_backward(
    dy: Array,
    x: Array,
    gamma: Array | None,
    beta: Array | None,
    eps: float,
    columns: Columns | None = None,
    *,
    centred: bool = True,
) -> tuple[Array, Array | None, Array | None]:
    """Return dx, dgamma and dbeta; with columns, only those of each."""
    wanted, dys = _wanted(x, eps, columns), _rows(dy)
    scale = _parameter(gamma, x.shape[1], 1.0)
    rows = [ExactRow(values, eps, centred=centred) for values in _rows(x)]
    dx = [
        _correct_dx(row, scale, dy_row, wanted, FORMATS[x.dtype])
        for row, dy_row in zip(rows, dys, strict=True)
    ]
    dgamma = dbeta = None
    if gamma is not None:
        patterns = _correct_dgamma(rows, dys, wanted, FORMATS[gamma.dtype])
        dgamma = _assemble([patterns], wanted, gamma.dtype)[0]
    if beta is not None:
        patterns = _correct_dbeta(dys, wanted, FORMATS[beta.dtype])
        dbeta = _assemble([patterns], wanted, beta.dtype)[0]
    return _assemble(dx, wanted, x.dtype), dgamma, dbeta
