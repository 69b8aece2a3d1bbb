"""The recipes of kernels that ship are named, by decided elements."""

from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify.grouped.kernels import Array, HuggingFace, InFloat32, Textbook, judge_cases
from shared.verify.grouped.planted import grouped
from truenorm.verify.grading.report import Recipe

SILU, FIRST = "rms_norm,gate=silu", "rms_norm,groups=2,gate=silu-first"
DIT = "layer_norm,modulate=sample,gamma=false"
At = dict[str, Any]


class Rounding(InFloat32):
    """Float32 arithmetic, in which some steps are rounded to the type of x."""

    def to_type(self, array: Array, at: At) -> Array:
        return np.asarray(array.astype(at["kind"]).astype(self.wide))


class Early(Rounding):
    """Hugging Face's Mamba2; SGLang's norm_scale_shift."""

    def gain(self, xhat: Array, at: At) -> Array:
        return super().gain(self.to_type(xhat, at), at)


class NormRounded(Rounding):
    def gain(self, xhat: Array, at: At) -> Array:
        return self.to_type(super().gain(xhat, at), at)


class GateRounded(Rounding):
    def gain(self, xhat: Array, at: At) -> Array:
        at["s"] = self.to_type(at["s"], at)
        return super().gain(xhat, at)


class BothRounded(GateRounded):
    def gain(self, xhat: Array, at: At) -> Array:
        return self.to_type(super().gain(xhat, at), at)


class GatedInputRounded(Rounding):
    def normalized(self, u: Array, eps: float, at: At) -> Array:
        return super().normalized(self.to_type(u, at), eps, at)


class GainRounded(Rounding):
    def modulated(self, n: Array, at: At) -> Array:
        at["factor"] = self.to_type(1 + self.modulation(at["scale"], at["shape"]), at)
        return np.asarray(n * at["factor"] + self.modulation(at["shift"], at["shape"]))


class Stepwise(Rounding):
    """SGLang's rmsnorm_scale_shift_bitexact."""

    def gain(self, xhat: Array, at: At) -> Array:
        return self.to_type(super().gain(self.to_type(xhat, at), at), at)

    def modulated(self, n: Array, at: At) -> Array:
        at["factor"] = self.to_type(1 + self.modulation(at["scale"], at["shape"]), at)
        product = self.to_type(n * at["factor"], at)
        return np.asarray(product + self.modulation(at["shift"], at["shape"]))


def recipe_of(kernel: Textbook, dtype: str) -> Recipe:
    cases = [
        case
        for case in tv.cases(dtype, operation=kernel.norm)
        if case.family == "normal" and case.shape[1] <= 2100
    ]
    report = judge_cases(kernel.subject(dtype), cases)
    (recipe,) = [each for each in report.recipes if each.output == "y"]
    return recipe


@pytest.mark.parametrize("dtype", [
    "bfloat16",
    pytest.param("float16",
        marks=pytest.mark.slow(reason="a verdict of a second type takes as long as the first")),
])  # fmt: skip
@pytest.mark.parametrize(("kernel", "spec", "name"), [
    (InFloat32, SILU, "late"),  # fla, mamba_ssm, vLLM
    (HuggingFace, SILU, "early, norm-rounded"),  # Qwen3-Next
    (Early, SILU, "early"),
    (NormRounded, SILU, "norm-rounded"),
    (GateRounded, SILU, "gate-rounded"),
    (BothRounded, SILU, "both-rounded"),
    (InFloat32, FIRST, "late"),  # mamba_ssm with norm_before_gate=False
    (Early, FIRST, "early"),  # Hugging Face's Mamba2
    (GatedInputRounded, FIRST, "gate-rounded"),
    (InFloat32, DIT, "late"),  # FlashInfer
    (Early, DIT, "early"),  # SGLang's norm_scale_shift
    (GainRounded, DIT, "gain-rounded"),
    (Stepwise, "rms_norm,modulate=row", "stepwise"),  # SGLang's bit-exact one
    (InFloat32, "group_norm,groups=2", "late"),
    (InFloat32, "group_norm,groups=3,gate=self", "late"),  # apex
    (NormRounded, "rms_norm,gate=self", "norm-rounded"),
])  # fmt: skip
def test_named(kernel: type[Textbook], spec: str, name: str, dtype: str) -> None:
    recipe = recipe_of(kernel(grouped(spec)), dtype)
    assert name in recipe.names, recipe
