"""One wrong kernel for each way in which the judge names a cause: the cause is named, and is true.

`tests/full/verify` judges all planted kernels. The tables there have the id of each cause.
"""

import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify import formulas
from shared.verify.causes import assert_true
from shared.verify.grouped import planted as grouped
from shared.verify.grouped.kernels import few_cases, judge_cases
from shared.verify.planted.registry import CAUSES, PLANTED
from shared.verify.quantized import planted as quantized
from shared.verify.quantized.kernels import judge
from shared.verify.recorded import cases_for
from truenorm.verify.collecting import collect
from truenorm.verify.formulas.shipped import SHIPPED
from truenorm.verify.grading.grades import grade
from truenorm.verify.running.runners import InProcess

PLAIN = {
    "a step in a table": "variance divided by D-1",
    "a step that saves": "statistics saved in bfloat16",
    "memory that is misread": "last-axis stride ignored",
    "sizes and a step": "wrong at multiples of 128",
    "an input and a step": "y is beta where that is large",
    "a region and a step": "a tail of 8 not written",
    "a region alone": "a tail of 8 off by 3",
    "sizes alone": "sums of the first 70 rows",
    "the way of a sum": "RMSNorm: squares added in float16",
    "a fitted clamp": "x clamped to 1000",
    "fitted limits": "y limited to 2",
    "a fitted factor": "two percent too large",
    "terms of an error": "squares of 13 bits",
    "growth with kappa, and overflow": "one-pass variance",
    "numbers of an earlier call": "statistics of an earlier call",
    "state": "a workspace not cleared",
    "sums of earlier calls": "dgamma not cleared",
    "an exception": "an error at D = 1",
    "a shape": "dgamma of shape (1, D)",
    "a type": "float64 returned for float32",
    "special values": "NaN swallowed",
    "subnormal numbers": "subnormal inputs flushed",
    "the place of a row": "a row depending on its place in a block",
    "the batch": "a row depending on its batch",
    "an input that is written": "in-place damage to x",
    "a buffer": "y in a buffer that is used again",
    "another forward pass": "gradients of a stale forward pass",
    "a second backward pass": "backward spends what was saved",
    "a bias": "add_rms_norm: the returned sum cut off",
    "a recipe": "rms_norm: early, where late is claimed",
    "a rounded step": "rms_norm: inverse root in bfloat16",
}
GROUPED = {
    "the division of rows": "groups ignored",
    "other axes": "variance of a channel",
    "an option": "gate first",
    "inputs": "chunk strides ignored",
    "a term of the formula": "scale without 1",
    "another place": "sample 0 for all",
}
QUANTIZED = {
    "codes": "fp8 truncated",
    "scales": "240 for 448",
    "the order of scales": "scales stored by columns",
    "a recipe": "bfloat16 skipped before the cast",
}
MOST_ELEMENTS = 2**13
COMPARED = ("batch", "batch-sizes")
"""Families whose calls are compared with each other."""
MANY_CALLS = ("repeated", "row-counts", "many-rows", "large", "served")


@pytest.mark.parametrize("mechanism", PLAIN)
def test_plain_norms(mechanism: str) -> None:
    name = PLAIN[mechanism]
    suite = [
        case
        for case in cases_for(name, "quick")
        if case.x.size <= MOST_ELEMENTS or case.family in COMPARED
        if case.family not in MANY_CALLS
    ]
    subject = PLANTED[name].subject
    records = collect(InProcess(subject), suite)
    report = grade(name, suite, records, outputs=subject.outputs, recipe=subject.recipe)
    assert_true(report, CAUSES[name])


@pytest.mark.parametrize("mechanism", GROUPED)
def test_grouped_norms(mechanism: str) -> None:
    (bug,) = (each for each in grouped.PLANTED if each.name == GROUPED[mechanism])
    report = judge_cases(bug.subject, few_cases(bug.subject, most=600), strict=False)
    assert_true(report, grouped.CAUSES[bug.name])


@pytest.mark.parametrize("mechanism", QUANTIZED)
def test_quantized_norms(mechanism: str) -> None:
    bug = quantized.PLANTED[QUANTIZED[mechanism]]
    with np.errstate(all="ignore"):
        report = judge(bug.kernel.subject(bug.dtype, recipe=bug.recipe), calls=False)
    assert_true(report, quantized.CAUSES[QUANTIZED[mechanism]])


@pytest.mark.parametrize(("name", "bug"), [
    ("softmax", "a mean, not a sum"),
    ("masked_softmax", "the mask is reversed"),
    ("cross_entropy", "the next label"),
    ("rms_norm_rope", "neighbours are rotated"),
    ("swiglu", "x and z are exchanged"),
    ("gelu", "a tanh for erf"),
])  # fmt: skip
def test_formulas(name: str, bug: str) -> None:
    wrong, (forward, backward) = formulas.BUGS[name][bug], formulas.KERNELS[name]
    passes = wrong.forward or forward, wrong.backward or backward
    operation = SHIPPED[name]()
    subject = tv.Subject(*passes, name=name, operation=operation)
    assert_true(formulas.report_of(subject), wrong.causes)
