"""What is refused, and the words in which it is."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from ops.judged import BFLOAT16, DTYPES, MODES, assert_same_bits
from ops.refusals import ROW, Forward, X, says


class TestShapesAndTypes:
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

    def test_dy_has_the_type_of_x(self) -> None:
        for dtype in DTYPES:
            saved = tn.layer_norm_forward(X.astype(dtype))[1]
            for other in set(DTYPES) - {dtype}:
                words = f"dy is of type {other} but x is of type {dtype}: pass dy.astype(x.dtype)"
                with pytest.raises(TypeError, match=says(words)):
                    tn.layer_norm_backward(X.astype(other), saved)

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
    @pytest.mark.parametrize("axis", [2, -3, (0, 2), 10**30, (0, -(10**30))], ids=str)
    def test_out_of_range(self, forward: Forward, axis: Any) -> None:
        words = f"axis is {axis} but x has 2 dimensions: choose from -2 to 1"
        with pytest.raises(np.exceptions.AxisError, match=says(words)):
            forward(X, axis=axis)

    def test_a_number_has_no_axis(self, forward: Forward) -> None:
        words = "axis is -1 but x has 0 dimensions: pass an array with at least one axis"
        with pytest.raises(np.exceptions.AxisError, match=says(words)):
            forward(np.float32(1))

    def test_twice(self, forward: Forward) -> None:
        for axis in ((0, 0), (1, -1)):
            words = f"axis is {axis}, which names an axis of x twice: name it once"
            with pytest.raises(ValueError, match=says(words)):
                forward(X, axis=axis)

    def test_none(self, forward: Forward) -> None:
        with pytest.raises(ValueError, match=says("axis is (): name at least one axis")):
            forward(X, axis=())

    @pytest.mark.parametrize(
        "axis",
        [1.0, None, True, (0, True), {1}, frozenset({1}), {1: 2}, "", "1", b"\x01", [[1]],
         np.array([True]), np.array(1.0), np.True_],
        ids=repr,
    )  # fmt: skip
    def test_no_integers(self, forward: Forward, axis: Any) -> None:
        words = f"axis is {axis!r}: pass an int or a tuple of ints"
        with pytest.raises(TypeError, match=says(words)):
            forward(X, axis=axis)

    @pytest.mark.parametrize(
        "axis", [[0, 1], range(2), np.array([0, 1]), (np.int8(-1), -2)], ids=repr
    )
    def test_sequences_of_integers(self, axis: Any) -> None:
        assert_same_bits((tn.layer_norm(X, axis=axis),), (tn.layer_norm(X, axis=(0, 1)),))

    @pytest.mark.parametrize("axis", [np.int64(0), np.array(0)], ids=repr)
    def test_integers_of_numpy(self, axis: Any) -> None:
        assert_same_bits((tn.layer_norm(X, axis=axis),), (tn.layer_norm(X, axis=0),))


class TestSettings:
    @pytest.mark.parametrize("eps", [-1e-5, -5e-324, np.nan, np.inf, -np.inf])
    def test_eps(self, forward: Forward, eps: float) -> None:
        words = f"eps is {eps}: it is added to a variance, pass a finite number >= 0"
        with pytest.raises(ValueError, match=says(words)):
            forward(X, eps=eps)
        with pytest.raises(ValueError, match="eps is"):  # even where there are no rows
            forward(X[:0], eps=eps)

    @pytest.mark.parametrize(
        "eps",
        [1, np.float32(1), np.int8(1), np.float64(1), BFLOAT16.type(1), np.array(1.0),
         np.array(1, BFLOAT16), np.longdouble(1), Fraction(1), Decimal(1)],
        ids=repr,
    )  # fmt: skip
    def test_eps_of_any_real_type(self, eps: Any) -> None:
        assert_same_bits((tn.layer_norm(X, eps=eps),), (tn.layer_norm(X, eps=1.0),))

    @pytest.mark.parametrize(
        "eps",
        ["1e-5", b"1e-5", bytearray(b"1"), np.str_("1"), np.bytes_(b"1"), np.array("1"),
         True, np.True_, np.array(True), None, [1.0, 2.0], np.array([1.0]), 1j, np.complex64(1)],
        ids=repr,
    )  # fmt: skip
    def test_eps_that_is_no_number(self, forward: Forward, eps: Any) -> None:
        with pytest.raises(TypeError, match=says(f"eps is {eps!r}: pass a number >= 0")):
            forward(X, eps=eps)

    def test_eps_beyond_every_float(self, forward: Forward) -> None:
        with pytest.raises(ValueError, match="eps is inf"):
            forward(X, eps=10**400)

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
