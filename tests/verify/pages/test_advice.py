"""Every kind of finding says why it matters and what to try, in a line each."""

import pytest

from truenorm.verify.grading.checks import GUARDS
from truenorm.verify.report.wording import ADVICE


def test_there_is_advice_for_every_guard() -> None:
    assert ADVICE.keys() == {*GUARDS, "rounding"}


@pytest.mark.parametrize("guard", ADVICE)
def test_it_is_short_and_two_things(guard: str) -> None:
    found = ADVICE[guard]
    assert found.matters != found.to_try
    assert all(10 < len(each) <= 90 for each in found)
