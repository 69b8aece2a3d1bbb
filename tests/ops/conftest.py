"""One contract for every backend: what is tested here runs over all that can be used."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from ops.corners.passes import Passes
from ops.judged import DTYPES, MODES
from ops.refusals import Forward
from promise.checking import BACKENDS


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def nothing_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TRUENORM_BACKEND", "TRUENORM_ROUNDING", "TRUENORM_THREADS"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(params=MODES)
def rounding(request: pytest.FixtureRequest) -> str:
    mode: str = request.param
    return mode


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> np.dtype[Any]:
    kind: np.dtype[Any] = request.param
    return kind


@pytest.fixture(params=[tn.layer_norm, tn.layer_norm_forward], ids=lambda f: f.__name__)
def forward(request: pytest.FixtureRequest) -> Forward:
    function: Forward = request.param
    return function


@pytest.fixture
def passes(backend: str, rounding: str, dtype: np.dtype[Any]) -> Passes:
    return Passes(backend, rounding, dtype)


@pytest.fixture
def every_flag() -> Iterator[None]:
    """Let NumPy raise where it would warn; elsewhere pytest makes its warnings errors."""
    with np.errstate(all="raise"):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Skip what asks a device for float64, which it refuses, and says so."""
    return (yield from _skipping(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Do the same where the test itself asks."""
    return (yield from _skipping(item))


def _skipping(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    except ValueError as refused:
        if "the backend 'gpu' takes" not in str(refused):
            raise
        pytest.skip(f"{item.name}: {refused}")
