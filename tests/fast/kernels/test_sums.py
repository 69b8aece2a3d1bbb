"""Sums over rows: fixed point, certified float64, and merged parts."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.kernels.calls import format_for, parameter_for, rows_for
from shared.promise.checking import BACKENDS
from shared.promise.families import DTYPES, Array
from shared.promise.oracle import FORMATS
from truenorm.api.backends import backend_named
from truenorm.exact import FLOAT32, FLOAT64, FloatFormat, round_ratio
from truenorm.kernels import rounding
from truenorm.kernels.call import LAYER_NORM, Call, Settings
from truenorm.kernels.driver import forward, merged
from truenorm.kernels.fixed_point import FixedPointSum
from truenorm.kernels.protocol import Backward, RowSums
from truenorm.kernels.reference.columns import CertifiedSum
from truenorm.kernels.rows import stored_view, widen
from truenorm.kernels.special import SpecialSum

of_each_spread = pytest.mark.parametrize("spread", [1, 30, 300, 2000])


def exact_sums(terms: Array) -> list[Fraction]:
    rows = terms.astype(np.float64).T.tolist()
    return [sum(map(Fraction, row), Fraction(0)) for row in rows]


def difficult(dtype: np.dtype[Any], spread: int, seed: int) -> Array:
    """Return terms over many powers of two, among them the largest and the smallest."""
    random = np.random.default_rng(seed)
    form = FORMATS[dtype]
    top = form.quantum + 2 ** (form.width - form.precision) + form.precision - 8  # of 4 sigma
    middle = (form.quantum + top) // 2
    exponents = random.integers(
        max(form.quantum, middle - spread), min(top, middle + spread) + 1, (60, 9)
    )
    terms = np.ldexp(random.standard_normal((60, 9)), exponents).astype(dtype)
    largest = np.array(form.infinity - 1, form.storage).view(dtype)
    smallest = np.array(1, form.storage).view(dtype)
    terms[0], terms[1] = largest, -largest
    terms[2, ::2] = smallest
    terms[2, 7] = -smallest
    terms[3:, 7:] = 0  # so that of two sums only the smallest number is left
    return terms


def rounded(exact: Fraction, target: FloatFormat) -> float:
    return round_ratio(exact.numerator, exact.denominator, target)


@of_each_spread
def test_sums_of_the_reference(spread: int) -> None:
    terms = difficult(DTYPES[3], spread, spread)
    total = FixedPointSum(terms.shape[1])
    for part in np.split(terms.copy(), [3, 20]):
        total.add(part)
    for target in (FLOAT32, FLOAT64):
        tested = total.rounded(target)
        expected = [rounded(exact, target) for exact in exact_sums(terms)]
        assert widen(tested.values, target).tolist() == expected
        assert not tested.undecided.any()


def test_a_finite_sum_does_not_overflow_midway() -> None:
    total = FixedPointSum(1)
    total.add(np.array([[1.7e308], [1.7e308], [-1.7e308]]))
    assert total.rounded(FLOAT64).values.tolist() == [1.7e308]


def test_special_sum() -> None:
    inf, nan = np.inf, np.nan
    total = SpecialSum(5)
    total.add(np.array([[inf, -inf, inf, nan, 1.0], [1.0, -inf, 1.0, inf, 2.0]]))
    total.add(np.array([[1.0, 1.0, -inf, 1.0, 3.0]]))
    sums = np.full(5, 7.0)
    total.apply(sums)
    assert np.array_equal(sums, [inf, -inf, nan, nan, 7.0], equal_nan=True)


def certified_sum(terms: Array, *edges: int) -> CertifiedSum:
    """Add blocks of rows that begin at the edges."""
    total = CertifiedSum(terms.shape[1], format_for(terms))
    for block in np.split(terms.astype(np.float64), edges):
        total.add(block)
    return total


def certified(terms: Array, *edges: int) -> rounding.Tested:
    with np.errstate(all="ignore"):
        return certified_sum(terms, *edges).rounded(FLOAT64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_decided_sums_are_exact(dtype: np.dtype[Any]) -> None:
    """Column after column, every second row is half as large as before."""
    terms = np.random.default_rng(0).uniform(1, 2, (5, 60))
    terms[::2] *= -(2.0 ** -np.arange(60))
    terms = terms.astype(dtype)
    total = certified(terms, 1, 3)
    for column, value, undecided in zip(terms.T, total.values, total.undecided, strict=True):
        exact = sum(map(Fraction, column.astype(np.float64).tolist()), Fraction(0))
        assert undecided or Fraction(float(value)) == exact
    # The sizes add up to something between 2 and 4 and a little, and the smallest is 1 to 2 times
    # 2**-j: the test needs 1 to 3 bits beside the j. float16 has no numbers so small.
    left = 53 - format_for(terms).precision
    expected = range(60, 61) if dtype == np.float16 else range(max(0, left - 2), left + 2)
    assert np.count_nonzero(~total.undecided) in expected


@pytest.mark.parametrize(("largest", "undecided"), [(2**29 - 32, False), (2**29, True)])
def test_as_far_as_float64_reaches(largest: int, undecided: bool) -> None:
    """float32 numbers from 1 on may be odd multiples of 2**-23, and the sum may reach 2**29."""
    terms = np.array([[largest], [1.0]], np.float32)
    assert certified(terms).undecided.tolist() == [undecided]
    assert certified(terms, 1).undecided.tolist() == [undecided]


def test_zeros_are_multiples_of_everything() -> None:
    terms = np.array([[0, 3, -0.0, 1], [7, 0, -0.0, -1], [0, 4, -0.0, 0]], np.float32)
    for total in (certified(terms), certified(terms, 1), certified(terms, 1, 2)):
        assert not total.undecided.any()
        assert total.values.tolist() == [7, 7, 0, 0]
        assert not np.signbit(total.values).any(), "an exact zero is +0"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_row_is_its_own_sum(dtype: np.dtype[Any]) -> None:
    form = FORMATS[dtype]
    smallest, largest = 1, form.infinity - 1
    patterns = [[smallest, largest, largest // 2, form.minus | largest, form.minus | smallest]]
    terms = np.array(patterns, form.storage).view(dtype)
    total = certified(terms)
    assert not total.undecided.any()
    assert total.values.tolist() == terms[0].astype(np.float64).tolist()


def test_a_sum_that_overflows_is_undecided() -> None:
    terms = np.array([[1.7e308], [1.7e308], [-1.7e308]])
    assert certified(terms).undecided.all()
    assert certified(terms, 1, 2).undecided.all()


def test_merged_sums_are_those_of_all_rows() -> None:
    terms = np.random.default_rng(0).standard_normal((9, 50)).astype(np.float32)
    terms[4:, ::4] *= np.float32(2.0**-40)  # alone, either part is exact in every column
    terms[4:, 1::4] *= np.float32(2.0**40)
    whole, merged = certified_sum(terms), certified_sum(terms[:4])
    merged.merge(certified_sum(terms[4:]))
    for left, right in zip(whole.rounded(FLOAT32), merged.rounded(FLOAT32), strict=True):
        assert left.tobytes() == right.tobytes()
    assert whole.rounded(FLOAT32).undecided.tolist() == [j % 4 < 2 for j in range(50)]


@pytest.fixture
def columns_in_integers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the number of columns of each sum of dbeta in fixed point."""
    seen: list[int] = []
    original = FixedPointSum.add

    def noted(self: FixedPointSum, terms: Array) -> None:
        seen.append(terms.shape[1])
        original(self, terms)

    monkeypatch.setattr(FixedPointSum, "add", noted)
    return seen


def dbeta_of(dy: Array) -> Array:
    x = np.random.default_rng(0).standard_normal(dy.shape).astype(dy.dtype)
    ones = np.ones(dy.shape[1], dy.dtype)
    _, saved = tn.layer_norm_forward(x, ones, ones, backend="reference")
    dbeta = tn.layer_norm_backward(dy, saved, backend="reference").dbeta
    assert dbeta is not None
    return dbeta


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1024), (32, 1024), (256, 64)])
def test_normal_data_needs_no_integers(
    shape: tuple[int, int], dtype: np.dtype[Any], columns_in_integers: list[int]
) -> None:
    """But for float64, whose sums over several rows are certified."""
    dy = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    dbeta_of(dy)
    expected = [shape[1]] if dtype == np.float64 and shape[0] > 1 else []
    assert sorted(set(columns_in_integers)) == expected


def test_integers_only_for_undecided_columns(columns_in_integers: list[int]) -> None:
    """The first column lies beside a tie that float64 would take for one; the third has none."""
    dy = np.ones((3, 4), np.float32)
    dy[:, 0] = 1, 2.0**-24, 2.0**-80
    dy[1, 2] = np.inf
    dy[:, 3] = -1, -(2.0**-24), -(2.0**-80)
    edge = 1 + 2.0**-23
    assert dbeta_of(dy).tolist() == [edge, 3.0, np.inf, -edge]
    assert columns_in_integers == [2]


ROWS, SIZE = 60, 33


class Swept:
    """Rows with their saved statistics, to be summed in parts."""

    def __init__(self, backend: str, dtype: np.dtype[Any], mode: Any) -> None:
        random = np.random.default_rng(0)
        self.x, self.dy = random.standard_normal((2, ROWS, SIZE)).astype(dtype)
        self.dy[::7] *= dtype.type(2**-12)
        self.target = format_for(self.x)
        ones = parameter_for(np.ones(SIZE, dtype))
        settings = Settings(LAYER_NORM, 1e-5, mode, backend, 1)
        rows, chosen = rows_for(self.x), backend_named(backend)
        call = Call.of(settings, rows, ones, ones)
        self.saved = forward(chosen, call, rows, rows_for(np.empty_like(self.x)))
        self.kernel: Backward[Any] = chosen.backward(call)

    def sums(self, start: int, stop: int) -> RowSums:
        sums: RowSums = self.kernel.sums()
        dy, x = (stored_view(array[start:stop], self.target) for array in (self.dy, self.x))
        status = np.empty(stop - start, np.uint8)
        self.kernel.compute(dy, x, self.saved[start:stop], np.empty_like(x), sums, status)
        return sums

    def parted(self, *edges: int) -> dict[str, rounding.Tested]:
        starts, stops = (0, *edges), (*edges, ROWS)
        total = merged([self.sums(*part) for part in zip(starts, stops, strict=True)])
        return {"dgamma": total.dgamma(self.target), "dbeta": total.dbeta(self.target)}


PARTS = [(), (8,), (16, 24, 48), tuple(range(8, ROWS, 8)), (1, 2, 3, 50)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_any_parts_give_the_same_bits(backend: str, dtype: np.dtype[Any]) -> None:
    swept = Swept(backend, dtype, "correct")
    sums = [swept.parted(*edges) for edges in PARTS]
    for output in ("dgamma", "dbeta"):
        decided = ~np.logical_or.reduce([each[output].undecided for each in sums])
        if output == "dgamma" or dtype != np.float64:
            assert decided.sum() >= SIZE - 2, output  # else the test says nothing
        bits = {each[output].values[decided].tobytes() for each in sums}
        assert len(bits) == 1, output


@pytest.mark.parametrize("backend", BACKENDS)
def test_columns_that_cancel_are_undecided(backend: str) -> None:
    """Rows that cancel: no bound but zero could tell the sum from its neighbours."""
    swept = Swept(backend, np.dtype(np.float32), "correct")
    swept.dy[ROWS // 2 :] = -swept.dy[: ROWS // 2]
    swept.x[ROWS // 2 :] = swept.x[: ROWS // 2]
    swept.saved[ROWS // 2 :] = swept.saved[: ROWS // 2]
    for edges in PARTS:
        assert swept.parted(*edges)["dgamma"].undecided.all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_fast_mode_decides_everything(backend: str) -> None:
    swept = Swept(backend, np.dtype(np.float32), "fast")
    for edges in PARTS:
        for tested in swept.parted(*edges).values():
            assert not tested.undecided.any()
