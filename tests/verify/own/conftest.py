"""Fewer rows in integers than users get: what is tested here is what the bounds see."""

import pytest

from truenorm.verify.grading import user_cases


@pytest.fixture(autouse=True)
def few_in_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_cases, "SAMPLED", 2**11)
