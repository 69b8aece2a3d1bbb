"""Hypotheses of a row's statistics: its mean, its mean square, eps and the root."""

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.operations.definition import Definition
from truenorm.verify.operations.steps import (
    Changes,
    Step,
    Steps,
    added_into,
    added_up,
    mean,
    rounded,
)
from truenorm.verify.types import FORMATS, Array, Float64s, ulps_of

NARROW = ("float16", "bfloat16")
BLOCKS = (32, 64, 128, 256, 512, 1024)
TILES = (16, 32, 64, 128)
OTHER_EPS = {"1e-5": 1e-5, "1e-6": 1e-6, "1e-12": 1e-12, "2^-23": 2.0**-23}

INPUTS = {"x and dy": ("rows", "dy"), "all inputs": ("rows", "gain", "beta", "dy")}


def of_statistics(norm: Definition) -> dict[str, Changes]:
    """Return by their words what may be wrong with the statistics."""
    found = {**_of_eps(), **_of_size(norm), **_of_rounding(norm), **_of_blocks(norm)}
    if norm.centred:
        none: Step = lambda at: np.zeros((at.count, 1))  # noqa: E731
        found["no mean is subtracted, as in RMS normalization"] = {"mean": none, "mean_g": none}
        found["no mean is subtracted from a row, and that of g is from its gradient"] = {
            "mean": none
        }
        found["the last element of a row is left out of its mean"] = {"mean": _without_last}
    else:
        found["the mean is subtracted, as in layer normalization"] = {
            "mean": lambda at: mean(at["rows"]),
            "mean_g": lambda at: mean(at["g"]),
        }
        found["the mean of a row is subtracted from it, and that of g not from its gradient"] = {
            "mean": lambda at: mean(at["rows"])
        }
    return found


def _of_eps() -> dict[str, Changes]:
    found: dict[str, Changes] = {
        "eps is added outside the root": {"r": lambda at: 1 / (np.sqrt(at["w"]) + at["eps"])},
        "eps is left out": {"eps": lambda _: np.zeros(1)},
        "eps is divided by D": {"eps": lambda at: at.right("eps") / at.size},
        "eps is multiplied by D": {"eps": lambda at: at.right("eps") * at.size},
        "eps is squared": {"eps": lambda at: at.right("eps") ** 2},
    }
    for words, eps in OTHER_EPS.items():
        found[f"eps is {words}"] = {"eps": partial(_constant, eps)}
    for kind in NARROW:
        found[f"eps is rounded to {kind}"] = {"eps": partial(_to, "eps", kind)}
    return found


def _constant(number: float, _: Steps) -> Float64s:
    return np.full(1, number)


def _to(step: str, kind: str, at: Steps) -> Float64s:
    return rounded(at.right(step), kind)


def _of_size(norm: Definition) -> dict[str, Changes]:
    """Return what comes of another divisor than D."""
    what = "the variance" if norm.centred else "the mean square"
    found: dict[str, Changes] = {
        f"{what} is divided by D - 1": {
            "w": lambda at: at.right("w") * (at.size / max(at.size - 1, 1))
        },
        f"{what} is a sum, not divided by D": {"w": lambda at: at.right("w") * at.size},
        "no root is taken, or 1/sqrt(... + eps) is squared": {
            "r": lambda at: 1 / (at["w"] + at["eps"])
        },
    }
    for times in (2, 4, 8):
        found[f"{what} is {times} times as large"] = {"w": partial(_times, times)}
    for tile in (*TILES, 0):
        width = f"the next multiple of {tile}" if tile else "the next power of two"
        found[f"the sum of squares is divided by {width}, not by D"] = {
            "w": partial(_over_tile, tile)
        }
        if norm.centred:
            found[f"both means are divided by {width}"] = {
                "mean": partial(_mean_over_tile, tile),
                "w": partial(_over_tile, tile),
            }
            found[f"zeros that fill a row up to {width} are counted in the variance"] = {
                "w": partial(_with_padding, tile)
            }
    return found


def _times(number: int, at: Steps) -> Float64s:
    return number * at.right("w")


def _padded(size: int, tile: int) -> int:
    """Return the size of a row that is filled up to a tile, or to a power of two."""
    return -(-size // tile) * tile if tile else 1 << (size - 1).bit_length()


def _over_tile(tile: int, at: Steps) -> Float64s:
    return at.right("w") * (at.size / _padded(at.size, tile))


def _mean_over_tile(tile: int, at: Steps) -> Float64s:
    return at.right("mean") * (at.size / _padded(at.size, tile))


def _with_padding(tile: int, at: Steps) -> Float64s:
    padding = _padded(at.size, tile) - at.size
    return at.right("w") + padding * at["mean"] ** 2 / at.size


def _without_last(at: Steps) -> Float64s:
    return np.asarray(at["rows"][:, :-1].sum(axis=1, keepdims=True) / at.size)


def _of_blocks(norm: Definition) -> dict[str, Changes]:
    """Return what comes of a last block that is not full, and is left out."""
    found: dict[str, Changes] = {}
    for block in BLOCKS:
        what = f"the last, partial block of {block} is left out of"
        found[f"{what} the sum of squares"] = {"w": partial(_whole_squares, block)}
        if norm.centred:
            found[f"{what} both sums of a row"] = {
                "mean": partial(_whole_mean, block),
                "w": partial(_whole_squares, block),
            }
            found[f"{what} the mean"] = {"mean": partial(_whole_mean, block)}
    return found


def _whole(size: int, block: int) -> int:
    """Return the number of elements in full blocks; a row shorter than one is taken as it is."""
    return size if size < block else size - size % block


def _whole_squares(block: int, at: Steps) -> Float64s:
    c = at["c"][:, : _whole(at.size, block)]
    return np.asarray((c * c).sum(axis=1, keepdims=True) / at.size)


def _whole_mean(block: int, at: Steps) -> Float64s:
    rows = at["rows"][:, : _whole(at.size, block)]
    return np.asarray(rows.sum(axis=1, keepdims=True) / at.size)


def _of_rounding(norm: Definition) -> dict[str, Changes]:
    """Return what comes of numbers that are rounded to a narrow type on the way."""
    found: dict[str, Changes] = {}
    square = "the variance" if norm.centred else "the mean square"
    row = "x + residual" if norm.adds else "x"
    for kind in (*NARROW, "float32"):
        found[f"1/sqrt(... + eps) is rounded to {kind}"] = {"r": partial(_to, "r", kind)}
        found[f"{square} is rounded to {kind}"] = {"w": partial(_to, "w", kind)}
        found[f"{row} is rounded to {kind} first"] = {"rows": partial(_to, "rows", kind)}
        for names, steps in INPUTS.items():
            found[f"{names} are rounded to {kind} first"] = {
                name: partial(_to, name, kind) for name in steps
            }
        if norm.centred:
            narrow: Changes = {"mean": partial(_to, "mean", kind)}
            root: Changes = {"r": partial(_to, "r", kind)}
            found[f"the mean is rounded to {kind}"] = narrow
            found[f"the mean and 1/sqrt(... + eps) are rounded to {kind}"] = {**narrow, **root}
            saved: Changes = {**narrow, "w": _about_the_mean}
            found[f"the mean is kept in {kind}"] = saved
            found[f"the mean and 1/sqrt(... + eps) are kept in {kind}"] = {**saved, **root}
    for kind in ("float16", "the type of x"):
        found[f"squares are added up in {kind}, one by one"] = {"w": partial(_narrow, kind)}
    found["squares are taken and added up in float32, where they overflow or vanish"] = {
        "w": _in_float32
    }
    return found


def _about_the_mean(at: Steps) -> Float64s:
    """Return the variance before the mean was rounded."""
    c = at["rows"] - at.right("mean")
    return mean(c * c) - mean(c) ** 2


def _narrow(kind: str, at: Steps) -> Float64s:
    kind = kind if kind in FORMATS else at.case.dtype
    c = rounded(at["c"], kind)
    return added_up(c * c, kind, 1)[:, np.newaxis] / at.size


def _in_float32(at: Steps) -> Float64s:
    c = at["c"].astype(np.float32)
    return np.asarray((c * c).mean(axis=1, keepdims=True).astype(np.float64))


def of_results(norm: Definition) -> dict[str, Changes]:
    """Return by their words what may be wrong beside the statistics."""
    found = {**_of_gain(norm), **_of_y()}
    if "beta" in norm.parameters:
        found |= _of_beta()
    if norm.adds:
        found |= _of_sum(norm)
    return found


def _of_gain(norm: Definition) -> dict[str, Changes]:
    found: dict[str, Changes] = {
        "gamma is left out": {"gain": lambda _: np.ones(1)},
        "the sign of the gain is lost": {"gain": lambda at: np.abs(at.right("gain"))},
        "gamma has the other sign": {"gain": lambda at: at.given("gamma", 1.0) * -1 + _one(at)},
        "gamma is rounded to the type of x": {"gain": _gain_of_x},
        "the bytes of gamma are read as numbers of the type of x": {"gain": _bytes},
        "0 stands for a gamma that is None": {"gain": partial(_absent, "gain", "gamma", 0.0)},
        "the gain is squared": {"gain": lambda at: at.right("gain") ** 2},
        "the gain is divided by, not multiplied with": {"gain": lambda at: 1 / at.right("gain")},
    }
    offsets = {
        "the gain is gamma, and not 1 + gamma": -1.0,
        "the gain is 2 + gamma, and not 1 + gamma": 1.0,
    }
    if norm.gain != "zero-centred":
        offsets = {"the gain is 1 + gamma, and not gamma": 1.0}
    for words, more in offsets.items():
        found[words] = {"gain": partial(_more, more)}
    return found


def _absent(step: str, name: str, number: float, at: Steps) -> Float64s:
    return np.full(1, number) if at.case.inputs.get(name) is None else at.right(step)


def _one(at: Steps) -> float:
    return float(at.norm.gain == "zero-centred")


def _more(more: float, at: Steps) -> Float64s:
    if at.case.inputs.get("gamma") is None:
        return at.right("gain")
    return at.right("gain") + more


def _gain_of_x(at: Steps) -> Float64s:
    if at.case.inputs.get("gamma") is None:
        return at.right("gain")
    return rounded(at.given("gamma", 1.0), at.case.dtype) + _one(at)


def _bytes(at: Steps) -> Float64s:
    """Return the gain if gamma is of a wider type than is thought."""
    gamma: Array | None = at.case.inputs.get("gamma")
    if gamma is None or gamma.itemsize <= at.case.x.itemsize:
        return at.right("gain")
    return np.asarray(gamma.view(at.case.x.dtype)[: len(gamma)], np.float64) + _one(at)


def _of_beta() -> dict[str, Changes]:
    return {
        "1 stands for a beta that is None": {"beta": partial(_absent, "beta", "beta", 1.0)},
        "beta is left out": {"beta": lambda _: np.zeros(1)},
        "beta is added twice": {"beta": lambda at: 2 * at.right("beta")},
        "beta is subtracted": {"beta": lambda at: -at.right("beta")},
        "beta is multiplied by gamma, too": {"beta": lambda at: at.right("beta") * at["gain"]},
        "y is beta alone": {"y": lambda at: 0 * at["rows"] + at["beta"]},
        "gamma and beta are left out": {
            "gain": lambda _: np.ones(1),
            "beta": lambda _: np.zeros(1),
        },
        "gamma and beta are exchanged": {
            "gain": lambda at: at.given("beta", 0.0),
            "beta": lambda at: at.right("gain"),
        },
    }


def _of_y() -> dict[str, Changes]:
    found: dict[str, Changes] = {
        "nothing is written: it is 0": {
            name: partial(_zeros, name)
            for name in ("y", "sum", "dx", "dresidual", "dgamma", "dbeta")
        },
        "the row is centred at most, and not divided by its root": {
            "y": lambda at: at["c"] * at["gain"] + at["beta"]
        },
        "the row is returned as it is": {"y": lambda at: at["rows"]},
        "it is divided by the root twice": {
            "y": lambda at: at["xhat"] * at["r"] * at["gain"] + at["beta"]
        },
        "y is cut off, not rounded": {"y": _cut},
        "the last element of a row of odd width is written over the first of the next, too": {
            "y": _over_the_next
        },
        "rows beyond 65,535 are not written": {
            "y": lambda at: at.right("y") * (np.arange(at.count)[:, np.newaxis] < 65_535)
        },
    }
    for kind in ("float16", "bfloat16"):
        found[f"it is rounded to {kind} on the way"] = {
            name: partial(_rounded, name, kind) for name in ("y", "sum")
        }
        found[f"xhat is rounded to {kind}"] = {"xhat": partial(_rounded, "xhat", kind)}
    return found


def _rounded(step: str, kind: str, at: Steps) -> Float64s:
    return rounded(at.right(step), kind)


def _zeros(step: str, at: Steps) -> Float64s:
    return 0 * at.right(step)


def _cut(at: Steps) -> Float64s:
    return _toward_zero(at.right("y"), at.type_of_y)


def _toward_zero(numbers: Float64s, kind: str) -> Float64s:
    ulps = ulps_of(np.where(np.isfinite(numbers), numbers, 0.0), kind)
    return np.asarray(np.trunc(numbers / ulps) * ulps)


def _over_the_next(at: Steps) -> Float64s:
    """Return y of rows that were written from the last to the first, two elements at a time."""
    y: Float64s = at.right("y").copy()
    if at.size % 2:
        y[1:, 0] = y[:-1, -1]
    return y


def _of_sum(norm: Definition) -> dict[str, Changes]:
    """Return what comes of a residual that is added otherwise."""
    other = "x and residual are added without rounding"
    if norm.sum == "unrounded":
        other = "the sum is rounded before it is normalized"
    both = ("rows", "sum")
    found: dict[str, Changes] = {
        words: dict.fromkeys(both, step) for words, step in _SUMMANDS.items()
    }
    return found | {
        "y is returned as the sum": {"sum": lambda at: at["y"]},
        "xhat is returned as the sum": {"sum": lambda at: at["xhat"]},
        other: {"rows": _other_sum},
    }


def _x(at: Steps) -> Float64s:
    return at.given("x", 0.0)


def _residual(at: Steps) -> Float64s:
    return at.given("residual", 0.0)


def _added(at: Steps, *summands: Float64s) -> Float64s:
    """Return a sum in the type of x, rounded after each summand."""
    total = np.zeros(1)
    for each in summands:
        total = rounded(total + each, at.case.dtype)
    return total


_SUMMANDS: Changes = {
    "x alone is taken, without the residual": _x,
    "the residual alone is taken, without x": _residual,
    "the residual is added twice": lambda at: _added(at, _x(at), _residual(at), _residual(at)),
    "x is added twice": lambda at: _added(at, _x(at), _residual(at), _x(at)),
    "the residual is subtracted": lambda at: _added(at, _x(at), -_residual(at)),
    "x + residual is cut off, not rounded": lambda at: _toward_zero(
        _x(at) + _residual(at), at.case.dtype
    ),
    "the residual is rounded to float16 first": lambda at: _added(
        at, _x(at), rounded(_residual(at), "float16")
    ),
    "the residual is rounded to bfloat16 first": lambda at: _added(
        at, _x(at), rounded(_residual(at), "bfloat16")
    ),
}


def _other_sum(at: Steps) -> Float64s:
    if at.norm.sum == "unrounded":
        return at["sum"]
    return at.given("x", 0.0) + at.given("residual", 0.0)


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
    laid = case.in_layout(rows)
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


ROW_BLOCKS = (4, 8, 16, 32, 64, 128)


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
            name: partial(_narrow_columns, name, kind) for name in ("dgamma", "dbeta")
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


def _narrow_columns(output: str, kind: str, at: Steps) -> Float64s:
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
    for block in ROW_BLOCKS:
        found[f"the last, partial block of {block} rows is left out"] = partial(_whole_rows, block)
        found[f"every second block of {block} rows is left out"] = partial(_alternating, block)
    return found


def _column(counted: NDArray[np.bool_]) -> Float64s:
    return counted.astype(np.float64)[:, np.newaxis]


def _first(number: Callable[[int], int], at: Steps) -> Float64s:
    return _column(np.arange(at.count) < number(at.count))


def _whole_rows(block: int, at: Steps) -> Float64s:
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
