"""Fixtures for the methods of a check."""

import sys

import pytest


@pytest.fixture(params=["jet", "complex", "central"])
def method(request: pytest.FixtureRequest) -> str:
    """Return each method; jets need python-flint."""
    name: str = request.param
    if name == "jet":
        pytest.importorskip("flint")
    return name


@pytest.fixture
def no_flint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make python-flint look as if it were not installed."""
    monkeypatch.setitem(sys.modules, "flint", None)
