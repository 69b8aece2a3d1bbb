"""The workflow of examples/remote in three jobs, on the CPU and without GitHub."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.repository.dry_run import ROOT, load_follow_workflow

EXAMPLE = ROOT / "examples" / "remote"
INSTALLED = ("actions/setup-python", "actions/checkout")


def without_installation(workflow: dict[str, Any]) -> dict[str, Any]:
    """Return a workflow of small cases whose steps use this environment and these files."""
    jobs = {}
    for name, job in workflow["jobs"].items():
        steps = [
            step
            for step in job["steps"]
            if "pip install" not in step.get("run", "")
            and not step.get("uses", "").startswith(INSTALLED)
        ]
        copy = {"run": f"cp {EXAMPLE / 'rms_norm.py'} ."}
        jobs[name] = {**job, "steps": [copy, *steps]}
    return {"jobs": jobs}


@pytest.mark.skipif(sys.platform == "win32", reason="steps run in bash")
def test_three_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    follow = load_follow_workflow()
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    del action["runs"]["steps"][0]  # the installation
    monkeypatch.setattr(follow, "ROOT", tmp_path)
    (tmp_path / "action.yml").write_text(yaml.safe_dump(action))
    text = (EXAMPLE / ".github" / "workflows" / "norms.yml").read_text(encoding="utf-8")
    text = text.replace("--device cuda", "--device cpu").replace("--dtype bfloat16", "")
    text = text.replace("truenorm record", f"{shutil.which('python')} -m truenorm record")
    runner = follow.Runner(without_installation(yaml.safe_load(text)), "", tmp_path)
    outcomes = {(job, outcome) for job, _, outcome in runner.steps()}
    assert outcomes == {("record", "ran"), ("run", "ran"), ("judge", "ran")}
    summary = (tmp_path / "files-judge" / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("## PASS: rms\\_norm on PyTorch tensors")
