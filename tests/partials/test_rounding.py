"""Zeros, ties, overflow and division: what a partial cannot decide, it says, and refines."""

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import fmpq

import truenorm as tn
from partials.batches import nasty_cases, partial_of
from promise.checking import BACKENDS, bytes_of, forward_pass
from promise.families import Array, Case
from promise.oracle import FORMATS, ExactRow, RootBasis, rational

FLOAT32 = np.dtype(np.float32)
LARGEST = float(np.finfo(np.float32).max)


def of_units(dy: list[list[float]], eps: float = 0.0, *, centred: bool = True) -> Case:
    """Return a case whose first column has xhat = 1 and whose second one has xhat = -1."""
    slopes = np.array(dy, np.float32)
    x = np.broadcast_to(np.array([1, -1], np.float32), slopes.shape)
    ones = np.ones(2, np.float32)
    case = Case(f"units {dy}", x, ones, ones, slopes, eps)
    return case if centred else case.as_rms_norm()


def expected_dgamma(case: Case, divide_by: int) -> Array:
    """Return dgamma divided, and rounded once, in rationals and roots."""
    assert case.gamma is not None
    into = FORMATS[case.gamma.dtype]
    rows = [ExactRow(row, case.eps, centred=case.centred) for row in case.x.astype(float).tolist()]
    basis = RootBasis([row.w for row in rows])
    slopes = case.dy.astype(float).tolist()
    patterns = [
        basis.round(
            into,
            fmpq(0),
            [rational(dy[j]) * row.c(j) / divide_by for dy, row in zip(slopes, rows, strict=True)],
        )
        for j in range(case.x.shape[1])
    ]
    return np.array(patterns, into.storage).view(case.gamma.dtype)


EXACT = {
    "zero": [[1.0, 3.0], [-1.0, -3.0]],
    "tie to even below": [[1.0, 1.0], [2.0**-24, 2.0**-24]],
    "tie to even above": [[1.0 + 2.0**-23, 1.0], [2.0**-24, 1.0]],
    "tie of subnormals": [[2.0**-149, 3 * 2.0**-149], [2.0**-149, 2.0**-149]],
    "tie beside infinity": [[LARGEST, -LARGEST], [2.0**103, -(2.0**103)]],
    "tie beside minus infinity": [[-LARGEST, LARGEST], [-(2.0**103), 2.0**103]],
    "just below infinity": [[LARGEST, LARGEST], [2.0**102, 2.0**102]],
    "beyond infinity": [[LARGEST, LARGEST], [LARGEST, 2.0**104]],
    "large and back": [[LARGEST, -LARGEST], [LARGEST, LARGEST], [-LARGEST, -LARGEST]],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("name", EXACT)
def test_exact_zeros_and_ties_are_what_undecided_columns_are_taken_for(
    name: str, centred: bool, backend: str
) -> None:
    case = of_units(EXACT[name], centred=centred)
    partial = partial_of(case, backend)
    for divide_by in (1, 2, 3, 2**53):
        right = expected_dgamma(case, divide_by)
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            found = partial.rounded(divide_by)
            refined = partial.refine([(case.dy, forward_pass(case, backend)[1])], divide_by)
        assert bytes_of(found.dgamma) == bytes_of(right), divide_by
        assert bytes_of(refined.dgamma) == bytes_of(right), divide_by
        assert len(refined.undecided) == 0


@pytest.mark.parametrize("name", ["zero", "tie to even below", "tie beside infinity"])
def test_ties_are_listed(name: str) -> None:
    """The sum is known to half a unit and no better: it could be either of two numbers."""
    assert 0 in partial_of(of_units(EXACT[name]), "reference").rounded().undecided


def test_a_column_far_below_its_rows_is_undecided() -> None:
    """Terms less than half a unit are zeros on the lattice: only the rows know better."""
    case = of_units([[LARGEST, 1.0]])
    partial = partial_of(case, "reference")
    assert partial.rounded().undecided.tolist() == [1]
    found = partial.refine([(case.dy, forward_pass(case, "reference")[1])])
    assert bytes_of(found.dgamma) == bytes_of(np.array([LARGEST, -1], np.float32))


def test_one_unit_beside_a_tie_is_decided() -> None:
    """Three rows may be off by three half units together, and this one is by more."""
    off = 2.0**-60
    case = of_units([[1.0, 1.0], [2.0**-24, 2.0**-24], [off, -off]])
    found = partial_of(case, "reference").rounded()
    assert len(found.undecided) == 0
    assert bytes_of(found.dgamma) == bytes_of(np.array([1 + 2**-23, -1], np.float32))


@pytest.mark.parametrize("divide_by", [1, 3, 7, 1000, 2**31 + 1, 2**53 - 1, 2**53])
def test_division_is_by_exact_fractions(divide_by: int) -> None:
    for case in nasty_cases(FLOAT32, 9, 7, 8):
        values = np.concatenate([case.x, case.dy])
        if case.gamma is None or case.eps == 0 or not np.isfinite(values).all():
            continue
        partial = partial_of(case, "reference")
        found = partial.rounded(divide_by)
        right = expected_dgamma(case, divide_by)
        refined = partial.refine([(case.dy, forward_pass(case, "reference")[1])], divide_by)
        assert bytes_of(refined.dgamma) == bytes_of(right), str(case)
        assert found.dgamma is not None
        decided = np.delete(np.arange(7), found.undecided)
        assert bytes_of(found.dgamma[decided]) == bytes_of(right[decided]), str(case)
        if case.beta is not None and found.dbeta is not None:
            assert bytes_of(found.dbeta) == bytes_of(_dbeta(case, divide_by)), str(case)


def _dbeta(case: Case, divide_by: int) -> Array:
    assert case.beta is not None
    into = FORMATS[case.beta.dtype]
    sums = [
        sum(map(Fraction, column), Fraction(0)) / divide_by
        for column in case.dy.astype(float).T.tolist()
    ]
    patterns = [into.round_rational(fmpq(total.numerator, total.denominator)) for total in sums]
    return np.array(patterns, into.storage).view(case.beta.dtype)


@pytest.mark.parametrize("divisor", [0, -1, 2**53 + 1, 1.5, 2.0, float("nan"), "3", None])
def test_other_divisors_are_refused_by_name(divisor: Any) -> None:
    partial = partial_of(of_units([[1.0, 1.0]]), "reference")
    with pytest.raises(ValueError, match="divide_by"):
        partial.rounded(divisor)


def test_a_divisor_of_numpy_is_as_good() -> None:
    case = of_units([[1.0, 1.0], [-1.0, -1.0]])  # zeros, so that refine has something to do
    _, saved = tn.rms_norm_forward(case.x, case.gamma, eps=case.eps)
    _, partial = tn.rms_norm_backward_partial(case.dy, saved)
    found = partial.refine([(case.dy, saved)], divide_by=np.int64(2))  # type: ignore[arg-type]
    assert found.dgamma is not None
    assert found.dgamma.tolist() == [0.0] * case.x.shape[1]


def test_infinities_beside_undecided_columns() -> None:
    """A row with an infinity that is not centred adds zeros beside it, also when refined."""
    x = np.array([[1, -1, 1], [1, -1, 1], [1, 1, np.inf]], np.float32)
    dy = np.array([[1, 1, 1], [2.0**-24, 1, 1], [1, 1, 1]], np.float32)
    case = Case("infinity", x, np.ones(3, np.float32), None, dy, 0.0, centred=False)
    saved = forward_pass(case, "reference")[1]
    partial = partial_of(case, "reference")
    assert partial.rounded().undecided.tolist() == [0]
    right = np.array([1, -2, np.nan], np.float32)
    assert bytes_of(partial.refine([(dy, saved)]).dgamma) == bytes_of(right)


def test_refining_takes_all_rows_and_no_others() -> None:
    case = of_units(EXACT["zero"])
    partial = partial_of(case, "reference")
    batches = [(part.dy, forward_pass(part)[1]) for part in map(case.rows, ([0], [1]))]
    assert len(partial.refine(batches).undecided) == 0
    with pytest.raises(ValueError, match="1 rows and the partial 2"):
        partial.refine(batches[:1])
    other = of_units(EXACT["zero"], 1.0)
    with pytest.raises(ValueError, match="eps"):
        partial.refine([(other.dy, forward_pass(other)[1])])


def test_partials_of_other_calls_do_not_merge() -> None:
    partial = partial_of(of_units([[1.0, 1.0]]), "reference")
    others = {
        "eps": of_units([[1.0, 1.0]], 1.0),
        "norm": of_units([[1.0, 1.0]], centred=False),
    }
    for name, case in others.items():
        with pytest.raises(ValueError, match=name):
            partial + partial_of(case, "reference")
    with pytest.raises(TypeError):
        partial + 1
    assert sum([partial, partial], 0) == partial + partial


def test_float64_and_fast_mode_are_refused_by_name() -> None:
    x = np.ones((1, 2), np.float32)
    gamma = np.ones(2)
    for arguments in ((x.astype(np.float64), None), (x, gamma)):
        _, saved = tn.rms_norm_forward(*arguments)
        with pytest.raises(TypeError, match="float64"):
            tn.rms_norm_backward_partial(np.ones_like(arguments[0]), saved)
    _, saved = tn.rms_norm_forward(x, rounding="fast")
    with pytest.raises(ValueError, match="rounding"):
        tn.rms_norm_backward_partial(x, saved)
