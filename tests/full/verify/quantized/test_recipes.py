"""Recipes are named by the codes, whatever the order of a sum and the last bits of a root."""

from itertools import product

import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify.quantized.engines import ENGINES
from shared.verify.quantized.kernels import Array, F, Kernel, judge, quantized_norm
from truenorm.verify.collecting import collect
from truenorm.verify.grading.report import Report
from truenorm.verify.judge import grade_records
from truenorm.verify.operation import Case
from truenorm.verify.running.runners import runner_for
from truenorm.verify.types import dtype_of

SCHEMES = {
    "e4m3fn": "rms_norm,quant=e4m3fn",
    "e5m2": "rms_norm,quant=e5m2",
    "e4m3fn per-token": "rms_norm,quant=e4m3fn,scale=per-token",
    "int8 per-token": "rms_norm,quant=int8,scale=per-token",
    "mxfp8": "rms_norm,quant=mxfp8",
    "mxfp4": "rms_norm,quant=mxfp4",
    "nvfp4": "rms_norm,quant=nvfp4",
}
RECIPES = [f"{norm}/{via}" for norm in ("late", "early", "product") for via in ("T", "direct")]
LANES = 32


class OtherRoot(Kernel):
    """Sums squares pairwise or in lanes, and has a root that is off by up to 2 ulp."""

    lanes = False

    def inverse_root(self, c: Array, eps: float) -> Array:
        squares = c * c
        if self.lanes:
            parts = squares.reshape(len(c), -1, LANES)
            total = np.zeros((len(c), LANES), F)
            for k in range(parts.shape[1]):
                total += parts[:, k]
            squares = total
        mean = squares.sum(-1, keepdims=True, dtype=F) / F(c.shape[1])
        r = (F(1) / np.sqrt(mean + F(eps))).astype(F)
        off = np.random.default_rng(len(c)).integers(-2, 3, r.shape, np.int32)
        return np.asarray((r.view(np.int32) + off).view(F))


def rows_of(operation: str, dtype: str, shape: tuple[int, int], seed: int) -> Case:
    """Return an ordinary case with normal x, and gamma about 1."""
    random = np.random.default_rng(seed)
    kind = dtype_of(dtype)
    base = next(
        case
        for case in tv.cases(dtype, operation=operation)
        if case.name.startswith(f"{dtype}-normal")
    )
    if "scale" in base.inputs:
        # As in `base`, but for the larger y of more rows.
        largest = quantized_norm(operation).quant.code.largest
        base = base.with_inputs(scale=np.full(1, 4.5 / largest, F))
    if "global_scale" in base.inputs:
        base = base.with_inputs(global_scale=np.full(1, 448 * 6 / 5.0, F))
    return base.with_inputs(
        x=random.standard_normal(shape).astype(kind),
        gamma=(1 + 0.2 * random.standard_normal(shape[1])).astype(kind),
    )


def report_on(kernel: Kernel, case: Case, recipe: str = "") -> Report:
    subject = kernel.subject(case.dtype)
    records = collect(runner_for(subject), [case])
    return grade_records(subject, [case], records, subject.spec(), recipe=recipe)


def named(operation: str, dtype: str, shape: tuple[int, int]) -> list[tuple[str, str]]:
    """Return each recipe of a kernel with the one that is named, for both orders of the sum."""
    pairs = []
    for seed, lanes in enumerate((False, True)):
        case = rows_of(operation, dtype, shape, seed + 17)
        for recipe in RECIPES:
            norm, via = recipe.split("/")
            kernel = OtherRoot(quantized_norm(operation), norm=norm, via=via)
            kernel.lanes = lanes
            (found,) = report_on(kernel, case).recipes
            pairs.append((recipe, found.name))
    return pairs


@pytest.mark.slow(reason="all recipes of all schemes take minutes")
@pytest.mark.parametrize(("scheme", "dtype"), [*product(SCHEMES, ["bfloat16", "float16"])])
def test_every_recipe_is_named(scheme: str, dtype: str) -> None:
    """168 runs: 7 schemes, 2 types, 6 recipes and 2 orders of the sum."""
    pairs = named(SCHEMES[scheme], dtype, (16, 4096))
    assert len(pairs) == 12
    assert all(recipe == name for recipe, name in pairs), pairs


@pytest.mark.parametrize(
    ("scheme", "dtype"), [("int8 per-token", "bfloat16"), ("e4m3fn", "float16")]
)
def test_recipes_are_named_by_fewer_rows(scheme: str, dtype: str) -> None:
    pairs = named(SCHEMES[scheme], dtype, (4, 4096))
    assert all(recipe == name for recipe, name in pairs), pairs


VLLM = ENGINES["vLLM rms_norm_dynamic_per_token_quant, int8"]


@pytest.mark.parametrize("claim", ["early/T", "early/T, reciprocal"])
def test_claimed_recipe_passes(claim: str) -> None:
    assert judge(VLLM.kernel.subject(recipe=claim), calls=False).passed


@pytest.mark.parametrize(("claim", "text"), [
    ("early/T, divide", "codes is not scaled as early/T, divide requires"),
    ("late/T, reciprocal", "codes is not rounded as late/T, reciprocal requires"),
    ("early/direct", "codes is not rounded as early/direct requires"),
])  # fmt: skip
def test_another_recipe_is_a_finding(claim: str, text: str) -> None:
    subject = VLLM.kernel.subject().with_options({"recipe": claim})
    (finding,) = judge(subject, calls=False).findings
    assert finding.guard == "recipe"
    assert text in finding.symptom
    assert [each.id for each in finding.causes] == ["recipe(early/T, reciprocal)"]


def test_unknown_recipe_raises() -> None:
    subject = Kernel(quantized_norm("rms_norm,quant=e4m3fn")).subject()
    with pytest.raises(ValueError, match="recipe must be one of"):
        subject.with_options({"recipe": "late/T, qmax/amax"})
