"""`correct` cannot be reached by chance: next to midpoints, a weak rounding test loses it.

The weak rounding test is truenorm with bounds that are too small by a factor of 64.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest

import truenorm as tn
import truenorm.verify as tv
from shared.promise.bounds import divide_reference_bounds, native_bounds_divided
from shared.promise.checking import BACKENDS
from shared.promise.families import DTYPES
from truenorm.verify.collecting import collect
from truenorm.verify.grading.grades import grade
from truenorm.verify.inputs.midpoints import NEXT_TO_MIDPOINTS, next_to_midpoints
from truenorm.verify.judge import scope
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.variants import adapt_case
from truenorm.verify.operations import parse_operation
from truenorm.verify.running.runners import InProcess
from truenorm.verify.types import FORMATS, Array

SUMS_AND_ROWS = {"y", "dx", "dgamma"}
"""The outputs with a rounding test; dbeta is summed without error."""
of_each_norm = pytest.mark.parametrize(
    "operation", [tv.LAYER_NORM, tv.RMS_NORM], ids=lambda each: each.name
)


def truenorm_subject(operation: Norm, dtype: str, backend: str) -> tv.Subject:
    """Return truenorm as a subject; add the residual first, if the operation has one."""
    forwards = tn.layer_norm_forward if operation.centred else tn.rms_norm_forward
    backwards = tn.layer_norm_backward if operation.centred else tn.rms_norm_backward

    def forward(x: Array, *others: Any) -> tuple[Any, ...]:
        *parameters, eps = others
        total = [x + parameters.pop(0)] if operation.adds else []
        y, saved = forwards(*(total or [x]), *parameters, eps=eps, backend=backend)
        return (y, *total, saved)

    def backward(dy: Array, *others: Any) -> tuple[Any, ...]:
        *arriving, saved = others
        dx, *of_parameters = backwards(dy, saved, backend=backend)
        both = [dx + each for each in arriving for _ in range(2)]
        return (*(both or [dx]), *of_parameters[: len(operation.parameters)])

    return tv.Subject(
        forward, backward, name=backend, dtypes=[dtype], operation=operation, seconds=600
    )


def not_correct(subject: tv.Subject) -> set[str]:
    """Return the results that are not correct next to midpoints."""
    suite = [each for each in scope(subject, "quick") if each.family == NEXT_TO_MIDPOINTS]
    report = grade(subject.name, suite, collect(InProcess(subject), suite))
    assert {each.output for each in report.grades} >= SUMS_AND_ROWS
    assert not report.findings  # correct or not, it is stable
    return {each.output for each in report.grades if each.grade != "correct"}


@of_each_norm
@pytest.mark.parametrize(("backend", "dtype"), list(product(BACKENDS, DTYPES)), ids=str)
def test_truenorm_is_correct(operation: Norm, backend: str, dtype: np.dtype[Any]) -> None:
    assert not_correct(truenorm_subject(operation, dtype.name, backend)) == set()


@of_each_norm
@pytest.mark.parametrize("dtype", FORMATS)
def test_weak_rounding_test_is_not_correct(
    monkeypatch: pytest.MonkeyPatch, operation: Norm, dtype: str
) -> None:
    divide_reference_bounds(monkeypatch, 64)
    assert not_correct(truenorm_subject(operation, dtype, "reference")) == SUMS_AND_ROWS


@pytest.mark.parametrize("name", ["add_layer_norm", "add_rms_norm"])
def test_weak_rounding_test_with_a_residual(monkeypatch: pytest.MonkeyPatch, name: Any) -> None:
    subject = truenorm_subject(tv.norm(name), "bfloat16", "reference")
    assert not_correct(subject) == set()
    divide_reference_bounds(monkeypatch, 64)
    assert not_correct(subject) == {*SUMS_AND_ROWS, "dresidual"}


@pytest.mark.parametrize("output", ["y", "dx"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@of_each_norm
def test_midpoints_of_other_gains_and_types(operation: Norm, dtype: str, output: str) -> None:
    """1 + gamma equals the gamma of the original case, and wider parameters have its values.

    But not in dx of float16, whose tiny gamma has no such sum.
    """
    plain, *_ = (
        each
        for each in next_to_midpoints(operation, dtype, "quick", centred=operation.centred)
        if each.name.startswith(f"{dtype}-{output}-")
    )
    for option in ("gain=zero-centred", "parameters=float64", "beta=true"):
        relative = parse_operation(f"{operation.name},{option}")
        case = adapt_case(relative, plain)
        gain = case.gamma.astype(np.float64) + (relative.gain == "zero-centred")
        assert np.array_equal(gain, plain.gamma.astype(np.float64))
        assert output != "y" or not np.any(case.inputs.get("beta", 0))


@pytest.mark.skipif("native" not in BACKENDS, reason="needs the C core")
@of_each_norm
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_weak_rounding_test_of_the_c_core(operation: Norm, dtype: str) -> None:
    with native_bounds_divided(64):
        assert {"y", "dx"} <= not_correct(truenorm_subject(operation, dtype, "native"))
