"""Verdicts on right and wrong pairs of forward and backward, by every method."""

import math
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import truenorm as tn
from shared.gradient_check.drawn import DrawnPair, drawn_pairs, spoiled
from shared.gradient_check.pairs import (
    ELEMENT,
    EPS,
    FAIL,
    GROSS,
    INCONCLUSIVE,
    PAIRS,
    PASS,
    Array,
    data,
    demand,
    forbid,
    last,
    layer_norm,
    softmax,
    softmax_backward,
    tanh_backward,
    with_mistake,
)
from shared.gradient_check.unseen_pairs import UNSEEN, UnseenPair
from truenorm.gradient_check import Verdict

SLOW = pytest.mark.slow(reason="hundreds of pairs take minutes")

EVERYWHERE = [(name, k) for name, pair in PAIRS.items() for k in range(len(pair.inputs))]
GROSS_MISTAKES = [
    (name, which, mistake)
    for name, which in EVERYWHERE
    for mistake in GROSS
    if mistake != "term missing" or which == PAIRS[name].at_fault
]


def methods_for(name: str) -> list[str]:
    """Return the installed methods that apply to a pair."""
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
        # The default run has all mistakes of one pair, and every sixth of the others.
        pytest.param(*each, marks=() if each[0] == "RMSNorm" or k % 6 == 0 else SLOW)
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
def test_one_element_off_by_1e_10_is_located(name: str, which: int) -> None:
    """Central differences are not that accurate; the other methods locate the element."""
    pair = PAIRS[name]
    wrong = with_mistake(pair, ELEMENT, which)
    for method in methods_for(name)[:-1]:
        result = demand(FAIL, pair.forward, wrong, pair.inputs, method=method)
        assert (result.worst_input, result.worst) == (which, last(pair.inputs[which]))
        check = result.inputs[which]
        assert abs(check.analytic / check.numeric - 1) == pytest.approx(1e-10, rel=1e-3)
        assert f"worst at {list(last(pair.inputs[which]))}" in str(result)


def test_complex_step_refuses_a_pair_that_is_not_analytic() -> None:
    pair = PAIRS["weighted L1"]
    with pytest.raises(ValueError, match="not analytic"):
        tn.gradcheck(pair.forward, pair.backward, pair.inputs, method="complex")


INCONCLUSIVE_PAIRS = {"cast_to_float32_inside"}
"""Forward determines only four digits of its derivative, and all of them agree."""
UNSEEN_PAIRS = [
    # The default run has every fourth pair.
    pytest.param(pair, id=pair.name, marks=SLOW if k % 4 else ())
    for k, pair in enumerate(UNSEEN)
]


def test_half_of_the_unseen_pairs_are_right() -> None:
    assert (len(UNSEEN), sum(pair.right for pair in UNSEEN)) == (100, 50)


@pytest.mark.parametrize("pair", UNSEEN_PAIRS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_unseen_pairs(pair: UnseenPair) -> None:
    pytest.importorskip("flint")
    result = tn.gradcheck(pair.forward, pair.backward, pair.inputs)
    expected = INCONCLUSIVE if pair.name in INCONCLUSIVE_PAIRS else PASS if pair.right else FAIL
    assert result.verdict is expected, f"{pair.why}\n{result}"


TIMES = [10.0, 30.0, 1e3, 1e6]
"""Errors of wrong gradients, in multiples of the tolerance."""


def verdicts(examples: int, seed: int) -> Counter[tuple[bool, Verdict]]:
    """Check right pairs and wrong variants of them; count the verdicts on ordinary ones."""
    counts: Counter[tuple[bool, Verdict]] = Counter()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(
        drawn_pairs(), st.sampled_from(TIMES), st.sampled_from(["alone", "opposite"])
    )
    def check_pair(pair: DrawnPair, times: float, how: str) -> None:
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
            counts[(True, right.verdict)] += 1
            counts[(False, wrong.verdict)] += 1

    check_pair()
    return counts


def inconclusive_share(counts: Counter[tuple[bool, Verdict]]) -> float:
    return sum(n for key, n in counts.items() if key[1] is Verdict.INCONCLUSIVE) / counts.total()


@pytest.mark.parametrize(
    ("examples", "seed"), [(25, 0), *(pytest.param(2000, seed, marks=SLOW) for seed in range(10))]
)
def test_drawn_pairs(examples: int, seed: int) -> None:
    counts = verdicts(examples, seed)
    assert counts.total() >= 3 * examples // 4
    assert inconclusive_share(counts) <= 0.02, counts


PairAndInput = tuple[Callable[..., Any], Callable[..., Any], Any]


def draw(seed: int) -> Callable[[Any], Array]:
    return np.random.default_rng(seed).standard_normal


def sine(factor: float, x: Array, off: float = 0.0) -> PairAndInput:
    """Return a steep sine, with a relative error in its gradient."""
    return (
        lambda x: np.sin(factor * x),
        lambda dy, x: (1 + off) * dy * factor * np.cos(factor * x),
        x,
    )


def rows_of_shares(seed: int) -> PairAndInput:
    """Return a pair whose derivative is zero: the shares of each row add up to 1."""
    x = np.abs(draw(seed)((4, 3))) * np.array([[1e3], [1.0], [1e-3], [1e-6]])

    def backward(dy: Array, x: Array) -> Array:
        total = x.sum(axis=-1, keepdims=True)
        dshares = dy[:, None] * np.ones_like(x)
        return np.asarray(dshares / total - (x * dshares).sum(axis=-1, keepdims=True) / total**2)

    return lambda x: (x / x.sum(axis=-1, keepdims=True)).sum(axis=-1), backward, x


def shifted_sine(factor: float, seed: int) -> PairAndInput:
    """Return a sine at zeros, where rounding errors come from a constant."""
    shift = np.random.default_rng(seed).random()
    return (
        lambda x: np.sin(factor * (x + shift)),
        lambda dy, x: dy * factor * np.cos(factor * (x + shift)),
        np.zeros(4),
    )


RIGHT: dict[str, Callable[[int], PairAndInput]] = {
    **{
        f"softmax of {scale} N": lambda seed, scale=scale: (  # type: ignore[misc]
            softmax,
            softmax_backward,
            scale * draw(seed)((3, 8)),
        )
        for scale in (10, 30, 100, 1000)
    },
    "softmax with one large": lambda _: (softmax, softmax_backward, np.array([[0.5, 40.7, 1.1]])),
    "saturated tanh": lambda seed: (
        np.tanh,
        tanh_backward,
        np.random.default_rng(seed).uniform(8, 20, 6),
    ),
    "tanh of 10 N": lambda seed: (np.tanh, tanh_backward, 10 * draw(seed)(20)),
    "sine beside an offset": lambda seed: sine(1e3, 1e4 + 0.01 * draw(seed)(4)),
    "steep sine": lambda seed: sine(1e8, draw(seed)(5)),
    "steeper sine": lambda seed: sine(1e10, draw(seed)(5)),
    "sine at zeros": lambda seed: shifted_sine(10.0 ** (3 + seed), seed),
    "a derivative of zero": rows_of_shares,
}


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=SLOW) for seed in (2, 3))])
@pytest.mark.parametrize("name", RIGHT)
def test_right_pairs_do_not_fail(name: str, seed: int) -> None:
    pytest.importorskip("flint")
    pair = RIGHT[name](seed)
    forbid(FAIL, *pair)
    forbid(FAIL, *pair, method="central")


def small_beside(amplitude: float, factor: float) -> PairAndInput:
    """Return a pair with a small element whose gradient has the wrong sign."""
    return (
        lambda x: np.stack([x[0], amplitude * np.sin(factor * x[1])]),
        lambda dy, x: np.stack([dy[0], -dy[1] * amplitude * factor * np.cos(factor * x[1])]),
        np.array([1.3, 0.7]),
    )


def small_kink(at: float, x: float) -> PairAndInput:
    """Return a pair with a small element at or near a kink, and three times its slope."""
    return (
        lambda x: np.stack([x[0], 1e-7 * np.maximum(x[1] - at, 0)]),
        lambda dy, x: np.stack([dy[0], 3e-7 * dy[1] * (x[1] >= at)]),
        np.array([1.3, x]),
    )


WRONG: dict[str, PairAndInput] = {
    "a wiggle of 1e-12": (lambda x: x + 1e-12 * np.sin(1e8 * x), lambda dy, _: dy,
        np.array([1.3, 0.7, -0.4])),
    "structure of a small element":
        (lambda x: np.stack([x[0] + 1e-8 * np.tanh(x[0] * 1e8), x[1]]), lambda dy, _: dy,
        np.array([1e-8, 1e8])),
    "sign of a small element": small_beside(1e-12, 1e5),
    "sign of a tiny element": small_beside(1e-20, 1e5),
    "a small kink": small_kink(0.0, 0.0),
    "near a small kink": small_kink(0.7, 0.7001),
}  # fmt: skip


@pytest.mark.parametrize("method", ["auto", "central"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_pairs_do_not_pass(name: str, method: str) -> None:
    forbid(PASS, *WRONG[name], method=method)


class TestMissingGradients:
    def test_forward_that_reuses_its_output(self) -> None:
        buffer = np.empty(3)

        def forward(x: Array, weight: Array) -> Array:
            np.multiply(x, weight, out=buffer)
            return buffer

        inputs = [np.array([1.0, 2.0, 3.0])] * 2
        demand(FAIL, forward, lambda dy, _, weight: (dy * weight, None), inputs)

    def test_input_that_matters_only_nearby(self) -> None:
        def forward(x: Array, shift: Array) -> Array:
            return x + np.where(np.abs(shift) < 1e-3, shift, 0 * shift)

        forbid(PASS, forward, lambda dy, *_: (dy, None), [np.ones(2), np.zeros(2)])

    def test_forward_that_raises_at_the_moved_input(self) -> None:
        def forward(x: Array, eps: Array) -> Array:
            if np.any(eps < 0):
                raise ValueError("eps is negative")
            return np.asarray(x * (1 + eps))

        inputs = [np.ones(2), np.array([1e-5])]
        forbid(PASS, forward, lambda dy, _, eps: (dy * (1 + eps), None), inputs)


def test_forward_that_raises_outside_of_its_domain() -> None:
    def forward(x: Array) -> Array:
        return np.array([math.log(value) for value in x])

    demand(PASS, forward, lambda dy, x: dy / x, np.array([0.01, 5.0]))


def test_complex_step_is_small_relative_to_small_elements() -> None:
    x = np.array([1e-300, 1e-8, 0.3, 2.0])
    forbid(FAIL, lambda x: x * np.log(x), lambda dy, x: dy * (np.log(x) + 1), x, method="complex")


def test_jets_are_refused_for_large_inputs() -> None:
    pytest.importorskip("flint")
    x = np.ones(2**17 + 1)
    result = demand(PASS, lambda x: x * x, lambda dy, x: 2 * dy * x, x)
    assert result.method == "complex"
    assert "inputs have 131073 elements" in result.why


@pytest.mark.filterwarnings("error")
def test_no_warning_reaches_the_caller() -> None:
    def cast(x: Array) -> Array:
        y = np.empty(x.shape)
        y[:] = x**2
        return y

    demand(PASS, cast, lambda dy, x: 2 * dy * x, np.array([0.5, -1.5]))
    result = demand(INCONCLUSIVE, np.sqrt, lambda dy, x: dy / 2 + 0 * x, np.array([0.0]))
    assert "not deterministic" not in str(result)


X = np.random.default_rng(0).standard_normal(8)


def textbook_backward(dy: Array, x: Array, gamma: Array, beta: Array) -> tuple[Array, ...]:
    return tn.textbook.backward(dy, tn.textbook.forward(x, gamma, beta)[1])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("factor", [1e3, 1e6])
def test_an_ill_conditioned_sine(factor: float, seed: int, method: str) -> None:
    """The rounding error of factor*x is up to factor*u, and so is that of its cosine."""
    x = np.random.default_rng(seed).standard_normal(8)
    forbid(FAIL, *sine(factor, x), method=method)
    demand(FAIL, *sine(factor, x, off=1e-4))


def test_report_has_the_digits_that_agree() -> None:
    pytest.importorskip("flint")
    result = demand(PASS, *sine(1e6, X), method="jet")
    assert "agrees to 10 digits, rounding of backward allows 8" in str(result)
    assert 1e-11 < result.error < result.tol < 1e-8
    # An explicit tolerance is not relaxed.
    demand(FAIL, *sine(1e6, X), method="jet", tol=1e-12)


def test_an_error_above_the_rounding_fails() -> None:
    """The error is 1e-8, and the bound of rounding errors 3e-9."""
    pytest.importorskip("flint")
    demand(FAIL, *sine(1e6, X, off=1e-8), method="jet")


OFFSETS = [
    pytest.param(offset, seed, marks=SLOW if seed else ())
    for offset in (1e3, 1e6, 1e8)
    for seed in range(4)
]


@pytest.mark.parametrize(("offset", "seed"), OFFSETS)
def test_textbook_layer_norm_with_an_offset(offset: float, seed: int, method: str) -> None:
    draw = np.random.default_rng(seed).standard_normal
    inputs = [offset + draw((2, 6)), draw(6), draw(6)]
    pair = (layer_norm, textbook_backward, inputs)
    forbid(FAIL, *pair, method=method)
    if offset <= 1e6:
        demand(PASS, *pair)

    def doubled(*arguments: Array) -> tuple[Array, ...]:
        dx, dgamma, dbeta = textbook_backward(*arguments)
        return dx, 2 * dgamma, dbeta

    demand(FAIL, layer_norm, doubled, inputs)


@pytest.mark.parametrize("largest", [8.0, 17.0, 19.2, 20.0, 40.0])
def test_digits_lost_next_to_a_larger_element(largest: float, method: str) -> None:
    """1 - tanh(x)**2 loses seven digits at 8, and all at 20, where the derivative is 2e-17."""
    x = np.array([0.5, largest])
    forbid(FAIL, np.tanh, tanh_backward, x, method=method)
    demand(PASS, np.tanh, tanh_backward, x)
    if largest == 8:
        demand(PASS, np.tanh, tanh_backward, x, method=method)


def test_backward_that_is_not_deterministic() -> None:
    random = np.random.default_rng(0)

    def backward(dy: Array, x: Array) -> Array:
        return tanh_backward(dy, x) * (random.random(x.shape) < 0.5)

    result = demand(FAIL, np.tanh, backward, X)
    assert result.inputs[0].why.startswith("backward is not deterministic")
    assert "backward is not deterministic" in str(result)


def test_backward_that_uses_state_of_forward() -> None:
    """Rounding errors are measured at other inputs, where forward must run first."""
    pytest.importorskip("flint")
    saved = {}

    def forward(x: Array) -> Array:
        saved["x"] = x
        return np.sin(1e6 * x)

    def backward(dy: Array, _: Array) -> Array:
        return dy * 1e6 * np.cos(1e6 * saved["x"])

    demand(PASS, forward, backward, X, method="jet")


# Rows around 1e8 with a spread of 1e-3: float64 numbers near 1e8 are 1.5e-8 apart, so that xhat
# of the textbook is off by 1e-5. Derivatives of that forward in float64 must be inconclusive.
norm_backward = PAIRS["layer norm"].backward


def recentred(x: Array, gamma: Array, beta: Array) -> Any:
    """Subtract the mean of the residuals, too: its rounding error is that of a small number."""
    c = x - x.mean(axis=-1, keepdims=True)
    c = c - c.mean(axis=-1, keepdims=True)
    return gamma * c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + EPS) + beta


def rows(shape: tuple[int, ...], seed: int = 0) -> list[Array]:
    x, gamma, beta = data(shape, shape[-1:], shape[-1:], seed=seed)
    return [1e8 + 1e-3 * x, gamma, beta]


SHAPES = [(1, 16), (2, 16), (1, 1024)]
DRAWN = [((1, 16), 0), ((1, 16), 1), ((2, 16), 2), ((1, 1024), 0), ((1, 1024), 1)]
METHODS_AND_ROWS = [
    # The default run has the first seed only.
    pytest.param(method, *each, marks=SLOW if each[1] else ())
    for method in ("complex", "central")
    for each in [*DRAWN, *(((1, 16), seed) for seed in range(2, 9))]
]


@pytest.mark.parametrize(("method", "shape", "seed"), METHODS_AND_ROWS)
def test_float64_is_inconclusive_on_hard_rows(
    shape: tuple[int, ...], seed: int, method: str
) -> None:
    result = demand(INCONCLUSIVE, layer_norm, norm_backward, rows(shape, seed), method=method)
    assert result.floor > result.tol
    assert "The floor is above the tolerance" in str(result)


@pytest.mark.parametrize(("shape", "seed"), DRAWN)
def test_accurate_forward_is_conclusive_on_hard_rows(shape: tuple[int, ...], seed: int) -> None:
    result = demand(PASS, recentred, norm_backward, rows(shape, seed), method="complex")
    assert result.error <= 1e-14


@pytest.mark.parametrize("shape", SHAPES)
def test_jets_are_conclusive_on_hard_rows(shape: tuple[int, ...]) -> None:
    pytest.importorskip("flint")
    result = demand(PASS, layer_norm, norm_backward, rows(shape), method="jet")
    assert result.error <= 1e-14
    assert result.floor <= 1e-16


def test_jets_fail_the_textbook_backward() -> None:
    """Its xhat is off by half an ulp of the mean over sigma, 1e-5."""
    pytest.importorskip("flint")
    pair = (layer_norm, textbook_backward, rows((4, 17)))
    result = demand(FAIL, *pair, method="jet", tol=1e-12)
    assert 1e-9 < result.error < 16 * np.spacing(1e8) / 1e-3
    # By default, rounding is no error.
    forbid(FAIL, *pair, method="jet")
