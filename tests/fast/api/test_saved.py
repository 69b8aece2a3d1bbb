"""The saved state of forward: its size, its references, and the detection of a changed x."""

from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.api.helpers import Array, normal_inputs

CHANGED = "x changed since the forward pass"


@pytest.mark.parametrize("size", [1, 2, 67])
def test_size(backend: str, rounding: str, dtype: np.dtype[Any], size: int) -> None:
    """At most 32 bytes a row, 40 for float64."""
    inputs = normal_inputs((10, size), dtype)
    for gamma in (None, inputs.gamma):
        _, saved = tn.layer_norm_forward(inputs.x, gamma, rounding=rounding, backend=backend)
        assert 0 < saved.nbytes <= 10 * (40 if dtype == np.float64 else 32)
        owned = [value for value in vars(saved).values() if isinstance(value, np.ndarray)]
        mine = [a for a in owned if a is not inputs.x and a is not inputs.gamma]
        assert sum(array.nbytes for array in mine) == saved.nbytes


def test_x_and_gamma_are_not_copied(backend: str, rounding: str, dtype: np.dtype[Any]) -> None:
    inputs = normal_inputs((4, 6), dtype)
    _, saved = tn.layer_norm_forward(*inputs[:3], rounding=rounding, backend=backend)
    assert saved.x is inputs.x
    assert saved.gamma is inputs.gamma
    view = inputs.x[::-1, ::2]
    assert tn.layer_norm_forward(view, rounding=rounding, backend=backend)[1].x is view


def test_read_only() -> None:
    _, saved = tn.layer_norm_forward(np.eye(3))
    for name in ("x", "gamma", "statistics", "nbytes", "anything"):
        with pytest.raises(AttributeError):
            setattr(saved, name, None)


def test_not_iterable() -> None:
    """`dx, dgamma, dbeta = saved` is a mistake."""
    _, saved = tn.layer_norm_forward(np.eye(3))
    with pytest.raises(TypeError, match="not iterable"):
        list(saved)  # type: ignore[call-overload]


def test_repr(backend: str) -> None:
    x, gamma = np.zeros((2, 5, 3), np.float32), np.zeros((5, 3), np.float16)
    _, saved = tn.layer_norm_forward(x, gamma, axis=(1, 2), backend=backend)
    text = repr(saved)
    assert text.startswith("<truenorm.Saved: owns ")
    assert f"for each of 2 rows, {saved.nbytes} bytes" in text
    assert "keeps alive x (2, 5, 3) float32, 120 bytes and gamma (5, 3) float16, 30 bytes" in text
    alone = repr(tn.layer_norm_forward(x, backend=backend)[1])
    assert alone.endswith("keeps alive x (2, 5, 3) float32, 120 bytes>")
    assert "gamma" not in alone


def test_gradients_are_named_or_none(backend: str) -> None:
    x = np.eye(3)
    for gamma, beta in ((None, None), (x[0], None), (None, x[0])):
        _, saved = tn.layer_norm_forward(x, gamma, beta, backend=backend)
        gradients = tn.layer_norm_backward(x, saved, backend=backend)
        assert type(gradients) is tn.Gradients
        assert gradients._fields == ("dx", "dgamma", "dbeta")
        assert (gradients.dgamma is None, gradients.dbeta is None) == (gamma is None, beta is None)


def test_backward_may_run_again(backend: str, rounding: str, dtype: np.dtype[Any]) -> None:
    inputs = normal_inputs((4, 6), dtype)
    _, saved = tn.layer_norm_forward(*inputs[:3], rounding=rounding, backend=backend)
    first, second = (tn.layer_norm_backward(inputs.dy, saved, backend=backend) for _ in "ab")
    for one, other in zip(first, second, strict=True):
        assert one is not None
        assert other is not None
        assert one.tobytes() == other.tobytes()
        assert not np.shares_memory(one, other)


class TestChangedX:
    @pytest.fixture
    def x(self, dtype: np.dtype[Any]) -> Array:
        return np.array(normal_inputs((5, 67), dtype, offset=2.0).x)

    @pytest.fixture
    def saved(self, x: Array, backend: str, rounding: str) -> tn.Saved:
        return tn.layer_norm_forward(x, rounding=rounding, backend=backend)[1]

    @pytest.mark.parametrize("change", [1.0, -0.25, 100.0])
    def test_one_element(self, x: Array, saved: tn.Saved, backend: str, change: float) -> None:
        x[3, 7] += x.dtype.type(change)
        with pytest.raises(RuntimeError, match=CHANGED):
            tn.layer_norm_backward(x, saved, backend=backend)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_to_infinity_or_nan(
        self, x: Array, saved: tn.Saved, backend: str, value: float
    ) -> None:
        dy = np.ones_like(x)
        x[3, 7] = value
        with pytest.raises(RuntimeError, match=CHANGED):
            tn.layer_norm_backward(dy, saved, backend=backend)

    def test_all_of_it(self, x: Array, saved: tn.Saved, backend: str) -> None:
        dy = np.ones_like(x)
        for change in (x + x.dtype.type(1), x * x.dtype.type(2), x[::-1].copy(), 0 * x):
            before = x.copy()
            x[...] = change
            with pytest.raises(RuntimeError, match=CHANGED):
                tn.layer_norm_backward(dy, saved, backend=backend)
            x[...] = before
        tn.layer_norm_backward(dy, saved, backend=backend)

    def test_changes_that_preserve_the_mean_are_not_detected(
        self, x: Array, saved: tn.Saved, backend: str
    ) -> None:
        """As documented in `layer_norm_backward`."""
        x[3] = x[3, ::-1].copy()
        tn.layer_norm_backward(np.ones_like(x), saved, backend=backend)

    def test_of_a_constant_row(self, backend: str, rounding: str, dtype: np.dtype[Any]) -> None:
        for size in (1, 2, 5):
            x = np.full((2, size), 3, dtype)
            _, saved = tn.layer_norm_forward(x, rounding=rounding, backend=backend)
            x[1] = 4
            with pytest.raises(RuntimeError, match=CHANGED):
                tn.layer_norm_backward(np.ones_like(x), saved, backend=backend)

    def test_no_false_alarm(self, backend: str, rounding: str, dtype: np.dtype[Any]) -> None:
        """For rows whose mean is hard to compute, and rows that never had a result."""
        top = {"float16": 1e3, "float64": 1e15}.get(dtype.name, 1e6)
        random = np.random.default_rng(0)
        for size in (1, 2, 3, 67, 4096):
            x = random.standard_normal((6, size)) + np.array([[0], [top], [-top], [1], [0], [5]])
            x[3] *= 10.0 ** random.uniform(-4, 4, size)
            x[4] = np.inf
            x[5] = 5
            rows = x.astype(dtype)
            for eps in (0.0, 1e-5):
                _, saved = tn.layer_norm_forward(rows, eps=eps, rounding=rounding, backend=backend)
                tn.layer_norm_backward(np.ones_like(rows), saved, backend=backend)
