"""A session of its own for each test; its modules ask for pytest's plugin `pytester`."""

import pytest

from pytest_plugin.sessions import KERNELS, Session


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return runs of pytest in a folder that has kernels."""
    monkeypatch.delenv("CI", raising=False)
    pytester.makepyfile(judged_kernels=KERNELS)
    return Session(pytester)
