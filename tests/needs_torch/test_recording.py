"""Record, run and judge: the report is that of verify on the same kernel."""

import math
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import truenorm.verify as tv
from needs_torch.replayed import comparable
from shared.programs import python
from truenorm.verify import judge
from truenorm.verify.grading.report import Report
from truenorm.verify.judge import verify_target
from truenorm.verify.operation import Case
from truenorm.verify.running.records import CannotRunError
from truenorm.verify.types import Array

HERE = Path(__file__).parent
KERNELS = HERE / "recorded_kernels.py"
SLOW_FAMILIES = {
    *("large", "65549-rows", "row-limit", "long-columns", "row-counts", "wide"),
    *("batch-sizes", "many-rows", "repeated"),
}
"""Families that take most of the time of a quick run."""


@pytest.fixture(autouse=True)
def few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out families that take long, in recordings and in `tv.verify`."""
    scope: Callable[..., list[Case]] = judge.scope

    def fewer(*arguments: Any) -> list[Case]:
        suite = scope(*arguments)
        return [case for case in suite if case.family not in SLOW_FAMILIES]

    monkeypatch.setattr(judge, "scope", fewer)


def run(folder: Path, name: str, *options: str) -> "subprocess.CompletedProcess[str]":
    return python(folder / "runner.py", f"{KERNELS}:{name}", folder, *options)


def recorded(
    folder: Path,
    name: str,
    operation: str,
    *options: str,
    dtypes: Sequence[str] = ("float32",),
    also: Sequence[str] = (),
) -> Report:
    """Return the report by record, runner and judge."""
    tv.record_cases(folder, operation=operation, dtypes=dtypes, also=also)
    done = run(folder, name, *options)
    assert done.returncode == 0, done.stderr
    return tv.judge_recording(folder)


def kernel(name: str) -> Any:
    sys.path.insert(0, str(HERE))
    try:
        return getattr(__import__("recorded_kernels"), name)
    finally:
        sys.path.remove(str(HERE))


EVERY_LAYOUT = ("ranks", "strides", "padded-rows", "layouts-of-gradients", "idle-rows", "empty")


@pytest.mark.parametrize(("name", "operation", "form", "also"), [
    ("layer_norm", "layer_norm", "functional", (*EVERY_LAYOUT, "no-gamma", "no-beta")),
    ("rms_norm", "rms_norm", "functional", (*EVERY_LAYOUT, "no-gamma")),
    ("add_rms_norm", "add_rms_norm", "functional", EVERY_LAYOUT),
    ("rms_norm_out", "rms_norm", "out", ("strides",)),
    ("unwritten_column_out", "rms_norm", "out", ()),
    ("add_rms_norm_inplace", "add_rms_norm", "inplace", ()),
    ("RMSNorm", "rms_norm", "module", ("no-gamma",)),
    ("LayerNorm", "layer_norm", "module", ()),
    ("one_result_of_two", "add_rms_norm", "functional", ()),
    ("quantized", "rms_norm,quant=e4m3fn,scale=per-token", "functional", ()),
    ("quantized_out", "rms_norm,quant=e4m3fn,scale=per-token", "out", ()),
    ("group_norm", "group_norm,groups=4", "functional", ()),
])  # fmt: skip
def test_the_report_is_that_of_verify(
    name: str, operation: str, form: Any, also: Sequence[str], tmp_path: Path
) -> None:
    """For planted bugs, see `test_replayed.py`."""
    options = ["--form", form, *(["--forward-only"] if form in ("out", "inplace") else [])]
    report = recorded(tmp_path, name, operation, *options, also=also)
    label = name if form == "module" else f"{name} on PyTorch tensors"
    subject = tv.torch_subject(
        kernel(name), operation=operation, form=form, name=label, dtypes=["float32"], also=also
    )
    assert comparable(report) == comparable(tv.verify(subject, time=math.inf))


def test_scales_in_another_layout(tmp_path: Path) -> None:
    def unpack(scales: Array, rows: int, groups: int) -> Array:
        return scales[::-1].reshape(rows, groups)

    name, operation = "scales_upside_down", "rms_norm,quant=e4m3fn,scale=per-token"
    assert not recorded(tmp_path, name, operation).passed
    subject = tv.torch_subject(
        kernel(name),
        operation=operation,
        name=f"{name} on PyTorch tensors",
        dtypes=["float32"],
        unpack=unpack,
    )
    report = tv.verify(subject)
    assert comparable(tv.judge_recording(tmp_path, unpack=unpack)) == comparable(report)
    assert all(each.output != "scale" for each in report.findings)


def _few(suite: list[Case]) -> list[Case]:
    return [case for case in suite if case.family == "normal"][:16]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record ordinary rows of up to 67 columns alone."""
    scope: Callable[..., list[Case]] = judge.scope
    monkeypatch.setattr(judge, "scope", lambda *some: _few(scope(*some)))


FATAL = {
    "crashes": "crashed: SIGSEGV",
    "exits": "ended with exit code 0",
    "raises": "raised ValueError: no 17",
    "hangs": "gave no answer within 10 s",
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", FATAL)
def test_crashes_and_hangs_are_findings_and_other_cases_run(name: str, tmp_path: Path) -> None:
    tv.record_cases(tmp_path, operation="rms_norm", dtypes=["float32"])
    done = run(tmp_path, name, "--seconds", "10")
    assert done.returncode == 0, done.stderr
    report = tv.judge_recording(tmp_path)
    assert not report.passed
    assert {FATAL[name]} <= {finding.symptom for finding in report.findings}
    judged = {each.case for each in report.results}
    assert "float32-normal-4x64" in judged
    assert "float32-normal-4x17" not in judged


@pytest.mark.usefixtures("small")
def test_a_crash_has_the_report_of_verify(tmp_path: Path) -> None:
    report = recorded(tmp_path, "crashes", "rms_norm")
    assert not report.passed
    other = verify_target(f"{KERNELS}:crashes", operation="rms_norm", dtypes=["float32"])
    assert comparable(report) == comparable(other)


@pytest.mark.usefixtures("small")
def test_a_kernel_that_rejects_everything_cannot_be_judged(tmp_path: Path) -> None:
    tv.record_cases(tmp_path, operation="rms_norm", dtypes=["float32"])
    assert run(tmp_path, "rejects_all").returncode == 0
    with pytest.raises(CannotRunError, match="cannot be called: it raised RuntimeError: no"):
        tv.judge_recording(tmp_path)


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("complete")
    with pytest.MonkeyPatch.context() as patch:
        scope: Callable[..., list[Case]] = judge.scope
        patch.setattr(judge, "scope", lambda *some: _few(scope(*some)))
        tv.record_cases(folder, operation="rms_norm", dtypes=["float32"])
    assert run(folder, "rms_norm").returncode == 0
    return folder


@pytest.mark.usefixtures("small")
def test_results_of_another_recording_are_refused(complete: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    tv.record_cases(folder, operation="rms_norm", dtypes=["float32"], seed=3)
    shutil.copytree(complete / "results", folder / "results")
    with pytest.raises(CannotRunError, match="results of another recording"):
        tv.judge_recording(folder)
    done = run(folder, "rms_norm")
    assert done.returncode != 0
    assert "has results of another run" in done.stderr


@pytest.mark.usefixtures("small")
def test_a_run_that_was_killed_continues(complete: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(complete, folder)
    log = folder / "results" / "log.jsonl"
    text = log.read_text()
    log.write_text(text[: len(text) // 2])
    with pytest.raises(CannotRunError):
        tv.judge_recording(folder)
    assert run(folder, "rms_norm").returncode == 0
    assert comparable(tv.judge_recording(folder)) == comparable(tv.judge_recording(complete))


@pytest.mark.usefixtures("small")
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_parent_that_is_killed_takes_the_child_with_it(complete: Path, tmp_path: Path) -> None:
    """A later run continues where it was, and has the same report."""
    folder = tmp_path / "killed"
    shutil.copytree(complete, folder, ignore=shutil.ignore_patterns("results"))
    runner = [sys.executable, str(folder / "runner.py"), f"{KERNELS}:slow_rms_norm", str(folder)]
    log = folder / "results" / "log.jsonl"
    with subprocess.Popen(runner) as parent:
        while not log.exists() or log.read_text().count('"begin"') < 5:
            assert parent.poll() is None
            time.sleep(0.02)
        parent.kill()
    time.sleep(0.5)  # the child notices it at once
    before = log.read_text()
    time.sleep(0.5)
    assert log.read_text() == before
    assert '"end"' not in before
    assert subprocess.run(runner, check=False).returncode == 0
    assert log.read_text().startswith(before)
    expected = comparable(tv.judge_recording(complete))
    name = "slow_rms_norm on PyTorch tensors"
    assert comparable(tv.judge_recording(folder)) == {**expected, "subject": name}


@pytest.mark.slow(reason="installs PyTorch alone in a new environment")
@pytest.mark.usefixtures("small")
def test_an_environment_with_pytorch_alone(complete: Path, tmp_path: Path) -> None:
    """The environment is new: PyTorch is installed, NumPy and truenorm are not."""
    venv.create(tmp_path / "env", with_pip=False)
    programs = tmp_path / "env" / ("Scripts" if sys.platform == "win32" else "bin")
    (python,) = [each for each in programs.glob("python*") if each.stem == "python"]
    requirement = f"torch=={torch.__version__.partition('+')[0]}"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, requirement], check=True)
    code = "from importlib.util import find_spec as f; print(f('numpy'), f('truenorm'))"
    variables = {name: each for name, each in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, env=variables, check=True
    )
    assert found.stdout.split() == ["None", "None"]
    folder = tmp_path / "cases"
    shutil.copytree(complete, folder, ignore=shutil.ignore_patterns("results"))
    command = [str(python), str(folder / "runner.py"), f"{KERNELS}:rms_norm", str(folder)]
    subprocess.run(command, env=variables, check=True)
    assert comparable(tv.judge_recording(folder)) == comparable(tv.judge_recording(complete))


def test_the_runner_imports_pytorch_alone(complete: Path) -> None:
    """Its imports are of the standard library and torch, also if others are not there."""
    source = (complete / "runner.py").read_text()
    imported = re.findall(r"^(?:import|from) (\w+)", source, re.MULTILINE)
    assert set(imported) <= set(sys.stdlib_module_names)
    assert 'importlib.import_module("torch")' in source
