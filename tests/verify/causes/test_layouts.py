"""Rows that are read without their gaps are told apart by what is read, and how."""

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.diagnosis.diagnosis import cause_of
from truenorm.verify.diagnosis.evidence import Came
from truenorm.verify.operation import Operation
from truenorm.verify.oracle import expected
from truenorm.verify.types import dtype_of

ADD_RMS_NORM = tv.norm("add_rms_norm")


def named(operation: Operation, dtype: str, output: str, words: str) -> str:
    """Return the cause that is named for a kernel that is just one hypothesis."""
    hypotheses = operation.hypotheses(output)
    came = []
    for case in tv.cases(dtype, also=["strides", "padded-rows"], operation=operation):
        if case.kind == "ordinary" and case.x.size <= 2**12:
            exact = expected(case)
            kind = dtype_of(exact.types[output])
            result = np.asarray(hypotheses[words](case)).astype(kind)
            right = np.array_equal(result.astype(np.float64), exact.wide[output])
            came.append(Came(case, output, result, right or case.layout == "rows"))
    return cause_of(came, hypotheses, partly=False).words


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("operation", "output", "words"),
    [
        (operation, output, words)
        for operation, output in ((tv.LAYER_NORM, "dx"), (ADD_RMS_NORM, "sum"))
        for words in operation.hypotheses(output)
        if "read as though" in words
    ],
)
def test_a_misread_layout_is_named(
    operation: Operation, dtype: str, output: str, words: str
) -> None:
    assert named(operation, dtype, output, words).endswith(words)


def test_rows_without_gaps_are_read_as_they_are() -> None:
    case = tv.case("float32-normal-4x17")
    for words, hypothesis in tv.LAYER_NORM.hypotheses("y").items():
        if "read as though" in words:
            assert np.allclose(hypothesis(case), expected(case).wide["y"], rtol=1e-6, atol=1e-6)
