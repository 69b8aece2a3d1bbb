"""Hypotheses of dx: how the gradient is projected, multiplied, and added to what arrives."""

import numpy as np

from truenorm.verify.operations.norms.definition import Definition
from truenorm.verify.operations.norms.hypotheses.steps import Changes, Steps, mean, rounded
from truenorm.verify.types import Float64s

__all__ = ["of_gradients"]


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
