"""Tiers: bounds hold, structure checks save work, rows that cancel need no integers."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import truenorm as tn
from shared.exact_row import exact_dx, exact_y
from shared.kernels.calls import call_for, each_family, rows_for
from shared.promise.checking import BACKENDS
from shared.promise.families import Array, Case, usual_case
from truenorm.exact import FLOAT64
from truenorm.kernels import fallback, special
from truenorm.kernels.reference import tier1, tier2
from truenorm.kernels.reference.tier1 import Scratch


@pytest.fixture
def brackets(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Array, Array]]:
    """Collect every z and bound of the rounding tests of tier 1."""
    seen: list[tuple[Array, Array]] = []
    original = tier1.rounding_test

    def recorded(z: Array, bound: Array, target: Any) -> Any:
        seen.append((z.copy(), bound.copy()))
        return original(z, bound, target)

    monkeypatch.setattr(tier1, "rounding_test", recorded)
    return seen


def test_the_bounds_of_tier_1_hold(brackets: list[tuple[Array, Array]]) -> None:
    """|z - exact| <= E on every family; exact to 60 digits, by way of fractions."""
    worst = {"y": 0.0, "dx": 0.0}
    for case in each_family(np.float32, 2, 67):
        if case.has_constant_rows:
            continue
        arrays = (case.x, *case.parameters, case.dy)
        x, gamma, beta, dy = (array.astype(np.float64) for array in arrays)
        brackets.clear()
        with np.errstate(all="ignore"):
            call = call_for(case)
            _, statistics = tier1.forward(x, call, Scratch())
            tier1.backward(dy, x, statistics, call, Scratch())
        right = {"y": exact_y(x, gamma, beta, case.eps), "dx": exact_dx(x, gamma, dy, case.eps)}
        for (output, exact), (z, bound) in zip(right.items(), brackets, strict=True):
            for i, j in np.ndindex(z.shape):
                error = abs(Fraction(float(z[i, j])) - exact[i][j])
                limit = Fraction(float(bound[i, j]))
                assert error <= limit, (str(case), output, i, j)
                worst[output] = max(worst[output], float(error / limit) if limit else 0.0)
    assert 0.01 < worst["y"] < 0.9  # neither unproved luck nor a bound without meaning
    assert 0.01 < worst["dx"] < 0.9


class TestStructureSavesWork:
    """Rows of zeros, of integers, and dy = 1 must not reach tiers 2 and 3."""

    @pytest.fixture
    def slow_elements(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Count the elements that reach double-double or integers."""
        seen: list[int] = []
        for module, name in ((tier2, "describe"), (special, "signs")):
            original = getattr(module, name)

            def counted(x: Array, *rest: Any, original: Any = original) -> Any:
                seen.append(x.size)
                return original(x, *rest)

            monkeypatch.setattr(module, name, counted)
        return seen

    @staticmethod
    def both_passes(kind: str) -> None:
        random = np.random.default_rng(0)
        x, dy = random.standard_normal((2, 64, 64)).astype(np.float32)
        gamma, beta = random.standard_normal((2, 64)).astype(np.float32)
        if kind == "zero rows":
            x[:] = 0
        elif kind == "integer rows":
            x = random.integers(-4, 5, x.shape).astype(np.float32)
            x[:, 0] -= x.sum(axis=1)  # mean 0, and many elements equal to it
            beta = np.zeros_like(beta)
        elif kind == "dy = 1":
            dy[:], gamma[:] = 1, 1
        _, saved = tn.layer_norm_forward(x, gamma, beta, backend="reference")
        tn.layer_norm_backward(dy, saved, backend="reference")

    @pytest.mark.parametrize("kind", ["zero rows", "integer rows", "dy = 1"])
    def test_with_structure_checks(self, kind: str, slow_elements: list[int]) -> None:
        self.both_passes(kind)
        assert sum(slow_elements) <= 3 * 64, "a row or two may be undecided by chance"

    # Rows of zeros are not among these: with beta of their own type, tier 1 decides them too.
    @pytest.mark.parametrize("kind", ["integer rows", "dy = 1"])
    def test_without_structure_checks(
        self, kind: str, slow_elements: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("accept_beta", "accept_beta_at_mean", "accept_zero_dx"):
            monkeypatch.setattr(tier1, name, lambda *_: None)
        self.both_passes(kind)
        assert sum(slow_elements) >= 16 * 64


def test_few_rows_of_normal_data_are_undecided() -> None:
    """promise.md measured 0.2 % forward and 1.4 % backward at D = 4096 with its lanes."""
    case = usual_case("normal", 256, 4096, np.float32)
    x, dy = case.x.astype(np.float64), case.dy.astype(np.float64)
    call = call_for(case)
    y, statistics = tier1.forward(x, call, Scratch())
    gradient = tier1.backward(dy, x, statistics, call, Scratch())
    assert y.undecided.any(axis=1).mean() <= 0.02
    assert gradient.dx.undecided.any(axis=1).mean() <= 0.05


def test_fast_mode_does_not_use_tier_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier1, "forward", None)
    tn.layer_norm(np.ones((2, 8), np.float32), rounding="fast", backend="reference")
    with pytest.raises(TypeError, match="not callable"):
        tn.layer_norm(np.ones((2, 8), np.float32), backend="reference")


Float64 = NDArray[np.float64]


def column_sums(dy: Float64, x: Float64) -> list[float]:
    call = call_for(Case("columns", x, None, None, dy, 1e-5))
    columns = np.arange(x.shape[1])
    return fallback.column_sums(rows_for(dy), rows_for(x), columns, call, FLOAT64)


def in_all_columns(dy: list[float]) -> Float64:
    return np.repeat(np.array(dy)[:, np.newaxis], 3, axis=1)


@pytest.fixture
def no_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> float:
        raise AssertionError("a column that cancels went through the sum of roots")

    monkeypatch.setattr(fallback, "round_sum_of_roots", fail)


X = np.array([[1.0, -2.0, 5.0], [0.0, 3.0, 3.5]])


@pytest.mark.usefixtures("no_roots")
@pytest.mark.parametrize(
    ("x", "dy"),
    [
        (np.vstack([X, -X]), [1.0, 1.0, 1.0, 1.0]),
        (np.vstack([X, X]), [1.0, 2.0, -1.0, -2.0]),
        (np.vstack([X[:1], X[:1], -X[:1]]), [1.0, 2.0, 3.0]),
        (np.zeros((2, 3)), [0.0, 0.0]),
    ],
    ids=["x mirrored, with a zero of either sign", "dy mirrored", "three rows", "zeros"],
)
def test_rows_that_cancel(x: Float64, dy: list[float]) -> None:
    assert column_sums(in_all_columns(dy), x) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("x", "dy"),
    [
        (np.vstack([X[:1], -X[:1]]), [1.0, 1.0 + 2.0**-52]),
        (np.vstack([X[:1], X[:1], X[:1]]), [1e-320, 1e-320, -1e-320]),
        (np.vstack([X[:1], X[:1], -X[:1]]), [1e308, 1e308, 1e308]),
        (np.vstack([X[:1], X[:1] + 1, X[:1] * 2]), [1.0, 1.0, 1.0]),
        (np.vstack([X[:1], -X[1:]]), [1.0, 1.0]),
    ],
    ids=["an ulp off", "subnormal", "overflow in between", "other rows", "two rows"],
)
def test_rows_that_almost_cancel(x: Float64, dy: list[float]) -> None:
    assert 0.0 not in column_sums(in_all_columns(dy), x)


UNDECIDED_ROWS = {
    "float64, far apart": (np.float64, 1e300, 0.0),
    "float64, small": (np.float64, 1e-15, 0.0),
    # xhat is 1 or -1, so that 1 + 2^-24 and 1 + 2^-11 are ties.
    "float32, ties": (np.float32, 0.0, 2.0**-24),
    "float16, ties": (np.float16, 0.0, 2.0**-11),
}
"""Rows that tier 1 leaves undecided: the type, the size of random numbers, or beta."""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", UNDECIDED_ROWS)
@pytest.mark.parametrize("shape", [(40, 1000), (1000, 40), (600, 30)])
def test_many_undecided_rows_of_a_block_in_any_layout(
    name: str, shape: tuple[int, int], backend: str
) -> None:
    dtype, scale, shift = UNDECIDED_ROWS[name]
    x = np.ones(shape, dtype)
    x[:, ::2] = -1
    if scale:
        x = np.random.default_rng(0).standard_normal(shape) * scale
    beta = np.full(shape[1], shift, dtype)
    eps = 1e-5 if scale else 0.0
    gamma, dy = np.ones_like(beta), x[::-1].copy()
    y, saved = tn.layer_norm_forward(x, gamma, beta, eps=eps, backend=backend)
    dx, _, _ = tn.layer_norm_backward(dy, saved)
    across, saved = tn.layer_norm_forward(
        np.ascontiguousarray(x.T), gamma, beta, eps=eps, axis=0, backend=backend
    )
    np.testing.assert_array_equal(across.T, y)
    of_columns, _, _ = tn.layer_norm_backward(np.ascontiguousarray(dy.T), saved)
    np.testing.assert_array_equal(of_columns.T, dx)
    out = np.empty(shape, dtype, order="F")
    tn.layer_norm(x, gamma, beta, eps=eps, backend=backend, out=out)
    np.testing.assert_array_equal(out, y)
