"""Fast mode of float64 data: plain float64 for normal rows, pairs for rows out of its range."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

import truenorm as tn
from promise.families import Array, Case, usual_case
from promise.fast_bounds import FastBounds
from promise.judging import BACKENDS, both_passes, bytes_of

FLOAT64 = np.dtype(np.float64)
ROWS, SIZE = 7, 19
Change = Callable[[Case], Any]


def normal(rows: int = ROWS, size: int = SIZE) -> Case:
    case = usual_case("normal", rows, size, FLOAT64)
    gamma, beta = (np.array(each) for each in case.parameters)
    return replace(case, x=case.x.copy(), dy=case.dy.copy(), gamma=gamma, beta=beta)


def by_driver(case: Case) -> Case:
    """Return the same case in arrays that do not go to the kernels at once."""
    return replace(case, x=np.asfortranarray(case.x), dy=np.asfortranarray(case.dy))


def _scales(case: Case) -> None:
    case.x[1:6] *= np.array([[1e200], [1e-200], [1e300], [1e-300], [1e-158]])


def _differences_overflow(case: Case) -> None:
    case.x[2] = 1.7e308 * np.sign(case.x[2])


def _squares_underflow(case: Case) -> None:
    """Have a spread whose square is zero: such a row is not constant."""
    case.x[2] = 0.0
    case.x[2, 3] = 1e-170


def _slopes(case: Case) -> None:
    case.dy[1:5] *= np.array([[1e200], [1e-200], [1e300], [1e-310]])


ROWS_OUT_OF_RANGE: list[Change] = [_scales, _differences_overflow, _squares_underflow, _slopes]


def _large_gamma(case: Case) -> None:
    case.parameters[0][3] = 1e300


def _small_gamma(case: Case) -> None:
    """All products of gamma and dy underflow, and dx does not: r is 1e100."""
    case.x[...] *= 1e-100
    case.parameters[0][...] *= 1e-140
    case.dy[...] *= 1e-190


def _small_gamma_and_r(case: Case) -> None:
    """r*gamma is subnormal, and y is not."""
    case.x[...] *= 1e100
    case.parameters[0][...] *= 1e-210
    case.parameters[1][...] = 0


def _large_beta(case: Case) -> None:
    case.parameters[1][:3] = 1.7e308, -1.7e308, 1e160


def _terms_of_dgamma_overflow(case: Case) -> None:
    """Where gamma is 0, g says nothing of dy. In pairs of rows, the terms cancel."""
    case.parameters[0][2] = 0
    case.x[1::2] = case.x[:-1:2]
    case.dy[:, 2] = 1e308
    case.dy[1::2, 2] = -1.0001e308


def _terms_of_dgamma_underflow(case: Case) -> None:
    """Each would be off by half the smallest number, and so would their sum by many."""
    case.dy[:, 2] = 5e-324 * np.arange(1, len(case.dy) + 1)


def _dbeta_overflows_midway(case: Case) -> None:
    case.dy[:4, 2] = 1.7e308, 1.7e308, -1.7e308, -1.6e308


CALLS_OUT_OF_RANGE: list[Change] = [
    _large_gamma,
    _small_gamma,
    _small_gamma_and_r,
    _large_beta,
    _terms_of_dgamma_overflow,
    _terms_of_dgamma_underflow,
    _dbeta_overflows_midway,
]


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


@pytest.mark.parametrize("eps", [1e-5, 1e300, 5e-324, 1e-300])
def test_constant_rows(eps: float) -> None:
    case = replace(normal(), eps=eps)
    case.x[2] = 0.1
    case.x[3] = 0
    assert_right(case)


def test_what_is_kept() -> None:
    """The variance, or of rows that are not for float64 something below zero."""
    case = normal()
    _scales(case)
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
        where = "columns" if "Columns" in name else "pairs"
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
        for direction in ("forward", "backward"):
            monkeypatch.setattr(f"truenorm.ops.{direction}._by_driver", None)
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
