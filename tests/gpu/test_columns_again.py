"""Columns of dgamma and dbeta that are not decided at first are done again, on the device."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from flint import arb, ctx
from numpy.typing import NDArray

import truenorm as tn
from fibers.runs import launcher_on, opencl
from promise.cached_cases import some_cached_cases
from promise.checking import ball_results, both_passes, bytes_of
from promise.families import Case, usual_case
from promise.hard_cases import hard_cases
from promise.oracle import BallRow
from truenorm.devices.passes import DeviceCall
from truenorm.kernels.gpu.runtime import Launcher
from truenorm.kernels.tuning import SUMS

cl_array = pytest.importorskip("pyopencl.array")
pytestmark = pytest.mark.usefixtures("device")

FLOAT32 = np.dtype(np.float32)
ROWS, SIZE = 70, 67


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many columns were done again, and forbid the host's help."""
    found: list[int] = []
    before = Launcher.columns_again

    def noted(self: Launcher, dy: Any, x: Any, sums: Any, which: Any, count: int) -> None:
        found.append(len(which))
        before(self, dy, x, sums, which, count)

    monkeypatch.setattr(Launcher, "columns_again", noted)
    monkeypatch.setattr(DeviceCall, "_backward_by_host", None)
    return found


def assert_same_sums(case: Case) -> None:
    """Compare dgamma and dbeta of arrays on a device; of RMSNorm dgamma."""
    queue = cast(Any, opencl()).queue
    x, dy, gamma, beta = (
        None if each is None else cl_array.to_device(queue, each)
        for each in (case.x, case.dy, case.gamma, case.beta)
    )
    if case.centred:
        _, saved = tn.layer_norm_forward(x, gamma, beta, eps=case.eps)
        found = tn.layer_norm_backward(dy, saved)
    else:
        _, saved = tn.rms_norm_forward(x, gamma, eps=case.eps)
        found = tn.rms_norm_backward(dy, saved)
    sums = [b"" if each is None else each.get().tobytes() for each in cast(Any, found)[1:]]
    assert sums == bytes_of(*both_passes(case, "reference"))[2:]


@pytest.mark.slow
@pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])
def test_dgamma_beside_a_boundary(tries: list[int], *, centred: bool) -> None:
    made = (
        some_cached_cases("dgamma", FLOAT32, 300)
        if centred
        else hard_cases("dgamma", FLOAT32, 100, centred=False)
    )
    for case in made:
        assert_same_sums(case)
    assert sum(tries) > 50


def test_dbeta_of_many_magnitudes(tries: list[int]) -> None:
    """More than 53 bits from the first to the last of a column's sum, and fewer than 106."""
    case = usual_case("normal", ROWS, SIZE, FLOAT32)
    powers = np.random.default_rng(1).integers(-25, 25, case.dy.shape)
    assert_same_sums(replace(case, dy=np.ldexp(case.dy, powers).astype(np.float32)))
    assert tries


def test_what_pairs_do_not_decide_goes_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 106 bits, with a tie at their end."""
    case = usual_case("normal", ROWS, SIZE, FLOAT32)
    dy = case.dy.copy()
    dy[:, 4] = 0
    dy[:4, 4] = 1, 2.0**-24, 2.0**-140, -(2.0**-140)
    dy[:3, 5] = 2.0**100, 1, 2.0**-100
    asked: list[str] = []
    before = DeviceCall._backward_by_host

    def noted(self: DeviceCall, *given: Any) -> None:
        asked.append("host")
        before(self, *given)

    monkeypatch.setattr(DeviceCall, "_backward_by_host", noted)
    assert_same_sums(replace(case, dy=dy))
    assert asked


def again(case: Case) -> NDArray[np.float64]:
    """Return the sums of all columns in pairs, as the device has them."""
    runtime = opencl()
    launcher, sums = launcher_on(runtime, case), runtime.zeros(SUMS * SIZE * 8)
    x, dy = (runtime.upload(each) for each in (case.x, case.dy))
    launcher.columns_again(dy, x, sums, np.arange(SIZE), len(case.x))
    found = np.empty((SUMS, SIZE))
    runtime.download(sums, found)
    return found


@pytest.mark.parametrize("offset", [0, 1000])
def test_the_bound_holds_and_is_not_idle(offset: float) -> None:
    """(H5): with a bound 4096 times as tight a column would be outside of it."""
    usual = usual_case("normal", ROWS, SIZE, FLOAT32)
    case = replace(usual, x=usual.x + np.float32(offset))
    high, low, bound, *of_beta = again(case)
    with ctx.workprec(500):
        rows = [BallRow(row, case.eps, centred=True) for row in case.x.tolist()]
        exact = ball_results(case, rows, "dgamma")
        parts = zip(exact, high.tolist(), low.tolist(), bound.tolist(), strict=True)
        errors = [abs(arb(a) + arb(b) - right) / arb(most) for right, a, b, most in parts]
    worst = max(float(each.upper()) for each in errors)
    assert 1 / 4096 < worst < 1
    assert np.array_equal(of_beta[0] + of_beta[1], case.dy.astype(np.float64).sum(axis=0))
