"""The examples run, in seconds, and say what they promise."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


def _said(*command: str) -> str:
    program = [sys.executable, "-W", "error", *command]
    run = subprocess.run(program, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr + run.stdout
    return run.stdout


def test_a_layer_in_ten_lines() -> None:
    said = _said("layer.py")
    assert "mean of a row of y: 0.0\n" in said
    assert "what dx and x have in common: 0.0\n" in said


@pytest.mark.slow
@pytest.mark.parametrize("example", ["transformer.py", "llama.py"])
def test_a_transformer_learns_with_checked_gradients_and_the_same_bits(example: str) -> None:
    said = _said(example, "--steps", "20")
    assert "gradient check: PASS" in said
    assert "the same bits: yes" in said
