"""The examples that need PyTorch run as their comments say."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "examples" / "verify"


def report_of(example: str, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "truenorm", "verify", str(EXAMPLES / example)]
    done = subprocess.run(
        [*command, "--json", *options],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode in (0, 1), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_triton() -> None:
    """Its recipe is told, and its rows may lie apart."""
    pytest.importorskip("triton")
    report = report_of("triton_check.py", "--dtype", "float16")
    assert report["findings"] == []
    assert [each["name"] for each in report["recipes"]] == ["late"]
    assert [each["output"] for each in report["grades"]] == ["y"]


def test_the_interpreter_cuts_digits_off() -> None:
    """As the example says of bfloat16; a Triton that rounds will be noticed here."""
    pytest.importorskip("triton")
    report = report_of("triton_check.py", "--dtype", "bfloat16")
    (recipe,) = report["recipes"]
    assert recipe["name"] == ""
    assert 0.4 < recipe["shares"]["late"] < 0.6
    assert report["verdicts"]["subnormals kept"] == "fail"


def test_torch() -> None:
    report = report_of("torch_check.py", "--dtype", "float32")
    assert report["verdicts"]["runs"] == "pass"
    assert [each["output"] for each in report["grades"]] == ["y", "dx", "dgamma", "dbeta"]
