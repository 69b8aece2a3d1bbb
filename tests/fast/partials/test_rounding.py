"""Rounding of partials: zeros, ties, overflow and division; undecided columns are refined."""

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import fmpq

import truenorm as tn
from shared.partials.cases import mixed_cases, partial_of
from shared.promise.checking import BACKENDS, bytes_of, forward_pass
from shared.promise.families import Array, Case
from shared.promise.oracle import FORMATS, ExactRow, RootBasis, rational

FLOAT32 = np.dtype(np.float32)
LARGEST = float(np.finfo(np.float32).max)


def unit_case(dy: list[list[float]], eps: float = 0.0, *, centred: bool = True) -> Case:
    """Return a case whose first column has xhat = 1 and whose second one has xhat = -1."""
    dy_rows = np.array(dy, np.float32)
    x = np.broadcast_to(np.array([1, -1], np.float32), dy_rows.shape)
    ones = np.ones(2, np.float32)
    case = Case(f"units {dy}", x, ones, ones, dy_rows, eps)
    return case if centred else case.as_rms_norm()


def expected_dgamma(case: Case, divide_by: int) -> Array:
    """Return dgamma divided, and rounded once, in rationals and roots."""
    assert case.gamma is not None
    into = FORMATS[case.gamma.dtype]
    rows = [ExactRow(row, case.eps, centred=case.centred) for row in case.x.astype(float).tolist()]
    basis = RootBasis([row.w for row in rows])
    dys = case.dy.astype(float).tolist()
    patterns = [
        basis.round(
            into,
            fmpq(0),
            [rational(dy[j]) * row.c(j) / divide_by for dy, row in zip(dys, rows, strict=True)],
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
def test_undecided_columns_are_rounded_as_exact_zeros_and_ties(
    name: str, centred: bool, backend: str
) -> None:
    case = unit_case(EXACT[name], centred=centred)
    partial = partial_of(case, backend)
    for divide_by in (1, 2, 3, 2**53):
        right = expected_dgamma(case, divide_by)
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            rounded = partial.rounded(divide_by)
            refined = partial.refine([(case.dy, forward_pass(case, backend)[1])], divide_by)
        assert bytes_of(rounded.dgamma) == bytes_of(right), divide_by
        assert bytes_of(refined.dgamma) == bytes_of(right), divide_by
        assert len(refined.undecided) == 0


@pytest.mark.parametrize("name", ["zero", "tie to even below", "tie beside infinity"])
def test_ties_are_undecided(name: str) -> None:
    """The sum is known to half a unit, so it could round to either of two numbers."""
    assert 0 in partial_of(unit_case(EXACT[name]), "reference").rounded().undecided


def test_column_far_below_its_rows_is_undecided() -> None:
    """Terms below half a unit are zeros in fixed point."""
    case = unit_case([[LARGEST, 1.0]])
    partial = partial_of(case, "reference")
    assert partial.rounded().undecided.tolist() == [1]
    refined = partial.refine([(case.dy, forward_pass(case, "reference")[1])])
    assert bytes_of(refined.dgamma) == bytes_of(np.array([LARGEST, -1], np.float32))


def test_one_unit_beside_a_tie_is_decided() -> None:
    """The error of three rows is at most three half units, less than the distance to the tie."""
    off = 2.0**-60
    case = unit_case([[1.0, 1.0], [2.0**-24, 2.0**-24], [off, -off]])
    rounded = partial_of(case, "reference").rounded()
    assert len(rounded.undecided) == 0
    assert bytes_of(rounded.dgamma) == bytes_of(np.array([1 + 2**-23, -1], np.float32))


@pytest.mark.parametrize("divide_by", [1, 3, 7, 1000, 2**31 + 1, 2**53 - 1, 2**53])
def test_division_is_by_exact_fractions(divide_by: int) -> None:
    for case in mixed_cases(FLOAT32, 9, 7, 8):
        values = np.concatenate([case.x, case.dy])
        if case.gamma is None or case.eps == 0 or not np.isfinite(values).all():
            continue
        partial = partial_of(case, "reference")
        rounded = partial.rounded(divide_by)
        right = expected_dgamma(case, divide_by)
        refined = partial.refine([(case.dy, forward_pass(case, "reference")[1])], divide_by)
        assert bytes_of(refined.dgamma) == bytes_of(right), str(case)
        assert rounded.dgamma is not None
        decided = np.delete(np.arange(7), rounded.undecided)
        assert bytes_of(rounded.dgamma[decided]) == bytes_of(right[decided]), str(case)
        if case.beta is not None and rounded.dbeta is not None:
            assert bytes_of(rounded.dbeta) == bytes_of(expected_dbeta(case, divide_by)), str(case)


def expected_dbeta(case: Case, divide_by: int) -> Array:
    assert case.beta is not None
    into = FORMATS[case.beta.dtype]
    sums = [
        sum(map(Fraction, column), Fraction(0)) / divide_by
        for column in case.dy.astype(float).T.tolist()
    ]
    patterns = [into.round_rational(fmpq(total.numerator, total.denominator)) for total in sums]
    return np.array(patterns, into.storage).view(case.beta.dtype)


@pytest.mark.parametrize("divisor", [0, -1, 2**53 + 1, 1.5, 2.0, float("nan"), "3", None])
def test_other_divisors_raise(divisor: Any) -> None:
    partial = partial_of(unit_case([[1.0, 1.0]]), "reference")
    with pytest.raises(ValueError, match="divide_by"):
        partial.rounded(divisor)


def test_numpy_integers_are_divisors() -> None:
    case = unit_case([[1.0, 1.0], [-1.0, -1.0]])  # zeros, so that columns are undecided
    _, saved = tn.rms_norm_forward(case.x, case.gamma, eps=case.eps)
    _, partial = tn.rms_norm_backward_partial(case.dy, saved)
    refined = partial.refine([(case.dy, saved)], divide_by=np.int64(2))  # type: ignore[arg-type]
    assert refined.dgamma is not None
    assert refined.dgamma.tolist() == [0.0] * case.x.shape[1]


def test_infinities_beside_undecided_columns() -> None:
    """A row of RMSNorm with an infinity adds zeros in its finite columns, also in refine (D33)."""
    x = np.array([[1, -1, 1], [1, -1, 1], [1, 1, np.inf]], np.float32)
    dy = np.array([[1, 1, 1], [2.0**-24, 1, 1], [1, 1, 1]], np.float32)
    case = Case("infinity", x, np.ones(3, np.float32), None, dy, 0.0, centred=False)
    saved = forward_pass(case, "reference")[1]
    partial = partial_of(case, "reference")
    assert partial.rounded().undecided.tolist() == [0]
    right = np.array([1, -2, np.nan], np.float32)
    assert bytes_of(partial.refine([(dy, saved)]).dgamma) == bytes_of(right)
    finite = case.rows(slice(2))
    with pytest.raises(ValueError, match="must have 3 rows, got 2"):
        partial.refine([(finite.dy, forward_pass(finite)[1])])


def test_refine_needs_all_rows_and_no_others() -> None:
    case = unit_case(EXACT["zero"])
    partial = partial_of(case, "reference")
    batches = [(part.dy, forward_pass(part)[1]) for part in map(case.rows, ([0], [1]))]
    assert len(partial.refine(batches).undecided) == 0
    with pytest.raises(ValueError, match="must have 2 rows, got 1"):
        partial.refine(batches[:1])
    other = unit_case(EXACT["zero"], 1.0)
    with pytest.raises(ValueError, match="eps"):
        partial.refine([(other.dy, forward_pass(other)[1])])


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([(1, 2)], "saved must be the second result of layer_norm_forward, got int"),
        ([1], r"an iterable of pairs \(dy, saved\), got an element of type int"),
        ([(1, 2, 3)], r"an iterable of pairs \(dy, saved\), got an element of type tuple"),
        (1, r"an iterable of pairs \(dy, saved\), got a value of type int"),
    ],
)
def test_refine_without_pairs(batches: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        partial_of(unit_case(EXACT["zero"]), "reference").refine(batches)


def test_partials_of_other_calls_do_not_merge() -> None:
    partial = partial_of(unit_case([[1.0, 1.0]]), "reference")
    others = {"eps": unit_case([[1.0, 1.0]], 1.0), "norm": unit_case([[1.0, 1.0]], centred=False)}
    for name, case in others.items():
        with pytest.raises(ValueError, match=name):
            partial + partial_of(case, "reference")
    with pytest.raises(TypeError):
        partial + 1
    assert sum([partial, partial], 0) == partial + partial


def test_float64_and_fast_mode_raise() -> None:
    x = np.ones((1, 2), np.float32)
    gamma = np.ones(2)
    for arguments in ((x.astype(np.float64), None), (x, gamma)):
        _, saved = tn.rms_norm_forward(*arguments)
        with pytest.raises(TypeError, match="float64"):
            tn.rms_norm_backward_partial(np.ones_like(arguments[0]), saved)
    _, saved = tn.rms_norm_forward(x, rounding="fast")
    with pytest.raises(ValueError, match="rounding"):
        tn.rms_norm_backward_partial(x, saved)
