"""Arguments of the public functions: what is accepted, and what is said of the rest."""

import math
import sys
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.backend import Parameter, Rounding
from truenorm.kernels.storage import format_of, stored_view, widen
from truenorm.ops.environment import overridden

__all__ = [
    "as_array",
    "axes_of",
    "eps_of",
    "output_for",
    "parameter_of",
    "rounding_of",
    "threads_of",
]

DLPACK_CPU = 1


def as_array(name: str, value: Any) -> tuple[NDArray[Any], FloatFormat]:
    """Return an argument as an array of one of the four types, without a copy if it is one."""
    if _is_masked(value):
        raise TypeError(
            f"{name} is a masked array, and what a masked element means to a mean is not defined: "
            f"pass {name}.filled(...) or {name}.data"
        )
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        value = _from_dlpack(name, value)
    array = np.asarray(value)
    target = format_of(array.dtype)
    if target is None:
        raise TypeError(
            f"{name} is of type {array.dtype}: pass float16, bfloat16, float32 or float64, "
            f"for instance {name}.astype(np.float64)"
        )
    return array, target


def _is_masked(value: Any) -> bool:
    # The module need not be imported to say no; and while another thread imports it, it is empty.
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    return masked is not None and isinstance(value, masked)


def _from_dlpack(name: str, value: Any) -> NDArray[Any]:
    device = value.__dlpack_device__()[0]
    if device != DLPACK_CPU:
        raise TypeError(f"{name} is on another device (DLPack type {device}): move it to the CPU")
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as refused:
        raise TypeError(
            f"NumPy cannot take {name} through DLPack ({refused}): pass a NumPy array"
        ) from refused


def axes_of(x: NDArray[Any], axis: int | Sequence[int]) -> tuple[int, ...]:
    """Return the normalized axes in the order of x; the rows along them have elements."""
    if (
        isinstance(axis, int) and axis == -1 and x.ndim > 0 and x.shape[-1] > 0
    ):  # what nearly every call asks for
        return (x.ndim - 1,)
    try:
        axes = tuple(sorted(normalize_axis_tuple(axis, x.ndim, "axis")))
    except TypeError:
        raise TypeError(f"axis is {axis!r}: pass an int or a tuple of ints") from None
    if not axes:
        raise ValueError("axis is (): name at least one axis to normalize over")
    lengths = tuple(x.shape[k] for k in axes)
    if math.prod(lengths) == 0:
        raise ValueError(f"{_described(lengths, axis)}: a row needs at least one element")
    return axes


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


def eps_of(eps: Any) -> float:
    """Return eps as a float64 number, finite and not negative."""
    try:
        if isinstance(eps, str | bool):
            raise TypeError
        value = float(eps)
    except (TypeError, ValueError):
        raise TypeError(f"eps is {eps!r}: pass a number >= 0") from None
    except OverflowError:
        value = math.inf
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"eps is {value}: it is added to a variance, pass a finite number >= 0")
    return value


def rounding_of(rounding: str) -> Rounding:
    """Return the mode, which TRUENORM_ROUNDING overrides."""
    mode = overridden("TRUENORM_ROUNDING", rounding)
    for known in get_args(Rounding):
        if mode == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(f"rounding is {mode!r}: choose 'correct' or 'fast'")


def threads_of(threads: int | None) -> int | None:
    """Return how many threads were asked for, which TRUENORM_THREADS overrides."""
    given = overridden("TRUENORM_THREADS", None if threads is None else str(threads))
    if given is None:
        return None
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"threads is {given}: pass a whole number of at least 1")
    return int(given)


def output_for(x: NDArray[Any], out: Any, others: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the array to write to: `out`, if it fits and overlaps none of the others."""
    if out is None:
        return np.empty(x.shape, x.dtype.newbyteorder("="))
    if not isinstance(out, np.ndarray) or _is_masked(out):
        raise TypeError(f"out is a {type(out).__name__}: pass a NumPy array")
    if out.shape != x.shape or format_of(out.dtype) != format_of(x.dtype):
        raise ValueError(
            f"out has shape {out.shape} and type {out.dtype} but the result has shape {x.shape} "
            f"and type {x.dtype}"
        )
    if not out.flags.writeable:
        raise ValueError("out is read-only: pass an array that can be written to")
    for name, other in others.items():
        if np.may_share_memory(out, other) and np.shares_memory(out, other):
            raise ValueError(
                f"out overlaps {name}, which backward still needs: pass another array"
            )
    return out
