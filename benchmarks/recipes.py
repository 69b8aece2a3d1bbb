"""``python -m benchmarks.recipes``: where real code rounds, by its bits.

Each subject runs on the judge's ordinary cases in a process of its own, in the environment that
has its package: ``--python torch=PATH`` names an interpreter that has all of them, else one is
made. ``--page`` writes docs/recipes-table.md anew, from a file that was written before.
"""
# ruff: noqa: T201
# A command prints its result.

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.pages import published
from benchmarks.peer.environments import ROOT
from benchmarks.peer.process import python_for
from benchmarks.recipes_page import PAGE, page
from benchmarks.recipes_subjects import ENVIRONMENTS, FORMULA, LISTED, Listed
from benchmarks.timing import machine
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line
from truenorm.verify import Recipe, cases
from truenorm.verify.grading.grades import grade
from truenorm.verify.operations import parse_operation
from truenorm.verify.running.process import SubjectProcess
from truenorm.verify.running.records import Call, CannotRunError

RESULTS = ROOT / "benchmarks" / "results" / "recipes.json"
DTYPES = ("bfloat16", "float16")
COMMON = ("numpy", "ml_dtypes", "torch")


def arguments_of(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.recipes", description="Find where norms round, by their bits."
    )
    described.add_argument("--json", action="store_true", help="print what --output gets")
    described.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help=f"the interpreter of an environment: {', '.join(ENVIRONMENTS)}",
    )
    described.add_argument(
        "--only", default="", metavar="TEXT", help="look at projects and names that hold this"
    )
    described.add_argument("--output", type=Path, default=RESULTS, help="the JSON file to write")
    described.add_argument(
        "--page", action="store_true", help="look at nobody: write the table from --output"
    )
    return described.parse_args(argv)


def pythons(given: list[str]) -> dict[str, Path]:
    """Return the interpreter of each environment, which is made if none was given."""
    said = {name: Path(path) for name, _, path in (each.partition("=") for each in given)}
    if not said.keys() <= ENVIRONMENTS.keys():
        raise SystemExit(f"--python is NAME=PATH; the names are {', '.join(ENVIRONMENTS)}")
    return {name: said.get(name) or python_for(peer) for name, peer in ENVIRONMENTS.items()}


def looked_at(listed: Listed, python: Path) -> dict[str, Any]:
    """Return what the file says of a subject; why, if it could not be run."""
    entry: dict[str, Any] = {
        "project": listed.project,
        "what": listed.what,
        "operation": listed.operation,
        "ran": listed.package != FORMULA,
        "package": listed.package,
    }
    environment = {"PYTHONPATH": str(ROOT / "src"), "PYTHONNOUSERSITE": "1"}
    try:
        with SubjectProcess(
            listed.target,
            operation=listed.operation,
            python=str(python),
            environment=environment,
        ) as process:
            dtypes = process.subject.dtypes
            found = {
                dtype: recipe_in(process, dtype, listed.operation)
                for dtype in DTYPES
                if dtype in dtypes
            }
    except CannotRunError as why:
        return {**entry, "cannot": str(why).strip().splitlines()[-1]}
    return {**entry, "recipes": found}


def recipe_in(process: SubjectProcess, dtype: str, words: str) -> dict[str, Any]:
    """Put the ordinary cases of a type to a subject, and return what its bits say."""
    operation = parse_operation(words)
    suite = [each for each in cases(dtype, operation=operation) if each.family == "normal"]
    records = [process.run(each, Call()) for each in suite]
    if failures := [each.failure for each in records if each.failure]:
        return {"failed": failures[0].splitlines()[0]}
    outputs = operation.outputs_of(backward=False)
    report = grade("", suite, records, outputs=outputs, require="wrong")
    grades = {each.output: each.grade for each in report.grades}
    symptoms = [each.symptom for each in report.findings if each.guard in ("shape", "type")]
    if symptoms or not report.recipes:
        return {"failed": symptoms[0] if symptoms else "no result could be measured"}
    return {**summary(report.recipes[0]), "grades": grades}


def summary(recipe: Recipe) -> dict[str, Any]:
    """Return the names that fit, and the share of each recipe."""
    shares = {name: round(share, 6) for name, share in recipe.shares.items()}
    return {"names": list(recipe.names), "shares": shares}


def versions(python: Path, packages: list[str]) -> dict[str, str]:
    """Ask an environment for the versions of packages."""
    script = (
        "import json, sys; from importlib.metadata import version;"
        "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    )
    done = subprocess.run(
        [python, "-c", script, *packages],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def main(argv: list[str] | None = None) -> int:
    """Look at everybody, save and print."""
    arguments = arguments_of(argv)
    if not arguments.page:
        python = pythons(arguments.python)["torch"]
        chosen = [each for each in LISTED if arguments.only in f"{each.project} {each.what}"]
        ran = dict.fromkeys([*COMMON, *(each.package for each in chosen)])
        ran.pop(FORMULA, None)
        entries = []
        for each in chosen:
            status_line(f"{each.project} {each.what}, {each.operation}")
            entries.append(looked_at(each, python))
        status_line()
        report = {
            "machine": machine(usable_cores(), packages=("numpy",)),
            "versions": versions(python, list(ran)),
            "subjects": entries,
        }
        text = strict_json.write(report, arguments.output)
        if arguments.json:
            print(text)
    shown = published(arguments.output, page, PAGE if arguments.output == RESULTS else None)
    if not arguments.json:
        print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
