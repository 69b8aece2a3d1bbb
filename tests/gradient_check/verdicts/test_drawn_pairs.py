"""Right pairs never fail and wrong ones never pass, whatever is drawn."""

from collections import Counter

import hypothesis
import pytest
from hypothesis import strategies as st

from gradient_check.drawn import DrawnPair, drawn_pairs, spoiled
from truenorm.gradient_check import Verdict

TIMES = [10.0, 30.0, 1e3, 1e6]
"""How many times the tolerance a wrong gradient is off."""


def verdicts(examples: int, seed: int = 0) -> Counter[tuple[bool, Verdict]]:
    """Check so many right pairs, and each again with an error; count what ordinary ones gave."""
    found: Counter[tuple[bool, Verdict]] = Counter()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(
        drawn_pairs(), st.sampled_from(TIMES), st.sampled_from(["alone", "opposite"])
    )
    def draw(pair: DrawnPair, times: float, how: str) -> None:
        try:
            right = pair.check(pair.backward, pair.method)
        except ValueError:  # the method does not take this function
            right = pair.check(pair.backward, "auto")
        assert right.verdict is not Verdict.FAIL, (pair.name, str(right))
        if pair.no_derivative:
            assert right.verdict is Verdict.INCONCLUSIVE, (pair.name, str(right))
        wrong = pair.check(spoiled(pair, right.tol, times, how), right.method)
        assert wrong.verdict is not Verdict.PASS, (pair.name, str(wrong))
        if pair.ordinary:
            found[(True, right.verdict)] += 1
            found[(False, wrong.verdict)] += 1

    draw()
    return found


def share_of_inconclusive(found: Counter[tuple[bool, Verdict]]) -> float:
    return sum(n for key, n in found.items() if key[1] is Verdict.INCONCLUSIVE) / found.total()


@pytest.mark.parametrize("examples", [25, pytest.param(200, marks=pytest.mark.slow)])
def test_no_false_verdict(examples: int) -> None:
    found = verdicts(examples)
    assert found.total() >= 3 * examples // 4
    assert share_of_inconclusive(found) <= 0.02, found


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_no_false_verdict_in_many(part: int) -> None:
    found = verdicts(2000, seed=1 + part)
    assert share_of_inconclusive(found) <= 0.02, found
