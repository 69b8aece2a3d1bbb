"""Functions of one number: in float64, as balls of python-flint, and their slopes.

The errors of balls are proven by python-flint, whose functions enclose every number of a ball.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.formulas.balls import Ball

BITS = 160
"""The precision of a function that is stored in a ball: more than double-double has."""


class Function(NamedTuple):
    """A function of one number.

    Attributes
    ----------
    floats, slope : callable
        The function and its derivative in float64.
    arb : callable
        The function of an arb.
    """

    floats: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    arb: Callable[[Any], Any]


def flint() -> Any:
    """Return the module of python-flint, which gates and formulas need."""
    try:
        import flint as module
    except ImportError as missing:
        raise ValueError(
            "a gate or a formula needs the package python-flint: pip install 'truenorm[verify]'"
        ) from missing
    return module


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _erf_slope(x: Any) -> Any:
    return 2 / math.sqrt(math.pi) * np.exp(-x * x)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _erf_slope_of_arb(x: Any) -> Any:
    return 2 * (-x * x).exp() / flint().arb.pi().sqrt()


FUNCTIONS = {
    "exp": Function(np.exp, np.exp, lambda x: x.exp()),
    "log": Function(np.log, lambda x: 1 / x, lambda x: x.log()),
    "tanh": Function(np.tanh, lambda x: 1 - np.tanh(x) ** 2, lambda x: x.tanh()),
    "erf": Function(_erf, _erf_slope, lambda x: x.erf()),
    "erf_slope": Function(_erf_slope, lambda x: -2 * x * _erf_slope(x), _erf_slope_of_arb),
    "sigmoid": Function(
        _sigmoid,
        lambda x: _sigmoid(x) * (1 - _sigmoid(x)),
        lambda x: 1 / (1 + (-x).exp()),
    ),
}
"""By the name of the step. ``erf_slope`` is the derivative of erf."""


def by_arbs(name: str, x: Ball) -> Ball:
    """Return a function of balls, by an arb for each ball that differs from others."""
    module, function = flint(), FUNCTIONS[name].arb
    flat = np.stack([each.reshape(-1) for each in (x.high, x.low, x.radius)], axis=1)
    different, place = np.unique(flat.view("V24"), return_inverse=True)
    results = []
    with module.ctx.workprec(BITS):
        for high, low, radius in different.view(np.float64).reshape(-1, 3).tolist():
            value = function(module.arb(high) + module.arb(low) + module.arb(0, radius))
            first = float(value.mid())
            rest = value - module.arb(first)
            second = float(rest.mid())
            # The distance of both floats from the true value, rounded up.
            left = float((rest - module.arb(second)).abs_upper()) * (1 + 2.0**-40)
            results.append((first, second, left + 2.0**-1060))
    columns = np.array(results).reshape(-1, 3)[place.reshape(-1)].T
    columns[2][~np.isfinite(columns[:2]).all(axis=0)] = np.nan
    return Ball(*columns.reshape(3, *x.shape))
