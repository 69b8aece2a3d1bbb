"""The methods that a check can use, and how one is taken away."""

import sys

import pytest


@pytest.fixture(params=["jet", "complex", "central"])
def method(request: pytest.FixtureRequest) -> str:
    """Every method; a bare install has no python-flint, and so no jets."""
    name: str = request.param
    if name == "jet":
        pytest.importorskip("flint")
    return name


@pytest.fixture
def no_flint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make python-flint look as if it were not installed."""
    monkeypatch.setitem(sys.modules, "flint", None)
