"""Right pairs pass and wrong ones fail, by every method that applies."""

from importlib.util import find_spec

import pytest

import truenorm as tn
from gradient_check.checking import FAIL, PASS, demand
from gradient_check.pairs import ELEMENT, GROSS, PAIRS, last, with_mistake

EVERYWHERE = [(name, k) for name, pair in PAIRS.items() for k in range(len(pair.inputs))]
GROSS_MISTAKES = [
    (name, which, mistake)
    for name, which in EVERYWHERE
    for mistake in GROSS
    if mistake != "term missing" or which == PAIRS[name].at_fault
]


def methods_for(name: str) -> list[str]:
    """Return those that take a pair, of those that are installed."""
    jets = ["jet"] if find_spec("flint") else []
    return [*jets, "complex", "central"] if PAIRS[name].analytic else [*jets, "central"]


@pytest.mark.parametrize("name", PAIRS)
def test_right_pairs_pass(name: str) -> None:
    pair = PAIRS[name]
    for method in methods_for(name):
        tol = None if method == "central" else 1e-12
        result = demand(PASS, pair.forward, pair.backward, pair.inputs, method=method, tol=tol)
        assert [check.checked for check in result.inputs] == [x.size for x in pair.inputs]
        assert result.method == method


@pytest.mark.parametrize(
    ("name", "which", "mistake"),
    [
        # Of most pairs the gate has one mistake for every other input, in turn, and of one all.
        pytest.param(*each, marks=() if each[0] == "RMSNorm" or k % 6 == 0 else pytest.mark.slow)
        for k, each in enumerate(GROSS_MISTAKES)
    ],
)
def test_gross_mistakes_fail_in_the_right_input(name: str, which: int, mistake: str) -> None:
    pair = PAIRS[name]
    wrong = with_mistake(pair, mistake, which)
    for method in methods_for(name):
        result = demand(FAIL, pair.forward, wrong, pair.inputs, method=method)
        assert result.worst_input == which
        assert [check.verdict for check in result.inputs].count(FAIL) == 1


@pytest.mark.parametrize(("name", "which"), EVERYWHERE)
def test_one_element_off_by_1e_10_is_named(name: str, which: int) -> None:
    """Central differences do not see that far; the others do, and say where."""
    pair = PAIRS[name]
    wrong = with_mistake(pair, ELEMENT, which)
    for method in methods_for(name)[:-1]:
        result = demand(FAIL, pair.forward, wrong, pair.inputs, method=method)
        assert (result.worst_input, result.worst) == (which, last(pair.inputs[which]))
        found = result.inputs[which]
        assert abs(found.analytic / found.numeric - 1) == pytest.approx(1e-10, rel=1e-3)
        assert f"worst at {list(last(pair.inputs[which]))}" in str(result)


def test_a_pair_that_is_not_analytic_is_refused_by_complex() -> None:
    pair = PAIRS["weighted L1"]
    with pytest.raises(ValueError, match="not analytic"):
        tn.gradcheck(pair.forward, pair.backward, pair.inputs, method="complex")
