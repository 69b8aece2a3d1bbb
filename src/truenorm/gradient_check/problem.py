"""What is being checked: forward, inputs, a random dy, and the gradients of backward."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Backward", "Forward", "Problem", "pose"]

Array = NDArray[Any]
Forward = Callable[..., Any]
Backward = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Problem:
    """A loss sum(dy*forward(*inputs)), and its gradients by the input.

    Attributes
    ----------
    inputs, gradients : list
        Arrays; a gradient is None where backward returned None.
    dys : list of ndarray
        One for each output, in float64.
    """

    forward: Forward
    inputs: list[Array]
    dys: list[NDArray[np.float64]]
    gradients: list[Array | None]

    def outputs(self, arguments: Sequence[Array]) -> list[Array]:
        """Run forward on copies, which it may write to."""
        return as_list(self.forward(*(array.copy() for array in arguments)))

    @property
    def unit_roundoff(self) -> float:
        """That of the least precise gradient."""
        given = [gradient for gradient in self.gradients if gradient is not None]
        return max((float(np.finfo(g.dtype).eps) / 2 for g in given), default=2.0**-53)


def as_list(outputs: Any) -> list[Array]:
    """Return what forward returned as a list of arrays."""
    return [np.asarray(y) for y in (outputs if isinstance(outputs, tuple) else (outputs,))]


def pose(
    forward: Forward, backward: Backward, inputs: Sequence[Array], random: np.random.Generator
) -> Problem:
    """Draw dy, run backward once, and say what is wrong with its answer if it is no gradient."""
    copies = [_checked_copy(value, position) for position, value in enumerate(inputs)]
    found = forward(*(value.copy() for value in copies))
    drawn = [random.standard_normal(y.shape).astype(y.dtype) for y in as_list(found)]
    given = tuple(y.copy() for y in drawn)  # backward may write to them
    dy = given if isinstance(found, tuple) else given[0]
    gradients = list(backward(dy, *(value.copy() for value in copies)))
    if len(gradients) != len(copies):
        raise ValueError(
            f"backward returned {len(gradients)} gradients for {len(copies)} inputs: "
            "return one for each, None where there is none"
        )
    for position, (value, gradient) in enumerate(zip(copies, gradients, strict=True)):
        if gradient is None:
            continue
        gradients[position] = array = np.asarray(gradient)
        if array.shape != value.shape:
            raise ValueError(
                f"the gradient of input {position} has shape {array.shape} "
                f"but the input has shape {value.shape}"
            )
        if not np.issubdtype(array.dtype, np.floating):
            raise TypeError(
                f"the gradient of input {position} is of type {array.dtype}: return real "
                "floating-point numbers"
            )
    return Problem(forward, copies, [y.astype(np.float64) for y in drawn], gradients)


def _checked_copy(value: Any, position: int) -> Array:
    """Copy an input, or say why no derivative can be taken by it."""
    array = np.array(value)
    if not np.issubdtype(array.dtype, np.floating):
        raise TypeError(
            f"input {position} is of type {array.dtype}: derivatives need floating point, "
            "pass it with .astype(float) or bind it inside forward and backward"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"input {position} has a non-finite element: derivatives need numbers")
    return array
