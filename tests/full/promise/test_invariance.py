"""Calls that must return identical bits: backends, batches, orders, blocks and threads.

The oracle is not needed here, so there are more and larger shapes than in `test_promise`: as many
rows as a kernel takes at once, one less and one more; widths next to where sums are split.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.promise.checking import BACKENDS, both_passes, bytes_of, compare
from shared.promise.families import (
    ABSENT,
    DTYPES,
    DY_KINDS,
    EPSILONS,
    PARAMETER_KINDS,
    X_FAMILIES,
    Case,
    CaseSpec,
    non_finite_cases,
    usual_case,
)
from shared.promise.hard_cases import OUTPUTS, hard_cases
from truenorm.kernels.reference import tier1

WIDTHS = (1, 2, 3, 5, 16, 17, 64, 67, 127, 128, 129, 513, 1000, 1024, 4096)
ROWS = (1, 2, 7, 8, 9, 40)
CALLERS = 8

each_type = pytest.mark.parametrize("dtype", DTYPES, ids=str)
both_norms = pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])


@pytest.mark.skipif(len(BACKENDS) < 2, reason="needs two backends")
class TestBackends:
    """Every backend returns the bits of the reference, also after the forward pass of another."""

    @staticmethod
    def assert_same_bits(case: Case) -> None:
        expected = both_passes(case, "reference")
        for forward, backward in product(BACKENDS, BACKENDS):
            if forward == backward == "reference" or (forward != backward and case.x.size > 1000):
                continue  # the reference backend is slow
            results = both_passes(case, forward, backward=backward)
            _, wrong = compare(case, results, expected, OUTPUTS, f"{forward}, then {backward}")
            assert not wrong, wrong

    @staticmethod
    def specs(dtype: np.dtype[Any]) -> Iterator[CaseSpec]:
        """Yield every shape, and every family at two numbers of rows; other parts alternate."""
        families, kinds = list(X_FAMILIES), list(DY_KINDS)
        parameters = [*PARAMETER_KINDS, ABSENT]
        shapes = [
            (rows, size, families[k % 23]) for k, (size, rows) in enumerate(product(WIDTHS, ROWS))
        ]
        shapes += [(rows, 67, family) for family, rows in product(families, (7, 9))]
        for k, (rows, size, family) in enumerate(shapes):
            # Two of three have parameters of the type of x, as is usual.
            types = [dtype if k % 3 else DTYPES[(k // 3 + shift) % 4] for shift in (0, k // 12)]
            yield CaseSpec(
                family,
                rows,
                size,
                EPSILONS[k // 5 % 6] if k % 2 else 1e-5,
                kinds[k // 7 % len(kinds)],
                (parameters[k // 2 % 6], types[0]),
                (parameters[k // 4 % 6], types[1]),
            )

    @pytest.mark.parametrize(
        ("centred", "dtype"),
        [
            pytest.param(
                centred,
                dtype,
                id=f"{'layer_norm' if centred else 'rms_norm'}-{dtype}",
                marks=()
                if centred and dtype == "float32"
                else pytest.mark.slow(reason="the grid of types and norms takes minutes"),
            )
            for centred, dtype in product((True, False), DTYPES)
        ],
    )
    def test_families_and_shapes(self, dtype: np.dtype[Any], *, centred: bool) -> None:
        for seed, spec in enumerate(self.specs(dtype)):
            case = spec.build(dtype, seed)
            self.assert_same_bits(case if centred else case.as_rms_norm())

    @each_type
    def test_undecided_elements(self, dtype: np.dtype[Any]) -> None:
        for output in OUTPUTS:
            for case in hard_cases(output, dtype, 1000, seed=1):
                self.assert_same_bits(replace(case, columns=None))

    @both_norms
    @each_type
    def test_non_finite_entries(self, dtype: np.dtype[Any], *, centred: bool) -> None:
        for case in non_finite_cases(dtype, 60, ROWS, WIDTHS[:10]):
            self.assert_same_bits(case if centred else case.as_rms_norm())

    @pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
    def test_parameters_beyond_the_range_of_x(self, dtype: np.dtype[Any]) -> None:
        """Results overflow, also where gamma is 0 and y is beta, rounded."""
        random = np.random.default_rng(0)
        x, dy = random.standard_normal((2, 9, 12)).astype(dtype)
        x[4] = 3  # a constant row
        for kind in (np.float32, np.float64):
            largest = np.finfo(kind).max
            gamma, beta = random.standard_normal((2, 12)).astype(kind)
            gamma[:6], beta[::3] = 0, largest
            gamma[9:], beta[1] = -largest, -largest
            with np.errstate(over="ignore"):
                self.assert_same_bits(Case(f"beyond {dtype.name}", x, gamma, beta, dy, 1e-5))


@both_norms
@each_type
class TestRows:
    """The bits of a row depend on that row alone."""

    @pytest.fixture
    def case(self, dtype: np.dtype[Any], *, centred: bool) -> Case:
        """Return eight rows, which kernels take together, and four more."""
        case = usual_case("normal", 12, 67, dtype)
        return case if centred else case.as_rms_norm()

    @pytest.mark.parametrize("rounding", ["correct", "fast"])
    def test_batch(self, case: Case, backend: str, rounding: str) -> None:
        y, dx, _, _ = both_passes(case, backend, rounding)
        for cut in range(1, 12):
            for part in (slice(0, cut), slice(cut, None)):
                results = both_passes(case.rows(part), backend, rounding)
                assert bytes_of(*results[:2]) == bytes_of(y[part], dx[part])

    def test_order(self, case: Case, backend: str) -> None:
        """Correctly rounded dgamma and dbeta do not depend on the order, either."""
        y, dx, *sums = both_passes(case, backend)
        for seed in range(5):
            order = np.random.default_rng(seed).permutation(12)
            results = both_passes(case.rows(order), backend)
            assert bytes_of(*results) == bytes_of(y[order], dx[order], *sums)


@both_norms
@each_type
def test_threads(dtype: np.dtype[Any], backend: str, *, centred: bool) -> None:
    case = usual_case("normal", 700, 67, dtype)
    case = case if centred else case.as_rms_norm()
    one, two = (bytes_of(*both_passes(case, backend, threads=count)) for count in (1, 2))
    assert one == two


def test_concurrent_callers(backend: str) -> None:
    """Callers that share their arrays get the bits of a single caller."""
    cases = [usual_case("normal", 40, size, dtype) for dtype in DTYPES for size in (5, 67)]
    expected = [bytes_of(*both_passes(case, backend)) for case in cases]
    start = threading.Barrier(CALLERS, timeout=60)

    def call(number: int) -> list[str]:
        start.wait()
        results = [bytes_of(*both_passes(case, backend, threads=1 + number % 2)) for case in cases]
        return [str(k) for k, bits in enumerate(results) if bits != expected[k]]

    with ThreadPoolExecutor(CALLERS) as pool:
        assert list(pool.map(call, range(CALLERS))) == [[]] * CALLERS


class TestBlocksOfTheReference:
    def test_interrupt_between_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
        expected = tn.layer_norm(x, backend="reference")
        monkeypatch.setattr("truenorm.kernels.reference.tier1.BLOCK", 16)
        original, blocks = tier1.forward, []

        def interrupted(*arguments: Any) -> Any:
            blocks.append(1)
            if len(blocks) == 2:
                raise KeyboardInterrupt
            return original(*arguments)

        monkeypatch.setattr(tier1, "forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tn.layer_norm(x, backend="reference")
        assert tn.layer_norm(x, backend="reference").tobytes() == expected.tobytes()

    def test_sums_of_blocks_with_distant_exponents(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x = np.random.default_rng(0).standard_normal((4, 5))
        x[2:] *= 1e150
        dy = np.random.default_rng(1).standard_normal((4, 5))
        dy[:2] *= 1e-200
        case = Case("distant", x, np.ones(5), np.ones(5), dy, 1e-5)
        one_block = both_passes(case, "reference")
        monkeypatch.setattr("truenorm.kernels.reference.tier1.PAIR_BLOCK", 5)
        assert bytes_of(*one_block) == bytes_of(*both_passes(case, "reference"))
