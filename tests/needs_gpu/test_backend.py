"""The backend "gpu" on NumPy arrays: correctly rounded, and consistent with other backends.

A device compiles kernels for each row length and type, which takes PoCL seconds. The tests that
are not slow use two types, one for each norm, and some row lengths.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import truenorm as tn
from shared.fibers.runtime import launcher_on, opencl_runtime
from shared.programs import run_python
from shared.promise.bounds import FastBounds
from shared.promise.cached_cases import some_cached_cases
from shared.promise.checking import both_passes, bytes_of, check
from shared.promise.families import DTYPES, Case, cases, full_range_cases, usual_case
from shared.promise.hard_cases import OUTPUTS, hard_cases, isolated_cases
from truenorm.kernels.tuning import SUMS

SLOW = pytest.mark.slow(reason="PoCL takes minutes for all families")

FLOAT32 = np.dtype(np.float32)
NARROW = [dtype for dtype in DTYPES if dtype != np.float64]
QUICK_WIDTHS = (2, 67)
ELEMENTS = 2000
SIZE = 67
of_each_norm = pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])
of_each_type = pytest.mark.parametrize("dtype", NARROW, ids=str)
pytestmark = pytest.mark.usefixtures("device")


def supported(made: Iterable[Case], *, centred: bool = True) -> Iterator[Case]:
    """Yield the cases without float64 arrays, of layer norm or RMSNorm."""
    for case in made:
        arrays = (case.x, case.gamma, case.beta)
        if not any(each is not None and each.dtype == np.float64 for each in arrays):
            yield case if centred else case.as_rms_norm()


def assert_correct(made: Iterable[Case], outputs: tuple[str, ...] = OUTPUTS) -> int:
    """Compare with the exact results; return the number of elements."""
    compared = 0
    for case in made:
        count, wrong = check(case, outputs, ["gpu"])
        compared += count
        assert not wrong, wrong
    return compared


def near_midpoints(output: str, dtype: Any, *, centred: bool) -> Iterator[Case]:
    """Yield hard cases."""
    if centred:
        return supported(some_cached_cases(output, dtype, ELEMENTS))
    return iter(hard_cases(output, np.dtype(dtype), ELEMENTS, centred=False))


class TestCorrectRounding:
    @pytest.mark.parametrize(("dtype", "centred"), [("float32", True), ("bfloat16", False)])
    def test_some_widths(self, dtype: str, *, centred: bool) -> None:
        made = (case for case in cases(dtype, 0) if case.x.shape[1] in QUICK_WIDTHS)
        assert assert_correct(supported(made, centred=centred)) >= 1000

    @SLOW
    @of_each_type
    @of_each_norm
    def test_families(self, dtype: np.dtype[Any], *, centred: bool) -> None:
        assert assert_correct(supported(cases(dtype, 31_000), centred=centred)) >= 30_000

    @SLOW
    @of_each_type
    def test_full_range(self, dtype: np.dtype[Any]) -> None:
        assert assert_correct(supported(full_range_cases(dtype, 60))) > 0

    @SLOW
    @of_each_type
    @of_each_norm
    @pytest.mark.parametrize("output", OUTPUTS)
    def test_near_midpoints(self, dtype: np.dtype[Any], output: str, *, centred: bool) -> None:
        if output == "dbeta" and not centred:
            pytest.skip("RMSNorm has no dbeta")
        assert assert_correct(near_midpoints(output, dtype, centred=centred), (output,)) > 0

    @SLOW
    def test_isolated_elements(self) -> None:
        some = some_cached_cases("y", np.float32, 10_000)
        assert assert_correct(supported(isolated_cases(some, ELEMENTS // 4)), ("y",)) > 0

    def test_some_near_midpoints(self) -> None:
        assert assert_correct(supported(some_cached_cases("y", np.float32, 300)), ("y",)) > 0

    @SLOW
    @of_each_norm
    @pytest.mark.parametrize("output", ["y", "dx", "dgamma"])
    def test_bounds_divided_by_64_are_detected(
        self, output: str, monkeypatch: pytest.MonkeyPatch, *, centred: bool
    ) -> None:
        from truenorm.kernels.gpu import opencl
        from truenorm.kernels.gpu.plan import source_of

        def divided(kernel: str) -> str:
            text = source_of(kernel)
            assert "#define SLACK 1.01" in text
            return text.replace("#define SLACK 1.01", "#define SLACK (1.01 / 64)")

        monkeypatch.setattr(opencl, "source_of", divided)
        monkeypatch.setattr("truenorm.kernels.gpu.backend.SLACK", 1.01 / 64)
        monkeypatch.setattr(opencl, "compiled", cache(opencl.compiled.__wrapped__))
        made = near_midpoints(output, FLOAT32, centred=centred)
        if output == "y" and centred:  # an undecided element has its whole row recomputed
            some = some_cached_cases("y", np.float32, 10_000)
            made = supported(isolated_cases(some, ELEMENTS // 4))
        assert any(check(case, [output], ["gpu"])[1] for case in made)


@SLOW
@of_each_type
@of_each_norm
def test_fast_mode_keeps_its_bounds(dtype: np.dtype[Any], *, centred: bool) -> None:
    checked = 0
    for case in supported(cases(dtype, 14_000), centred=centred):
        if case.x.size > 2000 or case.has_undefined_rows:
            continue
        wrong = FastBounds(case).violations(both_passes(case, "gpu", "fast"))
        assert not wrong, (str(case), wrong[:5])
        checked += 1
    assert checked >= 10


def bounds_of(case: Case) -> NDArray[np.float64]:
    """Return the bound of each column of dgamma, as the device computes it."""
    runtime, rows = opencl_runtime(), len(case.x)
    launcher = launcher_on(runtime, case)
    x, dy = (runtime.upload(each) for each in (case.x, case.dy))
    unused, saved = runtime.empty(case.x.nbytes), runtime.empty(rows * 24)
    launcher.forward(x, unused, saved, rows)
    buffer = launcher.sums()
    launcher.backward(dy, x, saved, unused, buffer, rows)
    sums: NDArray[np.float64] = np.empty((SUMS, SIZE))
    runtime.download(buffer, sums)
    bounds: NDArray[np.float64] = sums[2]
    return bounds


def test_bounds_of_small_xhat_and_large_dy() -> None:
    """The bound of dgamma is summed in float32, and holds where that underflows.

    Far below sqrt(eps), xhat is proportional to x, and so is the bound.
    """
    usual = replace(usual_case("normal", 20, SIZE, FLOAT32), eps=1e-5)
    dy = np.ldexp(usual.dy, 20).astype(np.float32)
    small, smaller = (
        bounds_of(replace(usual, x=np.ldexp(usual.x, power).astype(np.float32), dy=dy))
        for power in (-40, -110)
    )
    assert (np.ldexp(smaller, 70) >= 0.99 * small).all()


@pytest.fixture
def inputs() -> list[NDArray[np.float32]]:
    """Return x, dy, gamma and beta."""
    random = np.random.default_rng(3)
    rows = random.normal(2.0, 1.0, (2, 30, SIZE)).astype(np.float32)
    return [*rows, *random.normal(size=(2, SIZE)).astype(np.float32)]


class TestWithOtherBackends:
    @pytest.mark.parametrize("pair", [("gpu", "gpu"), ("gpu", "reference"), ("reference", "gpu")])
    def test_same_bits(self, inputs: list[NDArray[np.float32]], pair: tuple[str, str]) -> None:
        x, dy, gamma, beta = inputs
        y, saved = tn.layer_norm_forward(x, gamma, beta, backend="reference")
        expected = bytes_of(y, *tn.layer_norm_backward(dy, saved, backend="reference"))
        y, saved = tn.layer_norm_forward(x, gamma, beta, backend=pair[0])
        assert bytes_of(y, *tn.layer_norm_backward(dy, saved, backend=pair[1])) == expected

    @pytest.mark.parametrize("forward", ["gpu", "reference"])
    def test_changed_rows_are_detected(
        self, inputs: list[NDArray[np.float32]], forward: str
    ) -> None:
        x, dy, gamma, beta = inputs
        _, saved = tn.layer_norm_forward(x, gamma, beta, backend=forward)
        x[4, 5] += 0.01
        with pytest.raises(RuntimeError, match="x changed since the forward pass"):
            tn.layer_norm_backward(dy, saved, backend="gpu")

    def test_partials_have_the_same_bytes(self, inputs: list[NDArray[np.float32]]) -> None:
        x, dy, gamma, beta = inputs
        results = []
        for backend in ("gpu", "reference"):
            _, saved = tn.layer_norm_forward(x, gamma, beta, backend=backend)
            dx, partial = tn.layer_norm_backward_partial(dy, saved, backend=backend)
            results.append((dx.tobytes(), partial.tobytes()))
        assert results[0] == results[1]

    def test_other_backends_do_not_import_pyopencl(self) -> None:
        calls = "tn.layer_norm(x), tn.layer_norm(x, backend='reference')"
        code = f"import sys, truenorm as tn, numpy as np; x = np.eye(3); {calls}"
        assert run_python(f"{code}; print('pyopencl' in sys.modules)") == ["False"]

    def test_calls_of_several_threads(self, inputs: list[NDArray[np.float32]]) -> None:
        """An OpenCL kernel object stores its arguments: threads must not mix theirs."""
        x, _, gamma, beta = inputs

        def y_of(k: int, backend: str = "gpu") -> bytes:
            return tn.layer_norm(x * k, gamma, beta, backend=backend).tobytes()

        expected = [y_of(k, "reference") for k in range(1, 9)]
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(y_of, range(1, 9))) == expected

    def test_float64_is_refused(self) -> None:
        with pytest.raises(ValueError, match="not float64"):
            tn.layer_norm(np.eye(3), backend="gpu")
