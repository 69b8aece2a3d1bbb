"""The table of recipes is what its file says, and the file has everybody."""

import json
from typing import Any

import pytest

from benchmarks import recipes
from benchmarks.recipes_page import PAGE, page
from benchmarks.recipes_subjects import FORMULA, LISTED
from truenorm.verify.grading.report import Recipe
from truenorm.verify.operations import parse_operation

PUBLISHED: dict[str, Any] = json.loads(recipes.RESULTS.read_text(encoding="utf-8"))


def found(project: str, what: str, operation: str = "rms_norm") -> Any:
    (subject,) = (
        each
        for each in PUBLISHED["subjects"]
        if (each["project"], each["what"], each["operation"]) == (project, what, operation)
    )
    return subject["recipes"]


def test_the_page_is_the_file() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(PUBLISHED)


def test_everybody_is_in_the_file() -> None:
    listed = [(each.project, each.what, each.operation) for each in LISTED]
    assert listed == [
        (each["project"], each["what"], each["operation"]) for each in PUBLISHED["subjects"]
    ]
    assert len(set(listed)) == len(listed)
    for each, entry in zip(LISTED, PUBLISHED["subjects"], strict=True):
        assert entry["ran"] == (each.package != FORMULA)
        assert not entry["ran"] or each.package in PUBLISHED["versions"]
        assert parse_operation(each.operation).spec == each.operation


def test_all_of_them_ran() -> None:
    for each in PUBLISHED["subjects"]:
        assert each["recipes"]
        assert all("failed" not in told for told in each["recipes"].values()), each


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("project", "what", "operation", "name"),
    [
        ("PyTorch", "rms_norm", "rms_norm", "late"),
        ("PyTorch", "layer_norm", "layer_norm", "late"),
        ("Hugging Face", "LlamaRMSNorm", "rms_norm", "early"),
        ("Hugging Face", "T5LayerNorm", "rms_norm", "early"),
        ("Hugging Face", "GemmaRMSNorm", "rms_norm,gain=zero-centred", "late"),
        ("MLX", "fast.rms_norm", "rms_norm", "early"),
        ("Liger", 'RMSNorm, "none"', "rms_norm", "none"),
        ("FlashInfer", "fused_add_rmsnorm", "add_rms_norm", "late, of the unrounded sum"),
    ],
)
def test_what_was_found(project: str, what: str, operation: str, name: str, dtype: str) -> None:
    told = found(project, what, operation)[dtype]
    assert told["names"][0] == name
    assert told["shares"][name] > 0.99


def entry(**told: Any) -> dict[str, Any]:
    shares = {"shares": {"early": 0.5, "late": 0.9}, "grades": {"y": "stable"}}
    return {
        "project": "P",
        "what": "W",
        "operation": "rms_norm",
        "ran": True,
        "recipes": {"bfloat16": {"names": [], **shares, **told}},
    }


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        (entry(names=["late", "apex"]), "| **late** (apex) | late 90.00; early 50.00 | - |"),
        (entry(), "| no recipe fits | late 90.00; early 50.00 | - |"),
        (entry(grades={"y": "wrong"}), "| no recipe fits, y is wrong | late"),
        (
            {**entry(), "operation": "rms_norm,result=float32"},
            "| nothing is rounded to 16 bits | late",
        ),
        (entry(failed="raised"), "| fails: raised | - | - |"),
        ({**entry(), "cannot": "no module"}, "| cannot run: no module | - | - |"),
    ],
)
def test_a_line_of_the_table(subject: dict[str, Any], said: str) -> None:
    report = {**PUBLISHED, "subjects": [subject]}
    assert said in page(report)


def test_a_summary() -> None:
    recipe = Recipe("float16", "late", {"late": 0.99999996, "early": 0.5}, {"late": ("apex",)})
    assert recipes.summary(recipe) == {
        "names": ["late", "apex"],
        "shares": {"late": 1.0, "early": 0.5},
    }


def test_an_environment_that_nobody_knows() -> None:
    with pytest.raises(SystemExit, match="the names are torch"):
        recipes.pythons(["jax=python"])
