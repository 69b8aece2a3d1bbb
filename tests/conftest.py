"""Settings that every test shares."""

import os
from collections.abc import Iterator

import hypothesis
import pytest

from truenorm.kernels.drive.again import compiling_at_once

# A deadline would make slow machines fail; a fixed seed makes the gate judge a tree the same
# way twice. Searching for new counterexamples is the business of the other profiles.
hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.register_profile("search", deadline=None, max_examples=100)
hypothesis.settings.register_profile("slow", deadline=None, max_examples=5000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


@pytest.fixture(autouse=True, scope="session")
def _compiled_double_double() -> Iterator[None]:
    """Test what is compiled, though tests refuse too little for compiling to pay."""
    with compiling_at_once():
        yield
