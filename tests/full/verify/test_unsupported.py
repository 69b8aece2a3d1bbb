"""Uses that an operation does not support: each function and command gives the reason."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import truenorm.verify as tv
from truenorm.cli.app import app
from truenorm.verify.operations import as_operation

ROWS = np.ones((64, 65), np.float32)
OWN = "a case of your own shape or data"
Call = Callable[[str], object] | tuple[str, ...]
CALLS: dict[str, list[tuple[str, Call]]] = {
    "bound": [("bound", lambda spec: tv.bound(spec, ROWS))],
    "enclosures": [(OWN, lambda spec: tv.case_of_shape((4, 64), operation=spec)),
        (OWN, lambda spec: tv.case_from({"x": ROWS}, operation=spec)),
        ("a case of your own data", lambda spec: tv.load_data("rows.npz", operation=spec))],
    "files": [
        ("the folder of a command", lambda spec: tv.Subject(command=["./a"], operation=spec)),
        ("truenorm vectors", ("vectors", "new")),
    ],
    "torch_subject": [("torch_subject", lambda spec: tv.torch_subject(np.exp, operation=spec))],
    "recording": [("a recording", ("record", "new"))],
    "score": [("a score", ("score", "kernels.py:softmax"))],
}  # fmt: skip
"""By use: what needs it, and a call with the name of an operation, or the words of a command."""
INSTEAD = "; got softmax: a formula works with verify, check, compare, verdicts"
REASONS: dict[str, dict[str, str]] = {
    "softmax": dict.fromkeys(CALLS.keys() - {"bound"}, "a norm, "),
    "rms_norm,groups=4,gate=silu": dict.fromkeys(("bound", "enclosures"),
        "a norm without groups="),
    "group_norm,groups=2": {
        **dict.fromkeys(("bound", "enclosures"), "a norm without groups="),
        "files": "a norm of rows, not of a shape such as (N, C, S); got group",
    },
    "rms_norm,quant=e4m3fn": dict.fromkeys(("bound", "enclosures", "files"),
        "a norm without quant="),
    "instance_norm,channels=last": {
        **dict.fromkeys(("bound", "enclosures"), "a norm without groups="),
        "files": "a norm of rows, not of a shape",
        **dict.fromkeys(("recording", "score"), "a norm without channels=last"),
    },
}  # fmt: skip
"""By operation: the uses that it does not support, and what they need."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a kernel and a test."""
    (tmp_path / "kernels.py").write_text("def softmax(x): return x\n")
    (tmp_path / "test_x.py").write_text("def test_nothing(): pass\n")
    monkeypatch.chdir(tmp_path)


def message_of(call: Call, spec: str) -> str:
    if callable(call):
        with pytest.raises(ValueError, match="needs") as refused:
            call(spec)
        return str(refused.value)
    result = CliRunner().invoke(app, [*call, "--operation", spec])
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize("spec", REASONS)
def test_each_use_is_refused_with_the_reason(spec: str) -> None:
    assert as_operation(spec).unsupported.keys() == REASONS[spec].keys()
    for use, reason in REASONS[spec].items():
        for what, call in CALLS[use]:
            message = message_of(call, spec)
            assert f"{what} needs {reason}" in message
            assert spec != "softmax" or INSTEAD in message


def test_a_shape_of_the_command_line() -> None:
    assert f"{OWN} needs a norm" in message_of(
        ("verify", "kernels.py:softmax", "--shape", "8x128"), "softmax"
    )


def test_a_formula_has_bounds_of_few_elements() -> None:
    with pytest.raises(ValueError, match="bound of more than 4096 elements needs a norm"):
        tv.bound("softmax", ROWS)


def test_a_quantized_norm_has_no_backward() -> None:
    with pytest.raises(ValueError, match="quantized to e4m3fn has none"):
        tv.Subject(abs, abs, operation="rms_norm,quant=e4m3fn")
