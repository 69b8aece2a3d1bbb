"""Run the steps of a workflow that need no GitHub, as its Linux jobs would, and print a table.

usage: python .ci/follow_workflow.py WORKFLOW TAG FOLDER [JOB ...]

Each job starts in an empty folder with a new environment of Python. Of a matrix the first entry is
taken. Checking out is cloning the last commit; artefacts are copied to and from FOLDER. The steps
of this project's action are run. Other actions need GitHub, and cibuildwheel needs containers: the
table says so. After a step that fails, the rest of its job is not run, and neither are the jobs
that need it.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
RAN, FAILED, NOT_RUN = "ran", "FAILED", "not run"
# Program of a step: what it needs, and the commands of which one must succeed.
NEEDS = {"cibuildwheel": ("containers", (["docker", "info"], ["podman", "info"]))}


class Runner:
    """Runs jobs one after the other, in the order of the file."""

    def __init__(
        self, workflow: dict[str, Any], tag: str, folder: Path, jobs: Sequence[str] = ()
    ) -> None:
        self.workflow, self.folder, self.jobs = workflow, folder, jobs
        self.failed: set[str] = set()
        self.context = {
            "github.ref_name": tag,
            "github.repository": "example/truenorm",
            "github.server_url": "https://github.com",
        }

    def steps(self) -> Iterator[tuple[str, str, str]]:
        """Run every step; yield the job, the step, and "ran", "FAILED" or why it did not run."""
        for name, described in self.workflow["jobs"].items():
            if self.jobs and name not in self.jobs:
                continue
            matrix = described.get("strategy", {}).get("matrix", {})
            context = self.context | {f"matrix.{key}": each[0] for key, each in matrix.items()}
            job = Job(name, self.folder, context)
            for each in (self.workflow, described):
                job.environment |= replaced(each.get("env", {}), context)
            needs = described.get("needs", [])
            needed = {needs} if isinstance(needs, str) else set(needs)
            before = NOT_RUN if self.failed & needed else RAN
            for label, outcome in job.run(described["steps"], context, before):
                yield name, label, outcome
            if job.result in (FAILED, NOT_RUN):
                self.failed.add(name)


class Job:
    """A job: its folder, its variables, and the files that its steps write for GitHub."""

    def __init__(self, name: str, folder: Path, context: dict[str, str]) -> None:
        self.folder, self.place, self.result = folder, folder / name, RAN
        self.place.mkdir()
        self.files = folder / f"files-{name}"
        self.files.mkdir()
        self.environment = {
            **os.environ,
            "GITHUB_REF_NAME": context["github.ref_name"],
            "GITHUB_JOB": name,
            "GITHUB_WORKSPACE": str(self.place),
            "GITHUB_STEP_SUMMARY": str(self.files / "summary.md"),
            "RUNNER_TEMP": str(self.files),
        }

    def run(
        self, steps: list[dict[str, Any]], context: dict[str, str], outcome: str
    ) -> Iterator[tuple[str, str]]:
        """Run steps until one fails or needs GitHub; yield the name and the outcome of each.

        `outcome` is that of the jobs that this one needs; `result` becomes that of all steps.
        """
        for described in steps:
            always, condition = has_always(described), described.get("if", "")
            if outcome == FAILED and not always:
                outcome = NOT_RUN
            runs = outcome == RAN or (always and outcome in (FAILED, NOT_RUN))
            if not runs or not holds(condition, context):
                yield described.get("run") or described["uses"], outcome if not runs else NOT_RUN
                continue
            step = replaced(described, context)
            label, own = step.get("run") or step["uses"], self.outcome(step, context)
            yield label, own
            if own != RAN and not (own == FAILED and step.get("continue-on-error")):
                outcome = own
        self.result = outcome

    def outcome(self, step: dict[str, Any], context: dict[str, str]) -> str:
        """Run a step; return "ran", "FAILED", or what it and the rest of its job need."""
        outputs = self.files / "outputs"
        outputs.write_text("", encoding="utf-8")
        if "run" in step:
            for program, (need, commands) in NEEDS.items():
                if f"-m {program}" in step["run"] and not any(map(succeeds, commands)):
                    return f"needs {need}"
            command = ["bash", "-eo", "pipefail", "-c", step["run"]]
            variables = self.environment | step.get("env", {}) | {"GITHUB_OUTPUT": str(outputs)}
            done = subprocess.run(command, cwd=self.place, env=variables)
            for line in outputs.read_text(encoding="utf-8").splitlines():
                name, _, value = line.partition("=")
                context[f"steps.{step.get('id')}.outputs.{name}"] = value
            return FAILED if done.returncode else RAN
        action, options = step["uses"].partition("@")[0], step.get("with", {})
        environment = self.environment
        if action == "actions/checkout":
            command = ["git", "clone", "--quiet", str(ROOT), str(self.place)]
            subprocess.run(command, check=True)
        elif action == "actions/setup-python":
            venv.create(self.folder / f"python-{self.place.name}", with_pip=True)
            path = self.folder / f"python-{self.place.name}" / "bin"
            environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
        elif action == "actions/upload-artifact":
            self.upload(options)
        elif action == "actions/download-artifact":
            pattern = options.get("name", options.get("pattern"))
            for stored in (self.folder / "artefacts").glob(pattern):
                shutil.copytree(stored, self.place / options["path"], dirs_exist_ok=True)
        elif action == "./" or action.endswith("/truenorm"):
            return self.composite(ROOT if action != "./" else self.place, step, context)
        else:
            return "needs GitHub"
        return RAN

    def upload(self, options: dict[str, str]) -> None:
        """Store files, and the contents of folders."""
        stored = self.folder / "artefacts" / options["name"]
        stored.mkdir(parents=True)
        files = [
            each
            for line in options["path"].split()
            for each in ([Path(line)] if Path(line).is_absolute() else self.place.glob(line))
        ]
        if not files:
            raise FileNotFoundError(f"no file matches {options['path']}")
        for file in files:
            if file.is_dir():
                shutil.copytree(file, stored, dirs_exist_ok=True)
            else:
                shutil.copy(file, stored)

    def composite(self, folder: Path, step: dict[str, Any], context: dict[str, str]) -> str:
        """Run the steps of the action in a folder; its outputs are those of the step."""
        action = yaml.safe_load((folder / "action.yml").read_text(encoding="utf-8"))
        inputs = {name: each.get("default", "") for name, each in action["inputs"].items()}
        inner = {f"inputs.{name}": value for name, value in (inputs | step["with"]).items()}
        inner["github.action_path"] = str(folder)
        for _ in self.run(action["runs"]["steps"], inner, RAN):
            pass
        for name, each in action["outputs"].items():
            context[f"steps.{step.get('id')}.outputs.{name}"] = replaced(each["value"], inner)
        return FAILED if self.result == NOT_RUN else self.result


def has_always(step: dict[str, Any]) -> bool:
    """Return True for a step that runs also after one that failed."""
    return str(step.get("if", "")).startswith("always()")


def holds(condition: str, context: dict[str, str]) -> bool:
    """Return the value of a condition; of outputs, those that are not empty are supported."""
    if condition in ("", "always()"):
        return True
    match = re.fullmatch(r"always\(\) && (steps\.\S+) != ''", condition)
    if match is None:
        raise ValueError(f"expected always() && steps.ID.outputs.NAME != '', got {condition}")
    return bool(context.get(match[1]))


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
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: looked_up(match[1], context), value)
    return value


def looked_up(name: str, context: dict[str, str]) -> str:
    """Return the value of an expression; that of an output that was not written is empty."""
    return context.get(name, "") if name.startswith("steps.") else context[name]


def main() -> int:
    """Follow the workflow; return the exit code."""
    if len(sys.argv) < 4:
        print(__doc__)
        return 2
    workflow, tag, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    steps: list[tuple[str, str, str]] = []
    described = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    runner = Runner(described, tag, folder, sys.argv[4:])
    try:
        steps.extend(runner.steps())
    finally:
        print(*(f"{job:14} {outcome:16} {step}" for job, step, outcome in steps), sep="\n")
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())
