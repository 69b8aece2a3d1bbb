"""PyTorch's own norms: their recipes, and the statistics that their backward passes use."""

from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("torch")

import truenorm.verify as tv
from shared.verify.honest import ordinary_report

torch: Any = import_module("torch")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("name", "dx", "dgamma"), [
    ("rms_norm", "nothing", "nothing"),
    ("layer_norm", "the mean and rstd", "the mean, rstd and each partial sum"),
])  # fmt: skip
def test_recipe_is_named(name: str, dx: str, dgamma: str, dtype: str) -> None:
    """On a CPU, layer norm saves its statistics in the type of x; more threads cut sums."""
    function = getattr(torch.nn.functional, name)
    subject = tv.torch_subject(function, operation=name, dtypes=[dtype])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        report = ordinary_report(subject)
    finally:
        torch.set_num_threads(threads)
    (recipe,) = report.recipes
    assert recipe.name == "late"
    assert recipe.shares["late"] == 1
    assert {each.output: each.name for each in report.backward_recipes} == {
        "dx": dx,
        "dgamma": dgamma,
    }
