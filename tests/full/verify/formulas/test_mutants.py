"""Mutants of a formula that the judge does not have: their words, and the numbers of NumPy."""

import re
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from full.verify.grouped.test_exact_answers import GATED, GROUPED, random_case
from shared.verify.grouped.planted import grouped
from truenorm.verify import formulas as f
from truenorm.verify.causes import Cause
from truenorm.verify.formulas.graph import Node, given, inverse_root, step, total
from truenorm.verify.formulas.mutants import Axis, Changes, Formula, Run
from truenorm.verify.formulas.rounding import rounded
from truenorm.verify.formulas.shipped import SHIPPED
from truenorm.verify.norms.grouped.causes import hypotheses_of
from truenorm.verify.operation import Case
from truenorm.verify.oracle import compute_exact

ROWS, SIZE, EPS = 6, 21, 0.25
RANDOM = np.random.default_rng(1)
X, DY = (RANDOM.normal(size=(ROWS, SIZE)) for _ in "xy")
GAMMA = RANDOM.normal(size=(1, SIZE))
NUMBERS = {"x": X, "gamma": GAMMA, "eps": np.full((1, 1), EPS), "dy": DY}
SQUARES = (X * X).sum(axis=1, keepdims=True)
R = 1 / np.sqrt(SQUARES + EPS)


def l2_norm() -> dict[str, Node]:
    """Return y = x*gamma/sqrt(sum(x^2) + eps) and dgamma."""
    x, dy = given("x", [0, 1]), given("dy", [0, 1])
    gamma, eps = given("gamma", [1]), given("eps", [])
    squares = step("the sum of squares", total(x * x, [1]))
    xhat = step("xhat", x * step("r", inverse_root(squares + eps)))
    return {"y": xhat * gamma, "dgamma": total(dy * xhat, [0])}


def mutants_of(output: str) -> tuple[Node, dict[Cause, Changes]]:
    results = l2_norm()
    axes = [Axis(0, "row", "rows"), Axis(1, "column", "columns")]
    formula = Formula(output, results, [["x"], ["gamma"], ["dy"]], ["dy"], axes)
    return results[output], formula.mutants()


def mutant(output: str, cause: str) -> Any:
    node, mutants = mutants_of(output)
    return Run(NUMBERS, "bfloat16").result(node, mutants[Cause(cause, "")])


COLUMNS = list(range(SIZE))
BLOCK = COLUMNS[: SIZE - SIZE % 16]
PAIRS = [k ^ 1 if k ^ 1 < SIZE else k for k in range(SIZE)]
OF_Y = {
    "no-term(eps)": X / np.sqrt(SQUARES) * GAMMA,
    "term-negated(eps)": X / np.sqrt(SQUARES - EPS) * GAMMA,
    "added-to-root(eps)": X / (np.sqrt(SQUARES) + EPS) * GAMMA,
    "term-multiplied(the sum of squares, r, the sum of squares + eps)": X
    / np.sqrt(SQUARES * R + EPS)
    * GAMMA,
    "no-root(r)": X * R**2 * GAMMA,
    "no-factor(gamma, xhat*gamma)": X * R,
    "factor-twice(r, xhat)": X * R**2 * GAMMA,
    "of-next(r, row)": X * np.roll(R, -1, axis=0) * GAMMA,
    "rounded(r, float16)": X * rounded(R, "float16") * GAMMA,
    "of-before(gamma, column)": X * R * np.roll(GAMMA, 1),
    "averaged(the sum of squares)": X / np.sqrt(SQUARES / SIZE + EPS) * GAMMA,
    **{
        words: X / np.sqrt((X[:, columns] ** 2).sum(axis=1, keepdims=True) + EPS) * GAMMA
        for words, columns in {
            "no-partial-block(the sum of squares, column, 16)": BLOCK,
            "no-every-second(the sum of squares, column)": COLUMNS[::2],
            "last-block-overlaps(the sum of squares, column, 8)": [*BLOCK, *COLUMNS[-8:]],
        }.items()
    },
    "of-before-in-blocks(r, row, 4)": X * R[[0, 0, 1, 2, 4, 4]] * GAMMA,
    "of-other-of-pair(gamma, column)": X * R * GAMMA[:, PAIRS],
    "indexed-by(gamma, row)": X * R * GAMMA[0, :6, np.newaxis],
}
OF_DGAMMA = {
    "first-alone(row)": (DY * X * R)[:1],
    "last-alone(row)": (DY * X * R)[-1:],
    "no-second-half(row)": (DY * X * R)[:3].sum(axis=0),
    "last-repeated(row, 4)": (DY * X * R)[[*range(6), 5, 5]].sum(axis=0),
    "used-for(x, xhat, dy*xhat)": (DY * X).sum(axis=0),
    "used-for(y, xhat, dy*xhat)": (DY * X * R * GAMMA).sum(axis=0),
}


@pytest.mark.parametrize("words", OF_Y)
def test_y(words: str) -> None:
    np.testing.assert_allclose(mutant("y", words), OF_Y[words], rtol=1e-13)


@pytest.mark.parametrize("words", OF_DGAMMA)
def test_dgamma(words: str) -> None:
    found = mutant("dgamma", words).reshape(-1)
    np.testing.assert_allclose(found, OF_DGAMMA[words].reshape(-1), rtol=1e-12)


def test_a_sum_in_the_type_of_x() -> None:
    total_ = np.zeros(SIZE)
    for row in rounded(DY * X * R, "bfloat16"):
        total_ = rounded(total_ + row, "bfloat16")
    found = mutant("dgamma", "summed-in-type-of-x").reshape(-1)
    np.testing.assert_array_equal(found, total_)


@pytest.mark.parametrize("output", ["y", "dgamma"])
def test_mutants_differ(output: str) -> None:
    node, mutants = mutants_of(output)
    run = Run(NUMBERS, "bfloat16")
    right = run.result(node, {})
    np.testing.assert_allclose(right, l2_norm_by_hand(output), rtol=1e-13)
    same = [
        cause.id
        for cause, each in mutants.items()
        if not of_blocks(cause.id) and np.allclose(run.result(node, each), right)
    ]
    assert same == ["one-for-zero(r)"]


def of_blocks(cause: str) -> bool:
    """Return True for a mutant that wide or long cases show; `test_indices` has its rule."""
    return re.search(r"block|beyond|multiple|of-every|repeated|modulo", cause) is not None


def l2_norm_by_hand(output: str) -> Any:
    return X * R * GAMMA if output == "y" else (DY * X * R).sum(axis=0, keepdims=True)


@pytest.mark.parametrize(("spec", "layout"), [*GROUPED, *GATED])
def test_hypotheses_of_grouped_norms(spec: str, layout: str) -> None:
    """Every hypothesis can be computed, and most differ from the answer."""
    case = random_case(spec, layout, "float32", 4)
    norm = case.operation
    exact = compute_exact(case)
    sums_of_dy = {"sum", "dbeta", "dshift"}
    for output in (each.name for each in norm.outputs if each.name not in sums_of_dy):
        hypotheses, right = hypotheses_of(norm, output), exact[output][..., 0]
        close = 0
        for cause, hypothesis in hypotheses.items():
            if of_blocks(cause.id) and not cause.id.endswith(", 4)"):
                continue
            found = np.broadcast_to(hypothesis(case), right.shape)
            close += np.allclose(found, right, rtol=1e-6, atol=1e-6)
        assert close < 0.5 * len(hypotheses), (output, close, len(hypotheses))


def test_a_hypothesis_about_an_absent_input() -> None:
    case = random_case("rms_norm,groups=4", "96", "float32", 4)
    without = Case(case.operation, "none", "float32", {**case.inputs, "gamma": None}, case.eps)
    no_gamma = Cause("no-factor(gamma, xhat*gamma)", "")
    found = hypotheses_of(grouped("rms_norm,groups=4"), "y")[no_gamma]
    np.testing.assert_allclose(found(without), compute_exact(without)["y"][..., 0], rtol=1e-6)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_mutant_has_a_scale(name: str) -> None:
    """Also where a comparison is changed, which has no error."""
    operation = SHIPPED[name]()
    case = tv.case("float32-normal-4x8", operation=operation)
    for output in (each.name for each in operation.outputs):
        shape = operation.shaped(output, np.zeros((1, 1)), case).shape
        for cause in operation.hypotheses(output):
            scale = operation.knowledge.scale_of(output, cause, case)
            assert np.broadcast_shapes(scale.shape, shape) == shape, cause
            assert np.isfinite(scale).all(), cause


@pytest.mark.parametrize("named", [True, False])
def test_a_step_in_float16_may_be_next_to_the_middle_of_two_numbers(named: bool) -> None:
    """There tanh in float32 is rounded to the other of them than tanh in float64."""

    def softcap(x: Any) -> Any:
        t = f.tanh(x)
        return 30.0 * t

    operation = tv.formula(softcap if named else lambda x: 30.0 * f.tanh(x), name="softcap")

    def kernel(x: Any) -> Any:
        return np.float32(30) * np.tanh(x).astype(np.float16).astype(np.float32)

    report = tv.verify(tv.Subject(kernel, operation=operation, dtypes=["float32"]))
    step_ = "t" if named else "tanh(x)"
    assert [each.id for each in report.findings[0].causes] == [f"rounded({step_}, float16)"]
