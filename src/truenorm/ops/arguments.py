"""Arguments of the public functions: what is accepted, and what is said of the rest."""

import inspect
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.call import Parameter, Rounding
from truenorm.kernels.norm import Norm
from truenorm.kernels.storage import format_of, stored_view, widen
from truenorm.ops.arrays import as_array

Function = TypeVar("Function", bound=Callable[..., Any])

MODES: dict[str, Rounding] = {mode: mode for mode in get_args(Rounding)}
OF_LAYER_NORM = {
    "weight": "the scale is named gamma",
    "bias": "the shift is named beta",
    "normalized_shape": "the axes to normalize are named by axis, not by their lengths",
    "epsilon": "it is named eps",
}
NO_SHIFT = "RMSNorm has no shift"
OTHER_NAMES = {
    "layer_norm": OF_LAYER_NORM,
    "rms_norm": {**OF_LAYER_NORM, "bias": NO_SHIFT, "beta": NO_SHIFT},
}
"""By norm: keywords of PyTorch and others, and what to pass instead."""

__all__ = [
    "axes_of",
    "dy_of",
    "eps_of",
    "hide_unknown",
    "parameter_of",
    "rounding_of",
    "threads_of",
    "unexpected",
]


def axes_of(x: NDArray[Any], axis: int | Sequence[int]) -> tuple[int, ...]:
    """Return the normalized axes in the order of x; the rows along them have elements."""
    if isinstance(axis, int) and axis == -1 and x.ndim > 0 and x.shape[-1] > 0:
        return (x.ndim - 1,)  # what nearly every call asks for
    given = _indices(axis)
    if not given:
        raise ValueError(f"axis is {axis}: name at least one axis to normalize over")
    if not all(-x.ndim <= index < x.ndim for index in given):
        raise np.exceptions.AxisError(
            f"axis is {axis} but x has {x.ndim} dimensions: {_choice_of_axes(x.ndim)}"
        )
    axes = tuple(sorted({index % x.ndim for index in given}))
    if len(axes) < len(given):
        raise ValueError(f"axis is {axis}, which names an axis of x twice: name it once")
    lengths = tuple(x.shape[k] for k in axes)
    if math.prod(lengths) == 0:
        raise ValueError(f"{_described(lengths, axis)}: a row needs at least one element")
    return axes


def _indices(axis: Any) -> tuple[int, ...]:
    """Return what was passed as axis as plain ints."""
    given = axis.tolist() if isinstance(axis, np.ndarray) else axis
    # Not sets, which have no order, nor texts, whose bytes would be taken as numbers.
    if isinstance(given, str | bytes | bytearray) or not isinstance(given, Sequence):
        given = (given,)
    try:
        return tuple(map(_integer, given))
    except TypeError:
        raise TypeError(f"axis is {axis!r}: pass an int or a tuple of ints") from None


def _integer(value: Any) -> int:
    """Return an integer of any type as an int; raise TypeError if it is none, or a bool.

    An array of another library could be one of bools, and is none either.
    """
    if isinstance(value, bool | np.bool) or (
        hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic)
    ):
        raise TypeError
    return operator.index(value)


def _choice_of_axes(dimensions: int) -> str:
    if dimensions == 0:
        return "pass an array with at least one axis"
    return f"choose from {-dimensions} to {dimensions - 1}"


def _described(lengths: tuple[int, ...], axis: int | Sequence[int]) -> str:
    if len(lengths) == 1:
        return f"axis={axis} of x has length {lengths[0]}"
    return f"axes {axis} of x have lengths {lengths}"


def parameter_of(
    name: str, value: Any, lengths: tuple[int, ...], axis: Any, missing: float
) -> tuple[Parameter, NDArray[Any] | None]:
    """Return gamma or beta for the kernels, and the array itself."""
    if value is None:
        return Parameter(np.full(math.prod(lengths), missing), None), None
    array, target = as_array(name, value)
    if array.shape != lengths:
        raise ValueError(f"{name} has shape {array.shape} but {_described(lengths, axis)}")
    return Parameter(widen(stored_view(array, target), target).reshape(-1), target), array


def dy_of(dy: Any, x: NDArray[Any]) -> tuple[NDArray[Any], FloatFormat]:
    """Return the gradient with respect to y, which has the shape and type of x."""
    array, target = as_array("dy", dy)
    if array.shape != x.shape:
        raise ValueError(f"dy has shape {array.shape} but y has shape {x.shape}")
    if target != format_of(x.dtype):
        raise TypeError(
            f"dy is of type {array.dtype} but x is of type {x.dtype}: pass dy.astype(x.dtype)"
        )
    return array, target


def eps_of(eps: Any, norm: Norm) -> float:
    """Return eps as a float64 number, finite and not negative."""
    try:
        if not (isinstance(eps, float) or _is_number(eps)):
            raise TypeError
        value = float(eps)
    except OverflowError:
        value = math.inf
    except (TypeError, ValueError):
        raise TypeError(f"eps must be a real number >= 0, got {eps!r}") from None
    if not (value >= 0 and math.isfinite(value)):
        square = "variance" if norm.centred else "mean square"
        raise ValueError(f"eps is {value}: it is added to a {square}, pass a finite number >= 0")
    return value


def _is_number(value: Any) -> bool:
    """Return True if an argument is one real number; float() alone would also take text."""
    if isinstance(value, np.ndarray | np.generic):
        # NumPy has no letter for the kind of bfloat16.
        real = value.dtype.kind in "iuf" or format_of(value.dtype) is not None
        return real and value.ndim == 0
    return not isinstance(value, bool) and (
        hasattr(value, "__float__") or hasattr(value, "__index__")
    )


def rounding_of(rounding: Any) -> Rounding:
    """Return the mode."""
    if isinstance(rounding, str) and rounding in MODES:
        return MODES[rounding]
    raise ValueError(f"rounding is {rounding!r}: choose 'correct' or 'fast'")


def threads_of(threads: Any, variable: str | None) -> int | None:
    """Return the number of threads, or None; TRUENORM_THREADS overrides the argument."""
    if variable is not None:
        if not variable.isdecimal() or int(variable) < 1:
            raise ValueError(
                f"TRUENORM_THREADS must be an integer of at least 1, got {variable!r}"
            )
        return int(variable)
    if threads is None:
        return None
    refusal = f"threads must be None or an integer of at least 1, got {threads!r}"
    try:
        count = _integer(threads)
    except TypeError:
        raise TypeError(refusal) from None
    if count < 1:
        raise ValueError(refusal)
    return count


def unexpected(norm: str, function: Callable[..., Any], unknown: Iterable[str]) -> TypeError:
    """Return the error that Python would raise, with what to pass instead where that is known."""
    name = next(iter(unknown))
    hint = OTHER_NAMES[norm].get(name)
    said = f"{function.__name__}() got an unexpected keyword argument {name!r}"
    return TypeError(f"{said}: {hint}" if hint else said)


def hide_unknown(function: Function) -> Function:
    """Leave ``**unknown: Never``, which type checkers refuse, out of the shown signature."""
    signature = inspect.signature(function)
    shown = [each for each in signature.parameters.values() if each.kind != each.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return function
