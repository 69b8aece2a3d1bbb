"""Both passes over arrays of any rank and layout, and what the judge says of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.typing import NDArray

import truenorm as tn
from promise.oracle import FORMATS, bits, correct_backward, correct_forward

Array = NDArray[Any]
Results = tuple[Array | None, ...]
"""y, dx, dgamma, dbeta."""

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = tuple(FORMATS)
NARROW = DTYPES[:3]
MODES = ("correct", "fast")
OUTPUTS = ("y", "dx", "dgamma", "dbeta")


class Inputs(NamedTuple):
    """The arguments of a forward and a backward pass."""

    x: Array
    gamma: Array | None
    beta: Array | None
    dy: Array
    axis: int | tuple[int, ...] = -1
    eps: float = 1e-5

    @property
    def arrays(self) -> list[Array]:
        return [array for array in self[:4] if isinstance(array, np.ndarray)]


def both_passes(
    inputs: Inputs, backend: str | None = None, rounding: str = "correct"
) -> tuple[Array, Array, Array | None, Array | None]:
    y, saved = tn.layer_norm_forward(
        inputs.x,
        inputs.gamma,
        inputs.beta,
        axis=inputs.axis,
        eps=inputs.eps,
        rounding=rounding,
        backend=backend,
    )
    return (y, *tn.layer_norm_backward(inputs.dy, saved, backend=backend))


def expected(inputs: Inputs) -> Results:
    """Let the judge do the rows, which it takes as arrays of two axes, and put them back."""
    axes = tuple(sorted(normalize_axis_tuple(inputs.axis, inputs.x.ndim)))
    last = tuple(range(-len(axes), 0))
    moved_shape = np.moveaxis(inputs.x, axes, last).shape
    row_shape = moved_shape[-len(axes) :]
    size = int(np.prod(row_shape))

    def rows(array: Array) -> Array:
        return np.moveaxis(native(array), axes, last).reshape(-1, size)

    def back(array: Array) -> Array:
        return np.moveaxis(array.reshape(moved_shape), last, axes)

    x, dy = rows(inputs.x), rows(inputs.dy)
    gamma, beta = (
        None if array is None else native(array).reshape(size)
        for array in (inputs.gamma, inputs.beta)
    )
    y = correct_forward(x, gamma, beta, inputs.eps)
    dx, dgamma, dbeta = correct_backward(dy, x, gamma, beta, inputs.eps)
    columns = (None if array is None else array.reshape(row_shape) for array in (dgamma, dbeta))
    return (back(y), back(dx), *columns)


def assert_same_bits(results: Results, wanted: Results) -> None:
    for name, result, right in zip(OUTPUTS, results, wanted, strict=len(results) == 4):
        if result is None or right is None:
            assert result is right, name
            continue
        assert (result.shape, result.dtype) == (right.shape, right.dtype), name
        wrong = bits(result) != bits(right)
        assert not wrong.any(), (name, np.argwhere(wrong)[:5], result[wrong][:5], right[wrong][:5])


def native(array: Array) -> Array:
    """Return the same numbers in the byte order of the machine, bit by bit."""
    if array.dtype.isnative:
        return np.array(array)
    return np.array(array).byteswap().view(array.dtype.newbyteorder("="))


def swapped(array: Array) -> Array:
    return np.array(array).byteswap().view(array.dtype.newbyteorder("S"))


def read_only(array: Array) -> Array:
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def _reversed_in_memory(array: Array) -> Array:
    backwards = (slice(None, None, -1),) * array.ndim
    return np.ascontiguousarray(array[backwards])[backwards]


def _every_other(array: Array) -> Array:
    around = np.ones([2 * length + 1 for length in array.shape], array.dtype)
    inside = around[(slice(1, None, 2),) * array.ndim]
    inside[...] = array
    return inside


def _at_an_odd_address(array: Array) -> Array:
    memory = np.zeros(array.nbytes + 1, np.uint8)
    odd = memory[1:].view(array.dtype).reshape(array.shape)
    odd[...] = array
    return odd


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "C": np.array,
    "Fortran": np.asfortranarray,
    "negative strides": _reversed_in_memory,
    "every other element": _every_other,
    "swapped byte order": swapped,
    "swapped and Fortran": lambda array: np.asfortranarray(swapped(array)),
    "read-only": read_only,
    "at an odd address": _at_an_odd_address,
}
"""The same values, in other places of the memory."""


def normal_inputs(
    shape: tuple[int, ...], dtype: Any, axis: int | tuple[int, ...] = -1, offset: float = 0.0
) -> Inputs:
    """Return read-only inputs of one type, the same on every run."""
    random = np.random.default_rng(len(shape))
    x, dy = random.standard_normal((2, *shape))
    axes = sorted(normalize_axis_tuple(axis, len(shape)))
    gamma, beta = random.standard_normal((2, *(shape[k] for k in axes)))
    arrays = [read_only(array.astype(dtype)) for array in (x + offset, gamma, beta, dy)]
    return Inputs(arrays[0], arrays[1], arrays[2], arrays[3], axis)
