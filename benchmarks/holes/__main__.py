"""``python -m benchmarks.holes``: which wrong kernels tests let pass that have others' inputs.

``--page`` writes docs/holes.md anew, from a file that was written before.
"""
# ruff: noqa: T201
# A command prints its result.

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.holes.listed import LISTED, Listed
from benchmarks.holes.page import PAGE, page
from benchmarks.pages import published
from benchmarks.timing import machine
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line
from truenorm.verify.audit.running import audit_tests

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "holes.json"


def arguments_of(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.holes",
        description="Audit tests that have the inputs and tolerances of other projects.",
    )
    described.add_argument("--json", action="store_true", help="print what --output gets")
    described.add_argument(
        "--only", default="", metavar="TEXT", help="audit projects and names that hold this"
    )
    described.add_argument("--jobs", type=int, default=usable_cores(), help="runs at once")
    described.add_argument("--output", type=Path, default=RESULTS, help="the JSON file to write")
    described.add_argument(
        "--page", action="store_true", help="audit nothing: write the page from --output"
    )
    return described.parse_args(argv)


def audited(listed: Listed, jobs: int) -> dict[str, Any]:
    """Return what the file says of an imitation."""
    told = audit_tests([listed.path], listed.task, jobs=jobs).as_dict()
    for name in ("machine", "schema", "tests", "seconds"):
        del told[name]
    about = {"project": listed.project, "what": listed.what, "taken": listed.taken}
    return {**about, "command": listed.command, **told}


def main(argv: list[str] | None = None) -> int:
    """Audit everything, save and print."""
    arguments = arguments_of(argv)
    os.chdir(ROOT)
    if not arguments.page:
        audits = []
        for each in LISTED:
            if arguments.only in f"{each.project}, {each.what}":
                status_line(f"{each.project}, {each.what}")
                audits.append(audited(each, arguments.jobs))
        status_line()
        where = machine(usable_cores(), packages=("numpy", "pytest"))
        text = strict_json.write({"machine": where, "audits": audits}, arguments.output)
        if arguments.json:
            print(text)
    shown = published(arguments.output, page, PAGE if arguments.output == RESULTS else None)
    if not arguments.json:
        print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
