"""Fixtures of the judge's tests."""

import pytest

from shared.verify.recorded import leave_out_long_calls


@pytest.fixture
def without_long_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the cases whose calls take seconds, for tests of something else."""
    leave_out_long_calls(monkeypatch)
