"""``python -m benchmarks.scoreboard``: the norms of others, and of truenorm, before the judge.

Each subject of ``benchmarks/judged`` runs in a process and an environment of its own; the exact
answers are computed once, here, for all of them. ``--page`` writes the tables of
docs/scoreboard.md anew, from a file that was written before.
"""
# ruff: noqa: T201
# A command prints its result.

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.pages import filled
from benchmarks.peer.environments import ROOT
from benchmarks.peer.process import PeerProcess, python_for
from benchmarks.scoreboard_page import PAGE, tables
from benchmarks.scoreboard_subjects import BOARDS, FOLDER, Judged
from benchmarks.timing import heading, machine
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line
from truenorm.tools.text import table
from truenorm.verify import cases
from truenorm.verify.cases.named import entries
from truenorm.verify.grading.report import CaseResult, Grade, Report
from truenorm.verify.judge import verify_target
from truenorm.verify.operation import Operation
from truenorm.verify.suite import LEVELS
from truenorm.verify.types import FORMATS

DRAWN = "float32"  # the type of which the file holds errors against kappa
COMMON = ("python", "numpy")
DIGITS = 6  # of every number in the file: grades were given before


def arguments_of(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.scoreboard",
        description="Judge normalizations, each in a process and environment of its own.",
    )
    described.add_argument("--json", action="store_true", help="print what --output gets")
    described.add_argument("--level", choices=LEVELS, default="quick", help="how many cases")
    described.add_argument(
        "--operation", choices=list(BOARDS), default="layer_norm", help="what is judged"
    )
    everybody = dict.fromkeys(name for board in BOARDS.values() for name in board.subjects)
    described.add_argument(
        "--peers", choices=list(everybody), nargs="+", default=list(everybody), metavar="NAME",
        help="who is judged, if he has the operation: " + ", ".join(everybody),
    )  # fmt: skip
    described.add_argument("--output", type=Path, help="the JSON file to write")
    described.add_argument(
        "--page",
        action="store_true",
        help="judge nobody: put what --output holds into the tables of docs/scoreboard.md",
    )
    arguments = described.parse_args(argv)
    arguments.output = arguments.output or BOARDS[arguments.operation].results
    return arguments


def judge(key: str, judged: Judged, python: Path, level: str) -> dict[str, Any]:
    """Judge one subject and return what the file says about it."""

    def show(done: int, of: int, case: str) -> None:
        status_line(f"{key}: {done} of {of}, {case}")

    report = verify_target(
        str(FOLDER / judged.target),
        level=level,
        progress=show,
        python=str(python),
        environment={
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONNOUSERSITE": "1",
            "JAX_PLATFORMS": "cpu",
            "TRUENORM_ROUNDING": "",  # it would override the mode that is judged
        },
    )
    status_line()
    return {"versions": versions(judged, python), **summary(report)}


def versions(judged: Judged, python: Path) -> dict[str, str]:
    """Ask a peer's environment for the versions of what the subject uses."""
    process = PeerProcess(judged.peer, python, usable_cores())
    try:
        found: dict[str, str] = process.ask("versions")
    finally:
        process.close()
    return {name: found[name] for name in (*COMMON, *judged.packages)}


def summary(report: Report) -> dict[str, Any]:
    """Return what the page and the figure need of a report."""
    dtypes = list(dict.fromkeys(grade.dtype for grade in report.grades))
    outputs = list(dict.fromkeys(grade.output for grade in report.grades))
    operation = report.operation
    named = {f"{kind}-{entry['name']}" for entry in entries(operation) for kind in FORMATS}
    mine = [
        case.name for kind in dtypes for case in cases(kind, report.level, operation=operation)
    ]
    return {
        "name": report.subject,
        "cases": report.cases,
        "seconds": round(report.seconds, 1),
        "grades": [
            rounded(asdict(grade)) | {"beyond_kappa": beyond_kappa(report.results, grade)}
            for grade in report.grades
        ],
        "verdicts": report.verdicts,
        "families": families(report.results, operation),
        "named": sum(name in named for name in mine),
        "failing": {
            output: failing(report.results, output, [name for name in mine if name in named])
            for output in outputs
        },
        "against_kappa": {output: curve(report.results, output) for output in outputs},
        "findings": [
            {
                "verdict": finding.verdict,
                "dtype": finding.dtype,
                "output": finding.output,
                "case": finding.case,
                "symptom": finding.symptom,
                "also_in": finding.also_in,
            }
            for finding in report.findings
        ],
    }


def rounded(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the same with shorter numbers."""
    return {
        key: short(value) if isinstance(value, float) else value for key, value in entry.items()
    }


def short(number: float) -> float:
    """Return a number of so many digits."""
    return float(f"{number:.{DIGITS}g}")


def beyond_kappa(results: Iterable[CaseResult], grade: Grade) -> list[str]:
    """Return the cases whose error is above that of an algorithm that loses digits like kappa."""
    return [
        each.case
        for each in results
        if (each.dtype, each.output) == (grade.dtype, grade.output) and each.needs > 1
    ]


def families(results: Iterable[CaseResult], operation: Operation) -> list[dict[str, Any]]:
    """Return the largest error of each generated family, by type; a named case is none."""
    alone = {entry["name"] for entry in entries(operation)}
    largest: dict[tuple[str, str, str], dict[str, float]] = {}
    for each in results:
        if each.family not in alone:
            ulps = largest.setdefault((each.dtype, each.family, each.kind), {})
            ulps[each.output] = max(short(each.ulp), ulps.get(each.output, 0.0))
    return [
        {"dtype": dtype, "family": family, "kind": kind, "max_ulp": ulps}
        for (dtype, family, kind), ulps in largest.items()
    ]


def failing(results: Iterable[CaseResult], output: str, named: Sequence[str]) -> list[str]:
    """Return the named cases whose error is not that of a stable algorithm, or is unknown."""
    passed = {each.case for each in results if each.output == output and each.needs == 0}
    return [name for name in named if name not in passed]


def curve(results: Iterable[CaseResult], output: str) -> dict[str, list[float]]:
    """Return the errors over the sweep of one type, in natural units, by growing kappa."""
    points = sorted(
        (short(each.kappa), short(each.natural))
        for each in results
        if (each.kind, each.dtype, each.output) == ("sweep", DRAWN, output)
    )
    return {
        "kappa": [kappa for kappa, _ in points],
        "natural": [natural for _, natural in points],
    }


def overview(report: dict[str, Any]) -> str:
    """Return a line for each subject and type."""
    rows = []
    for subject in report["subjects"].values():
        by_type: dict[str, list[str]] = {}
        for grade in subject["grades"]:
            by_type.setdefault(grade["dtype"], []).append(f"{grade['output']} {grade['grade']}")
        rows += [[subject["name"], kind, ", ".join(said)] for kind, said in by_type.items()]
    return table(["subject", "type", "grades"], rows)


def main(argv: list[str] | None = None) -> int:
    """Judge, save and print."""
    arguments = arguments_of(argv)
    if arguments.page:
        report = json.loads(arguments.output.read_text(encoding="utf-8"))
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables(report)), encoding="utf-8")
        return 0
    # Every environment is there before the first subject is judged.
    asked = {
        key: (judged, python_for(judged.peer))
        for key, judged in BOARDS[arguments.operation].subjects.items()
        if key in arguments.peers
    }
    report = {
        "operation": arguments.operation,
        "machine": machine(usable_cores(), packages=("numpy",)),
        "level": arguments.level,
        "require": "stable",
        "subjects": {key: judge(key, *whom, arguments.level) for key, whom in asked.items()},
    }
    text = strict_json.write(report, arguments.output)
    print(text if arguments.json else heading(report["machine"]) + "\n\n" + overview(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
