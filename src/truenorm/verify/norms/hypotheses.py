"""Hypotheses: the results of a norm if one of its steps were wrong in a known way.

The tables map causes to the steps that they replace.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from truenorm.verify.causes import Cause
from truenorm.verify.formulas.rounding import rounded, truncated
from truenorm.verify.norms.changes import (
    NARROW,
    R,
    Table,
    changed,
    constant,
    rounded_steps,
    scaled,
    whole_blocks,
    zero,
)
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.row_statistics import of_statistics, over_tile
from truenorm.verify.norms.steps import Changes, Step, Steps, mean
from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.types import Array, Float64s

ROW_BLOCKS = (2, 3, 4, 8, 16, 32, 64, 128, 256)
MOST_BLOCKS = 65_535
"""The largest size of a grid's second dimension in CUDA."""


def of_results(norm: Norm) -> Table:
    """Return hypotheses about gamma, beta, y and the sum with the residual."""
    table = {**_of_gain(norm), **_of_y()}
    if "beta" in norm.parameters:
        table |= _of_beta()
    if norm.adds:
        table |= _of_sum(norm)
    return table


def _of_gain(norm: Norm) -> Table:
    without = "no-term(gamma)" if norm.gain == "zero-centred" else "no-gamma"
    table: Table = {
        Cause(without, "gamma is left out"): {"gain": constant(1.0)},
        Cause("gain-without-sign", "the sign of the gain is lost"): changed(
            lambda _, gain: np.abs(gain), "gain"
        ),
        Cause("gamma-negated", "gamma has the other sign"): {
            "gain": lambda at: _offset(at) - at.input("gamma", 1.0)
        },
        Cause("gamma-in-type-of-x", "gamma is rounded to the type of x"): {
            "gain": partial(_with_gamma, _gain_in_type_of_x)
        },
        Cause(
            "gamma-bytes-as-type-of-x", "the bytes of gamma are read as numbers of the type of x"
        ): {"gain": partial(_with_gamma, _gain_from_bytes)},
        Cause("none-gamma-as-0", "0 is used for a gamma that is None"): {
            "gain": partial(_default, "gain", "gamma", 0.0)
        },
        Cause("gain-squared", "the gain is squared"): changed(lambda _, gain: gain**2, "gain"),
        **_of_columns("gamma", "gain"),
        Cause("gain-before-norm", "x is multiplied by the gain before it is normalized"): {
            "y": _gain_first
        },
        Cause("gain-before-mean", "x is multiplied by the gain before the mean is subtracted"): {
            "y": lambda at: (at["rows"] * at["gain"] - at["mean"]) * at["r"] + at["beta"]
        },
        Cause("xhat-over-gain", "xhat is divided by the gain, not multiplied"): changed(
            lambda _, gain: 1 / gain, "gain"
        ),
    }
    offsets = {Cause("gain-1-plus-gamma", "the gain is 1 + gamma, and not gamma"): 1.0}
    if norm.gain == "zero-centred":
        offsets = {
            Cause("gain-without-1", "the gain is gamma, and not 1 + gamma"): -1.0,
            Cause("gain-2-plus-gamma", "the gain is 2 + gamma, and not 1 + gamma"): 1.0,
        }
    for cause, offset in offsets.items():
        table[cause] = {"gain": partial(_with_gamma, partial(_shifted_gain, offset))}
    return table


def _of_columns(name: str, *steps: str) -> Table:
    """Return hypotheses about numbers that belong to other columns."""
    return {
        Cause(f"of-next({name}, column)", f"{name} is that of the next column"): changed(
            lambda _, each: np.roll(each, -1), *steps
        ),
        Cause(f"of-before({name}, column)", f"{name} is that of the column before"): changed(
            lambda _, each: np.roll(each, 1), *steps
        ),
        Cause(f"reversed({name})", f"{name} is in reverse order"): changed(
            lambda _, each: each[::-1], *steps
        ),
        Cause(f"of-first({name}, column)", f"{name} is that of the first column"): changed(
            lambda _, each: np.full_like(each, each[0]), *steps
        ),
    }


def _gain_first(at: Steps) -> Float64s:
    c = at["rows"] * at["gain"]
    c = c - mean(c) if at.norm.centred else c
    return c / np.sqrt(mean(c * c) + at["eps"]) + at["beta"]


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
        Cause("none-beta-as-1", "1 is used for a beta that is None"): {
            "beta": partial(_default, "beta", "beta", 1.0)
        },
        Cause("no-term(beta)", "beta is left out"): {"beta": constant(0.0)},
        **_of_columns("beta", "beta"),
        Cause("term-twice(beta)", "beta is added twice"): scaled(2, "beta"),
        Cause("beta-subtracted", "beta is subtracted"): scaled(-1, "beta"),
        Cause("beta-times-gamma", "beta is multiplied by gamma, too"): changed(
            lambda at, beta: beta * at["gain"], "beta"
        ),
        Cause("beta-alone", "y is beta alone"): {"y": lambda at: 0 * at["rows"] + at["beta"]},
        Cause("no-gamma-no-beta", "gamma and beta are left out"): {
            "gain": constant(1.0),
            "beta": constant(0.0),
        },
        Cause("exchanged(gamma, beta)", "gamma and beta are exchanged"): {
            "gain": lambda at: at.input("beta", 0.0),
            "beta": lambda at: at.right("gain"),
        },
    }


def _of_y() -> Table:
    table: Table = {
        Cause("nothing-written", "nothing is written: it is 0"): scaled(
            0, "y", "sum", "dx", "dresidual", "dgamma", "dbeta"
        ),
        Cause("no-r", f"the row is not multiplied by {R}"): {
            "y": lambda at: at["c"] * at["gain"] + at["beta"]
        },
        Cause("row-as-it-is", "the row is returned as it is"): {"y": lambda at: at["rows"]},
        Cause("r-twice", f"the row is multiplied by {R} twice"): {
            "y": lambda at: at["xhat"] * at["r"] * at["gain"] + at["beta"]
        },
        Cause("y-truncated", "y is truncated, not rounded"): changed(
            lambda at, y: truncated(y, at.y_type), "y"
        ),
        Cause(
            "odd-width-overwrites-next-row",
            "the last element of a row of odd width also overwrites the first of the next row",
        ): {"y": _overwritten_starts},
        Cause("rows-beyond-65535-unwritten", "rows beyond 65,535 are not written"): changed(
            _without_late_rows, "y"
        ),
        Cause("written-by-columns", "the elements are written column by column"): changed(
            lambda _, y: y.T.reshape(y.shape), "y", "dx"
        ),
        Cause("x-read-by-columns", "x is read column by column"): changed(
            lambda _, rows: rows.T.reshape(rows.shape), "rows"
        ),
        Cause("of-next-row", "the rows are those of the next row"): changed(
            lambda _, y: np.roll(y, -1, axis=0), "y"
        ),
        Cause("of-row-before", "the rows are those of the row before"): changed(
            lambda _, y: np.roll(y, 1, axis=0), "y"
        ),
    }
    for kind in (*NARROW, "TF32"):
        cause = Cause(f"rounded-on-the-way({kind})", f"it is rounded to {kind} on the way")
        table[cause] = rounded_steps(kind, "y", "sum")
        cause = Cause(f"rounded(xhat, {kind})", f"xhat is rounded to {kind}")
        table[cause] = rounded_steps(kind, "xhat")
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


SUMS: dict[Cause, Step] = {
    Cause("sum-of-x-alone", "x alone is used, without the residual"): _total(lambda x, _: (x,)),
    Cause("sum-of-residual-alone", "the residual alone is used, without x"): _total(
        lambda _, residual: (residual,)
    ),
    Cause("residual-twice", "the residual is added twice"): _total(
        lambda x, residual: (x, residual, residual)
    ),
    Cause("x-twice", "x is added twice"): _total(lambda x, residual: (x, residual, x)),
    Cause("residual-subtracted", "the residual is subtracted"): _total(
        lambda x, residual: (x, -residual)
    ),
    Cause("sum-truncated", "x + residual is truncated, not rounded"): lambda at: truncated(
        _exact_sum(at), at.case.dtype
    ),
    Cause("residual-rounded(float16)", "the residual is rounded to float16 first"): _total(
        lambda x, residual: (x, rounded(residual, "float16"))
    ),
    Cause("residual-rounded(bfloat16)", "the residual is rounded to bfloat16 first"): _total(
        lambda x, residual: (x, rounded(residual, "bfloat16"))
    ),
}
"""What is normalized and returned as the sum."""


def _of_sum(norm: Norm) -> Table:
    """Return hypotheses about the residual."""
    other = Cause("sum-unrounded", "x and residual are added without rounding")
    if norm.sum == "unrounded":
        other = Cause("sum-rounded-first", "the sum is rounded before it is normalized")
    table: Table = {cause: dict.fromkeys(("rows", "sum"), step) for cause, step in SUMS.items()}
    return table | {
        Cause("y-as-sum", "y is returned as the sum"): {"sum": lambda at: at["y"]},
        Cause("xhat-as-sum", "xhat is returned as the sum"): {"sum": lambda at: at["xhat"]},
        other: {"rows": lambda at: at["sum"] if norm.sum == "unrounded" else _exact_sum(at)},
    }


def of_gradients(norm: Norm) -> Table:
    """Return hypotheses about dx."""
    table = _of_mean_g(norm)
    table |= {
        Cause("no-term(xhat*mean(g*xhat))", "xhat*mean(g*xhat) is left out"): zero("projection"),
        Cause("term-twice(xhat*mean(g*xhat))", "xhat*mean(g*xhat) is subtracted twice"): scaled(
            2, "projection"
        ),
        Cause(
            "term-negated(xhat*mean(g*xhat))", "xhat*mean(g*xhat) is added, not subtracted"
        ): scaled(-1, "projection"),
        Cause("projection-undivided", "xhat*mean(g*xhat) is a sum, not divided by D"): _times_size(
            "projection"
        ),
        Cause("projection-of-centred-x", "x - mean is used for both xhat in xhat*mean(g*xhat)"): {
            "projection": lambda at: at["c"] * mean(at["g"] * at["c"])
        },
        Cause(
            "projection-times-r", "xhat*mean(g*xhat) is divided by the root once more"
        ): _times_r("projection"),
        Cause("projection-over-r", f"xhat*mean(g*xhat) lacks one factor {R}"): changed(
            lambda at, projection: projection / at["r"], "projection"
        ),
        Cause("projection-of-x", "x is used for both xhat in xhat*mean(g*xhat)"): {
            "projection": lambda at: at["rows"] * mean(at["g"] * at["rows"])
        },
        Cause("projection-onto-x", "x is used for the first xhat in xhat*mean(g*xhat)"): {
            "projection": lambda at: at["rows"] * mean(at["g"] * at["xhat"])
        },
        Cause("no-gamma-in-projection", "gamma is left out of mean(g*xhat)"): {
            "projection": lambda at: at["xhat"] * mean(at["dy"] * at["xhat"])
        },
        Cause(
            "gamma-twice-in-projection", "gamma is applied twice in xhat*mean(g*xhat)"
        ): _times_gain("projection"),
        Cause("gamma-after-projection", "gamma is applied after the projection"): {
            "g": lambda at: at["dy"],
            **_times_gain("dnorm"),
        },
        Cause(
            "gamma-again-after-projection", "gamma is applied once more, after the projection"
        ): _times_gain("dnorm"),
        Cause("no-r-in-dx", f"dx is not multiplied by {R}"): changed(
            lambda at, dnorm: dnorm / at["r"], "dnorm"
        ),
        Cause("r-twice-in-dx", f"dx is multiplied by {R} twice"): _times_r("dnorm"),
        Cause("dx-over-size", "dx is divided by D"): changed(
            lambda at, dnorm: dnorm / at.size, "dnorm"
        ),
        Cause("dx-times-size", "dx is multiplied by D"): _times_size("dnorm"),
        Cause("dx-negated", "dx has the other sign"): scaled(-1, "dx"),
        Cause("rows-beyond-65535-unwritten", "rows beyond 65,535 are not written"): changed(
            _without_late_rows, "dx"
        ),
        Cause("dx-is-dy", "dx is dy as it is"): {"dnorm": lambda at: at["dy"]},
    }
    means = ("mean_g", "projection") if norm.centred else ("projection",)
    these = "mean(g) and mean(g*xhat) are" if norm.centred else "mean(g*xhat) is"
    table |= {
        Cause("means-over-size-less-1", f"{these} divided by D - 1"): changed(
            lambda at, right: right * (at.size / max(at.size - 1, 1)), *means
        ),
        Cause(
            "means-over-power-of-two", f"{these} divided by the next power of two, not by D"
        ): over_tile(0, *means),
    }
    if norm.adds:
        table |= {
            Cause("no-term(dsum)", "dsum is left out"): zero("dsum"),
            Cause("term-twice(dsum)", "dsum is added twice"): scaled(2, "dsum"),
            Cause("dsum-subtracted", "dsum is subtracted"): scaled(-1, "dsum"),
            Cause("dsum-alone", "the gradient of the norm is left out: it is dsum"): {
                "dnorm": lambda at: np.zeros(at.case.shape)
            },
            Cause("dsum-through-norm", "dsum is sent through the norm, with dy"): {
                "dy": _dy_and_dsum,
                **zero("dsum"),
            },
            Cause(
                "dsum-through-norm-and-added", "dsum is sent through the norm, and added, too"
            ): {"dy": _dy_and_dsum},
        }
    return table


def _times_size(*steps: str) -> Changes:
    return changed(lambda at, right: at.size * right, *steps)


def _times_r(*steps: str) -> Changes:
    return changed(lambda at, right: right * at["r"], *steps)


def _times_gain(*steps: str) -> Changes:
    return changed(lambda at, right: at["gain"] * right, *steps)


def _dy_and_dsum(at: Steps) -> Float64s:
    return rounded(at.right("dy") + at.right("dsum"), at.case.dtype)


def _of_mean_g(norm: Norm) -> Table:
    if not norm.centred:
        return {
            Cause("mean-g-subtracted", "mean(g) is subtracted"): {
                "mean_g": lambda at: mean(at["g"])
            }
        }
    return {
        Cause("no-term(mean(g))", "mean(g) is left out"): zero("mean_g"),
        Cause("term-twice(mean(g))", "mean(g) is subtracted twice"): scaled(2, "mean_g"),
        Cause("term-negated(mean(g))", "mean(g) is added, not subtracted"): scaled(-1, "mean_g"),
        Cause("mean-g-undivided", "mean(g) is a sum, not divided by D"): _times_size("mean_g"),
        Cause("mean-g-of-dy", "mean(g) is that of dy, without gamma"): {
            "mean_g": lambda at: mean(at["dy"])
        },
        Cause("no-means", "mean(g) and xhat*mean(g*xhat) are left out"): zero(
            "mean_g", "projection"
        ),
        Cause("means-exchanged", "mean(g) and mean(g*xhat) are exchanged"): {
            "mean_g": lambda at: mean(at["g"] * at["xhat"]),
            "projection": lambda at: at["xhat"] * mean(at["g"]),
        },
        Cause(
            "means-undivided", "mean(g) and xhat*mean(g*xhat) are sums, not divided by D"
        ): _times_size("mean_g", "projection"),
    }


def of_saved(norm: Norm) -> Table:
    """Return hypotheses about the saved statistics that backward uses."""
    y_over_gain = "(y - beta)/gain" if "beta" in norm.parameters else "y/gain"
    return {
        Cause("xhat-from-y", f"xhat is taken from y, as {y_over_gain}"): {
            "xhat": lambda at: _from_y(at, _y(at))
        },
        Cause("xhat-from-rounded-y", f"xhat is taken from the rounded y, as {y_over_gain}"): {
            "xhat": lambda at: _from_y(at, rounded(_y(at), at.y_type))
        },
        Cause("zero-dy-over-0", "a row whose dy is 0 is divided by 0"): changed(
            _nan_where_dy_is_zero, "dnorm"
        ),
    }


def _y(at: Steps) -> Float64s:
    return at.right("xhat") * at["gain"] + at["beta"]


def _from_y(at: Steps, y: Float64s) -> Float64s:
    return (y - at["beta"]) / at["gain"]


def _nan_where_dy_is_zero(at: Steps, dnorm: Float64s) -> Float64s:
    is_zero = (at["dy"] == 0).all(axis=1, keepdims=True)
    return np.where(is_zero, np.nan, dnorm)


def of_parameters(norm: Norm) -> Table:
    """Return hypotheses about the sums over rows, dgamma and dbeta."""
    rows = "the sum" if norm.adds else "x"
    both = ("dgamma", "dbeta")
    table: Table = {
        Cause("summed-from-x", f"it is summed from {rows}, not from xhat"): {
            "terms": lambda at: at["dy"] * at["rows"]
        },
        Cause("summed-from-centred-x", f"it is summed from {rows} - mean, not from xhat"): {
            "terms": lambda at: at["dy"] * at["c"]
        },
        Cause("summed-from-y", "it is summed from y, not from xhat"): {
            "terms": lambda at: at["dy"] * at["y"]
        },
        Cause("summed-from-xhat-times-r", "xhat is divided by the root once more"): _times_r(
            "terms"
        ),
        Cause("sum-times-gain", "it is multiplied by the gain"): _times_gain(*both),
        Cause("sum-over-gain", "it is divided by the gain"): changed(
            lambda at, right: right / at["gain"], *both
        ),
        Cause("sum-of-dy", "it is the sum of dy"): {"dgamma": lambda at: at["dbeta"]},
        Cause("sum-of-dy-xhat", "it is the sum of dy*xhat"): {"dbeta": lambda at: at["dgamma"]},
        Cause("sum-of-dx", "it is the sum of dx"): changed(
            lambda at, _: at["dx"].sum(axis=0), *both
        ),
        Cause("sum-negated", "it has the other sign"): scaled(-1, *both),
        Cause("sum-over-size", "it is divided by D"): changed(
            lambda at, right: right / at.size, *both
        ),
        **_of_columns("it", *both),
        **{cause: {"row_weights": partial(_weights, rule)} for cause, rule in ROW_WEIGHTS.items()},
    }
    for block in ROW_BLOCKS:
        for cause, rule in BLOCK_WEIGHTS.items():
            table[cause.of(block)] = {"row_weights": partial(_weights, partial(rule, block))}
    if norm.adds:
        cause = Cause("summed-from-dy-plus-dsum", "it is summed from dy + dsum, not from dy")
        table[cause] = {"dy": _dy_and_dsum}
        cause = Cause("summed-from-dsum", "it is summed from dsum, not from dy")
        table[cause] = {"dy": lambda at: at.right("dsum")}
    return table


Weights = Callable[[Any, int], Any]

ROW_WEIGHTS: dict[Cause, Weights] = {
    Cause("mean-over-rows", "it is the mean over rows, not the sum"): lambda _, count: np.full(
        count, 1 / count
    ),
    Cause("no-last(row)", "the last row is left out"): lambda row, count: row < count - 1,
    Cause("no-first(row)", "the first row is left out"): lambda row, _: row > 0,
    Cause("first-alone(row)", "it is that of the first row"): lambda row, _: row < 1,
    Cause("last-alone(row)", "it is that of the last row"): lambda row, count: row == count - 1,
    Cause("no-second-half(row)", "the second half of the rows is left out"): lambda row, count: (
        row < count // 2
    ),
    Cause("no-every-second(row)", "every second row is left out"): lambda row, _: row % 2 == 0,
    Cause("no-rows-beyond-65535", "rows beyond 65,535 are left out"): lambda row, _: (
        row < MOST_BLOCKS
    ),
    Cause("rows-twice", "rows are counted twice"): lambda _, count: np.full(count, 2.0),
    Cause("first-twice(row)", "the first row is counted twice"): lambda row, _: 1.0 + (row == 0),
    Cause("last-twice(row)", "the last row is counted twice"): lambda row, count: (
        1.0 + (row == count - 1)
    ),
}
"""The weight of each row, from its index and the number of rows."""


def _weights(rule: Weights, at: Steps) -> Float64s:
    return np.asarray(rule(np.arange(at.count), at.count), np.float64)[:, np.newaxis]


def _in_whole_block(block: int, row: Any, count: int) -> Any:
    return row < whole_blocks(count, block)


def _in_some_whole_block(block: int, row: Any, count: int) -> Any:
    return row < count - count % block


def _in_even_block(block: int, row: Any, _: int) -> Any:
    return row // block % 2 == 0


def _in_first_block(block: int, row: Any, _: int) -> Any:
    return row < block


def _in_last_block(block: int, row: Any, count: int) -> Any:
    return row // block == (count - 1) // block


def _is_not_last(block: int, row: Any, _: int) -> Any:
    return row % block != block - 1


BLOCK_WEIGHTS: dict[Cause, Callable[[int, Any, int], Any]] = {
    Cause(
        "no-partial-block(row, {})", "the last, partial block of {} rows is left out"
    ): _in_whole_block,
    Cause(
        "no-every-second-block(row, {})", "every second block of {} rows is left out"
    ): _in_even_block,
    Cause("none-beyond(row, {})", "rows beyond the first {} are left out"): _in_first_block,
    Cause(
        "none-from-last-multiple(row, {})", "the rows from N - N % {} on are left out"
    ): _in_some_whole_block,
    Cause("last-block-alone(row, {})", "only the last block of {} rows is summed"): _in_last_block,
    Cause("no-last-of-every(row, {})", "the last of every {} rows is left out"): _is_not_last,
}
"""By cause, with the size of a block: the weights of rows."""


def of_layouts(norm: Norm, output: str) -> dict[Cause, Hypothesis]:
    """Return hypotheses about rows with gaps in memory that are read without the gaps."""
    hypotheses: dict[Cause, Hypothesis] = {}
    for names in _read_together(norm, output):
        *others, last = names
        arrays, are, were = last, "is", "it were"
        if others:
            arrays, are, were = f"{', '.join(others)} and {last}", "are", "they were"
        for gaps, text, only_in_rows in (
            ("all", f"{were} contiguous", False),
            ("in-rows", "the elements of a row had no gaps", True),
        ):
            cause = Cause(
                f"read-without-gaps({', '.join(names)}, {gaps})",
                f"{arrays} {are} read as though {text}",
            )
            hypotheses[cause] = partial(_misread, norm, output, names, only_in_rows)
    return hypotheses


def _read_together(norm: Norm, output: str) -> list[tuple[str, ...]]:
    """Return groups of arrays that may be misread alike: single arrays, or a whole pass."""
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
    norm: Norm, output: str, names: Sequence[str], only_in_rows: bool, case: Case
) -> Float64s:
    arrays = {name: read_without_gaps(case, case.rows[name], only_in_rows) for name in names}
    return Steps(norm, case.with_inputs(**arrays), {})[output]


def read_without_gaps(case: Case, rows: Array, only_in_rows: bool) -> Array:
    """Return the numbers that are read from a view of rows if its gaps are ignored."""
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
"""By output: the steps that the output depends on."""
TABLES_OF: dict[str, tuple[Callable[[Norm], Table], ...]] = {
    "y": (of_statistics, of_results),
    "sum": (of_results,),
    "dx": (of_statistics, of_results, of_gradients, of_saved),
    "dresidual": (of_statistics, of_results, of_gradients, of_saved),
    "dgamma": (of_statistics, of_results, of_parameters, of_saved),
    "dbeta": (of_statistics, of_results, of_parameters),
}


@cache
def hypotheses_of(norm: Norm, output: str) -> dict[Cause, Hypothesis]:
    """Return the hypotheses for one output of a norm, by their causes."""
    hypotheses: dict[Cause, Hypothesis] = {
        cause: partial(_evaluate, norm, output, changes)
        for table in TABLES_OF[output]
        for cause, changes in table(norm).items()
        if STEPS_OF[output] & changes.keys()
    }
    return hypotheses | of_layouts(norm, output)


def unchanged_of(norm: Norm, output: str) -> Hypothesis:
    """Return the output with no step changed."""
    return partial(_evaluate, norm, output, {})


def _evaluate(norm: Norm, output: str, changes: Changes, case: Case) -> Float64s:
    return Steps(norm, case, changes)[output]
