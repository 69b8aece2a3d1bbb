"""Run the steps of a workflow that need no GitHub, as its Linux jobs would, and print a table.

usage: python .ci/follow_workflow.py WORKFLOW TAG FOLDER

Each job starts in an empty folder with a new environment of Python. Of a matrix the first entry is
taken. Checking out is cloning the last commit; artefacts are copied to and from FOLDER. Other
actions need GitHub, and cibuildwheel needs containers: the table says so. After a step that fails,
the rest of its job is not run, and neither are the jobs that need it.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
RAN, FAILED, NOT_RUN = "ran", "FAILED", "not run"
# Program of a step: what it needs, and the commands of which one must succeed.
NEEDS = {"cibuildwheel": ("containers", (["docker", "info"], ["podman", "info"]))}


class Runner:
    """Runs jobs one after the other, in the order of the file."""

    def __init__(self, workflow: dict[str, Any], tag: str, folder: Path) -> None:
        self.workflow, self.folder = workflow, folder
        self.context = {
            "github.ref_name": tag,
            "github.repository": "example/truenorm",
            "github.server_url": "https://example.org",
        }

    def steps(self) -> Iterator[tuple[str, str, str]]:
        """Run every step; yield the job, the step, and "ran", "FAILED" or why it did not run."""
        failed: set[str] = set()
        for name, job in self.workflow["jobs"].items():
            matrix = job.get("strategy", {}).get("matrix", {})
            context = self.context | {f"matrix.{key}": each[0] for key, each in matrix.items()}
            place = self.folder / name
            place.mkdir()
            environment = {**os.environ, "GITHUB_REF_NAME": context["github.ref_name"]}
            for each in (self.workflow, job):
                environment |= replaced(each.get("env", {}), context)
            needs = job.get("needs", [])
            needed = {needs} if isinstance(needs, str) else set(needs)
            outcome = NOT_RUN if failed & needed else RAN
            for step in replaced(job["steps"], context):
                if outcome == RAN:
                    outcome = self.outcome(step, place, environment)
                elif outcome == FAILED:
                    outcome = NOT_RUN
                yield name, step.get("run") or step["uses"], outcome
            if outcome in (FAILED, NOT_RUN):
                failed.add(name)

    def outcome(self, step: dict[str, Any], place: Path, environment: dict[str, str]) -> str:
        """Run a step; return "ran", "FAILED", or what it and the rest of its job need."""
        if "run" in step:
            for program, (need, commands) in NEEDS.items():
                if f"-m {program}" in step["run"] and not any(map(succeeds, commands)):
                    return f"needs {need}"
            command = ["bash", "-eo", "pipefail", "-c", step["run"]]
            variables = environment | step.get("env", {})
            done = subprocess.run(command, cwd=place, env=variables)
            return FAILED if done.returncode else RAN
        action, options = step["uses"].partition("@")[0], step.get("with", {})
        if action == "actions/checkout":
            command = ["git", "clone", "--quiet", str(ROOT), str(place)]
            subprocess.run(command, check=True)
        elif action == "actions/setup-python":
            venv.create(self.folder / f"python-{place.name}", with_pip=True)
            path = self.folder / f"python-{place.name}" / "bin"
            environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
        elif action == "actions/upload-artifact":
            stored = self.folder / "artefacts" / options["name"]
            stored.mkdir(parents=True)
            files = [each for line in options["path"].split() for each in place.glob(line)]
            if not files:
                raise FileNotFoundError(f"no file matches {options['path']}")
            for file in files:
                shutil.copy(file, stored)
        elif action == "actions/download-artifact":
            pattern = options.get("name", options.get("pattern"))
            for stored in (self.folder / "artefacts").glob(pattern):
                shutil.copytree(stored, place / options["path"], dirs_exist_ok=True)
        else:
            return "needs GitHub"
        return RAN


def succeeds(command: list[str]) -> bool:
    """Return True if a program is installed and succeeds: a client may be without its server."""
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True).returncode == 0


def replaced(value: Any, context: dict[str, str]) -> Any:
    """Return a value of YAML with its expressions replaced; raise KeyError for an unknown one."""
    if isinstance(value, dict):
        return {key: replaced(each, context) for key, each in value.items()}
    if isinstance(value, list):
        return [replaced(each, context) for each in value]
    if isinstance(value, str):
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: context[match[1]], value)
    return value


def main() -> int:
    """Follow the workflow; return the exit code."""
    if len(sys.argv) != 4:
        print(__doc__)
        return 2
    workflow, tag, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    steps: list[tuple[str, str, str]] = []
    try:
        runner = Runner(yaml.safe_load(workflow.read_text(encoding="utf-8")), tag, folder)
        steps.extend(runner.steps())
    finally:
        print(*(f"{job:14} {outcome:16} {step}" for job, step, outcome in steps), sep="\n")
    return 1 if any(outcome == FAILED for _, _, outcome in steps) else 0


if __name__ == "__main__":
    sys.exit(main())
