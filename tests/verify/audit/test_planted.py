"""Every wrong kernel is wrong, and the right one is not."""

import pytest

import truenorm.verify as tv
from truenorm.verify.audit.planted import RECIPES, Kernel, Planted, planted_kernels, rounding_of
from truenorm.verify.audit.running import witness_for
from truenorm.verify.judge import grade_records
from truenorm.verify.operations import RMS_NORM, norm
from truenorm.verify.operations.norms import Norm
from truenorm.verify.running.records import Call
from truenorm.verify.running.runners import runner_for
from truenorm.verify.subject import Subject, SubjectSpec
from truenorm.verify.suite import cases

NORMS = [
    norm("rms_norm"),
    norm("layer_norm"),
    norm("add_rms_norm"),
    norm("add_layer_norm", gain="zero-centred"),
    norm("rms_norm", parameters="float32", beta=True),
]
FEW = 300
"""Elements of a case."""


def assert_shown(operation: Norm, planted: Planted) -> None:
    dtype = "bfloat16" if planted.narrow else "float32"
    witness = witness_for(Kernel(operation, planted), [dtype])
    assert witness is not None, planted.name
    assert witness.case.startswith(dtype)
    assert witness.symptom


@pytest.mark.parametrize("name", ["ddof = 1", "last block", "dgamma of half the rows"])
def test_an_input_shows_it(name: str) -> None:
    (planted,) = (each for each in planted_kernels(RMS_NORM) if each.name == name)
    assert_shown(RMS_NORM, planted)


@pytest.mark.slow
@pytest.mark.parametrize("operation", NORMS, ids=lambda each: each.spec)
def test_an_input_shows_each(operation: Norm) -> None:
    for planted in planted_kernels(operation):
        assert_shown(operation, planted)


def test_the_case_can_be_made_again() -> None:
    operation = norm("rms_norm", gain="zero-centred", beta=True)
    witness = witness_for(Kernel(operation, planted_kernels(operation)[0]), ["float32"])
    assert witness is not None
    assert eval(witness.made, {"tv": tv}).name == witness.case


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_are_shown_by_bits(recipe: str) -> None:
    operation = norm("rms_norm", parameters="float32")
    by_bits = [each for each in planted_kernels(operation, recipe) if each.by_bits]
    assert [each.name for each in by_bits] == ["recipe", "cut off"]
    if recipe == "late":
        for planted in by_bits:
            assert witness_for(Kernel(operation, planted, recipe), ["bfloat16"]) is not None
            assert witness_for(Kernel(operation, planted, recipe), ["float32"]) is None
    assert not [each for each in planted_kernels(operation) if each.by_bits]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_right_kernel_has_its_recipe_and_no_finding(recipe: str) -> None:
    operation = norm("rms_norm", parameters="float32")
    kernel = Kernel(operation, recipe=recipe)
    subject = Subject(
        kernel.forward, kernel.backward, dtypes=["bfloat16"], operation=operation, recipe=recipe
    )
    suite = [each for each in cases("bfloat16", operation=operation) if each.x.size <= FEW]
    records = [runner_for(subject).run(each, Call()) for each in suite]
    report = grade_records(subject, suite, records, SubjectSpec.of(subject))
    assert [each.symptom for each in report.findings] == []


def test_names_are_unique() -> None:
    for operation in (norm("rms_norm"), norm("layer_norm"), norm("add_layer_norm")):
        names = [each.name for each in planted_kernels(operation, "late")]
        assert len(set(names)) == len(names) > 15


def test_a_recipe_that_is_not_known() -> None:
    with pytest.raises(ValueError, match="an audit knows late, early, weight-typed"):
        rounding_of("apex")
