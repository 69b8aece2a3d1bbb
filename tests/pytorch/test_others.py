"""The recipes of code that ships, as the page "Recipes" has them."""

from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("torch")

import truenorm.verify as tv
from truenorm.verify.grading.grades import grade
from truenorm.verify.running.records import Call
from truenorm.verify.running.runners import InProcess

MODELS = "torch:transformers.models"
WIDE = "rms_norm,parameters=float32,result=float32"
ZERO_CENTRED = "rms_norm,gain=zero-centred"


def recipe_of(subject: tv.Subject, dtype: str) -> Any:
    """Return what ordinary rows tell."""
    operation = subject.operation
    suite = [each for each in tv.cases(dtype, operation=operation) if each.family == "normal"]
    records = [InProcess(subject).run(each, Call()) for each in suite]
    assert [each.failure for each in records if each.failure] == []
    (recipe,) = grade("", suite, records, outputs=["y"], require="wrong").recipes
    return recipe


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("target", "operation", "name"),
    [
        ("torch:torch.nn.functional.rms_norm", "rms_norm", "late"),
        ("torch:torch.nn.functional.layer_norm", "layer_norm", "late"),
        (f"{MODELS}.llama.modeling_llama.LlamaRMSNorm", "rms_norm", "early"),
        (f"{MODELS}.llama.modeling_llama.LlamaRMSNorm", WIDE, "early"),
        (f"{MODELS}.t5.modeling_t5.T5LayerNorm", "rms_norm", "early"),
        (f"{MODELS}.gemma.modeling_gemma.GemmaRMSNorm", ZERO_CENTRED, "late"),
    ],
)
def test_recipes(target: str, operation: str, name: str, dtype: str) -> None:
    if "transformers" in target:
        pytest.importorskip("transformers")
    recipe = recipe_of(tv.load(target, operation), dtype)
    assert recipe.name == name
    assert recipe.shares[name] > 0.999


def test_a_gain_that_is_taken_for_another() -> None:
    """Gemma's weights are added to 1: taken for plain ones, y is something else."""
    pytest.importorskip("transformers")
    gemma = import_module("transformers.models.gemma.modeling_gemma").GemmaRMSNorm
    subject = tv.torch_subject(gemma, operation="rms_norm", form="module", dtypes=["bfloat16"])
    causes = [finding.cause for finding in tv.verify(subject).findings]
    assert any("the gain is 1 + gamma" in cause for cause in causes)
