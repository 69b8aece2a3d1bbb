"""``truenorm gradcheck``: a pair in a file, and what is said of it."""

import json
from pathlib import Path

import pytest

from cli.recording import run

FILE = """
import numpy as np
def forward(x, weight):
    return np.tanh(x @ weight)
def backward(dy, x, weight):
    g = dy * (1 - forward(x, weight) ** 2)
    return g @ weight.T, x.T @ g
def broken(*given):
    return given[7]
inputs = [np.ones((2, 3)), np.eye(3)]
pair = forward, backward, inputs
wrong = forward, lambda dy, x, weight: (dy @ weight.T, x.T @ dy), inputs
flat = np.tanh, lambda dy, x: dy * (1 - np.tanh(x) ** 2), np.array([40.0])
slip = forward, lambda dy, x, weight: dy, inputs
fails = broken, backward, inputs
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_pair.py"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "code", "verdict"),
    [("", 0, "PASS"), (":pair", 0, "PASS"), (":wrong", 1, "FAIL"), (":flat", 1, "INCONCLUSIVE")],
)
def test_verdict_and_exit_code(file: Path, name: str, code: int, verdict: str) -> None:
    done = run("gradcheck", f"{file}{name}", "--method", "central")
    assert done.exit_code == code, done.output
    assert done.stdout.startswith(f"{verdict}: gradient check by central")


def test_options_reach_the_check(file: Path) -> None:
    done = run("gradcheck", file, "--method", "complex", "--tol", "1e-300", "--json")
    report = json.loads(done.stdout)
    assert (done.exit_code, report["method"]) == (1, "complex")
    assert report["gradients"]["weight"]["tol"] == 1e-300
    assert report["gradients"]["weight"]["verdict"] == report["verdict"]
    first, second = (
        json.loads(run("gradcheck", file, "--seed", seed, "--json").stdout)["gradients"]["x"][
            "analytic"
        ]
        for seed in ("1", "2")
    )
    assert first != second


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (":slip", "truenorm: backward returned an array where a tuple of 2 was expected"),
        (":nothing", "my_pair.py has no pair named 'nothing'; it has pair, wrong, flat, slip"),
        (":inputs", "my_pair.py has no pair named 'inputs'"),
        (":fails", "return given[7]"),
    ],
)
def test_what_cannot_run_is_exit_code_2(file: Path, name: str, words: str) -> None:
    done = run("gradcheck", f"{file}{name}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert "gradient_check" not in done.stderr  # none of our own lines


def test_no_file_and_no_pair(tmp_path: Path) -> None:
    assert "there is no file" in run("gradcheck", tmp_path / "none.py").stderr
    (tmp_path / "empty.py").write_text("", encoding="utf-8")
    assert (
        "write pair = forward, backward, [input, ...]"
        in run("gradcheck", tmp_path / "empty.py").stderr
    )
    (tmp_path / "bad.py").write_text("1 / 0", encoding="utf-8")
    done = run("gradcheck", tmp_path / "bad.py")
    assert (done.exit_code, "ZeroDivisionError" in done.stderr) == (2, True)
