"""The commands vectors, gradcheck and doctor: options, output and refusals."""

import json
import subprocess
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest

from shared.cli.recording import record, run, run_main
from shared.promise.checking import BACKENDS
from truenorm.cli import commands
from truenorm.doctor import Diagnosis, Line
from truenorm.verify import suite
from truenorm.verify.operations import layer_norm_case

SLOW = pytest.mark.slow(reason="doctor computes and judges for a minute")

WRITE_VECTORS = "truenorm.verify.report.vectors.write_vectors"


def test_vectors_of_a_level_and_types(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = record(monkeypatch, WRITE_VECTORS, {"cases": 2, "folder": "f"})
    monkeypatch.setattr(
        suite, "cases", lambda dtype, level, operation: [f"{dtype} {level} {operation.name}"]
    )
    assert run("vectors", "f").stdout == "cases: 2\nfolder: f\n"
    types = ("--dtype", "float16", "--dtype", "float64")
    done = run("vectors", "f", "--operation", "rms_norm", "--level", "full", *types, "--json")
    assert json.loads(done.stdout) == {"cases": 2, "folder": "f"}
    assert [arguments for arguments, _ in calls] == [
        (Path("f"), ["float32 quick layer_norm"], ANY),
        (Path("f"), ["float16 full rms_norm", "float64 full rms_norm"], ANY),
    ]


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (ValueError("no"), "no"),
        (PermissionError(13, "Denied"), "cannot write f: Denied; name another folder"),
    ],
)
def test_vectors_refusals(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception, message: str
) -> None:
    record(monkeypatch, WRITE_VECTORS, refusal)
    monkeypatch.setattr(suite, "cases", lambda *_, **__: [])
    done = run("vectors", "f")
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"truenorm: {message}\n")


def test_vectors_report_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ones = np.ones((1, 2), np.float32)
    small = layer_norm_case("ones", (ones, ones[0], ones[0], ones), eps=1.0)
    monkeypatch.setattr(suite, "cases", lambda *_, **__: [small])
    steps: list[object] = []
    bar = nullcontext(lambda *step: steps.append(step))
    monkeypatch.setattr(commands, "progress_bar", lambda _: bar)
    assert run("vectors", tmp_path / "new").stdout.startswith("cases: 1\n")
    assert steps == [(0, 1, "ones")]


PAIRS = """
import numpy as np
def forward(x, weight):
    return np.tanh(x @ weight)
def backward(dy, x, weight):
    g = dy * (1 - forward(x, weight) ** 2)
    return g @ weight.T, x.T @ g
def broken(*arguments):
    return arguments[7]
inputs = [np.ones((2, 3)), np.eye(3)]
pair = forward, backward, inputs
wrong = forward, lambda dy, x, weight: (dy @ weight.T, x.T @ dy), inputs
flat = np.tanh, lambda dy, x: dy * (1 - np.tanh(x) ** 2), np.array([40.0])
slip = forward, lambda dy, x, weight: dy, inputs
fails = broken, backward, inputs
"""


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    path = tmp_path / "my_pair.py"
    path.write_text(PAIRS, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "code", "verdict"),
    [("", 0, "PASS"), (":pair", 0, "PASS"), (":wrong", 1, "FAIL"), (":flat", 1, "INCONCLUSIVE")],
)
def test_gradcheck_verdict_and_exit_code(
    pairs_file: Path, name: str, code: int, verdict: str
) -> None:
    done = run("gradcheck", f"{pairs_file}{name}", "--method", "central")
    assert done.exit_code == code, done.output
    assert done.stdout.startswith(f"{verdict}: gradient check by central")


def test_gradcheck_options(pairs_file: Path) -> None:
    done = run("gradcheck", pairs_file, "--method", "complex", "--tol", "1e-300", "--json")
    report = json.loads(done.stdout)
    assert (done.exit_code, report["method"]) == (1, "complex")
    assert report["gradients"]["weight"]["tol"] == 1e-300
    assert report["gradients"]["weight"]["verdict"] == report["verdict"]
    first, second = (
        json.loads(run("gradcheck", pairs_file, "--seed", seed, "--json").stdout)
        for seed in (1, 2)
    )
    assert first["gradients"]["x"]["analytic"] != second["gradients"]["x"]["analytic"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (":slip", "truenorm: backward returned an array where a tuple of 2 was expected"),
        (":inputs", "my_pair.py has no pair named 'inputs'"),
        (":fails", "return arguments[7]"),
    ],
)
def test_gradcheck_refusals(pairs_file: Path, name: str, words: str) -> None:
    done = run("gradcheck", f"{pairs_file}{name}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert "gradient_check" not in done.stderr  # no frames of the package


HEALTHY = Diagnosis("2026-01-02", False, {"A": (Line("b", "c"),)})
BROKEN = Diagnosis("2026-01-02", False, {"A": (Line("b", "c", "repair it"),)})


@pytest.mark.parametrize(("diagnosis", "code"), [(HEALTHY, 0), (BROKEN, 1)])
def test_doctor_exit_code(
    monkeypatch: pytest.MonkeyPatch, diagnosis: Diagnosis, code: int
) -> None:
    calls = record(monkeypatch, "truenorm.doctor.examine", diagnosis)
    done = run("doctor")
    assert (done.exit_code, done.stderr) == (code, "")
    assert done.stdout.startswith("```text\n")
    assert done.stdout.endswith("\n```\n")
    done = run("doctor", "--full", "--gpu", "--json")
    assert (done.exit_code, done.stderr) == (code, "")
    assert json.loads(done.stdout)["healthy"] is (code == 0)
    assert calls == [((), {"full": flag, "gpu": flag, "progress": ANY}) for flag in (False, True)]


def run_without(missing: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process that cannot import these packages."""
    before = f"import sys; sys.modules.update(dict.fromkeys({missing}))"
    return run_main(before, "doctor", *arguments)


OPTIONAL = ["ml_dtypes", "flint", "matplotlib", "jinja2"]


@SLOW
def test_doctor_with_all_packages() -> None:
    done = run_without([])
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    chosen = "native" if "native" in BACKENDS else "reference"
    assert f"backend {chosen}, the first usable one" in words
    assert words.count("correct to the bit") == 4 * len(BACKENDS)
    assert "HEALTHY" in words


def test_doctor_with_numpy_alone() -> None:
    """Run with NumPy and the packages that every command needs."""
    done = run_without(OPTIONAL, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["healthy"] is True
    titles = ["Versions", "Backends", "Processor", "Self-test"]
    assert list(report["sections"]) == titles
    tested = {line["name"]: line["value"] for line in report["sections"]["Self-test"]}
    missing = "not tested: bfloat16 needs the package ml_dtypes"
    for backend in BACKENDS:
        assert tested.pop(f"{backend}, bfloat16").startswith(missing)
    assert len(tested) == 3 * len(BACKENDS)
    assert all(value.startswith("correct to the bit") for value in tested.values())


@SLOW
def test_doctor_full_with_numpy_alone() -> None:
    done = run_without(OPTIONAL, "--full")
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    assert "bfloat16 not tested: bfloat16 needs the package ml_dtypes" in words
    assert words.count("correct: y, dx, dgamma and dbeta") == 3
