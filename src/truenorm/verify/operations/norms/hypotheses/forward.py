"""Hypotheses of what is normalized, of the gain and beta, and of what is returned."""

from functools import partial

import numpy as np

from truenorm.verify.operations.norms.definition import Definition
from truenorm.verify.operations.norms.hypotheses.steps import Changes, Steps, rounded
from truenorm.verify.types import Array, Float64s, ulps_of

__all__ = ["of_results"]


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
