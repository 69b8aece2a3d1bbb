"""The examples of layers and transformers, run as programs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.recording import run as run_cli

FOLDER = Path(__file__).parents[2] / "examples"


def run(*command: str) -> str:
    program = [sys.executable, "-W", "error", *command]
    completed = subprocess.run(program, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr + completed.stdout
    return completed.stdout


def test_layer() -> None:
    output = run("layer.py")
    assert "mean of a row of y: 0.0\n" in output
    assert "dot product of dx and x: 0.0\n" in output


@pytest.mark.parametrize(
    ("example", "start"), [("torch_layer.py", "class Norm("), ("jax_layer.py", "def norm_of(")]
)
def test_excerpts_on_the_page(example: str, start: str) -> None:
    """The page about frameworks has them without the comments for the type checker."""
    page = (FOLDER.parent / "docs" / "use" / "frameworks.md").read_text(encoding="utf-8")
    (excerpt,) = re.findall(rf"```python\n({re.escape(start)}.*?)```", page, re.DOTALL)
    source = (FOLDER / example).read_text(encoding="utf-8")
    assert f"\n\n\n{excerpt}\n\n" in re.sub(r"  # type: ignore\[.*?\]", "", source)


@pytest.mark.slow
@pytest.mark.parametrize("example", ["transformer.py", "llama.py"])
def test_transformers(example: str) -> None:
    output = run(example, "--steps", "20")
    assert "gradient check: PASS" in output
    assert "the same bits: yes" in output


def test_pair_passes_the_gradient_check() -> None:
    done = run_cli("gradcheck", FOLDER / "pair.py")
    assert (done.exit_code, done.stdout[:5]) == (0, "PASS:"), done.output
    assert "  x: PASS" in done.stdout
