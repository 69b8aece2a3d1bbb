"""Record, run and judge: the report is that of verify on the same kernel."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import truenorm.verify as tv
from truenorm.verify import judge
from truenorm.verify.grading.report import Report
from truenorm.verify.operation import Case
from truenorm.verify.report.json_report import to_json

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
    command = [sys.executable, str(folder / "runner.py"), f"{KERNELS}:{name}", str(folder)]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False)


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


def comparable(report: Report) -> dict[str, Any]:
    """Return a report without date, machine, seconds and reproducers."""
    content: dict[str, Any] = json.loads(to_json(report))
    for name in ("machine", "seconds"):
        del content[name]
    for finding in content["findings"]:
        del finding["reproducer"]
    return content


def kernel(name: str) -> Any:
    sys.path.insert(0, str(HERE))
    try:
        return getattr(__import__("recorded_kernels"), name)
    finally:
        sys.path.remove(str(HERE))


EVERY_LAYOUT = ("ranks", "strides", "padded-rows", "layouts-of-gradients", "idle-rows", "empty")


@pytest.mark.parametrize(
    ("name", "operation", "form", "also"),
    [
        ("layer_norm", "layer_norm", "functional", (*EVERY_LAYOUT, "no-gamma", "no-beta")),
        ("rms_norm", "rms_norm", "functional", (*EVERY_LAYOUT, "no-gamma")),
        ("add_layer_norm", "add_layer_norm", "functional", ()),
        ("add_rms_norm", "add_rms_norm", "functional", EVERY_LAYOUT),
        ("one_pass", "layer_norm", "functional", ("padded-rows",)),
        ("without_eps", "rms_norm", "functional", ()),
        ("rms_norm_out", "rms_norm", "out", ("strides",)),
        ("unwritten_column_out", "rms_norm", "out", ()),
        ("rms_norm_inplace", "rms_norm", "inplace", ("strides",)),
        ("add_rms_norm_inplace", "add_rms_norm", "inplace", ()),
        ("RMSNorm", "rms_norm", "module", ("no-gamma",)),
        ("LayerNorm", "layer_norm", "module", ()),
        ("damages_x", "rms_norm", "functional", ()),
        ("reused_result", "rms_norm", "functional", ()),
        ("one_result_of_two", "add_rms_norm", "functional", ()),
        ("complex_result", "rms_norm", "functional", ()),
    ],
)
def test_the_report_is_that_of_verify(
    name: str, operation: str, form: Any, also: Sequence[str], tmp_path: Path
) -> None:
    options = ["--form", form, *(["--forward-only"] if form in ("out", "inplace") else [])]
    report = recorded(tmp_path, name, operation, *options, also=also)
    label = name if form == "module" else f"{name} on PyTorch tensors"
    subject = tv.torch_subject(
        kernel(name), operation=operation, form=form, name=label, dtypes=["float32"], also=also
    )
    assert comparable(report) == comparable(tv.verify(subject))
