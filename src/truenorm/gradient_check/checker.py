"""The check itself: draw dy, run backward once, compare element by element."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.central_differences import central_difference, first_step
from truenorm.gradient_check.result import GradientCheck, InputCheck

__all__ = ["gradcheck"]

FloatArray = NDArray[np.floating[Any]]


def gradcheck(
    forward: Callable[..., FloatArray],
    backward: Callable[..., Sequence[FloatArray | None]],
    inputs: Sequence[FloatArray],
    *,
    tol: float = 1e-6,
    samples: int = 512,
    seed: int = 0,
) -> GradientCheck:
    """Check a hand-written backward pass by central differences of its forward pass.

    Parameters
    ----------
    forward : callable
        ``forward(*inputs)`` returns one array.
    backward : callable
        ``backward(dy, *inputs)`` returns one gradient per input, None where there is none.
    inputs : sequence of ndarray
        Where to check: finite floating-point arrays. They are copied, never changed.
    tol : float
        The relative error allowed, measured against the largest gradient of each input.
    samples : int
        An input with more elements than this is checked at that many, drawn at random.
    seed : int
        Of the random dy and of the sample. Its stream is not that of ``default_rng(seed)``,
        which callers draw their inputs from: dy = x would hide most errors in a dx like ours.

    Returns
    -------
    GradientCheck
        True if every error is within `tol`; its ``str()`` is a short report.

    Notes
    -----
    A difference can be no better than the forward pass it is taken of. In float64 expect
    1e-10 on well-scaled input, and few digits where the forward pass itself has lost them, as
    at x around 1e8 with a spread of 1e-3: see docs/stability.md.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm as tn
    >>> def forward(x):
    ...     return np.tanh(x)
    >>> def backward(dy, x):
    ...     return (dy * (1 - np.tanh(x) ** 2),)
    >>> bool(tn.gradcheck(forward, backward, [np.linspace(-2, 2, 9)]))
    True
    """
    inputs = [_checked_copy(value, position) for position, value in enumerate(inputs)]
    if samples < 1:
        raise ValueError(f"samples is {samples}: at least one element must be checked")
    random = np.random.default_rng([*b"gradcheck", seed])
    y = forward(*(value.copy() for value in inputs))
    dy = random.standard_normal(y.shape).astype(y.dtype)
    gradients = backward(dy, *(value.copy() for value in inputs))
    if len(gradients) != len(inputs):
        raise ValueError(
            f"backward returned {len(gradients)} gradients for {len(inputs)} inputs: "
            "return one for each, None where there is none"
        )
    found: list[InputCheck | None] = []
    for which, (value, gradient) in enumerate(zip(inputs, gradients, strict=True)):
        if gradient is None:
            found.append(None)
            continue
        if gradient.shape != value.shape:
            raise ValueError(
                f"the gradient of input {which} has shape {gradient.shape} "
                f"but the input has shape {value.shape}"
            )
        chosen = random.choice(value.size, min(samples, value.size), replace=False)
        indices = [tuple(int(k) for k in np.unravel_index(flat, value.shape)) for flat in chosen]
        step = first_step(value) if indices else 0.0
        numeric = [
            central_difference(forward, inputs, which, index, step, dy) for index in indices
        ]
        found.append(_compare(gradient, indices, np.array(numeric)))
    return GradientCheck(tuple(found), tol)


def _checked_copy(value: FloatArray, position: int) -> FloatArray:
    """Copy an input, or say why differences cannot be taken of it."""
    if not np.issubdtype(value.dtype, np.floating):
        raise TypeError(
            f"input {position} is of type {value.dtype}: differences need floating point, "
            "pass it with .astype(float) or bind it inside forward and backward"
        )
    if not np.isfinite(value).all():
        raise ValueError(f"input {position} has a non-finite element: differences need numbers")
    return value.copy()


def _compare(
    gradient: FloatArray, indices: list[tuple[int, ...]], numeric: NDArray[np.float64]
) -> InputCheck:
    """Compare backward's gradient with the differences at the elements that were checked."""
    if not indices:
        return InputCheck(0.0, 0, gradient.size, (), 0.0, 0.0)
    analytic = np.array([float(gradient[index]) for index in indices])
    difference = np.abs(analytic - numeric)
    worst = int(np.argmax(difference))  # the first NaN, if there is one
    largest = float(np.maximum(np.abs(analytic), np.abs(numeric)).max())
    error = float(difference[worst]) / largest if largest != 0 else 0.0
    return InputCheck(
        error, len(indices), gradient.size, indices[worst], analytic[worst], numeric[worst]
    )
