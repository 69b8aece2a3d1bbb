"""Pairs by a writer who had not seen the checker: no false verdict, and hardly any without one."""

import pytest

import truenorm as tn
from gradient_check.checking import FAIL, INCONCLUSIVE, PASS
from gradient_check.unseen_pairs import UNSEEN, UnseenPair

NO_ANSWER = {"cast_to_float32_inside"}
"""Forward shows no more than four digits of a derivative, and all of them agree."""
EACH = [
    # The gate has every fourth.
    pytest.param(pair, id=pair.name, marks=pytest.mark.slow if k % 4 else ())
    for k, pair in enumerate(UNSEEN)
]


def test_half_of_them_are_right() -> None:
    assert (len(UNSEEN), sum(pair.right for pair in UNSEEN)) == (100, 50)


@pytest.mark.parametrize("pair", EACH)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_false_verdict(pair: UnseenPair) -> None:
    pytest.importorskip("flint")
    result = tn.gradcheck(pair.forward, pair.backward, pair.inputs)
    expected = INCONCLUSIVE if pair.name in NO_ANSWER else PASS if pair.right else FAIL
    assert result.verdict is expected, f"{pair.why}\n{result}"
