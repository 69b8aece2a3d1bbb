"""Hypotheses of dgamma and dbeta: what is added up, of which rows, and how."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.operations.norms.definition import Definition
from truenorm.verify.operations.norms.hypotheses.steps import (
    Changes,
    Step,
    Steps,
    added_into,
    added_up,
    rounded,
)
from truenorm.verify.types import FORMATS, Float64s

__all__ = ["of_parameters"]

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
