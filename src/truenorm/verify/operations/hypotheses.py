"""Hypotheses: the results of a norm if one of its steps were wrong in a known way.

The tables map the text of a hypothesis, which follows "if", to the steps that it replaces. In a
text, "it" is the result that is diagnosed.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.operations.steps import (
    Changes,
    Step,
    Steps,
    accumulate_rows,
    mean,
    rounded,
    sum_in_sequence,
    truncated,
)
from truenorm.verify.types import FORMATS, Array, Float64s

if TYPE_CHECKING:
    from truenorm.verify.operations.norms import Norm

Table = dict[str, Changes]
NARROW = ("float16", "bfloat16")
COLUMN_BLOCKS = (32, 64, 128, 256, 512, 1024)
ROW_BLOCKS = (4, 8, 16, 32, 64, 128)
TILES = (16, 32, 64, 128)
OTHER_EPS = {"1e-5": 1e-5, "1e-6": 1e-6, "1e-12": 1e-12, "2^-23": 2.0**-23}
INPUTS = {"x and dy": ("rows", "dy"), "all inputs": ("rows", "gain", "beta", "dy")}
MOST_BLOCKS = 65_535
"""The largest size of a grid's second dimension in CUDA."""
R = "1/sqrt(... + eps)"
SUMMANDS = {"dgamma": "terms", "dbeta": "dy"}


def _changed(change: Callable[[Steps, Float64s], Any], *steps: str) -> Changes:
    """Replace steps by a function of their right results."""
    return {step: partial(_change, change, step) for step in steps}


def _change(change: Callable[[Steps, Float64s], Any], step: str, at: Steps) -> Float64s:
    return np.asarray(change(at, at.right(step)))


def _rounded(kind: str, *steps: str) -> Changes:
    return _changed(lambda _, right: rounded(right, kind), *steps)


def _scaled(factor: float, *steps: str) -> Changes:
    return _changed(lambda _, right: factor * right, *steps)


def _zero(*steps: str) -> Changes:
    """Replace steps by zeros, also in rows where they are not finite."""
    return dict.fromkeys(steps, Steps.column)


def _type(kind: str, at: Steps) -> str:
    """Return the name of a type, where "the type of x" is one."""
    return kind if kind in FORMATS else at.case.dtype


def _whole_blocks(size: int, block: int) -> int:
    """Return how many of `size` elements are in full blocks; all if there is no full one."""
    return size if size < block else size - size % block


def of_statistics(norm: "Norm") -> Table:
    """Return hypotheses about the mean, the mean square, eps and the root of a row."""
    table = {**_of_eps(), **_of_size(norm), **_of_rounding(norm), **_of_blocks(norm)}
    if norm.centred:
        no_mean, no_mean_g = _zero("mean"), _zero("mean_g")
        table["no mean is subtracted, as in RMS normalization"] = {**no_mean, **no_mean_g}
        table["no mean is subtracted in forward, but mean(g) is in backward"] = no_mean
        table["the last element of a row is left out of its mean"] = {
            "mean": lambda at: at["rows"][:, :-1].sum(axis=1, keepdims=True) / at.size
        }
    else:
        centre: Changes = {"mean": lambda at: mean(at["rows"])}
        table["the mean is subtracted, as in layer normalization"] = {
            **centre,
            "mean_g": lambda at: mean(at["g"]),
        }
        table["the mean is subtracted in forward, but mean(g) is not in backward"] = centre
    return table


def _of_eps() -> Table:
    return {
        "eps is added outside the root": {"r": lambda at: 1 / (np.sqrt(at["w"]) + at["eps"])},
        "eps is left out": _scaled(0, "eps"),
        "eps is divided by D": _changed(lambda at, eps: eps / at.size, "eps"),
        "eps is multiplied by D": _changed(lambda at, eps: eps * at.size, "eps"),
        "eps is squared": _changed(lambda _, eps: eps**2, "eps"),
        **{f"eps is {text}": {"eps": _constant(eps)} for text, eps in OTHER_EPS.items()},
        **{f"eps is rounded to {kind}": _rounded(kind, "eps") for kind in NARROW},
    }


def _constant(value: float) -> Step:
    return lambda _: np.full(1, value)


def _of_size(norm: "Norm") -> Table:
    """Return hypotheses about the divisor D."""
    square = "the variance" if norm.centred else "the mean square"
    table: Table = {
        f"{square} is divided by D - 1": _changed(
            lambda at, w: w * (at.size / max(at.size - 1, 1)), "w"
        ),
        f"{square} is a sum, not divided by D": _changed(lambda at, w: w * at.size, "w"),
        f"no root is taken, or {R} is squared": {"r": lambda at: 1 / (at["w"] + at["eps"])},
        **{f"{square} is {times} times as large": _scaled(times, "w") for times in (2, 4, 8)},
    }
    for tile in (*TILES, 0):
        width = f"the next multiple of {tile}" if tile else "the next power of two"
        table[f"the sum of squares is divided by {width}, not by D"] = _over_tile(tile, "w")
        if norm.centred:
            table[f"both means are divided by {width}"] = _over_tile(tile, "mean", "w")
            table[f"zero padding to {width} is counted in the variance"] = _with_padding(tile)
    return table


def _padded_size(size: int, tile: int) -> int:
    """Return the size of a row that is padded to a tile, or to a power of two."""
    return -(-size // tile) * tile if tile else 1 << (size - 1).bit_length()


def _over_tile(tile: int, *steps: str) -> Changes:
    return _changed(lambda at, right: right * (at.size / _padded_size(at.size, tile)), *steps)


def _with_padding(tile: int) -> Changes:
    def change(at: Steps, w: Float64s) -> Float64s:
        padding = _padded_size(at.size, tile) - at.size
        return w + padding * at["mean"] ** 2 / at.size

    return _changed(change, "w")


def _of_blocks(norm: "Norm") -> Table:
    """Return hypotheses about a last block of a row that is not full."""
    table: Table = {}
    for block in COLUMN_BLOCKS:
        block_of = f"the last, partial block of {block} is left out of"
        squares: Changes = {"w": partial(_mean_of_blocks, block, lambda at: at["c"] * at["c"])}
        table[f"{block_of} the sum of squares"] = squares
        if norm.centred:
            centre: Changes = {"mean": partial(_mean_of_blocks, block, lambda at: at["rows"])}
            table[f"{block_of} both sums of a row"] = {**centre, **squares}
            table[f"{block_of} the mean"] = centre
    return table


def _mean_of_blocks(block: int, terms: Step, at: Steps) -> Float64s:
    whole = terms(at)[:, : _whole_blocks(at.size, block)]
    return np.asarray(whole.sum(axis=1, keepdims=True) / at.size)


def _of_rounding(norm: "Norm") -> Table:
    """Return hypotheses about statistics and inputs that are rounded to a narrow type."""
    table: Table = {}
    square = "the variance" if norm.centred else "the mean square"
    row = "x + residual" if norm.adds else "x"
    for kind in (*NARROW, "float32"):
        root = _rounded(kind, "r")
        table[f"{R} is rounded to {kind}"] = root
        table[f"{square} is rounded to {kind}"] = _rounded(kind, "w")
        table[f"{row} is rounded to {kind} first"] = _rounded(kind, "rows")
        for names, steps in INPUTS.items():
            table[f"{names} are rounded to {kind} first"] = _rounded(kind, *steps)
        if norm.centred:
            centre = _rounded(kind, "mean")
            table[f"the mean is rounded to {kind}"] = centre
            table[f"the mean and {R} are rounded to {kind}"] = {**centre, **root}
            saved: Changes = {**centre, "w": _variance_about_right_mean}
            table[f"the mean is saved in {kind}"] = saved
            table[f"the mean and {R} are saved in {kind}"] = {**saved, **root}
    for kind in ("float16", "the type of x"):
        table[f"squares are summed in {kind}, one by one"] = {"w": partial(_narrow_squares, kind)}
    table["squares are computed and summed in float32, where they overflow or underflow"] = {
        "w": _squares_in_float32
    }
    return table


def _variance_about_right_mean(at: Steps) -> Float64s:
    c = at["rows"] - at.right("mean")
    return mean(c * c) - mean(c) ** 2


def _narrow_squares(kind: str, at: Steps) -> Float64s:
    kind = _type(kind, at)
    c = rounded(at["c"], kind)
    return sum_in_sequence(c * c, kind, 1)[:, np.newaxis] / at.size


def _squares_in_float32(at: Steps) -> Float64s:
    c = at["c"].astype(np.float32)
    return np.asarray((c * c).mean(axis=1, keepdims=True).astype(np.float64))


def of_results(norm: "Norm") -> Table:
    """Return hypotheses about gamma, beta, y and the sum with the residual."""
    table = {**_of_gain(norm), **_of_y()}
    if "beta" in norm.parameters:
        table |= _of_beta()
    if norm.adds:
        table |= _of_sum(norm)
    return table


def _of_gain(norm: "Norm") -> Table:
    table: Table = {
        "gamma is left out": {"gain": _constant(1.0)},
        "the sign of the gain is lost": _changed(lambda _, gain: np.abs(gain), "gain"),
        "gamma has the other sign": {"gain": lambda at: _offset(at) - at.input("gamma", 1.0)},
        "gamma is rounded to the type of x": {"gain": partial(_with_gamma, _gain_in_type_of_x)},
        "the bytes of gamma are read as numbers of the type of x": {
            "gain": partial(_with_gamma, _gain_from_bytes)
        },
        "0 is used for a gamma that is None": {"gain": partial(_default, "gain", "gamma", 0.0)},
        "the gain is squared": _changed(lambda _, gain: gain**2, "gain"),
        "xhat is divided by the gain, not multiplied": _changed(lambda _, gain: 1 / gain, "gain"),
    }
    offsets = {"the gain is 1 + gamma, and not gamma": 1.0}
    if norm.gain == "zero-centred":
        offsets = {
            "the gain is gamma, and not 1 + gamma": -1.0,
            "the gain is 2 + gamma, and not 1 + gamma": 1.0,
        }
    for text, offset in offsets.items():
        table[text] = {"gain": partial(_with_gamma, partial(_shifted_gain, offset))}
    return table


def _default(step: str, name: str, value: float, at: Steps) -> Float64s:
    return np.full(1, value) if at.case.inputs.get(name) is None else at.right(step)


def _offset(at: Steps) -> float:
    return float(at.norm.gain == "zero-centred")


def _with_gamma(gain: Callable[[Steps, Array], Float64s], at: Steps) -> Float64s:
    """Return another gain; without gamma, the right one."""
    gamma: Array | None = at.case.inputs.get("gamma")
    return at.right("gain") if gamma is None else gain(at, gamma)


def _shifted_gain(offset: float, at: Steps, _: Array) -> Float64s:
    return at.right("gain") + offset


def _gain_in_type_of_x(at: Steps, gamma: Array) -> Float64s:
    return rounded(gamma.astype(np.float64), at.case.dtype) + _offset(at)


def _gain_from_bytes(at: Steps, gamma: Array) -> Float64s:
    if gamma.itemsize <= at.case.x.itemsize:
        return at.right("gain")
    return np.asarray(gamma.view(at.case.x.dtype)[: len(gamma)], np.float64) + _offset(at)


def _of_beta() -> Table:
    return {
        "1 is used for a beta that is None": {"beta": partial(_default, "beta", "beta", 1.0)},
        "beta is left out": {"beta": _constant(0.0)},
        "beta is added twice": _scaled(2, "beta"),
        "beta is subtracted": _scaled(-1, "beta"),
        "beta is multiplied by gamma, too": _changed(lambda at, beta: beta * at["gain"], "beta"),
        "y is beta alone": {"y": lambda at: 0 * at["rows"] + at["beta"]},
        "gamma and beta are left out": {"gain": _constant(1.0), "beta": _constant(0.0)},
        "gamma and beta are exchanged": {
            "gain": lambda at: at.input("beta", 0.0),
            "beta": lambda at: at.right("gain"),
        },
    }


def _of_y() -> Table:
    table: Table = {
        "nothing is written: it is 0": _scaled(
            0, "y", "sum", "dx", "dresidual", "dgamma", "dbeta"
        ),
        f"the row is not multiplied by {R}": {"y": lambda at: at["c"] * at["gain"] + at["beta"]},
        "the row is returned as it is": {"y": lambda at: at["rows"]},
        f"the row is multiplied by {R} twice": {
            "y": lambda at: at["xhat"] * at["r"] * at["gain"] + at["beta"]
        },
        "y is truncated, not rounded": _changed(lambda at, y: truncated(y, at.y_type), "y"),
        "the last element of a row of odd width also overwrites the first of the next row": {
            "y": _overwritten_starts
        },
        "rows beyond 65,535 are not written": _changed(_without_late_rows, "y"),
    }
    for kind in NARROW:
        table[f"it is rounded to {kind} on the way"] = _rounded(kind, "y", "sum")
        table[f"xhat is rounded to {kind}"] = _rounded(kind, "xhat")
    return table


def _without_late_rows(at: Steps, right: Float64s) -> Float64s:
    return right * (np.arange(at.count)[:, np.newaxis] < MOST_BLOCKS)


def _overwritten_starts(at: Steps) -> Float64s:
    """Return y as written from the last row to the first, two elements at a time."""
    y: Float64s = at.right("y").copy()
    if at.size % 2:
        y[1:, 0] = y[:-1, -1]
    return y


def _total(summands: Callable[[Float64s, Float64s], Iterable[Float64s]]) -> Step:
    """Return a sum in the type of x that is rounded after each summand."""

    def total(at: Steps) -> Float64s:
        total = np.zeros(1)
        for each in summands(at.input("x", 0.0), at.input("residual", 0.0)):
            total = rounded(total + each, at.case.dtype)
        return total

    return total


def _exact_sum(at: Steps) -> Float64s:
    return at.input("x", 0.0) + at.input("residual", 0.0)


SUMS: Changes = {
    "x alone is used, without the residual": _total(lambda x, _: (x,)),
    "the residual alone is used, without x": _total(lambda _, residual: (residual,)),
    "the residual is added twice": _total(lambda x, residual: (x, residual, residual)),
    "x is added twice": _total(lambda x, residual: (x, residual, x)),
    "the residual is subtracted": _total(lambda x, residual: (x, -residual)),
    "x + residual is truncated, not rounded": lambda at: truncated(_exact_sum(at), at.case.dtype),
    "the residual is rounded to float16 first": _total(
        lambda x, residual: (x, rounded(residual, "float16"))
    ),
    "the residual is rounded to bfloat16 first": _total(
        lambda x, residual: (x, rounded(residual, "bfloat16"))
    ),
}
"""What is normalized and returned as the sum."""


def _of_sum(norm: "Norm") -> Table:
    """Return hypotheses about the residual."""
    other = "x and residual are added without rounding"
    if norm.sum == "unrounded":
        other = "the sum is rounded before it is normalized"
    table: Table = {text: dict.fromkeys(("rows", "sum"), step) for text, step in SUMS.items()}
    return table | {
        "y is returned as the sum": {"sum": lambda at: at["y"]},
        "xhat is returned as the sum": {"sum": lambda at: at["xhat"]},
        other: {"rows": lambda at: at["sum"] if norm.sum == "unrounded" else _exact_sum(at)},
    }


def of_gradients(norm: "Norm") -> Table:
    """Return hypotheses about dx."""
    table = _of_mean_g(norm)
    table |= {
        "xhat*mean(g*xhat) is left out": _zero("projection"),
        "xhat*mean(g*xhat) is subtracted twice": _scaled(2, "projection"),
        "xhat*mean(g*xhat) is added, not subtracted": _scaled(-1, "projection"),
        "xhat*mean(g*xhat) is a sum, not divided by D": _times_size("projection"),
        "x - mean is used for xhat in xhat*mean(g*xhat)": {
            "projection": lambda at: at["c"] * mean(at["g"] * at["c"])
        },
        "xhat*mean(g*xhat) is divided by the root once more": _times_r("projection"),
        "gamma is left out of mean(g*xhat)": {
            "projection": lambda at: at["xhat"] * mean(at["dy"] * at["xhat"])
        },
        "gamma is applied after the projection": {
            "g": lambda at: at["dy"],
            **_times_gain("dnorm"),
        },
        "gamma is applied once more, after the projection": _times_gain("dnorm"),
        f"dx is not multiplied by {R}": _changed(lambda at, dnorm: dnorm / at["r"], "dnorm"),
        f"dx is multiplied by {R} twice": _times_r("dnorm"),
        "dx is divided by D": _changed(lambda at, dnorm: dnorm / at.size, "dnorm"),
        "dx is multiplied by D": _times_size("dnorm"),
        "dx has the other sign": _scaled(-1, "dx"),
        "rows beyond 65,535 are not written": _changed(_without_late_rows, "dx"),
        "dx is dy as it is": {"dnorm": lambda at: at["dy"]},
    }
    if norm.adds:
        table |= {
            "dsum is left out": _zero("dsum"),
            "dsum is added twice": _scaled(2, "dsum"),
            "dsum is subtracted": _scaled(-1, "dsum"),
            "the gradient of the norm is left out: it is dsum": {
                "dnorm": lambda at: np.zeros(at.case.shape)
            },
            "dsum is sent through the norm, with dy": {"dy": _dy_and_dsum, **_zero("dsum")},
            "dsum is sent through the norm, and added, too": {"dy": _dy_and_dsum},
        }
    return table


def _times_size(*steps: str) -> Changes:
    return _changed(lambda at, right: at.size * right, *steps)


def _times_r(*steps: str) -> Changes:
    return _changed(lambda at, right: right * at["r"], *steps)


def _times_gain(*steps: str) -> Changes:
    return _changed(lambda at, right: at["gain"] * right, *steps)


def _dy_and_dsum(at: Steps) -> Float64s:
    return rounded(at.right("dy") + at.right("dsum"), at.case.dtype)


def _of_mean_g(norm: "Norm") -> Table:
    if not norm.centred:
        return {"mean(g) is subtracted": {"mean_g": lambda at: mean(at["g"])}}
    return {
        "mean(g) is left out": _zero("mean_g"),
        "mean(g) is subtracted twice": _scaled(2, "mean_g"),
        "mean(g) is added, not subtracted": _scaled(-1, "mean_g"),
        "mean(g) is a sum, not divided by D": _times_size("mean_g"),
        "mean(g) is that of dy, without gamma": {"mean_g": lambda at: mean(at["dy"])},
        "mean(g) and xhat*mean(g*xhat) are left out": _zero("mean_g", "projection"),
        "mean(g) and xhat*mean(g*xhat) are sums, not divided by D": _times_size(
            "mean_g", "projection"
        ),
    }


def of_saved(norm: "Norm") -> Table:
    """Return hypotheses about what backward computes its results from."""
    y_over_gain = "(y - beta)/gain" if "beta" in norm.parameters else "y/gain"
    return {
        f"xhat is taken from y, as {y_over_gain}": {"xhat": lambda at: _from_y(at, _y(at))},
        f"xhat is taken from the rounded y, as {y_over_gain}": {
            "xhat": lambda at: _from_y(at, rounded(_y(at), at.y_type))
        },
        "a row whose dy is 0 is divided by 0": _changed(_nan_where_dy_is_zero, "dnorm"),
    }


def _y(at: Steps) -> Float64s:
    return at.right("xhat") * at["gain"] + at["beta"]


def _from_y(at: Steps, y: Float64s) -> Float64s:
    return (y - at["beta"]) / at["gain"]


def _nan_where_dy_is_zero(at: Steps, dnorm: Float64s) -> Float64s:
    is_zero = (at["dy"] == 0).all(axis=1, keepdims=True)
    return np.where(is_zero, np.nan, dnorm)


def of_parameters(norm: "Norm") -> Table:
    """Return hypotheses about the sums over rows, dgamma and dbeta."""
    rows = "the sum" if norm.adds else "x"
    both = ("dgamma", "dbeta")
    table: Table = {
        f"it is summed from {rows}, not from xhat": {"terms": lambda at: at["dy"] * at["rows"]},
        f"it is summed from {rows} - mean, not from xhat": {
            "terms": lambda at: at["dy"] * at["c"]
        },
        "it is summed from y, not from xhat": {"terms": lambda at: at["dy"] * at["y"]},
        "xhat is divided by the root once more": _times_r("terms"),
        "it is multiplied by the gain": _times_gain(*both),
        "it is divided by the gain": _changed(lambda at, right: right / at["gain"], *both),
        "it is the sum of dy": {"dgamma": lambda at: at["dbeta"]},
        "it is the sum of dy*xhat": {"dbeta": lambda at: at["dgamma"]},
        "it is the sum of dx": _changed(lambda at, _: at["dx"].sum(axis=0), *both),
        "it has the other sign": _scaled(-1, *both),
        **{text: {"row_weights": partial(_weights, rule)} for text, rule in ROW_WEIGHTS.items()},
    }
    for block in ROW_BLOCKS:
        table[f"the last, partial block of {block} rows is left out"] = {
            "row_weights": partial(_weights, partial(_in_whole_block, block))
        }
        table[f"every second block of {block} rows is left out"] = {
            "row_weights": partial(_weights, partial(_in_even_block, block))
        }
    for kind in ("float16", "the type of x"):
        table[f"it is summed in {kind}, row by row"] = {
            name: partial(_accumulated, kind, name) for name in both
        }
        table[f"its terms are rounded to {kind}, and summed in it"] = {
            name: partial(_narrow_sum, kind, name) for name in both
        }
    if norm.adds:
        table["it is summed from dy + dsum, not from dy"] = {"dy": _dy_and_dsum}
        table["it is summed from dsum, not from dy"] = {"dy": lambda at: at.right("dsum")}
    return table


def _accumulated(kind: str, name: str, at: Steps) -> Float64s:
    return accumulate_rows(at[SUMMANDS[name]], _type(kind, at))


def _narrow_sum(kind: str, name: str, at: Steps) -> Float64s:
    return sum_in_sequence(at[SUMMANDS[name]], _type(kind, at), 0)


Weights = Callable[[Any, int], Any]

ROW_WEIGHTS: dict[str, Weights] = {
    "it is the mean over rows, not the sum": lambda _, count: np.full(count, 1 / count),
    "the last row is left out": lambda row, count: row < count - 1,
    "the first row is left out": lambda row, _: row > 0,
    "it is that of the first row": lambda row, _: row < 1,
    "it is that of the last row": lambda row, count: row == count - 1,
    "the second half of the rows is left out": lambda row, count: row < count // 2,
    "every second row is left out": lambda row, _: row % 2 == 0,
    "rows beyond 65,535 are left out": lambda row, _: row < MOST_BLOCKS,
    "rows are counted twice": lambda _, count: np.full(count, 2.0),
}
"""How often each row is counted, from its index and the number of rows."""


def _weights(rule: Weights, at: Steps) -> Float64s:
    return np.asarray(rule(np.arange(at.count), at.count), np.float64)[:, np.newaxis]


def _in_whole_block(block: int, row: Any, count: int) -> Any:
    return row < _whole_blocks(count, block)


def _in_even_block(block: int, row: Any, _: int) -> Any:
    return row // block % 2 == 0


def of_layouts(norm: "Norm", output: str) -> dict[str, Hypothesis]:
    """Return hypotheses about rows with gaps in memory that are read as though they had none."""
    hypotheses: dict[str, Hypothesis] = {}
    for names in _read_together(norm, output):
        *others, last = names
        arrays, are, were = last, "is", "it were"
        if others:
            arrays, are, were = f"{', '.join(others)} and {last}", "are", "they were"
        for text, only_in_rows in (
            (f"{were} contiguous", False),
            ("the elements of a row had no gaps", True),
        ):
            hypotheses[f"{arrays} {are} read as though {text}"] = partial(
                _misread, norm, output, names, only_in_rows
            )
    return hypotheses


def _read_together(norm: "Norm", output: str) -> list[tuple[str, ...]]:
    """Return groups of arrays that may be misread alike: single ones, or all of a pass."""
    data: tuple[str, ...] = ("x", "residual") if norm.adds else ("x",)
    gradients: tuple[str, ...] = ("dy", "dsum") if norm.adds else ("dy",)
    if output in ("y", "sum"):
        gradients = ()
    elif output == "dbeta":
        data, gradients = (), ("dy",)
    elif output == "dgamma":
        gradients = ("dy",)
    groups = [*((name,) for name in (*data, *gradients)), data, gradients, (*data, *gradients)]
    return [names for names in dict.fromkeys(groups) if names]


def _misread(
    norm: "Norm", output: str, names: Sequence[str], only_in_rows: bool, case: Case
) -> Float64s:
    arrays = {name: _read_without_gaps(case, case.rows[name], only_in_rows) for name in names}
    return Steps(norm, case.with_inputs(**arrays), {})[output]


def _read_without_gaps(case: Case, rows: Array, only_in_rows: bool) -> Array:
    laid = case.in_layout(rows)
    if laid.ndim != rows.ndim or laid.flags.c_contiguous:
        return rows
    row = laid.strides[0] if only_in_rows else rows.shape[1] * rows.itemsize
    read: Array = np.lib.stride_tricks.as_strided(laid, laid.shape, (row, rows.itemsize))
    return read.copy()


OF_A_ROW = frozenset({"rows", "mean", "c", "eps", "w", "r", "xhat"})
OF_DX = OF_A_ROW | {"gain", "dy", "g", "mean_g", "projection", "dnorm", "dsum", "dx"}
STEPS_OF = {
    "y": OF_A_ROW | {"gain", "beta", "y"},
    "sum": frozenset({"sum"}),
    "dx": OF_DX,
    "dresidual": OF_DX | {"dresidual"},
    "dgamma": OF_A_ROW | {"dy", "row_weights", "terms", "dgamma"},
    "dbeta": frozenset({"dy", "row_weights", "dbeta"}),
}
"""By output: the steps that it depends on."""
TABLES_OF: dict[str, tuple[Callable[["Norm"], Table], ...]] = {
    "y": (of_statistics, of_results),
    "sum": (of_results,),
    "dx": (of_statistics, of_results, of_gradients, of_saved),
    "dresidual": (of_statistics, of_results, of_gradients, of_saved),
    "dgamma": (of_statistics, of_results, of_parameters, of_saved),
    "dbeta": (of_statistics, of_results, of_parameters),
}


@cache
def hypotheses_of(norm: "Norm", output: str) -> dict[str, Hypothesis]:
    """Return the hypotheses for one output of a norm, by their text."""
    hypotheses: dict[str, Hypothesis] = {
        text: partial(_evaluate, norm, output, changes)
        for table in TABLES_OF[output]
        for text, changes in table(norm).items()
        if STEPS_OF[output] & changes.keys()
    }
    return hypotheses | of_layouts(norm, output)


def _evaluate(norm: "Norm", output: str, changes: Changes, case: Case) -> Float64s:
    return Steps(norm, case, changes)[output]
