"""Settings that every test shares."""

import os
from collections.abc import Iterator

import hypothesis
import pytest

from gated import takes_16_bits_by_fused
from truenorm.kernels.drive.again import compiling_at_once

# A deadline would make slow machines fail; a fixed seed makes the gate judge a tree the same
# way twice. Searching for new counterexamples is the business of the other profiles.
hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.register_profile("search", deadline=None, max_examples=100)
hypothesis.settings.register_profile("slow", deadline=None, max_examples=5000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the session `slow` what `gated` says of two fixtures."""
    for item in items:
        chosen = getattr(item, "callspec", None)
        if chosen is not None and takes_16_bits_by_fused(chosen.params):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="session")
def _compiled_double_double() -> Iterator[None]:
    """Test what is compiled, though tests refuse too little for compiling to pay."""
    with compiling_at_once():
        yield
