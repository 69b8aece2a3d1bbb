"""The action of GitHub: its steps, run as GitHub would, and inputs that contain commands."""

import os
import sys
from pathlib import Path

import pytest
import yaml

from shared.repository.dry_run import ROOT, load_follow_workflow

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="programs are scripts of bash")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
INPUTS = (
    "subject", "command", "operation", "baseline", "require", "batch", "arguments", "version",
)  # fmt: skip
INSTALL, JUDGE, JUDGE_AND_STORE, ALL = slice(1), slice(1, 2), slice(1, None), slice(None)
# Each argument that python is called with, in brackets, as the report; and the exit code.
STUB = """#!/bin/bash
printf '[%s]' "$@" | tee -a "$CALLS"
exit "${CODE:-0}"
"""


class Ran:
    """A run of the action: its outcome, outputs, calls of python, and stored reports."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, stub: bool = True
    ) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.files: dict[str, str] = {}
        programs = folder / "programs"
        programs.mkdir()
        if stub:
            (programs / "python").write_text(STUB)
            (programs / "python").chmod(0o755)
            monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("CALLS", str(folder / "calls"))

    def run(self, steps: slice, **inputs: str) -> tuple[str, dict[str, str]]:
        """Run steps of the action; return the outcome and the outputs."""
        follow = load_follow_workflow()
        context = {"github.ref_name": "v1.2.3"}
        self.job = follow.Job("judge", self.folder, context)
        for name, text in self.files.items():
            (self.job.place / name).parent.mkdir(exist_ok=True)
            (self.job.place / name).write_text(text)
        action = {**ACTION, "runs": {"steps": ACTION["runs"]["steps"][steps]}}
        (self.folder / "action.yml").write_text(yaml.safe_dump(action))
        step = {"id": "used", "with": inputs}
        outcome = self.job.composite(self.folder, step, context)
        return outcome, {
            name: context[f"steps.used.outputs.{name}"] for name in ("passed", "report")
        }

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().strip("[]").split("][")

    def stored(self) -> dict[str, str]:
        """Return the files of the artefacts by name."""
        return {each.name: each.read_text() for each in self.folder.glob("artefacts/*/*")}


@pytest.fixture
def action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    return Ran(tmp_path, monkeypatch, stub=True)


def test_inputs_and_outputs() -> None:
    assert tuple(ACTION["inputs"]) == INPUTS
    assert tuple(ACTION["outputs"]) == ("passed", "report")


def test_no_script_contains_an_expression() -> None:
    """GitHub replaces expressions before bash reads the script."""
    scripts = [step["run"] for step in ACTION["runs"]["steps"] if "run" in step]
    assert len(scripts) == 2
    assert not any("${{" in script for script in scripts)
    variables = [
        value for step in ACTION["runs"]["steps"] for value in step.get("env", {}).values()
    ]
    assert {f"${{{{ inputs.{name} }}}}" for name in INPUTS} <= {*variables}


@pytest.mark.parametrize(
    ("code", "passed", "outcome"), [(0, "true", "ran"), (1, "false", "FAILED")]
)
def test_outputs_and_artefact(
    action: Ran, monkeypatch: pytest.MonkeyPatch, code: int, passed: str, outcome: str
) -> None:
    monkeypatch.setenv("CODE", str(code))
    done, outputs = action.run(JUDGE_AND_STORE, subject="kernels.py:right")
    assert (done, outputs["passed"]) == (outcome, passed)
    assert action.stored() == {"report.json": Path(outputs["report"]).read_text()}


def test_options(action: Ran) -> None:
    action.run(
        JUDGE,
        subject="kernels.py:right",
        operation="rms_norm",
        baseline="known.json",
        require="faithful",
        batch="warn",
        arguments="--dtype float32\n --largest 1e3",
    )
    *module, end, subject = [*action.calls[:3], *action.calls[-2:]]
    assert (module, end, subject) == (["-P", "-m", "truenorm"], "--", "kernels.py:right")
    options = action.calls[3:-2]
    assert options[:4] == ["verify", "--require=faithful", "--batch=warn", "--json"]
    files = dict(each.split("=") for each in options[4:6])
    assert files["--github"] == str(action.job.files / "summary.md")
    assert Path(files["--html"]).name == "report.html"
    own = ["--operation=rms_norm", "--baseline=known.json"]
    assert options[6:] == [*own, "--dtype", "float32", "--largest", "1e3"]


def test_another_command_is_refused(action: Ran) -> None:
    done, outputs = action.run(JUDGE_AND_STORE, subject="x", command="version")
    assert (done, outputs["passed"]) == ("FAILED", "")
    assert not (action.folder / "calls").exists()


@pytest.mark.parametrize("version", ["", "1.2.3"])
def test_installation(action: Ran, version: str) -> None:
    action.run(INSTALL, subject="x", version=version)
    expected = f"truenorm[verify]=={version}" if version else f"{action.folder}[verify]"
    given = (action.folder / "calls").read_text()
    assert given == f"[-P][-m][pip][install][--quiet][{expected}]"


HOSTILE = [
    "$(touch x)", "`touch x`", '"; touch x; "', "'; touch x; '", "a\ntouch x\n", "; touch x",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_an_input_runs_no_command(action: Ran, text: str) -> None:
    """Every input has the text; the command alone must be one of two."""
    others = {name: text for name in INPUTS if name not in ("subject", "command")}
    action.run(ALL, subject=text, **others)
    assert not [*action.folder.rglob("x")]
    assert action.calls[-1] == text
    action.job.place.rename(action.folder / "before")
    action.job.files.rename(action.folder / "files-before")
    action.run(ALL, subject="x", command=text)
    assert not [*action.folder.rglob("x")]


@pytest.mark.parametrize("steps", [INSTALL, JUDGE])
def test_no_file_of_the_checkout_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: slice
) -> None:
    """A checkout has a package pip, and modules that truenorm and Python itself import."""
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # a version that does not exist: nothing is installed
    action = Ran(tmp_path, monkeypatch, stub=False)
    planted = f"open({str(tmp_path / 'imported')!r}, 'a').write(__name__)\n"
    for name in ("pip/__init__", "pip/__main__", "truenorm/__init__", "truenorm/__main__"):
        action.files[f"{name}.py"] = planted
    for name in ("typer", "rich", "numpy", "json", "site", "sitecustomize", "yaml", "jinja2"):
        action.files[f"{name}.py"] = planted
    done, _ = action.run(steps, subject="cases", command="judge", version="999.0")
    assert done == "FAILED"
    assert not (tmp_path / "imported").exists()
