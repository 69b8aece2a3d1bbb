"""Settings that every test shares."""

import os

import hypothesis

# A deadline would make slow machines fail; a fixed seed makes the gate judge a tree the same
# way twice. Searching for new counterexamples is the business of the other profiles.
hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.register_profile("search", deadline=None, max_examples=100)
hypothesis.settings.register_profile("slow", deadline=None, max_examples=5000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))
