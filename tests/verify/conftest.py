"""Fixtures of the judge's tests."""

from collections.abc import Iterator

import pytest

from truenorm.verify.oracle import EXPECTED_BY_CASE
from verify.recorded import leave_out_long_calls

MOST_ANSWERS = 3000
"""Answers in memory: those of all operations at the full level would be gigabytes."""


@pytest.fixture(autouse=True)
def few_answers() -> Iterator[None]:
    """Drop the answers that a process holds, once they are many."""
    yield
    if len(EXPECTED_BY_CASE) > MOST_ANSWERS:
        EXPECTED_BY_CASE.clear()


@pytest.fixture
def without_long_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the cases whose calls take seconds, for tests of something else."""
    leave_out_long_calls(monkeypatch)
