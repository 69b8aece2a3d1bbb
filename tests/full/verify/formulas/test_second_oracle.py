"""Formulas have the answers of the integers of `operations.exact`, also by derived gradients."""

from dataclasses import replace

import numpy as np
import pytest

from full.verify.formulas.test_gradients import derived
from truenorm.verify.formulas.answers import Answers
from truenorm.verify.norms.grouped.formulas import given_of, graph_of, key_of
from truenorm.verify.norms.norm import Norm
from truenorm.verify.operation import Case
from truenorm.verify.operations import OF_NORMS_OF_UNITS, parse_operation
from truenorm.verify.oracle import Expected, expected
from truenorm.verify.types import Float64s

SLOW = pytest.mark.slow(reason="balls of all cases of all variants take minutes")

TYPES = ("float32", "bfloat16", "float16", "float64")
PLAIN = ("layer_norm", "rms_norm")
VARIANTS = (
    "add_layer_norm",
    "add_rms_norm",
    "rms_norm,gain=zero-centred,parameters=float32",
    "layer_norm,beta=false",
    "rms_norm,beta=true,result=float32",
)


def as_formula(norm: Norm) -> Norm:
    """Return a plain norm as one whose rows are not divided."""
    return Norm(norm.options, OF_NORMS_OF_UNITS)


def compare(norm: Norm, case: Case, *, written: bool) -> tuple[int, int]:
    """Compare the answers of a case; return how many there are, and how many are not proven."""
    formula, once = as_formula(norm), case.part(slice(case.shape[0] // case.repeats))
    right: Expected = expected(case)
    once = replace(once, operation=formula, layout="rows", gradient_layout="")
    graph = graph_of(formula, key_of(formula, once))
    outputs = {name: graph[name] for name in right.types if name in graph}
    if not written:
        outputs = {"y": graph["y"], **derived(graph)}
    answers = Answers(outputs, given_of(formula, once, formula.geometry(once)), case.repeats)
    count = 0
    for name in outputs:
        pairs = answers.rounded(name, right.types[name])
        rows = [len(once.x)] if formula.is_rows(name) else []
        assert_equal(name, case, pairs.reshape(*rows, -1, 2), right)
        count += pairs.size // 2
    return count, answers.unproven


def assert_equal(name: str, case: Case, pairs: Float64s, right: Expected) -> None:
    """Compare values, which are equal, and remainders, which balls have to 2^-29 ulp.

    The ball of a float64 row with a large mean, or with squares below the least normal number, may
    be wider, whatever the type of the result is: it decides the value alone.
    """
    once = len(pairs) if case.operation.is_rows(name) else None
    values, remainders = right.wide[name][:once], right.remainders[name][:once]
    with np.errstate(all="ignore"):
        kind = right.values[name]
        assert kind is not None
        found = pairs[..., 0].astype(kind.dtype).astype(np.float64)
    text = f"{name} of {case.name}, {case.operation.spec}"
    np.testing.assert_array_equal(found, values, text)
    finite = np.isfinite(values) & (case.dtype != "float64")
    assert np.all(np.abs(pairs[..., 1] - remainders)[finite] <= 2.0**-28), text


def judged(spec: str, dtype: str) -> tuple[Norm, list[Case]]:
    norm = parse_operation(spec)
    cases = norm.cases(dtype, "quick")
    return norm, [case for case in cases if not case.compared and len(case.x)]


DERIVED_IN_GATE = "float32"
WAYS = [
    pytest.param(
        dtype,
        written,
        marks=() if written or dtype == DERIVED_IN_GATE else SLOW,
        id=f"{dtype}-{'written' if written else 'derived'}",
    )
    for dtype in TYPES
    for written in (True, False)
]


@pytest.mark.parametrize(("dtype", "written"), WAYS)
@pytest.mark.parametrize("spec", PLAIN)
def test_all_quick_cases(spec: str, dtype: str, written: bool) -> None:
    norm, cases = judged(spec, dtype)
    counts = np.array([compare(norm, case, written=written) for case in cases])
    elements, unproven = counts.sum(axis=0)
    assert elements > 200_000
    assert unproven == 0


@SLOW
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("spec", VARIANTS)
def test_variants(spec: str, dtype: str) -> None:
    norm, cases = judged(spec, dtype)
    counts = np.array([compare(norm, case, written=True) for case in cases])
    assert counts[:, 1].sum() == 0
