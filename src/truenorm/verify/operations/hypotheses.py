"""Hypotheses of rows that are read where they are not: gaps in memory are passed over."""

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.operations.definition import Definition
from truenorm.verify.operations.hypotheses_of_y import of_results, of_statistics
from truenorm.verify.operations.steps import (
    Changes,
    Step,
    Steps,
    added_into,
    added_up,
    mean,
    rounded,
)
from truenorm.verify.types import FORMATS, Array, Float64s


def of_layouts(norm: Definition, output: str) -> dict[str, Hypothesis]:
    """Return by their words what comes of rows that are taken to have no gaps."""
    found: dict[str, Hypothesis] = {}
    for names in _together(norm, output):
        *others, last = names
        these, are, were = last, "is", "it were"
        if others:
            these, are, were = f"{', '.join(others)} and {last}", "are", "they were"
        for words, only_in_rows in (
            (f"{were} contiguous", False),
            ("the elements of a row had no gaps", True),
        ):
            found[f"{these} {are} read as though {words}"] = partial(
                _misread, norm, output, names, only_in_rows
            )
    return found


def _together(norm: Definition, output: str) -> list[tuple[str, ...]]:
    """Return which rows may be read alike: one of them, or all that a pass is given."""
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
    norm: Definition, output: str, names: Sequence[str], only_in_rows: bool, case: Case
) -> Float64s:
    other = {name: _read(case, case.rows[name], only_in_rows) for name in names}
    return Steps(norm, case.with_inputs(**other), {})[output]


def _read(case: Case, rows: Array, only_in_rows: bool) -> Array:
    """Return the numbers that lie where rows would, were they without gaps in memory."""
    laid = case.laid_out(rows)
    if laid.ndim != rows.ndim or laid.flags.c_contiguous:
        return rows
    row = laid.strides[0] if only_in_rows else rows.shape[1] * rows.itemsize
    read: Array = np.lib.stride_tricks.as_strided(laid, laid.shape, (row, rows.itemsize))
    return read.copy()


def of_recalled(norm: Definition) -> dict[str, Changes]:
    """Return by their words what may be wrong with what backward starts from."""
    back = "(y - beta)/gain" if "beta" in norm.parameters else "y/gain"
    return {
        f"xhat is taken from y, as {back}": {"xhat": lambda at: _from_y(at, _y(at))},
        f"xhat is taken from the rounded y, as {back}": {
            "xhat": lambda at: _from_y(at, rounded(_y(at), at.type_of_y))
        },
        "a row whose dy is 0 is divided by 0": {"dnorm": _divided},
    }


def _y(at: Steps) -> Float64s:
    return at.right("xhat") * at["gain"] + at["beta"]


def _from_y(at: Steps, y: Float64s) -> Float64s:
    return (y - at["beta"]) / at["gain"]


def _divided(at: Steps) -> Float64s:
    is_zero = (at["dy"] == 0).all(axis=1, keepdims=True)
    return np.where(is_zero, np.nan, at.right("dnorm"))


BLOCKS = (4, 8, 16, 32, 64, 128)


def of_parameters(norm: Definition) -> dict[str, Changes]:
    """Return by their words what may be wrong with the sums over rows."""
    rows = "the sum" if norm.adds else "x"
    found: dict[str, Changes] = {
        f"it is summed from {rows}, not from xhat": {"terms": lambda at: at["dy"] * at["rows"]},
        f"it is summed from {rows} - mean, not from xhat": {
            "terms": lambda at: at["dy"] * at["c"]
        },
        "it is summed from y, not from xhat": {"terms": lambda at: at["dy"] * at["y"]},
        "xhat is divided by the root once more": {"terms": lambda at: at.right("terms") * at["r"]},
        "it is multiplied by the gain": {
            name: partial(_times_gain, name) for name in ("dgamma", "dbeta")
        },
        "it is divided by the gain": {
            name: partial(_over_gain, name) for name in ("dgamma", "dbeta")
        },
        "it is the sum of dy": {"dgamma": lambda at: at["dbeta"]},
        "it is the sum of dy*xhat": {"dbeta": lambda at: at["dgamma"]},
        "it is the sum of dx": dict.fromkeys(("dgamma", "dbeta"), _of_dx),
        "it has the other sign": {name: partial(_negative, name) for name in ("dgamma", "dbeta")},
        **{words: {"share": share} for words, share in _shares().items()},
    }
    for kind in ("float16", "the type of x"):
        found[f"it is added up in {kind}, one row after the other"] = {
            name: partial(_narrow, name, kind) for name in ("dgamma", "dbeta")
        }
        found[f"its terms are rounded to {kind}, and added up in it"] = {
            name: partial(_all_narrow, name, kind) for name in ("dgamma", "dbeta")
        }
    if norm.adds:
        found["it is summed from dy + dsum, not from dy"] = {
            "dy": lambda at: rounded(at.right("dy") + at.right("dsum"), at.case.dtype)
        }
        found["it is summed from dsum, not from dy"] = {"dy": lambda at: at.right("dsum")}
    return found


def _times_gain(output: str, at: Steps) -> Float64s:
    return at.right(output) * at["gain"]


def _over_gain(output: str, at: Steps) -> Float64s:
    return at.right(output) / at["gain"]


def _negative(output: str, at: Steps) -> Float64s:
    return -at.right(output)


def _of_dx(at: Steps) -> Float64s:
    return np.asarray(at["dx"].sum(axis=0))


def _narrow(output: str, kind: str, at: Steps) -> Float64s:
    kind = kind if kind in FORMATS else at.case.dtype
    return added_into(at["terms" if output == "dgamma" else "dy"], kind)


def _all_narrow(output: str, kind: str, at: Steps) -> Float64s:
    kind = kind if kind in FORMATS else at.case.dtype
    return added_up(at["terms" if output == "dgamma" else "dy"], kind, 0)


def _shares() -> dict[str, Step]:
    """Return by their words how often each row is counted."""
    found: dict[str, Step] = {
        "it is the mean over rows, not the sum": lambda at: np.full((at.count, 1), 1 / at.count),
        "the last row is left out": partial(_first, lambda rows: rows - 1),
        "the first row is left out": lambda at: _column(np.arange(at.count) > 0),
        "it is that of the first row": partial(_first, lambda _: 1),
        "it is that of the last row": lambda at: _column(np.arange(at.count) == at.count - 1),
        "the second half of the rows is left out": partial(_first, lambda rows: rows // 2),
        "every second row is left out": lambda at: _column(np.arange(at.count) % 2 == 0),
        "rows beyond 65,535 are left out": partial(_first, lambda rows: min(rows, 65_535)),
        "rows are counted twice": lambda at: np.full((at.count, 1), 2.0),
    }
    for block in BLOCKS:
        found[f"the last, partial block of {block} rows is left out"] = partial(_whole, block)
        found[f"every second block of {block} rows is left out"] = partial(_alternating, block)
    return found


def _column(counted: NDArray[np.bool_]) -> Float64s:
    return counted.astype(np.float64)[:, np.newaxis]


def _first(number: Callable[[int], int], at: Steps) -> Float64s:
    return _column(np.arange(at.count) < number(at.count))


def _whole(block: int, at: Steps) -> Float64s:
    """Count rows in full blocks; fewer than a block are counted all."""
    whole = at.count if at.count < block else at.count - at.count % block
    return _column(np.arange(at.count) < whole)


def _alternating(block: int, at: Steps) -> Float64s:
    return _column(np.arange(at.count) // block % 2 == 0)


def of_gradients(norm: Definition) -> dict[str, Changes]:
    """Return by their words what may be wrong with dx."""
    found = _of_means(norm)
    found |= {
        "xhat*mean(g*xhat) is left out": {"along": _nothing},
        "xhat*mean(g*xhat) is subtracted twice": {"along": lambda at: 2 * at.right("along")},
        "xhat*mean(g*xhat) is added, not subtracted": {"along": lambda at: -at.right("along")},
        "xhat*mean(g*xhat) is a sum, not divided by D": {
            "along": lambda at: at.size * at.right("along")
        },
        "x - mean stands for xhat in xhat*mean(g*xhat)": {
            "along": lambda at: at["c"] * mean(at["g"] * at["c"])
        },
        "xhat*mean(g*xhat) is divided by the root once more": {
            "along": lambda at: at.right("along") * at["r"]
        },
        "gamma is left out of mean(g*xhat)": {
            "along": lambda at: at["xhat"] * mean(at["dy"] * at["xhat"])
        },
        "gamma is applied after the projection": {
            "g": lambda at: at["dy"],
            "dnorm": lambda at: at["gain"] * at.right("dnorm"),
        },
        "gamma is multiplied with once more, after the projection": {
            "dnorm": lambda at: at["gain"] * at.right("dnorm")
        },
        "dx is not multiplied by 1/sqrt(... + eps)": {
            "dnorm": lambda at: at.right("dnorm") / at["r"]
        },
        "dx is multiplied by 1/sqrt(... + eps) twice": {
            "dnorm": lambda at: at.right("dnorm") * at["r"]
        },
        "dx is divided by D": {"dnorm": lambda at: at.right("dnorm") / at.size},
        "dx is multiplied by D": {"dnorm": lambda at: at.right("dnorm") * at.size},
        "dx has the other sign": {"dx": lambda at: -at.right("dx")},
        "rows beyond 65,535 are not written": {
            "dx": lambda at: at.right("dx") * (np.arange(at.count)[:, np.newaxis] < 65_535)
        },
        "dx is dy as it is": {"dnorm": lambda at: at["dy"]},
    }
    if norm.adds:
        found |= _of_what_arrives()
    return found


def _nothing(at: Steps) -> Float64s:
    return np.zeros((at.count, 1))


def _with_dsum(at: Steps) -> Float64s:
    return rounded(at.right("dy") + at.right("dsum"), at.case.dtype)


def _of_means(norm: Definition) -> dict[str, Changes]:
    """Return what comes of another mean of g."""
    if not norm.centred:
        return {"mean(g) is subtracted": {"mean_g": lambda at: mean(at["g"])}}
    return {
        "mean(g) is left out": {"mean_g": _nothing},
        "mean(g) is subtracted twice": {"mean_g": lambda at: 2 * at.right("mean_g")},
        "mean(g) is added, not subtracted": {"mean_g": lambda at: -at.right("mean_g")},
        "mean(g) is a sum, not divided by D": {"mean_g": lambda at: at.size * at.right("mean_g")},
        "mean(g) is that of dy, without gamma": {"mean_g": lambda at: mean(at["dy"])},
        "mean(g) and xhat*mean(g*xhat) are left out": {"mean_g": _nothing, "along": _nothing},
        "mean(g) and xhat*mean(g*xhat) are sums, not divided by D": {
            "mean_g": lambda at: at.size * at.right("mean_g"),
            "along": lambda at: at.size * at.right("along"),
        },
    }


def _of_what_arrives() -> dict[str, Changes]:
    """Return what comes of another gradient of the sum."""
    return {
        "dsum is left out": {"dsum": _nothing},
        "dsum is added twice": {"dsum": lambda at: 2 * at.right("dsum")},
        "dsum is subtracted": {"dsum": lambda at: -at.right("dsum")},
        "the gradient of the norm is left out: it is dsum": {
            "dnorm": lambda at: np.zeros(at.case.shape)
        },
        "dsum is sent through the norm, with dy": {
            "dy": _with_dsum,
            "dsum": _nothing,
        },
        "dsum is sent through the norm, and added, too": {"dy": _with_dsum},
    }


OF_A_ROW = frozenset({"rows", "mean", "c", "eps", "w", "r", "xhat"})
OF_DX = OF_A_ROW | {"gain", "dy", "g", "mean_g", "along", "dnorm", "dsum", "dx"}
NEEDED = {
    "y": OF_A_ROW | {"gain", "beta", "y"},
    "sum": frozenset({"sum"}),
    "dx": OF_DX,
    "dresidual": OF_DX | {"dresidual"},
    "dgamma": OF_A_ROW | {"dy", "share", "terms", "dgamma"},
    "dbeta": frozenset({"dy", "share", "dbeta"}),
}
"""By result: the steps that it depends on."""


@cache
def hypotheses_of(norm: Definition, output: str) -> dict[str, Hypothesis]:
    """Return by their words the hypotheses for one result of a norm.

    Those of a row's statistics are there for every result that depends on them.
    """
    tables = {
        "y": (of_statistics, of_results),
        "sum": (of_results,),
        "dx": (of_statistics, of_results, of_gradients, of_recalled),
        "dresidual": (of_statistics, of_results, of_gradients, of_recalled),
        "dgamma": (of_statistics, of_results, of_parameters, of_recalled),
        "dbeta": (of_statistics, of_results, of_parameters),
    }
    found: dict[str, Hypothesis] = {
        words: partial(_done, norm, output, changes)
        for table in tables[output]
        for words, changes in table(norm).items()
        if NEEDED[output] & changes.keys()
    }
    return found | of_layouts(norm, output)


def _done(norm: Definition, output: str, changes: Changes, case: Case) -> Float64s:
    return Steps(norm, case, changes)[output]
