"""The formulas that ship with the judge; each is all that it knows of the operation.

x and the other rows have the shape (N, D).
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from truenorm.verify.formulas import (
    erf,
    exp,
    inverse_root,
    largest,
    log,
    mean,
    rotate_half,
    sigmoid,
    take,
    total,
    where,
)
from truenorm.verify.formulas.operation import FormulaOperation, formula


def softmax(x: Any) -> Any:
    """Divide exp(x) by its sum."""
    top = largest(x)
    e = exp(x - top)
    s = total(e)
    return e / s


def masked_softmax(x: Any, mask: Any) -> Any:
    """Return the softmax of the elements where the mask is above 0, and 0 elsewhere."""
    top = largest(where(mask > 0.0, x, -math.inf))
    c = where(mask > 0.0, x - top, 0.0)
    e = where(mask > 0.0, exp(c), 0.0)
    s = total(e)
    return e / s


def log_softmax(x: Any) -> Any:
    """Return the logarithm of the softmax."""
    top = largest(x)
    c = x - top
    s = total(exp(c))
    return c - log(s)


def cross_entropy(x: Any, label: Any) -> Any:
    """Return a loss for each row: minus the logarithm of the softmax at the label."""
    top = largest(x)
    s = total(exp(x - top))
    at_label = take(x, label)
    return log(s) - (at_label - top)


def l2_norm(x: Any, eps: Any) -> Any:
    """X divided by the root of its sum of squares."""
    w = total(x * x)
    r = inverse_root(w + eps)
    return x * r


def rms_norm_rope(x: Any, cos: Any, sin: Any, gamma: Any, eps: Any) -> Any:
    """Normalize, then rotate the first half with the second."""
    w = mean(x * x)
    r = inverse_root(w + eps)
    n = x * r * gamma
    return n * cos + rotate_half(n) * sin


def swiglu(x: Any, z: Any) -> Any:
    """Multiply the silu of x by z."""
    s = x * sigmoid(x)
    return s * z


def gelu(x: Any) -> Any:
    """X times the normal distribution function."""
    half = 0.5 * x
    return half * (1.0 + erf(x * inverse_root(2.0)))


SHIPPED: dict[str, Callable[[], FormulaOperation]] = {
    each.__name__: cache(partial(formula, each, **options))
    for each, options in (
        (softmax, {}),
        (masked_softmax, {"constants": ["mask"]}),
        (log_softmax, {}),
        (cross_entropy, {"indices": ["label"]}),
        (l2_norm, {}),
        (
            rms_norm_rope,
            {
                "constants": ["cos", "sin"],
                "ranges": {"cos": (-1.0, 1.0), "sin": (-1.0, 1.0)},
                "multiple": 2,
            },
        ),
        (swiglu, {}),
        (gelu, {}),
    )
}
"""By name: functions that make an operation, on first use since it needs python-flint."""
