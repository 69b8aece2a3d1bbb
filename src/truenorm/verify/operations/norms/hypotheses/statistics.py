"""Hypotheses of a row's statistics: its mean, its mean square, eps and the root."""

from functools import partial

import numpy as np

from truenorm.verify.operations.norms.definition import Definition
from truenorm.verify.operations.norms.hypotheses.steps import (
    Changes,
    Step,
    Steps,
    added_up,
    mean,
    rounded,
)
from truenorm.verify.types import FORMATS, Float64s

__all__ = ["of_statistics"]

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
