"""Results of a planted kernel in the place of those that somebody's kernel returned."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from truenorm.verify.audit.kernel import stored
from truenorm.verify.operations.norms.hypotheses.steps import Steps
from truenorm.verify.tensors.pytorch import Tensors, array_of
from truenorm.verify.types import FORMATS, Float64s

__all__ = ["as_returned", "in_place", "new_like", "results_of", "statistic"]

STATISTICS = ("r", "mean", "w")
NEAR = 1e-2
"""So near is a statistic that a kernel returns to what it is taken for."""


def results_of(returned: Any) -> list[Any]:
    """Return what a function returned, as a list."""
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def as_returned(returned: Any, results: Sequence[Any]) -> Any:
    """Return results in the kind of tuple that a function returned, or the one that it did."""
    if not isinstance(returned, (tuple, list)):
        return results[0]
    kind = type(returned)
    return kind(*results) if hasattr(returned, "_fields") else kind(results)


def new_like(thing: Any, values: Float64s) -> Any:
    """Return values as an array or a tensor of the type, shape and device of another."""
    array = stored(values, array_of(thing).dtype).reshape(thing.shape)
    return array if isinstance(thing, np.ndarray) else Tensors(thing.device).of(array)


def in_place(thing: Any, values: Float64s) -> Any:
    """Write values to an array or a tensor, and return it."""
    new = new_like(thing, values)
    if isinstance(thing, np.ndarray):
        thing[...] = new
    else:
        thing.detach().copy_(new)
    return thing


def statistic(thing: Any, right: Steps, wrong: Steps) -> Any:
    """Return a mean or a root as the planted kernel has it, if that is what was returned.

    What that is is told by its numbers: a kernel that keeps 1/sqrt(... + eps) keeps its own.
    """
    if not hasattr(thing, "shape"):
        return thing
    array = array_of(thing)
    if array.size != right.count or array.dtype.name not in FORMATS:
        return thing
    for step in STATISTICS:
        if np.allclose(array.astype(np.float64).ravel(), right[step].ravel(), rtol=NEAR):
            return new_like(thing, np.broadcast_to(wrong[step], right[step].shape))
    return thing
