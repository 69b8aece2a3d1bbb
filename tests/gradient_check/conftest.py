"""The methods that a check can use."""

import pytest


@pytest.fixture(params=["jet", "complex", "central"])
def method(request: pytest.FixtureRequest) -> str:
    """Every method; a bare install has no python-flint, and so no jets."""
    name: str = request.param
    if name == "jet":
        pytest.importorskip("flint")
    return name
