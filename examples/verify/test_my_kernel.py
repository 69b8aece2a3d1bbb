"""The judge in a test suite, one test for each check: ``pytest test_my_kernel.py``."""

from pathlib import Path

import pytest

import truenorm.verify as tv

# In your tests, import your subject instead.
subject = tv.load(f"{Path(__file__).with_name('numpy_check.py')}:mended")


@pytest.mark.parametrize("verdict", tv.verdicts(subject))
def test_my_kernel(verdict: tv.Verdict) -> None:
    """Raise an AssertionError with the symptom, the likely cause and a reproducer."""
    verdict.assert_passed()
