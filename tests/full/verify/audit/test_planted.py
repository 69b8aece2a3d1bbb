"""Planted bugs: each is exposed by a case, and the kernel without a bug has no finding."""

from typing import Any

import pytest

import truenorm.verify as tv
from truenorm.verify.audit.planted import RECIPES, Kernel, PlantedBug, planted_bugs
from truenorm.verify.audit.replacing import AuditTask, Observations
from truenorm.verify.audit.running import select_bugs, witness_for
from truenorm.verify.calls import Call
from truenorm.verify.judge import grade_records
from truenorm.verify.norms.norm import Norm
from truenorm.verify.operations import RMS_NORM, norm
from truenorm.verify.running.runners import runner_for
from truenorm.verify.subject import Subject
from truenorm.verify.suite import cases

NORMS = [
    norm("rms_norm"),
    norm("layer_norm"),
    norm("add_rms_norm"),
    norm("add_layer_norm", gain="zero-centred"),
    norm("rms_norm", parameters="float32", beta=True),
]
QUANTIZED = {
    "rms_norm,quant=e4m3fn": "late/T",
    "layer_norm,quant=int8,nan=clamp": "early/T",
    "rms_norm,quant=e5m2,direction=multiply,amax=true": "late/direct",
    "add_rms_norm,quant=e4m3fn,scale=per-token": "early/T, divide",
    "rms_norm,quant=int8,scale=per-token": "late/T, reciprocal",
    "rms_norm,quant=e4m3fnuz,scale=per-64": "product/direct",
    "rms_norm,quant=mxfp4": "late/T",
    "rms_norm,quant=nvfp4": "product/direct",
}
"""A recipe for each operation."""
WITHOUT_A_BUG = [
    *(AuditTask("a:b", "rms_norm,parameters=float32", kernel="right", recipe=r) for r in RECIPES),
    *(AuditTask("a:b", spec, kernel="right", recipe=r) for spec, r in QUANTIZED.items()),
]


def assert_exposed(operation: Norm, bug: PlantedBug) -> None:
    dtype = "bfloat16" if bug.narrow else "float32"
    witness = witness_for(Kernel(operation, bug), [dtype])
    assert witness is not None, bug.name
    assert witness.case.startswith(dtype)
    assert witness.symptom


@pytest.mark.parametrize("name", ["ddof = 1", "last block", "dgamma of half the rows"])
def test_a_case_exposes_a_bug(name: str) -> None:
    (bug,) = (each for each in planted_bugs(RMS_NORM) if each.name == name)
    assert_exposed(RMS_NORM, bug)


@pytest.mark.slow(reason="every planted kernel on every case takes minutes")
@pytest.mark.parametrize("operation", NORMS, ids=lambda each: each.spec)
def test_a_case_exposes_every_bug(operation: Norm) -> None:
    for bug in planted_bugs(operation):
        assert_exposed(operation, bug)


def test_the_expression_makes_the_case() -> None:
    operation = norm("rms_norm", gain="zero-centred", beta=True)
    witness = witness_for(Kernel(operation, planted_bugs(operation)[0]), ["float32"])
    assert witness is not None
    assert eval(witness.made, {"tv": tv}).name == witness.case


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_bugs_are_exposed_by_bits(recipe: str) -> None:
    operation = norm("rms_norm", parameters="float32")
    by_bits = [each for each in planted_bugs(operation, recipe) if each.by_bits]
    assert [each.name for each in by_bits] == ["recipe", "cut off"]
    if recipe == "late":
        for bug in by_bits:
            assert witness_for(Kernel(operation, bug, recipe), ["bfloat16"]) is not None
            assert witness_for(Kernel(operation, bug, recipe), ["float32"]) is None
    assert not [each for each in planted_bugs(operation) if each.by_bits]


@pytest.mark.parametrize(
    "task", WITHOUT_A_BUG, ids=lambda task: f"{task.operation}: {task.recipe}"
)
def test_a_kernel_without_a_bug_has_no_finding(task: AuditTask) -> None:
    """The recipe that it follows is required, and its way where it has one."""
    kernel = task.make_kernel()
    backward = None if task.norm.is_quantized else kernel.backward
    options: Any = {"operation": kernel.norm, "recipe": kernel.recipe}
    subject = Subject(kernel.forward, backward, dtypes=["bfloat16"], **options)
    most = 8192 if task.norm.is_quantized else 300
    suite = [each for each in cases("bfloat16", operation=kernel.norm) if each.x.size <= most]
    records = [runner_for(subject).run(each, Call()) for each in suite]
    report = grade_records(subject, suite, records, subject.spec())
    assert [each.symptom for each in report.findings] == []
    named = [f"{each.name}, {each.way}".removesuffix(", ") for each in report.recipes]
    assert len(named) == 1
    assert kernel.recipe in report.recipes[0].names or named[0].startswith(kernel.recipe)


def select(operation: str, arguments: str, results: str) -> tuple[list[str], dict[str, str]]:
    task, observed = AuditTask("mine:kernel", operation), Observations(calls=1, dtypes=["float32"])
    observed.add_names(arguments.split(), results.split())
    observed.backward_calls = int("dx" in observed.results)
    chosen, left_out = select_bugs(task, planted_bugs(task.norm), observed)
    return [bug.name for bug in chosen], left_out


def test_calls_without_a_parameter() -> None:
    chosen, left_out = select("rms_norm", "x", "y")
    assert "no eps" in chosen
    assert "the tests compute no gradient of --replace" in left_out["zeros for dx"]
    for name in ("no gamma", "gain offset"):
        assert left_out[name] == "no call has gamma among its arguments"


def test_calls_without_a_result() -> None:
    chosen, left_out = select("add_rms_norm", "x residual gamma dy", "y dx")
    assert {"no residual", "zeros for dx", "dx without projection"} <= {*chosen}
    for name, absent in (
        ("zeros for the sum", "no call has sum among its results"),
        ("zeros for dgamma", "no call has dgamma among its results"),
        ("no dsum", "no call has dsum among its arguments"),
    ):
        assert left_out[name] == absent


@pytest.mark.parametrize("operation", [
    norm("rms_norm"), norm("add_layer_norm", gain="zero-centred"),
], ids=lambda each: each.spec)  # fmt: skip
def test_every_bug_changes_a_call_with_all_arguments(operation: Norm) -> None:
    everything = operation.inputs_of("data", "parameter", "gradient")
    for bug in planted_bugs(operation, "late"):
        dtype = "bfloat16" if bug.narrow else "float32"
        wrong = Kernel(operation, bug, "late").wrong_results(dtype, everything)
        assert set(wrong) & set(operation.outputs_of(backward=bug.backward)), bug.name
