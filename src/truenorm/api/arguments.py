"""Check and convert the arguments of the public functions."""

import inspect
import math
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from truenorm.devices.arrays import check_negative_bit, is_on_device
from truenorm.exact import FloatFormat
from truenorm.kernels.call import Norm, Parameter, Rounding
from truenorm.kernels.rounding import round_to
from truenorm.kernels.rows import format_of, stored_view, widen
from truenorm.threads import MOST_THREADS, thread_count_in

DLPACK_CPU = 1
FOUR_TYPES = "float16, bfloat16, float32 or float64"


def as_array(name: str, value: Any) -> tuple[NDArray[Any], FloatFormat]:
    """Return an argument as an array of one of the four types, without a copy if it is one."""
    if is_masked(value):
        raise TypeError(
            f"{name} must not be a masked array: pass {name}.filled(...) or {name}.data"
        )
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        value = _from_dlpack(name, value)
    array = np.asarray(value)
    target = format_of(array.dtype)
    if target is None:
        if value is None:
            raise TypeError(f"{name} must be an array of {FOUR_TYPES}, got None")
        if array.dtype.kind == "c":
            raise TypeError(
                f"{name} must be of type {FOUR_TYPES}, got {array.dtype}: "
                "complex numbers are not supported"
            )
        raise TypeError(
            f"{name} must be of type {FOUR_TYPES}, got {array.dtype}: "
            f"pass for instance {name}.astype(np.float64)"
        )
    return array, target


def array_beside_device(name: str, value: Any) -> Any:
    """Return an argument of a call whose x is on a device: an array there, or a NumPy array.

    The latter is in native byte order, since its bytes are copied unchanged.
    """
    if is_on_device(value):
        return value
    array, _ = as_array(name, value)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def is_masked(value: Any) -> bool:
    """Return True if an argument is a masked array."""
    # Do not import the module; while another thread imports it, it may be empty.
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    return masked is not None and isinstance(value, masked)


def _from_dlpack(name: str, value: Any) -> NDArray[Any]:
    """Return a view of an array of another library in the memory of the CPU."""
    try:
        device = value.__dlpack_device__()[0]
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        # PyTorch's tensors on the device "meta" have a shape and a type, and no numbers.
        raise TypeError(
            f"{name} is on a device that DLPack does not know ({error}): pass an array whose "
            "numbers are in the memory of the CPU"
        ) from error
    if device != DLPACK_CPU:
        raise TypeError(f"{name} is on another device (DLPack type {device}): move it to the CPU")
    check_negative_bit(name, value)
    try:
        return _shared_memory(value)
    except (BufferError, ImportError, RuntimeError, TypeError) as error:
        raise TypeError(
            f"{name} is a {type(value).__name__} of type {getattr(value, 'dtype', 'unknown')}, "
            f"which NumPy cannot take through DLPack ({error}): {_hint(name, value, error)}"
        ) from error


def _shared_memory(value: Any) -> NDArray[Any]:
    """Return the memory of an array of another library as a NumPy array.

    NumPy takes no bfloat16 through DLPack. No framework is imported.
    """
    dtype = str(getattr(value, "dtype", None))
    if dtype == "bfloat16":
        return np.asarray(value)  # of JAX, whose types are those of ml_dtypes
    # A view as integers would hide that a gradient is required.
    if dtype == "torch.bfloat16" and not value.requires_grad:
        import ml_dtypes

        bits = np.from_dlpack(value.view(sys.modules["torch"].uint16))
        return bits.view(ml_dtypes.bfloat16)
    return np.from_dlpack(value)


def _hint(name: str, value: Any, error: Exception) -> str:
    """Return a hint for an array that NumPy does not take."""
    if isinstance(error, ImportError):
        return f"pip install ml_dtypes, or pass {name}.float(), which is float32"
    if getattr(value, "requires_grad", False):
        return f"pass {name}.detach(), truenorm records no operations to differentiate"
    return f"pass a NumPy array of {FOUR_TYPES}"


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
"""Hints for keywords of PyTorch and other libraries, by norm."""

OF_FORWARD = ("axis", "eps", "rounding")
"""Arguments of forward that backward reads from what it saved."""


def axes_of(x: NDArray[Any], axis: int | Sequence[int]) -> tuple[int, ...]:
    """Return the normalized axes in the order of x. Raise if rows along them are empty."""
    if isinstance(axis, int) and axis == -1 and x.ndim > 0 and x.shape[-1] > 0:
        return (x.ndim - 1,)  # nearly every call
    indices = _indices(axis)
    if not indices:
        raise ValueError(f"axis must name at least one axis, got {axis}")
    if not all(-x.ndim <= index < x.ndim for index in indices):
        if x.ndim == 0:
            raise np.exceptions.AxisError("x must have at least one axis, got 0 dimensions")
        raise np.exceptions.AxisError(
            f"axis must be from {-x.ndim} to {x.ndim - 1} for an x with {x.ndim} dimensions, "
            f"got {axis}"
        )
    axes = tuple(sorted({index % x.ndim for index in indices}))
    if len(axes) < len(indices):
        raise ValueError(f"axis must name an axis of x once, got {axis}")
    lengths = tuple(x.shape[k] for k in axes)
    if math.prod(lengths) == 0:
        raise ValueError(
            f"rows must have at least one element, got lengths {lengths} along axis={axis} of x"
        )
    return axes


def _indices(axis: Any) -> tuple[int, ...]:
    """Return the argument axis as a tuple of ints."""
    values = axis.tolist() if isinstance(axis, np.ndarray) else axis
    # Not sets, which have no order, nor strings and bytes.
    if isinstance(values, str | bytes | bytearray) or not isinstance(values, Sequence):
        values = (values,)
    try:
        return tuple(map(_integer, values))
    except TypeError:
        raise TypeError(f"axis must be an int or a tuple of ints, got {axis!r}") from None


def _integer(value: Any) -> int:
    """Return an integer of any type as an int. Raise TypeError for a bool.

    Arrays of other libraries raise too, since they may hold bools.
    """
    if isinstance(value, bool | np.bool) or (
        hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic)
    ):
        raise TypeError
    return operator.index(value)


def parameter_of(
    name: str, value: Any, x: NDArray[Any], axes: tuple[int, ...], default: float
) -> tuple[Parameter, NDArray[Any] | None]:
    """Return gamma or beta as a row of float64, and the array itself."""
    lengths = tuple(x.shape[k] for k in axes)
    if value is None:
        return Parameter(np.full(math.prod(lengths), default), None), None
    array, target = as_array(name, value)
    if array.shape != lengths:
        along = f"axis {axes[0]}" if len(axes) == 1 else f"axes {axes}"
        where = "" if axes == (x.ndim - 1,) else f" for {along} of x"
        raise ValueError(f"{name} must have shape {lengths}{where}, got {array.shape}")
    return Parameter(widen(stored_view(array, target), target).reshape(-1), target), array


def dy_of(dy: Any, x: NDArray[Any]) -> tuple[NDArray[Any], FloatFormat]:
    """Return the gradient with respect to y, which has the shape and type of x."""
    array, target = as_array("dy", dy)
    if array.shape != x.shape:
        raise ValueError(f"dy must have shape {x.shape}, got {array.shape}")
    if target != format_of(x.dtype):
        raise TypeError(
            f"dy must be of type {x.dtype} as x, got {array.dtype}: pass dy.astype(x.dtype)"
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
        raise ValueError(f"eps is added to a {square} and must be finite and >= 0, got {value}")
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
    """Return the rounding mode."""
    if isinstance(rounding, str) and rounding in MODES:
        return MODES[rounding]
    raise ValueError(f"rounding must be 'correct' or 'fast', got {rounding!r}")


def threads_of(threads: Any, variable: str | None) -> int | None:
    """Return the number of threads, or None; TRUENORM_THREADS overrides the argument."""
    allowed = f"an integer from 1 to {MOST_THREADS}"
    if variable is not None:
        if (count := thread_count_in(variable)) is None:
            raise ValueError(f"TRUENORM_THREADS must be {allowed}, got {variable!r}")
        return count
    if threads is None:
        return None
    try:
        count = _integer(threads)
    except TypeError:
        raise TypeError(f"threads must be None or {allowed}, got {threads!r}") from None
    if not 1 <= count <= MOST_THREADS:
        raise ValueError(f"threads must be None or {allowed}, got {threads!r}")
    return count


def unexpected(
    norm: Norm, function: Callable[..., Any], more: Sequence[object], unknown: Iterable[str]
) -> TypeError:
    """Return the error that Python would raise, with a hint if there is one."""
    if more:
        return _by_position(norm, function, more[0])
    name = next(iter(unknown))
    hint = OTHER_NAMES[norm.name].get(name)
    if "backward" in function.__name__ and name in OF_FORWARD:
        hint = f"{norm.name}_forward decided it"
    message = f"{function.__name__}() got an unexpected keyword argument {name!r}"
    return TypeError(f"{message}: {hint}" if hint else message)


def _by_position(norm: Norm, function: Callable[..., Any], value: object) -> TypeError:
    """Return the error about an argument that must be a keyword."""
    parameters = inspect.signature(function).parameters.values()
    first = [each.name for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD]
    names = f"{', '.join(first[:-1])} and {first[-1]}"
    hint = "other arguments are keywords"
    if isinstance(value, float) and "eps" in inspect.signature(function).parameters:
        hint = f"eps is a keyword: eps={value!r}"
    elif not norm.centred and isinstance(value, np.ndarray) and "gamma" in first:
        hint = NO_SHIFT
    return TypeError(f"{function.__name__}() takes {names} by position, {hint}")


def hide_unknown(function: Function) -> Function:
    """Remove ``*more: object`` and ``**unknown: Never`` from the signature.

    Errors about them say more than Python's; Never makes type checkers reject typos. It would make
    them reject ``layer_norm(*arrays)`` as well.
    """
    signature = inspect.signature(function)
    documented = [
        each
        for each in signature.parameters.values()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    function.__signature__ = signature.replace(parameters=documented)  # type: ignore[attr-defined]
    return function


def output_for(x: NDArray[Any], out: Any, others: dict[str, NDArray[Any] | None]) -> NDArray[Any]:
    """Return the array to write to, new or that of `out`.

    Raise if `out` does not fit or overlaps one of the others.
    """
    if out is None:
        return np.empty(x.shape, x.dtype.newbyteorder("="))
    array = _array_to_write(out)
    if array.shape != x.shape or format_of(array.dtype) != format_of(x.dtype):
        raise ValueError(
            f"out must have shape {x.shape} and type {x.dtype}, got shape {array.shape} and type "
            f"{array.dtype}"
        )
    if not (array.flags.c_contiguous or _is_disjoint(array)):
        raise ValueError(
            f"elements of out must not overlap, got shape {array.shape} and strides "
            f"{array.strides}: pass another array"
        )
    for name, other in others.items():
        if (
            other is not None
            and np.may_share_memory(array, other)
            and np.shares_memory(array, other)
        ):
            raise ValueError(
                f"out must not overlap {name}, which backward needs: pass another array"
            )
    return array


def _array_to_write(out: Any) -> NDArray[Any]:
    """Return `out`, or the memory of a tensor on the CPU, as an array that can be written to."""
    if isinstance(out, np.ndarray) and not is_masked(out):
        if not out.flags.writeable:
            raise ValueError("out must be writable, got a read-only array")
        return out
    if is_masked(out) or not hasattr(out, "__dlpack__"):
        raise TypeError(
            f"out must be a NumPy array or a tensor on the CPU, got a {type(out).__name__}"
        )
    array = _from_dlpack("out", out)
    if not array.flags.writeable:
        raise ValueError(
            f"out must be writable, got a {type(out).__name__} that NumPy {np.__version__} takes "
            "through DLPack as read-only: pass a NumPy array"
        )
    return array


def _is_disjoint(array: NDArray[Any]) -> bool:
    """Return True if each stride exceeds the extent of all smaller strides.

    Then no two elements share memory. All slices, transposes and diagonals of contiguous arrays
    satisfy this. Other layouts without overlap exist, but only `as_strided` makes them, and
    detecting them is a hard problem (bounded Diophantine equations).
    """
    reach = array.itemsize
    steps = zip(array.strides, array.shape, strict=True)
    for step, length in sorted((abs(step), length) for step, length in steps if length > 1):
        if step < reach:
            return False
        reach += step * (length - 1)
    return True


def as_gradient(
    values: NDArray[np.float64] | None, dtype: np.dtype[Any] | None, shape: tuple[int, ...]
) -> NDArray[Any] | None:
    """Return dgamma or dbeta in its type and shape; the values are rounded already."""
    if values is None or dtype is None:
        return None
    target = format_of(dtype)
    assert target is not None
    return round_to(values, target).view(dtype.newbyteorder("=")).reshape(shape)
