"""Fixtures of the tests of the public functions, which run on every usable backend."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.api.helpers import DTYPES, MODES, Forward, Passes
from shared.promise.checking import BACKENDS


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def no_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
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
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a mock of the module where an imported PyTorch would be."""
    module: Any = ModuleType("torch")
    module.uint16 = "uint16"
    monkeypatch.setitem(sys.modules, "torch", module)


@pytest.fixture
def every_flag() -> Iterator[None]:
    """Let NumPy raise where it would warn; in other tests pytest turns warnings into errors."""
    with np.errstate(all="raise"):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Skip tests that need float64 on a device."""
    return (yield from _skipping(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Do the same for the body of the test."""
    return (yield from _skipping(item))


def _skipping(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    except ValueError as error:
        if "the backend 'gpu' takes" not in str(error):
            raise
        pytest.skip(f"{item.name}: {error}")
