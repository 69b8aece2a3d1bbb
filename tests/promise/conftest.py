"""What is promised is promised of every backend that can be used, and of both norms."""

from collections.abc import Callable

import pytest

from promise.families import Case
from promise.judging import BACKENDS


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=["layer_norm", "rms_norm"])
def of_norm(request: pytest.FixtureRequest) -> Callable[[Case], Case]:
    """Return what makes a case one of a norm."""
    return Case.of_rms_norm if request.param == "rms_norm" else lambda case: case
