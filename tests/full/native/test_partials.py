"""Partials by the C core have the bytes of the definition and of the reference."""

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.native.building import FLAGS, SETS, SOURCES, compiler_named, run
from shared.partials.cases import mixed_cases, near_midpoints, partial_of, scaled_term
from shared.partials.definition import Expected, Terms
from shared.promise.checking import BACKENDS, both_passes, bytes_of, forward_pass, on_each_set
from shared.promise.families import EPSILONS, X_FAMILIES, Array, Case, CaseSpec, usual_case

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

from truenorm.kernels import fixed_point
from truenorm.kernels.fixed_point import FixedPoint
from truenorm.kernels.native import _core
from truenorm.partials.gradients import add

FLOAT32 = np.dtype(np.float32)
SHAPES = ((1, 1), (3, 2), (9, 7), (12, 67), (5, 130), (17, 16))


@pytest.fixture
def scaled_bounds() -> Iterator[Any]:
    """Return the function that scales the bounds of the core; undo it afterwards."""
    yield _core.scale_bounds
    _core.scale_bounds(1.0)


def _bytes_of_each_set(case: Case, **options: Any) -> dict[str, bytes]:
    partials = on_each_set("native", partial_of, case, "native", **options)
    return {name: partial.tobytes() for name, partial in partials.items()}


def _assert_right(case: Case, **options: Any) -> bytes:
    """Compare each instruction set with the definition, which is slow; return its bytes."""
    expected = Expected(case).to_bytes()
    for name, partial in _bytes_of_each_set(case, **options).items():
        assert partial == expected, (name, str(case))
    return expected


def _with(x: Array, dy: Array, eps: float = 1e-5) -> Iterator[Case]:
    gamma, beta = np.ones((2, x.shape[1]), np.float32)
    case = Case(f"special {x} {dy} eps={eps}", x, gamma, beta, dy, eps)
    yield from (case, case.as_rms_norm())


@pytest.mark.parametrize("size", [1, 2, 17])
def test_special_values(size: int) -> None:
    """NaN, infinities, zeros of both signs, subnormals and constant rows, one kind at a time."""
    random = np.random.default_rng(size)
    plain = random.standard_normal((4, size)).astype(np.float32)
    for special in (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-40, 3.4e38):
        one, whole = plain.copy(), plain.copy()
        one[1, size // 2] = whole[2] = special
        for changed in (one, whole):
            for eps in (1e-5, 0.0):
                for case in (*_with(changed, plain, eps), *_with(plain, changed, eps)):
                    _assert_right(case)


@pytest.mark.parametrize("size", [1024, 1543])
def test_rows_of_several_blocks(size: int) -> None:
    case = usual_case("normal", 9, size, FLOAT32)
    shifted = replace(case, x=case.x + np.float32(1e4))
    for each in (case, shifted, case.as_rms_norm()):
        _assert_right(each, threads=2)


def test_dx_equals_that_of_backward() -> None:
    for case in mixed_cases(FLOAT32, 12, 67, 14):
        saved = forward_pass(case, "native")[1]
        backward = tn.layer_norm_backward_partial if case.centred else tn.rms_norm_backward_partial
        dx, _ = backward(case.dy, saved, backend="native")
        assert bytes_of(dx) == bytes_of(both_passes(case, "native")[1]), str(case)


@pytest.mark.parametrize("factor", [2.0**20, 2.0**60])
def test_undecided_terms(factor: float, scaled_bounds: Any) -> None:
    """With bounds that are far too large, tier 2 or the reference decides all terms."""
    scaled_bounds(factor)
    for rows, size in SHAPES:
        for case in mixed_cases(FLOAT32, rows, size, 6):
            _assert_right(case)


def test_ties_are_decided_by_integers() -> None:
    """Here xhat is 1 and -1, and each dy[2:] is half a unit, a tie that only integers decide."""
    x = np.array([[1, -1] * 4], np.float32)
    dy = np.full((1, 8), 0.75, np.float32)
    unit = Terms(x[0].tolist(), dy[0].tolist(), 0.0, True).unit
    assert unit is not None
    dy[0, 2:] = 2.0 ** (unit - 1) * np.array([1, 1, 3, 3, 5, 7])
    for case in _with(x, dy, 0.0):
        _assert_right(case)
        undecided, sums = np.zeros(1, np.uint8), np.zeros((_core.PLACES, 9), np.int64)
        status = np.zeros(1, np.uint8)
        count = _core.add_terms(dy, x, status, undecided, sums, 0.0, int(case.centred))
        assert (count, undecided.tolist()) == (1, [1])
        assert not sums.any()


def _midpoint_cases(rows: int) -> Iterator[Case]:
    for centred in (True, False):
        made = near_midpoints(np.random.default_rng(8), 11, 2.0**-33, centred=centred)
        for x, dy in islice(made, rows):
            gamma = np.ones(11, np.float32)
            yield Case("midpoint", x[None], gamma, None, dy[None], 1e-5, centred=centred)


def test_terms_near_midpoints(scaled_bounds: Any) -> None:
    """All are right; with bounds divided by 64 some are wrong."""
    wrong: set[str] = set()
    for case in _midpoint_cases(20):
        scaled_bounds(1)
        expected = _assert_right(case)
        scaled_bounds(1 / 64)
        partials = _bytes_of_each_set(case)
        wrong |= {name for name, partial in partials.items() if partial != expected}
    assert wrong == set(partials)


def _bound_cases(size: int) -> Iterator[Case]:
    for k, family in enumerate(X_FAMILIES):
        parameter = ("ones", FLOAT32)
        choice = CaseSpec(family, 2, size, EPSILONS[k % 3], "random", parameter, parameter)
        case = choice.build(FLOAT32, k)
        yield from (case, case.as_rms_norm())
    yield from mixed_cases(FLOAT32, 4, size, 6)


def _library(folder: Path, instructions: str) -> Any:
    compiler = compiler_named("gcc", "clang")
    path = folder / f"{instructions}.so"
    source = str(Path(__file__).with_name("terms.c"))
    options = [*FLAGS, "-O2", "-fPIC", "-shared", f"-I{SOURCES}", "-DINSTRUCTIONS=tested"]
    run(compiler, *options, *SETS[instructions], source, "-o", str(path), "-lm")
    return ctypes.CDLL(str(path))


@pytest.mark.skipif(sys.platform == "win32", reason="loads a shared library as Unix does")
@pytest.mark.parametrize(
    "sizes",
    [
        (3, 67),
        pytest.param(
            (1, 2, 5, 64, 129, 1000, 8009),
            marks=pytest.mark.slow(reason="exact terms of long rows take a minute"),
        ),
    ],
    ids=str,
)
def test_exact_terms_lie_within_the_bound(sizes: tuple[int, ...], tmp_path: Path) -> None:
    """The bounds are tight: divided by 64 they would not hold."""
    sets = [name.split()[1] for name in on_each_set("native", bool)]
    libraries = [_library(tmp_path, name) for name in sets]
    worst, rows = [0.0] * len(sets), 0
    for size in sizes:
        for case in _bound_cases(size):
            for x, dy in zip(case.x, case.dy, strict=True):
                if np.isfinite(np.concatenate([x, dy])).all():
                    errors = _errors_in_bounds(libraries, x, dy, case)
                    worst = [max(pair) for pair in zip(worst, errors, strict=True)]
                    rows += 1
    assert rows > 40
    assert all(1 / 64 < error < 0.9 for error in worst)


def _errors_in_bounds(libraries: list[Any], x: Array, dy: Array, case: Case) -> list[float]:
    """Return the largest error of the terms of a row, in units of the bound, by library."""
    row = Terms(x.astype(float).tolist(), dy.astype(float).tolist(), case.eps, case.centred)
    worst = [0.0] * len(libraries)
    moderate = case.eps == 0 or 2.0**-200 <= case.eps <= 2.0**200
    if not moderate:
        return worst
    size = len(x)
    exact = dict(_exact_terms(row, range(0, size, -(-size // 40))))
    for k, library in enumerate(libraries):
        high, low, remainder = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size)
        unit, bound = ctypes.c_int64(), ctypes.c_double()
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in (high, low, remainder)]
        has_terms = library.terms_of_row(
            ctypes.c_void_p(x.ctypes.data),
            ctypes.c_void_p(dy.ctypes.data),
            ctypes.c_int64(size),
            ctypes.c_double(case.eps),
            ctypes.c_bool(case.centred),
            *pointers,
            ctypes.byref(unit),
            ctypes.byref(bound),
        )
        assert bool(has_terms & 1) == (row.unit is not None)
        assert row.unit is None or unit.value == row.unit
        for j, term in exact.items():
            computed = int(high[j]) * 2**24 + int(low[j]) + Fraction(float(remainder[j]))
            worst[k] = max(worst[k], float(abs(term - computed) / Fraction(bound.value)))
    return worst


def _exact_terms(row: Terms, columns: range) -> Iterator[tuple[int, Fraction]]:
    """Yield some terms of a row by column; none if the row has no unit."""
    if row.unit is None:
        return
    mean, _ = row.mean_and_w
    for j in columns:
        sign = 1 if Fraction(row.dy[j]) * (Fraction(row.x[j]) - mean) > 0 else -1
        yield j, sign * Fraction(scaled_term(row, j, Fraction(row.dy[j]), 70), 2**70)


def _random_number(random: np.random.Generator, columns: int) -> FixedPoint:
    """Return a number with limbs at the ends of their range, zeros and empty places."""
    values = random.choice([-(2**31), 2**31 - 1, -1, 0, 1, 5], (random.integers(0, 5), columns))
    if len(values) and random.random() < 0.3:
        values[random.integers(len(values))] = 0
    return fixed_point.canonical(int(random.integers(-6, 4)), np.vstack([values, values[:1] * 0]))


def test_sums_of_fixed_point_numbers() -> None:
    random = np.random.default_rng(1)
    for columns in (1, 2, 3, 7, 255, 256, 257, 1025):
        for _ in range(60):
            a, b = (_random_number(random, columns) for _ in range(2))
            if random.random() < 0.5:  # the sum is zero
                b = FixedPoint(a.first, -a.limbs)
            expected = a.plus(b)
            for total in on_each_set("native", add, a, b).values():
                assert total.first == expected.first
                assert total.limbs.shape == expected.limbs.shape
                assert total.limbs.tobytes() == expected.limbs.tobytes()


def test_adding_mismatched_limbs_raises() -> None:
    good = np.ones((2, 3), np.int64)
    bad = [
        np.ones((2, 4), np.int64), np.ones(3, np.int64), np.ones((2, 3), np.int32),
        np.ones((2, 3)), np.ones((2, 3), np.uint64), np.ones((3, 2), np.int64).T,
        np.ones((2, 0), np.int64), None, b"limbs",
    ]  # fmt: skip
    for each in bad:
        for pair in ((0, good, 0, each), (0, each, 0, good)):
            with pytest.raises(ValueError, match="two C-contiguous int64 arrays"):
                _core.add_numbers(*pair)
    for place in (2**9, -(2**9), -(2**63)):
        with pytest.raises(ValueError, match="places within"):
            _core.add_numbers(0, good, place, good)
    with pytest.raises(TypeError):
        _core.add_numbers(0.5, good, 0, good)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        _core.add_numbers(2**70, good, 0, good)
