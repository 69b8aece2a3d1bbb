"""The fixture `backend`: every usable backend."""

import pytest

from shared.promise.checking import BACKENDS


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
