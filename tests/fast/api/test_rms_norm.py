"""RMSNorm where it differs from layer norm: signature, special values, saved state."""

import inspect
from itertools import product
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.api.helpers import Passes, assert_same_bits, both_passes, normal_inputs
from shared.promise.checking import BACKENDS
from shared.promise.families import DTYPES

NAN, INF = np.nan, np.inf
CHANGED = "x changed since the forward pass: its rows no longer have the mean square"

every_kind = pytest.mark.parametrize(
    ("backend", "dtype"), list(product(BACKENDS, DTYPES)), ids=str
)
every_pair = pytest.mark.parametrize(
    ("first", "backend", "dtype"), list(product(BACKENDS, BACKENDS, DTYPES)), ids=str
)


def test_signatures_are_those_of_layer_norm_without_beta() -> None:
    for name in ("", "_forward", "_backward"):
        here, there = (
            inspect.signature(getattr(tn, norm + name)).parameters
            for norm in ("rms_norm", "layer_norm")
        )
        assert here == {key: value for key, value in there.items() if key != "beta"}


@pytest.fixture
def passes(backend: str, rounding: str, dtype: np.dtype[Any]) -> Passes:
    return Passes(backend, rounding, dtype, centred=False)


BY_HAND: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rows of zeros": (
        {"x": [[0, -0.0], [0, 0]], "gamma": [-1, 1], "dy": [[1, 2], [0, 4]], "eps": 0.25},
        {"y": 0.0, "dx": [[-2, 4], [0, 8]], "dgamma": 0.0}),
    "rows of zeros without eps": (
        {"x": [[0, 0], [1, -1]], "dy": [[1, 1], [1, 0]], "eps": 0.0},
        {"y": [[NAN, NAN], [1, -1]], "dx": [[NAN, NAN], [0.5, 0.5]], "dgamma": NAN}),
    "NaN": ({"x": [[NAN, INF, 1]]}, {"y": NAN, "dx": NAN, "dgamma": NAN}),
    "infinite parameters": (
        {"x": [[2, -2, 0], [INF, 1, 1]], "gamma": [INF, INF, INF], "eps": 0.0},
        {"y": [[INF, -INF, NAN], [NAN, NAN, NAN]], "dx": NAN}),
    "infinite dy": (
        {"x": [[2, -2, 0, 1], [INF, 1, 1, 1]], "dy": [[INF, INF, INF, 1], [0, 0, 0, INF]]},
        {"dx": NAN, "dgamma": [NAN, -INF, NAN, NAN]}),
    # dx = r*g*eps/w (D32), and +0 without eps; (1 + 3)**-1.5 * 3 = 3/8.
    "one element": (
        {"x": [[1], [-1]], "gamma": [2], "dy": [[1], [-2]], "eps": 3.0},
        {"dx": [[0.75], [-1.5]], "dgamma": [1.5]}),
    "constant dy": ({"x": [[1, 1, 1, -1]], "dy": 4.0, "eps": 0.0}, {"dx": [[2, 2, 2, 6]]}),
}  # fmt: skip


@every_kind
class TestCorners:
    """The table of docs/learn/derivation.md."""

    def test_by_hand(self, passes: Passes) -> None:
        for name, (arguments, expected) in BY_HAND.items():
            passes.assert_results(name, arguments, expected)

    def test_elements_beside_infinities(self, passes: Passes) -> None:
        x = [[1, INF, -2], [1, -1, 1], [-INF, 5, 0]]
        y, dx, dgamma = passes(x, gamma=[-1, 1, 2], dy=[[1] * 3, [1, 0, 0], [1] * 3], eps=0.0)
        passes.assert_is(y, [[0, NAN, 0], [-1, -1, 2], [NAN, 0, 0]])
        passes.assert_is(dx[[0, 2]], NAN)
        assert np.isfinite(dx[1].astype(np.float64)).all()
        passes.assert_is(dgamma, [NAN, NAN, 0])
        assert np.isfinite(dgamma[2].astype(np.float64))

    def test_only_infinite_rows(self, passes: Passes) -> None:
        """Also in another byte order, for which rows are copied."""
        row = passes.of([INF, 1])
        for x in (row, row.astype(row.dtype.newbyteorder())):
            y, dx, dgamma = passes(x)
            passes.assert_is(y.astype(row.dtype), [NAN, 0])
            passes.assert_is(dx.astype(row.dtype), NAN)
            passes.assert_is(dgamma, [NAN, 0])

    def test_one_element(self, passes: Passes) -> None:
        y, dx, _ = passes([[3], [-5]], gamma=[2], dy=[[1], [-2]], eps=0.0)
        passes.assert_is(y, [[2], [-2]])
        if passes.rounding == "correct":
            passes.assert_is(dx, 0.0)


def test_zeros_need_no_integers(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros in x and, at the same places, in dy, as after a ReLU. Integers are slow."""
    calls: list[Any] = []
    for name in ("exact_dx", "exact_y"):
        monkeypatch.setattr(f"truenorm.kernels.fallback.{name}", lambda *each: calls.append(each))
    random = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        x = np.maximum(random.standard_normal((20, 64)), 0).astype(dtype)
        x[:, 7] = 0
        dy = (random.standard_normal(x.shape) * (x != 0)).astype(dtype)
        y, saved = tn.rms_norm_forward(x, np.ones(64, dtype), backend=backend)
        dx, dgamma, _ = tn.rms_norm_backward(dy, saved, backend=backend)
        assert dgamma is not None
        for result in (y[x == 0], dx[x == 0], dgamma[7:8]):
            assert not result.any()
            assert not np.signbit(result).any()
    assert not calls


def test_a_column_without_terms(backend: str) -> None:
    """Its dgamma is zero without integers, which would need every row."""
    x = np.random.default_rng(0).standard_normal((3, 4))
    x[:, 1] = 0
    _, saved = tn.rms_norm_forward(x, np.ones(4), backend=backend)
    dgamma = tn.rms_norm_backward(np.ones_like(x), saved, backend=backend).dgamma
    assert dgamma is not None
    assert dgamma[1] == 0


class TestSaved:
    def test_of_the_other_norm(self) -> None:
        _, saved = tn.layer_norm_forward(np.eye(3))
        words = (
            "must be a result of rms_norm_forward, got one of layer_norm_forward: call layer_norm"
        )
        with pytest.raises(ValueError, match=words):
            tn.rms_norm_backward(np.eye(3), saved)
        _, saved = tn.rms_norm_forward(np.eye(3))
        with pytest.raises(ValueError, match="got one of rms_norm_forward: call rms_norm_b"):
            tn.layer_norm_backward(np.eye(3), saved)
        with pytest.raises(TypeError, match="must be the second result of rms_norm_forward"):
            tn.rms_norm_backward(np.eye(3), None)  # type: ignore[arg-type]

    @every_pair
    def test_changed_x(
        self, first: str, backend: str, rounding: str, dtype: np.dtype[Any]
    ) -> None:
        """With any backend in forward; a sign is not detected, as documented."""
        inputs = normal_inputs((5, 67), dtype, offset=2.0)
        x = np.array(inputs.x)
        _, saved = tn.rms_norm_forward(x, rounding=rounding, backend=first)
        x[2] = -x[2]
        tn.rms_norm_backward(inputs.dy, saved, backend=backend)
        x[1, 3] *= 2
        with pytest.raises(RuntimeError, match=CHANGED):
            tn.rms_norm_backward(inputs.dy, saved, backend=backend)

    @every_pair
    def test_one_number_a_row(
        self, first: str, backend: str, rounding: str, dtype: np.dtype[Any]
    ) -> None:
        """Also for rows whose mean square over- or underflows in float64."""
        limits = Passes(backend, rounding, dtype)
        random = np.random.default_rng(0)
        for size in (1, 2, 67, 4096):
            x = random.uniform(0.5, 1, (6, size))
            x[1] *= limits.largest
            x[2] = limits.smallest
            x[3] = 0
            x[4, 0] = INF
            rows, dy = x.astype(dtype), np.ones((6, size), dtype)
            _, saved = tn.rms_norm_forward(rows, rounding=rounding, backend=first)
            assert saved.nbytes == 6 * 8
            dx = tn.rms_norm_backward(dy, saved, backend=backend).dx
            again = tn.rms_norm_forward(rows, rounding=rounding, backend=backend)[1]
            right = tn.rms_norm_backward(dy, again, backend=backend).dx
            assert dx.shape == right.shape
            if rounding == "correct":
                assert_same_bits((dx,), (right,))


@every_kind
def test_axes_layouts_and_out(backend: str, rounding: str, dtype: np.dtype[Any]) -> None:
    """The same bits as of contiguous rows along the last axis."""
    inputs = normal_inputs((6, 35), dtype)
    options: dict[str, Any] = {"rounding": rounding, "backend": backend}
    right, right_dx, right_dgamma, _ = both_passes(inputs, backend, rounding, centred=False)
    assert inputs.gamma is not None
    x, dy, gamma = inputs.x.reshape(6, 5, 7), inputs.dy.reshape(6, 5, 7), inputs.gamma
    moved, moved_dy = (np.moveaxis(array, 0, 1) for array in (x, dy))
    out, dx_out = np.empty_like(moved), np.empty_like(moved)
    y, saved = tn.rms_norm_forward(moved, gamma.reshape(5, 7), axis=(0, 2), out=out, **options)
    assert y is out
    dx, dgamma, _ = tn.rms_norm_backward(moved_dy, saved, out=dx_out, backend=backend)
    assert dx is dx_out
    assert dgamma is not None
    rows = [np.moveaxis(each, 1, 0).reshape(6, 35) for each in (y, dx)]
    assert_same_bits((*rows, dgamma.reshape(-1)), (right, right_dx, right_dgamma))
    inside = np.array(inputs.x)
    assert tn.rms_norm(inside, gamma, out=inside, **options) is inside
    assert_same_bits((inside,), (right,))


def test_negative_eps() -> None:
    words = r"eps is added to a mean square and must be finite and >= 0, got -1\.0"
    with pytest.raises(ValueError, match=words):
        tn.rms_norm(np.eye(3), eps=-1.0)
