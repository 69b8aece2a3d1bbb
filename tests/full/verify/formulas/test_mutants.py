"""Mutants of a formula that the judge does not have: their words, and the numbers of NumPy."""

import re
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from full.verify.grouped.test_exact_answers import GATED, GROUPED, random_case
from shared.verify.grouped.planted import grouped
from truenorm.verify import formulas as f
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


def mutants_of(output: str) -> tuple[Node, dict[str, Changes]]:
    results = l2_norm()
    axes = [Axis(0, "row", "rows"), Axis(1, "column", "columns")]
    formula = Formula(output, results, [["x"], ["gamma"], ["dy"]], ["dy"], axes)
    return results[output], formula.mutants()


def mutant(output: str, words: str) -> Any:
    node, mutants = mutants_of(output)
    return Run(NUMBERS, "bfloat16").result(node, mutants[words])


COLUMNS = list(range(SIZE))
BLOCK = COLUMNS[: SIZE - SIZE % 16]
PAIRS = [k ^ 1 if k ^ 1 < SIZE else k for k in range(SIZE)]
OF_Y = {
    "eps is left out": X / np.sqrt(SQUARES) * GAMMA,
    "eps is subtracted, not added": X / np.sqrt(SQUARES - EPS) * GAMMA,
    "eps is added to the root": X / (np.sqrt(SQUARES) + EPS) * GAMMA,
    "the sum of squares is multiplied by r in the sum of squares + eps": X
    / np.sqrt(SQUARES * R + EPS)
    * GAMMA,
    "no root is taken in r": X * R**2 * GAMMA,
    "gamma is left out of xhat*gamma": X * R,
    "r is applied twice in xhat": X * R**2 * GAMMA,
    "r is that of the next row": X * np.roll(R, -1, axis=0) * GAMMA,
    "r is rounded to float16": X * rounded(R, "float16") * GAMMA,
    "gamma is that of the column before": X * R * np.roll(GAMMA, 1),
    "the sum of squares is averaged, not summed": X / np.sqrt(SQUARES / SIZE + EPS) * GAMMA,
    **{
        words: X / np.sqrt((X[:, columns] ** 2).sum(axis=1, keepdims=True) + EPS) * GAMMA
        for words, columns in {
            "the last, partial block of 16 columns is left out of the sum of squares": BLOCK,
            "every second column is left out of the sum of squares": COLUMNS[::2],
            "a last, partial block of 8 begins at n - 8 and counts columns twice in "
            "the sum of squares": [*BLOCK, *COLUMNS[-8:]],
        }.items()
    },
    "r is that of the row before, within blocks of 4 rows": X * R[[0, 0, 1, 2, 4, 4]] * GAMMA,
    "gamma is that of the other column of a pair": X * R * GAMMA[:, PAIRS],
    "gamma is indexed by row, not by column": X * R * GAMMA[0, :6, np.newaxis],
}
OF_DGAMMA = {
    "it is that of the first row": (DY * X * R)[:1],
    "it is that of the last row": (DY * X * R)[-1:],
    "the second half of the rows is left out": (DY * X * R)[:3].sum(axis=0),
    "the last row is counted again, up to a multiple of 4": (DY * X * R)[[*range(6), 5, 5]].sum(
        axis=0
    ),
    "x is used for xhat in dy*xhat": (DY * X).sum(axis=0),
    "y is used for xhat in dy*xhat": (DY * X * R * GAMMA).sum(axis=0),
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
    found = mutant("dgamma", "it is summed in the type of x").reshape(-1)
    np.testing.assert_array_equal(found, total_)


@pytest.mark.parametrize("output", ["y", "dgamma"])
def test_mutants_differ(output: str) -> None:
    node, mutants = mutants_of(output)
    run = Run(NUMBERS, "bfloat16")
    right = run.result(node, {})
    np.testing.assert_allclose(right, l2_norm_by_hand(output), rtol=1e-13)
    same = [
        words
        for words, each in mutants.items()
        if not of_blocks(words) and np.allclose(run.result(node, each), right)
    ]
    assert same == ["r is 1 where the sum of squares is 0"]


def of_blocks(words: str) -> bool:
    """Return True for a mutant that wide or long cases show; `test_indices` has its rule."""
    return re.search(r"block|multiple of|beyond|from [nN]|of every|i %", words) is not None


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
        for words, hypothesis in hypotheses.items():
            if of_blocks(words) and "block of 4" not in words:
                continue
            found = np.broadcast_to(hypothesis(case), right.shape)
            close += np.allclose(found, right, rtol=1e-6, atol=1e-6)
        assert close < 0.5 * len(hypotheses), (output, close, len(hypotheses))


def test_a_hypothesis_about_an_absent_input() -> None:
    case = random_case("rms_norm,groups=4", "96", "float32", 4)
    without = Case(case.operation, "none", "float32", {**case.inputs, "gamma": None}, case.eps)
    found = hypotheses_of(grouped("rms_norm,groups=4"), "y")["gamma is left out of xhat*gamma"]
    np.testing.assert_allclose(found(without), compute_exact(without)["y"][..., 0], rtol=1e-6)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_mutant_has_a_scale(name: str) -> None:
    """Also where a comparison is changed, which has no error."""
    operation = SHIPPED[name]()
    case = tv.case("float32-normal-4x8", operation=operation)
    for output in (each.name for each in operation.outputs):
        shape = operation.shaped(output, np.zeros((1, 1)), case).shape
        for words in operation.hypotheses(output):
            scale = operation.knowledge.scale_of(output, words, case)
            assert np.broadcast_shapes(scale.shape, shape) == shape, words
            assert np.isfinite(scale).all(), words


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
    assert (report.findings[0].cause or "").startswith(f"{step_} is rounded to float16 (")


def test_hypotheses_of_plain_norms() -> None:
    """They have the mutants of the formula beside the hypotheses written by hand."""
    case = tv.case("float32-normal-4x67")
    x, dy, gamma = (
        np.asarray(each, np.float64) for each in (case.x, case.rows["dy"], case.inputs["gamma"])
    )
    c = x - x.mean(axis=1, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(axis=1, keepdims=True) + case.eps)
    g, xhat = gamma * dy, c * r
    mean_g, along = (each.mean(axis=1, keepdims=True) for each in (g, g * xhat))
    narrow = [rounded(each, "bfloat16") for each in (mean_g, along)]
    by_hand = {
        "mean(g) and mean(g*xhat) are rounded to bfloat16": r * (g - narrow[0] - xhat * narrow[1]),
        "mean(g*xhat) is divided by n - 1": r * (g - mean_g - xhat * along * 67 / 66),
        "mean(g*xhat) is not taken: g*xhat is used": r * (g - mean_g - xhat * g * xhat),
        "mean(g) is that of all rows of a block of 2": r
        * (g - mean_g.reshape(2, 2).mean(axis=1).repeat(2)[:, np.newaxis] - xhat * along),
    }
    hypotheses = case.operation.knowledge.hypotheses("dx")
    for words, values in by_hand.items():
        np.testing.assert_allclose(hypotheses[words](case), values, rtol=1e-10, atol=1e-12)
