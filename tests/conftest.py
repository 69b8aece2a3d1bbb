"""Settings that every test shares."""

import os
import sys
from collections.abc import Generator

import hypothesis
import pytest
from _pytest.doctest import DoctestModule

# A deadline would make slow machines fail; a fixed seed makes the gate judge a tree the same
# way twice. Searching for new counterexamples is the business of the other profiles.
hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.register_profile("search", deadline=None, max_examples=100)
hypothesis.settings.register_profile("slow", deadline=None, max_examples=5000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for no examples in docstrings of tests, which takes as long as importing the tests."""
    collectors = yield
    return [each for each in collectors if not isinstance(each, DoctestModule)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse slow tests without a reason."""
    for item in items:
        if (marker := item.get_closest_marker("slow")) and not marker.kwargs.get("reason"):
            raise pytest.UsageError(f'{item.nodeid}: mark it as slow(reason="...")')


@pytest.fixture(params=["jet", "complex", "central"])
def method(request: pytest.FixtureRequest) -> str:
    """Return each method of a gradient check; jets need python-flint."""
    name: str = request.param
    if name == "jet":
        pytest.importorskip("flint")
    return name


@pytest.fixture
def no_flint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make python-flint look as if it were not installed."""
    monkeypatch.setitem(sys.modules, "flint", None)


@pytest.fixture
def without_long_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the judge's cases whose calls take seconds, for tests of something else."""
    from shared.verify.recorded import leave_out_long_calls  # not for every test

    leave_out_long_calls(monkeypatch)
