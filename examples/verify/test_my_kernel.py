"""The judge in a test suite, one test per case: ``pytest test_my_kernel.py``."""

from pathlib import Path

import pytest

import truenorm.verify as tv

# In your tests, import your subject instead.
subject = tv.load(f"{Path(__file__).with_name('numpy_check.py')}:mended")


@pytest.mark.parametrize("case", tv.cases("float32"), ids=str)
def test_my_kernel(case: tv.Case) -> None:
    """Raise an AssertionError that names the symptom."""
    tv.check(subject, case)
