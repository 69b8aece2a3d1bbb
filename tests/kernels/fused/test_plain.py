"""Fast mode of float64 data: plain float64 for normal rows, pairs for rows out of its range."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

import truenorm as tn
from kernels.fused.out_of_range import (
    CALLS_OUT_OF_RANGE,
    ROWS,
    ROWS_OUT_OF_RANGE,
    SIZE,
    Change,
    by_driver,
    normal,
    scales,
)
from promise.bounds.fast_bounds import FastBounds
from promise.families import Array, Case
from promise.judging import BACKENDS, both_passes, bytes_of


def assert_right(case: Case, *, exact: bool = True) -> list[Array | None]:
    results = list(both_passes(case, "fused", "fast"))
    driven = both_passes(by_driver(case), "fused", "fast")
    assert [each.tobytes() for each in results if each is not None] == [
        np.ascontiguousarray(each).tobytes() for each in driven if each is not None
    ]
    if exact:
        assert FastBounds(case).violations(results) == []
    return results


@pytest.mark.parametrize("eps", [1e-5, 0.0, 1e300, 5e-324])
@pytest.mark.parametrize("change", [*ROWS_OUT_OF_RANGE, *CALLS_OUT_OF_RANGE])
def test_out_of_range(change: Change, eps: float) -> None:
    case = replace(normal(21), eps=eps)
    change(case)
    assert_right(case)


@pytest.mark.parametrize("change", ROWS_OUT_OF_RANGE)
def test_other_rows_do_not_notice(change: Change) -> None:
    case, changed = normal(), normal()
    change(changed)
    same = [
        i
        for i in range(ROWS)
        if bytes_of(case.x[i], case.dy[i]) == bytes_of(changed.x[i], changed.dy[i])
    ]
    assert 0 < len(same) < ROWS
    for one, other in zip(assert_right(case)[:2], assert_right(changed)[:2], strict=True):
        assert one is not None
        assert other is not None
        assert bytes_of(one[same]) == bytes_of(other[same])


@pytest.mark.parametrize("which", ["x", "gamma", "beta", "dy"])
@pytest.mark.parametrize("value", [np.inf, -np.nan])
def test_not_finite(which: str, value: float) -> None:
    """Also where gamma is zero, and with rows whose mean pairs keep; NaN has one form."""
    case = normal()
    case.parameters[0][4:] = 0
    case.x[2] *= 1e200
    getattr(case, which)[..., 3:5] = value
    found = assert_right(case, exact=False)
    for one, other in zip(found, both_passes(case, "reference"), strict=True):
        assert one is not None
        assert other is not None
        assert bytes_of(np.isnan(one)) == bytes_of(np.isnan(other))
        assert not np.signbit(one[np.isnan(one)]).any()


@pytest.mark.parametrize("eps", [1e-5, 1e300, 5e-324, 1e-300])
def test_constant_rows(eps: float) -> None:
    case = replace(normal(), eps=eps)
    case.x[2] = 0.1
    case.x[3] = 0
    assert_right(case)


def test_what_is_kept() -> None:
    """The variance, or of rows that are not for float64 something below zero."""
    case = normal()
    scales(case)
    _, saved = tn.layer_norm_forward(case.x, rounding="fast", backend="fused")
    assert (saved.kept[:, 2] < 0).tolist() == [False, *5 * [True], False]
    case = normal()
    _, saved = tn.layer_norm_forward(case.x, eps=1e300, rounding="fast", backend="fused")
    assert (saved.kept[:, 2] < 0).all()


@pytest.mark.parametrize("size", [1, 2, 3, 16, 127, 129, 513, 1100])
def test_sizes(size: int) -> None:
    """Of which some need all parts of a sum: runs, segments, columns."""
    case = normal(5, size)
    case.x[1:4] += np.array([[1e3], [1e8], [1e15]])
    case.x[4, 0] = 1e30
    assert_right(case, exact=size < 200)
    part = case.rows(slice(1, 3))
    assert FastBounds(part).violations(both_passes(part, "fused", "fast")) == []


@pytest.fixture
def no_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("pairs took part")

    for name in ("PairForward.look", "GradientByPairs.add_rows", "PairColumns.add"):
        where = "sums.columns" if "Columns" in name else "pairs"
        monkeypatch.setattr(f"truenorm.kernels.fused.{where}.{name}", fail)


@pytest.mark.usefixtures("no_pairs")
class TestPairsAreNotNeeded:
    @pytest.mark.parametrize("shape", [(1, 64), (9, 1), (9, 2), (40, 1100), (700, 200)])
    def test_for_normal_rows(self, shape: tuple[int, int]) -> None:
        case = normal(*shape)
        case.x[0] += 1e9
        assert_right(case, exact=False)

    def test_for_rows_without_spread_or_slope(self) -> None:
        case = normal()
        case.x[1], case.x[2], case.dy[3] = 0.1, 0, 0
        assert_right(case)

    def test_for_columns_without_slope(self) -> None:
        case = normal()
        case.dy[:, 3] = 0
        assert_right(case)

    def test_for_parameters_that_are_zero(self) -> None:
        case = normal()
        zeros = np.zeros(SIZE)
        assert_right(replace(case, gamma=zeros, beta=zeros))

    def test_nor_is_the_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        expected = bytes_of(*both_passes(by_driver(normal()), "fused", "fast"))
        large = bytes_of(*both_passes(by_driver(normal(700, 200)), "fused", "fast"))
        for name in ("forward._by_driver", "backward.by_driver"):
            monkeypatch.setattr(f"truenorm.ops.{name}", None)
        assert bytes_of(*both_passes(normal(), "fused", "fast")) == expected
        assert bytes_of(*both_passes(normal(700, 200), "fused", "fast")) == large


def test_a_sample_that_is_far_from_the_mean() -> None:
    """The bound counts on a shift that is not: such a row is swept again."""
    case = normal(3, 2000)
    case.x[1, :512] += 50
    _, saved = tn.layer_norm_forward(case.x, rounding="fast", backend="fused")
    _, low, v = saved.kept.T
    assert (np.abs(low) <= np.sqrt(v) / 8).all()
    assert FastBounds(case).violations(both_passes(case, "fused", "fast")) == []


@pytest.mark.parametrize("forward", BACKENDS)
@pytest.mark.parametrize("backward", BACKENDS)
def test_x_changed(forward: str, backward: str) -> None:
    """Also in rows of which pairs keep the mean."""
    case = normal()
    case.x[2] *= 1e200
    case.x[3] = 0.1
    case.x[4] *= 1e-9  # of which only the variance is far from 1
    x, dy = case.x, case.dy
    _, saved = tn.layer_norm_forward(x, *case.parameters, rounding="fast", backend=forward)
    for row in (1, 2, 3):
        kept = x[row, 4]
        x[row, 4] += 1e-6 * abs(kept)
        with pytest.raises(RuntimeError, match="x changed"):
            tn.layer_norm_backward(dy, saved, backend=backward)
        x[row, 4] = np.nan
        with pytest.raises(RuntimeError, match="x changed"):
            tn.layer_norm_backward(dy, saved, backend=backward)
        x[row, 4] = kept
    wrong = FastBounds(case).violations(both_passes(case, forward, "fast", backward=backward))
    assert wrong == []


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_narrower_parameters(dtype: str) -> None:
    case = normal()
    gamma, beta = (each.astype(dtype) for each in case.parameters)
    for changed in (replace(case, gamma=gamma), replace(case, gamma=gamma, beta=beta)):
        assert_right(changed)
    assert_right(replace(case, gamma=None, beta=beta))
