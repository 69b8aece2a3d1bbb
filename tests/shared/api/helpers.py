"""Inputs, both passes and expected results for the tests of the public functions."""

import re
import sys
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.typing import NDArray

import truenorm as tn
from shared.promise.oracle import FORMATS, bits, correct_backward, correct_forward

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
    inputs: Inputs, backend: str | None = None, rounding: str = "correct", *, centred: bool = True
) -> tuple[Array, Array, Array | None, Array | None]:
    """Return y, dx, dgamma and dbeta of layer norm, or of RMSNorm, which ignores beta."""
    x, gamma, beta, dy, axis, eps = inputs
    options: dict[str, Any] = {
        "axis": axis, "eps": eps, "rounding": rounding, "backend": backend
    }  # fmt: skip
    if centred:
        y, saved = tn.layer_norm_forward(x, gamma, beta, **options)
        return (y, *tn.layer_norm_backward(dy, saved, backend=backend))
    y, saved = tn.rms_norm_forward(x, gamma, **options)
    return (y, *tn.rms_norm_backward(dy, saved, backend=backend))


def expected(inputs: Inputs) -> Results:
    """Return the results of the oracle, which takes rows as arrays of two axes."""
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
    """Return a copy in native byte order."""
    if array.dtype.isnative:
        return np.array(array)
    return np.array(array).byteswap().view(array.dtype.newbyteorder("="))


def swapped(array: Array) -> Array:
    return np.array(array).byteswap().view(array.dtype.newbyteorder("S"))


def explicit_order(array: Array) -> Array:
    """Return a copy whose dtype names the byte order of this machine, as files of Zarr have it."""
    order: Literal["<", ">"] = "<" if sys.byteorder == "little" else ">"
    return np.array(array).view(array.dtype.newbyteorder(order))


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
    "explicit native byte order": explicit_order,
    "swapped byte order": swapped,
    "swapped and Fortran": lambda array: np.asfortranarray(swapped(array)),
    "read-only": read_only,
    "at an odd address": _at_an_odd_address,
}
"""The same values in other memory layouts."""


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


X = read_only(np.array([[1, 2, 4], [3, 3, 5]], np.float32))
ROW = read_only(np.array([1, 2, 3], np.float32))

Forward = Callable[..., Any]
"""`layer_norm` or `layer_norm_forward`."""


def exact_match(text: str) -> str:
    """Return a pattern that matches this text."""
    return re.escape(text)


def assert_type_error(forward: Forward, value: Any, row: Any, words: str) -> None:
    """Expect TypeError for a wrong x and dy, and for a row of it as gamma and beta."""
    saved = tn.layer_norm_forward(X)[1]
    calls: dict[str, Callable[[], Any]] = {
        "x": lambda: forward(value),
        "dy": lambda: tn.layer_norm_backward(value, saved),
    }
    if row is not None:
        calls |= {"gamma": lambda: forward(X, row), "beta": lambda: forward(X, None, row)}
    for name, call in calls.items():
        with pytest.raises(
            TypeError, match=exact_match(f"{name} {words.replace('{name}', name)}")
        ):
            call()


NAN_BITS = {
    np.dtype(np.float16): 0x7E00,
    BFLOAT16: 0x7FC0,
    np.dtype(np.float32): 0x7FC00000,
    np.dtype(np.float64): 0x7FF8 << 48,
}


class Passes:
    """Both passes over values that are exact in the type, with gamma 1, beta 0 and dy 1."""

    def __init__(
        self, backend: str, rounding: str, dtype: np.dtype[Any], *, centred: bool = True
    ) -> None:
        self.backend, self.rounding, self.dtype = backend, rounding, dtype
        self.centred = centred
        form = FORMATS[dtype]
        self.smallest, self.largest = (
            float(np.array([pattern], form.storage).view(dtype).astype(np.float64)[0])
            for pattern in (1, form.infinity - 1)
        )

    def of(self, values: Any) -> Array:
        array = np.asarray(values)
        if array.dtype == self.dtype:
            return array
        with np.errstate(all="ignore"):
            return array.astype(self.dtype)

    def __call__(
        self, x: Any, gamma: Any = 1.0, beta: Any = 0.0, dy: Any = 1.0, eps: float = 1e-5
    ) -> tuple[Array, ...]:
        x = self.of(x)
        scale, shift = (np.broadcast_to(self.of(p), x.shape[-1:]) for p in (gamma, beta))
        inputs = Inputs(x, scale, shift, np.broadcast_to(self.of(dy), x.shape), -1, eps)
        results = both_passes(inputs, self.backend, self.rounding, centred=self.centred)
        return tuple(result for result in results if result is not None)

    def assert_is(self, result: Array, values: Any, name: str = "") -> None:
        """Compare bits; NaN means the canonical NaN, and -0.0 is not 0.0."""
        right = np.broadcast_to(np.asarray(values, np.float64), result.shape)
        wanted = np.where(np.isnan(right), NAN_BITS[self.dtype], bits(self.of(right)))
        assert result.dtype == self.dtype
        assert (bits(result) == wanted).all(), (name, result, right)

    def assert_results(
        self, name: str, arguments: dict[str, Any], expected: dict[str, Any]
    ) -> None:
        """Compare some outputs of a call by name."""
        results = dict(zip(OUTPUTS, self(**arguments), strict=False))
        for output, values in expected.items():
            self.assert_is(results[output], values, name)


EPSILONS = (1e-5, 0.0, 1.0, 3.0, 8.0, 5e-324, 1e-300, 1e300)


def patterns(dtype: np.dtype[Any], *, finite: bool) -> st.SearchStrategy[int]:
    """Draw the bits of a number: small integers, extremes and any other number."""
    form = FORMATS[dtype]
    corners = [0, 1, (1 << (form.precision - 1)) - 1, form.infinity - 1]  # 0, subnormals, largest
    small = [form.round_dyadic(value, 0) for value in range(1, 5)]
    remarkable = corners + small
    if not finite:
        remarkable += [form.infinity, form.nan, form.infinity | 1]  # the last one signals

    def finite_pattern(pattern: int) -> int:
        """Make infinities and NaN finite: clear the leading bit of the exponent."""
        not_finite = pattern & form.infinity == form.infinity
        return pattern ^ (form.minus >> 1) if finite and not_finite else pattern

    magnitudes = st.sampled_from(remarkable) | st.integers(0, form.minus - 1).map(finite_pattern)
    return st.builds(int.__or__, magnitudes, st.sampled_from([0, form.minus]))


@st.composite
def any_arrays(draw: st.DrawFn, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    finite = draw(st.integers(0, 3)) > 0  # else a NaN in most rows
    elements = patterns(dtype, finite=finite)
    values = draw(hnp.arrays(FORMATS[dtype].storage, shape, elements=elements)).view(dtype)
    return LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](values)


@st.composite
def any_axes(draw: st.DrawFn, rank: int) -> int | tuple[int, ...]:
    """Draw nonnegative or negative axes in any order."""
    signed = [k - rank * back for k in range(rank) for back in (0, 1)]
    if draw(st.booleans()):
        return draw(st.sampled_from(signed))
    several = st.lists(st.sampled_from(signed), min_size=1, unique_by=lambda k: k % rank)
    return tuple(draw(several))


@st.composite
def any_inputs(draw: st.DrawFn) -> Inputs:
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=5, max_side=4))
    axis = draw(any_axes(len(shape)))
    named = (axis,) if isinstance(axis, int) else axis
    row_shape = tuple(shape[k] for k in sorted(k % len(shape) for k in named))
    dtype = draw(st.sampled_from(DTYPES))
    gamma, beta = (
        None if kind is None else draw(any_arrays(kind, row_shape))
        for kind in draw(st.tuples(*[st.sampled_from([dtype, None, *DTYPES])] * 2))
    )
    x, dy = draw(any_arrays(dtype, shape)), draw(any_arrays(dtype, shape))
    return Inputs(x, gamma, beta, dy, axis, draw(st.sampled_from(EPSILONS)))
