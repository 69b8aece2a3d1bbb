"""What is refused, and the words in which it is."""

import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from ops.judged import BFLOAT16, DTYPES, MODES, assert_same_bits, read_only

X = read_only(np.array([[1, 2, 4], [3, 3, 5]], np.float32))
ROW = read_only(np.array([1, 2, 3], np.float32))

Forward = Callable[..., Any]


@pytest.fixture(params=[tn.layer_norm, tn.layer_norm_forward], ids=lambda f: f.__name__)
def forward(request: pytest.FixtureRequest) -> Forward:
    function: Forward = request.param
    return function


def says(text: str) -> str:
    return re.escape(text)


WRONG_TYPES: dict[str, tuple[Any, str]] = {
    "int": (np.ones((2, 3), np.int64), "int64"),
    "bool": (np.ones((2, 3), bool), "bool"),
    "complex": (np.ones((2, 3), np.complex64), "complex64"),
    "object": (np.ones((2, 3), object), "object"),
    "text": (np.array([["a", "b", "c"]] * 2), "<U1"),
    "longdouble": (np.ones((2, 3), np.longdouble), str(np.dtype(np.longdouble))),
    "list of int": ([[1, 2, 3], [4, 5, 6]], "int64"),
}


class TestTypes:
    @pytest.mark.parametrize("kind", WRONG_TYPES)
    def test_wrong_ones_by_name(self, forward: Forward, kind: str) -> None:
        value, name = WRONG_TYPES[kind]
        if name == "float64":
            pytest.skip("longdouble is float64 here")
        words = "is of type {}: pass float16, bfloat16, float32 or float64, for instance {}.astype"
        with pytest.raises(TypeError, match=says("x " + words.format(name, "x"))):
            forward(value)
        with pytest.raises(TypeError, match=says("gamma " + words.format(name, "gamma"))):
            forward(X, value[0])
        with pytest.raises(TypeError, match=says("beta " + words.format(name, "beta"))):
            forward(X, None, value[0])
        with pytest.raises(TypeError, match=says("dy " + words.format(name, "dy"))):
            tn.layer_norm_backward(value, tn.layer_norm_forward(X)[1])

    def test_masked_arrays(self, forward: Forward) -> None:
        masked = np.ma.masked_invalid(X)
        words = "is a masked array, and what a masked element means to a mean is not defined: pass"
        with pytest.raises(TypeError, match=says(f"x {words} x.filled(...) or x.data")):
            forward(masked)
        with pytest.raises(TypeError, match=says(f"gamma {words} gamma.filled")):
            forward(X, masked[0])
        with pytest.raises(TypeError, match=says(f"beta {words} beta.filled")):
            forward(X, None, masked[0])
        with pytest.raises(TypeError, match=says(f"dy {words} dy.filled")):
            tn.layer_norm_backward(masked, tn.layer_norm_forward(X)[1])

    def test_masked_arrays_while_another_thread_imports_them(
        self, forward: Forward, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The module is there before its contents; Numba imports it in the first call."""
        monkeypatch.setitem(sys.modules, "numpy.ma", ModuleType("numpy.ma"))
        forward(X, backend="reference")

    def test_dy_must_have_the_type_of_x(self) -> None:
        for dtype in DTYPES:
            saved = tn.layer_norm_forward(X.astype(dtype))[1]
            for other in set(DTYPES) - {dtype}:
                words = f"dy is of type {other} but x is of type {dtype}: pass dy.astype(x.dtype)"
                with pytest.raises(TypeError, match=says(words)):
                    tn.layer_norm_backward(X.astype(other), saved)

    def test_lists_of_floats_are_float64(self, forward: Forward) -> None:
        result = forward([[1.0, 2.0, 4.0]], [1.0, 2.0, 3.0], [0.0, 0.0, 1.0])
        y = result if isinstance(result, np.ndarray) else result[0]
        right = tn.layer_norm(
            np.array([[1.0, 2, 4]]), np.array([1.0, 2, 3]), np.array([0.0, 0, 1])
        )
        assert_same_bits((y,), (right,))


class TestShapes:
    def test_gamma_and_beta(self, forward: Forward) -> None:
        for shape in [(), (1,), (4,), (1, 3), (2, 3)]:
            wrong = np.ones(shape, np.float32)
            words = f"has shape {shape} but axis=-1 of x has length 3"
            with pytest.raises(ValueError, match=says(f"gamma {words}")):
                forward(X, wrong)
            with pytest.raises(ValueError, match=says(f"beta {words}")):
                forward(X, None, wrong)

    def test_gamma_in_another_order_of_axes(self, forward: Forward) -> None:
        words = "gamma has shape (3, 2) but axes (1, 0) of x have lengths (2, 3)"
        with pytest.raises(ValueError, match=says(words)):
            forward(X, np.ones((3, 2), np.float32), axis=(1, 0))

    def test_dy(self) -> None:
        saved = tn.layer_norm_forward(X)[1]
        with pytest.raises(ValueError, match=says("dy has shape (3, 2) but y has shape (2, 3)")):
            tn.layer_norm_backward(X.T, saved)
        with pytest.raises(ValueError, match=says("dy has shape (3,) but y has shape (2, 3)")):
            tn.layer_norm_backward(ROW, saved)

    def test_rows_without_elements(self, forward: Forward) -> None:
        words = "axis=-1 of x has length 0: a row needs at least one element"
        with pytest.raises(ValueError, match=says(words)):
            forward(np.empty((3, 0)))
        words = "axes (0, 2) of x have lengths (2, 0): a row needs at least one element"
        with pytest.raises(ValueError, match=says(words)):
            forward(np.empty((2, 3, 0)), axis=(0, 2))
        with pytest.raises(ValueError, match=says("axis=0 of x has length 0")):
            forward(np.empty((0, 0)), axis=0)


class TestAxis:
    @pytest.mark.parametrize("axis", [2, -3, (0, 2)])
    def test_out_of_range(self, forward: Forward, axis: Any) -> None:
        with pytest.raises(np.exceptions.AxisError, match=r"axis: axis -?[23] is out of bounds"):
            forward(X, axis=axis)

    def test_a_number_has_no_axis(self, forward: Forward) -> None:
        with pytest.raises(np.exceptions.AxisError, match="axis: axis -1 is out of bounds"):
            forward(np.float32(1))

    def test_twice(self, forward: Forward) -> None:
        for axis in ((0, 0), (1, -1)):
            with pytest.raises(ValueError, match="repeated axis in `axis`"):
                forward(X, axis=axis)

    def test_none(self, forward: Forward) -> None:
        with pytest.raises(ValueError, match=says("axis is (): name at least one axis")):
            forward(X, axis=())


class TestSettings:
    @pytest.mark.parametrize("eps", [-1e-5, -5e-324, np.nan, np.inf, -np.inf])
    def test_eps(self, forward: Forward, eps: float) -> None:
        words = f"eps is {eps}: it is added to a variance, pass a finite number >= 0"
        with pytest.raises(ValueError, match=says(words)):
            forward(X, eps=eps)
        with pytest.raises(ValueError, match="eps is"):  # even where there are no rows
            forward(X[:0], eps=eps)

    def test_eps_of_any_real_type(self, forward: Forward) -> None:
        for eps in (1, np.float32(1), np.int8(1), np.float64(1), -0.0):
            forward(X, eps=eps)

    @pytest.mark.parametrize("eps", ["1e-5", True, None, [1.0, 2.0]])
    def test_eps_that_is_no_number(self, forward: Forward, eps: Any) -> None:
        with pytest.raises(TypeError, match=says(f"eps is {eps!r}: pass a number >= 0")):
            forward(X, eps=eps)

    def test_eps_beyond_every_float(self, forward: Forward) -> None:
        with pytest.raises(ValueError, match="eps is inf"):
            forward(X, eps=10**400)

    def test_axis_that_is_no_integer(self, forward: Forward) -> None:
        with pytest.raises(TypeError, match=says("axis is 1.0: pass an int or a tuple of ints")):
            forward(X, axis=1.0)

    @pytest.mark.parametrize("rounding", ["nearest", "", "Correct", None])
    def test_rounding(self, forward: Forward, rounding: Any) -> None:
        words = f"rounding is {rounding!r}: choose 'correct' or 'fast'"
        with pytest.raises(ValueError, match=says(words)):
            forward(X, rounding=rounding)

    @pytest.mark.parametrize("threads", [0, -1, 1.5, "many"])
    def test_threads(self, forward: Forward, threads: Any) -> None:
        words = f"threads is {threads}: pass a whole number of at least 1"
        with pytest.raises(ValueError, match=says(words)):
            forward(X, threads=threads)
        with pytest.raises(ValueError, match=says(words)):
            tn.layer_norm_backward(X, tn.layer_norm_forward(X)[1], threads=threads)

    def test_the_number_of_threads_changes_nothing(self, backend: str) -> None:
        for rounding in MODES:
            y, saved = tn.layer_norm_forward(X, ROW, ROW, rounding=rounding, backend=backend)
            right = (y, *tn.layer_norm_backward(X, saved, backend=backend))
            threads: Any
            for threads in (1, 2, 7, np.int64(3)):
                y, saved = tn.layer_norm_forward(
                    X, ROW, ROW, rounding=rounding, backend=backend, threads=threads
                )
                gradients = tn.layer_norm_backward(X, saved, backend=backend, threads=threads)
                assert_same_bits((y, *gradients), right)

    @pytest.mark.parametrize("saved", [None, X, (X, X)], ids=["None", "array", "tuple"])
    def test_saved(self, saved: Any) -> None:
        words = f"saved is a {type(saved).__name__}: pass what layer_norm_forward returned beside"
        with pytest.raises(TypeError, match=says(words)):
            tn.layer_norm_backward(X, saved)


class InOtherHands:
    """An array of another library, as far as DLPack tells."""

    def __init__(self, array: Any, device: int = 1) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        if self.device != 1:
            raise AssertionError("asked for memory of another device")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


class TestDLPack:
    def test_on_the_cpu(self, backend: str) -> None:
        x, row = X.copy(), ROW.copy()
        y, saved = tn.layer_norm_forward(
            InOtherHands(x), InOtherHands(row), InOtherHands(row), backend=backend
        )
        gradients = tn.layer_norm_backward(InOtherHands(x), saved, backend=backend)
        plain, plain_saved = tn.layer_norm_forward(X, ROW, ROW, backend=backend)
        right = (plain, *tn.layer_norm_backward(X, plain_saved, backend=backend))
        assert_same_bits((y, *gradients), right)
        assert np.shares_memory(saved.x, x)

    def test_on_another_device(self, forward: Forward) -> None:
        elsewhere = InOtherHands(X, device=2)
        words = "is on another device (DLPack type 2): move it to the CPU"
        with pytest.raises(TypeError, match=says(f"x {words}")):
            forward(elsewhere)
        with pytest.raises(TypeError, match=says(f"gamma {words}")):
            forward(X, elsewhere)
        with pytest.raises(TypeError, match=says(f"dy {words}")):
            tn.layer_norm_backward(elsewhere, tn.layer_norm_forward(X)[1])

    def test_what_numpy_does_not_take(self, forward: Forward) -> None:
        with pytest.raises(TypeError, match=r"NumPy cannot take x through DLPack \(.+\): pass a"):
            forward(InOtherHands(X.astype(BFLOAT16)))
