"""The examples of layers and transformers, run as programs."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import truenorm.verify as tv
from shared.cli.recording import run as run_cli
from truenorm.verify.oracle import expected

FOLDER = Path(__file__).parents[3] / "examples"


def run(*command: str) -> str:
    program = [sys.executable, "-W", "error", *command]
    completed = subprocess.run(program, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr + completed.stdout
    return completed.stdout


def test_layer() -> None:
    output = run("layer.py")
    assert "mean of a row of y: 0.0\n" in output
    assert "dot product of dx and x: 0.0\n" in output


def test_group_norm() -> None:
    output = run("group_norm.py")
    assert "undecided sums: 0\n" in output
    for name in ("y", "dx"):
        assert f"\n{name}: sums in float32 change 0 of 2940\n" in output


def test_bits_of_group_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact answers, rounded once, are y and dx, and the sums that are not undecided."""
    monkeypatch.syspath_prepend(FOLDER)
    example = importlib.import_module("group_norm")
    norm = tv.norm("group_norm", groups=2)
    small = [
        case
        for case in tv.cases("float32", operation=norm)
        if case.x.size <= 300 and case.kind != "special"
    ]
    decided = 0
    for case in small:
        layer = example.GroupNorm(2)
        channels = len(case.gamma)
        x, dy = (each.reshape(len(each), channels, -1) for each in (case.x, case.dy))
        y, kept = layer.forward(x, case.gamma, case.beta, case.eps)
        dx, dgamma, dbeta = layer.backward(dy, kept)
        results = {"y": y, "dx": dx}
        if not layer.undecided:
            decided += 1
            results |= {"dgamma": dgamma, "dbeta": dbeta}
        for name, result in results.items():
            exact = expected(case).values[name]
            assert exact is not None
            assert np.array_equal(result.ravel(), exact.ravel(), equal_nan=True), case.name
    assert decided > len(small) // 3 > 8, (decided, len(small))


@pytest.mark.slow(reason="200 steps of training take minutes")
@pytest.mark.parametrize("example", ["transformer.py", "llama.py"])
def test_transformers(example: str) -> None:
    output = run(example, "--steps", "20")
    assert "gradient check: PASS" in output
    assert "the same bits: yes" in output


def test_pair_passes_the_gradient_check() -> None:
    done = run_cli("gradcheck", FOLDER / "pair.py")
    assert (done.exit_code, done.stdout[:5]) == (0, "PASS:"), done.output
    assert "  x: PASS" in done.stdout
