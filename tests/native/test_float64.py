"""Float64 rows in the C core: the promise with every instruction set, bounds, and fast bits."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from promise.cached_cases import some_cached_cases
from promise.checking import BACKENDS, check
from promise.families import Case, cases, full_range_cases
from promise.hard_cases import OUTPUTS, RMS_OUTPUTS, hard_cases, isolated_cases

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

from truenorm.kernels.native import _core

Array = np.ndarray[Any, Any]
FLOAT64 = np.dtype(np.float64)
of_two_sizes = pytest.mark.parametrize(
    "elements", [3000, pytest.param(50_000, marks=pytest.mark.slow)]
)
of_both_norms = pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])


@pytest.fixture(params=["baseline", "avx2", "avx512"])
def instructions(request: pytest.FixtureRequest) -> Iterator[str]:
    """Select an instruction set for a test."""
    if _core.select(request.param) != request.param:
        pytest.skip("not an instruction set of this processor")
    yield request.param
    _core.select(None)


def hard_in(output: str, elements: int, *, centred: bool) -> list[Case]:
    """Return hard cases; those of y have one hard element a row. 10,000 are kept, others made."""
    if not centred or elements > 10_000:
        return list(hard_cases(output, FLOAT64, elements, centred=centred))
    if output != "y":
        return list(some_cached_cases(output, FLOAT64, elements))
    return list(isolated_cases(some_cached_cases("y", FLOAT64, 10_000), elements // 4))


@pytest.mark.usefixtures("instructions")
class TestPromise:
    @of_two_sizes
    def test_families(self, elements: int) -> None:
        for case in cases(FLOAT64, elements):
            _, wrong = check(case, backends=["native"])
            assert not wrong, wrong

    @of_two_sizes
    def test_numbers_from_anywhere(self, elements: int) -> None:
        for case in full_range_cases(FLOAT64, elements // 200):
            _, wrong = check(case, backends=["native"])
            assert not wrong, wrong

    @of_two_sizes
    @of_both_norms
    @pytest.mark.parametrize("output", OUTPUTS)
    def test_hard_cases(self, output: str, elements: int, *, centred: bool) -> None:
        if output not in (OUTPUTS if centred else RMS_OUTPUTS):
            pytest.skip("RMSNorm has no beta")
        made = hard_cases(output, FLOAT64, elements, centred=centred)
        for case in made if output == "dbeta" else hard_in(output, elements, centred=centred):
            _, wrong = check(case, [output], ["native"])
            assert not wrong, wrong

    # Sums along a row count (n + 1)**2 errors of low parts, which hardly ever add up: of 2**-6 of
    # the bounds of y and dgamma nothing is seen.
    @of_both_norms
    @pytest.mark.parametrize("output", ["y", "dx", "dgamma"])
    def test_bounds_divided(self, output: str, *, centred: bool) -> None:
        _core.scale_bounds(1 / 1024)
        try:
            found = [
                wrong
                for case in hard_in(output, 2000, centred=centred)
                for wrong in check(case, [output], ["native"])[1]
            ]
        finally:
            _core.scale_bounds(1.0)
        assert found


def both_passes(
    x: Array, gamma: Array, beta: Array, dy: Array, *, centred: bool, **options: Any
) -> list[bytes]:
    """Return the bytes of y, dx, dgamma and dbeta."""
    if centred:
        y, saved = tn.layer_norm_forward(x, gamma, beta, backend="native", **options)
        gradients = tn.layer_norm_backward(dy, saved, backend="native")
    else:
        y, saved = tn.rms_norm_forward(x, gamma, backend="native", **options)
        gradients = tn.rms_norm_backward(dy, saved, backend="native")
    return [each.tobytes() for each in (y, *gradients) if each is not None]


def inputs(rows: int, size: int, *, far: bool = True) -> tuple[Array, Array, Array, Array]:
    """Return x, gamma, beta and dy, with rows that float64 cannot square among the others."""
    rng = np.random.default_rng(7)
    x, dy = rng.standard_normal((2, rows, size))
    x[1] += 1e15
    if far:
        x[2] *= 1e200
        dy[5] *= 1e-305
    gamma, beta = rng.standard_normal((2, size))
    return x, gamma, beta, dy


class TestWholeCalls:
    """Ordinary numbers are computed without the driver, and with the bits of the driver."""

    @pytest.mark.usefixtures("instructions")
    @of_both_norms
    @pytest.mark.parametrize("fast", [False, True])
    @pytest.mark.parametrize("size", [2, 7, 64, 513, 2050])
    def test_no_driver(self, size: int, *, fast: bool, centred: bool) -> None:
        x, gamma, beta, dy = inputs(9, size, far=False)
        y, dx, dgamma, dbeta = (np.empty_like(each) for each in (x, x, gamma, beta))
        saved = np.empty((9, 3 if centred else 1))
        mode = (_core.CENTRED if centred else 0) | (_core.FAST if fast else 0) | 0x3330
        beta_or_none = beta if centred else None
        assert _core.forward(x, gamma, beta_or_none, y, saved, 1e-5, mode, 1)
        assert _core.backward(dy, x, gamma, saved, dx, dgamma, dbeta, 1e-5, mode, 1)
        rounding = "fast" if fast else "correct"
        turned = np.asfortranarray(x), gamma, beta, np.asfortranarray(dy)  # by the driver
        results = both_passes(*turned, centred=centred, rounding=rounding)
        assert results[:3] == [y.tobytes(), dx.tobytes(), dgamma.tobytes()]

    @of_both_norms
    def test_changed_x_is_noticed(self, *, centred: bool) -> None:
        x, gamma, beta, dy = inputs(9, 64, far=False)
        run = tn.layer_norm_forward if centred else tn.rms_norm_forward
        parameters = (gamma, beta) if centred else (gamma,)
        back = tn.layer_norm_backward if centred else tn.rms_norm_backward
        for rounding in ("correct", "fast"):
            _, saved = run(x, *parameters, backend="native", rounding=rounding)
            before = x[3, 5]
            x[3, 5] += 0.5
            with pytest.raises(RuntimeError, match="x changed since the forward pass"):
                back(dy, saved)
            x[3, 5] = before
            back(dy, saved)

    @of_both_norms
    @pytest.mark.parametrize("rounding", ["correct", "fast"])
    def test_statistics_of_the_reference(self, rounding: str, *, centred: bool) -> None:
        x, gamma, beta, dy = inputs(9, 64)
        run = tn.layer_norm_forward if centred else tn.rms_norm_forward
        parameters = (gamma, beta) if centred else (gamma,)
        back = tn.layer_norm_backward if centred else tn.rms_norm_backward
        for first, second in (("reference", "native"), ("native", "reference")):
            _, own = run(x, *parameters, backend=second, rounding=rounding)
            _, saved = run(x, *parameters, backend=first, rounding=rounding)
            expected, result = back(dy, own, backend=second), back(dy, saved, backend=second)
            for a, b in zip(expected, result, strict=True):
                assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.usefixtures("instructions")
@of_both_norms
@pytest.mark.parametrize("rounding", ["correct", "fast"])
@pytest.mark.parametrize("shape", [(300, 64), (64, 1000), (9, 5000), (700, 3)], ids=str)
class TestSameBits:
    """Bits depend neither on threads nor on the batch nor on the layout."""

    def test_threads(self, shape: tuple[int, int], rounding: str, *, centred: bool) -> None:
        given = inputs(*shape)
        one = both_passes(*given, centred=centred, rounding=rounding, threads=1)
        for threads in (2, 3, 8):
            several = both_passes(*given, centred=centred, rounding=rounding, threads=threads)
            assert several == one

    def test_batch(self, shape: tuple[int, int], rounding: str, *, centred: bool) -> None:
        x, gamma, beta, dy = inputs(*shape)

        def run(rows: slice) -> list[bytes]:
            return both_passes(x[rows], gamma, beta, dy[rows], centred=centred, rounding=rounding)

        y, dx = run(slice(None))[:2]
        single = [run(slice(i, i + 1))[:2] for i in range(9)]
        assert y.startswith(b"".join(row[0] for row in single))
        assert dx.startswith(b"".join(row[1] for row in single))

    def test_layout(self, shape: tuple[int, int], rounding: str, *, centred: bool) -> None:
        """Arrays that are not contiguous take the way of the driver."""
        x, gamma, beta, dy = inputs(*shape)
        expected = both_passes(x, gamma, beta, dy, centred=centred, rounding=rounding)
        for turned in (np.asfortranarray(x), x):
            result = both_passes(
                turned, gamma, beta, np.asfortranarray(dy), centred=centred, rounding=rounding
            )
            assert result == expected
