"""Small cases of quantized norms whose y is known, and what the judge says about results.

Rows of ones with eps = 3 have r = 1/2, so y = gamma/2.
"""

from typing import Any, NamedTuple

import numpy as np

from shared.verify.quantized.kernels import Array
from truenorm.verify.grading.symptoms import Error, measure
from truenorm.verify.norms.quantized.answers import QuantizedExpected
from truenorm.verify.operation import Case
from truenorm.verify.operations import parse_operation
from truenorm.verify.oracle import compute_exact


def case_of_y(spec: str, y: Any, setting: float = 0.0, x: Array | None = None) -> Case:
    """Return a case in float32 with a row of these y, or several rows with other x."""
    norm = parse_operation(f"rms_norm,quant={spec}")
    gamma = (2 * np.asarray(y, np.float64)).astype(np.float32)
    rows = np.ones((1, gamma.size)) if x is None else x
    inputs = {"x": rows.astype(np.float32), "gamma": gamma}
    if norm.quant.setting:
        inputs[norm.quant.setting] = np.full(1, setting, np.float32)
    return Case(norm, "test", "float32", inputs, 3.0)


class Judged(NamedTuple):
    """The largest error of an output, and the elements that should not be finite or should be."""

    error: Error
    misplaced: list[list[int]]


def judged(case: Case, **results: Array) -> dict[str, Judged]:
    answers = QuantizedExpected(case, compute_exact(case)).given(results)
    verdicts = {}
    for name, result in results.items():
        assert not answers.type_error(name, result)
        numbers = answers.decoded(name, result)
        assert numbers is not None
        wrong = np.argwhere(answers.misplaced(name, numbers)).tolist()
        verdicts[name] = Judged(measure(answers, name, numbers), wrong)
    return verdicts
