"""Quantized norms in other parts of the judge: what is compared, and what is refused."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import truenorm.verify as tv
from shared.verify.quantized.kernels import Kernel
from truenorm.cli.app import app
from truenorm.verify.operations import parse_operation

STATIC = "rms_norm,quant=e4m3fn"
ROWS = np.ones((4, 64), np.float32)
NOT_JUDGED: dict[str, tuple[Callable[[], Any], str]] = {
    "a command": (
        lambda: tv.Subject(command=["./kernel"], operation=STATIC),
        "the folder of a command needs a norm without quant=; got rms_norm,quant=",
    ),
    "a backward pass": (
        lambda: tv.Subject(abs, abs, operation=STATIC),
        "backward must not be given: RMS normalization, quantized to e4m3fn has none",
    ),
    "a shape": (
        lambda: tv.case_of_shape((4, 64), "float32", operation=STATIC),
        "a case of your own shape or data needs a norm without quant=",
    ),
    "data": (
        lambda: tv.case_from({"x": ROWS}, operation=STATIC),
        "a case of your own shape or data needs a norm without quant=",
    ),
    "bound": (lambda: tv.bound(STATIC, ROWS), "bound needs a norm without quant="),
}


@pytest.mark.parametrize("name", NOT_JUDGED)
def test_refusals(name: str) -> None:
    call, message = NOT_JUDGED[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_vectors_are_refused(tmp_path: Any) -> None:
    result = CliRunner().invoke(app, ["vectors", str(tmp_path / "new"), "--operation", STATIC])
    assert result.exit_code == 2
    assert "truenorm vectors needs a norm without quant=" in result.output


def subject_of(operation: str, **how: Any) -> tv.Subject:
    norm = parse_operation(operation)
    return Kernel(norm, **how).subject()


def test_equal_codes() -> None:
    """The codes of NaN are equal as well."""
    assert tv.compare(subject_of(STATIC), subject_of(STATIC)).passed


def test_other_codes() -> None:
    equality = tv.compare(subject_of(STATIC), subject_of(STATIC, via="direct"))
    assert not equality.passed
    worst = equality.differences[0]
    assert 0 < worst.elements < worst.total / 20
    assert worst.words == f"{worst.elements} of {worst.total} codes differ"
