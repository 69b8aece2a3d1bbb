"""``python -m benchmarks.scoreboard``: other layer normalizations, and truenorm, before the judge.

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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.pages import filled
from benchmarks.peer.environments import PEERS, ROOT, Peer
from benchmarks.peer.process import PeerProcess, python_for
from benchmarks.scoreboard_page import PAGE, tables
from benchmarks.timing import heading, machine
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line
from truenorm.tools.text import table
from truenorm.verify import cases
from truenorm.verify.cases.named import entries
from truenorm.verify.grading.report import CaseResult, Grade, Report
from truenorm.verify.operations import LAYER_NORM
from truenorm.verify.suite import LEVELS
from truenorm.verify.target import verify_target
from truenorm.verify.types import FORMATS

FOLDER = ROOT / "benchmarks" / "judged"
RESULTS = ROOT / "benchmarks" / "results" / "scoreboard.json"
DRAWN = "float32"  # the type of which the file holds errors against kappa
COMMON = ("python", "numpy")
DIGITS = 6  # of every number in the file: grades were given before


@dataclass(frozen=True)
class Judged:
    """A subject: its file, the peer in whose environment it runs, and what it uses of that."""

    target: str
    peer: Peer
    packages: tuple[str, ...]


SUBJECTS = {
    "truenorm": Judged(
        "truenorm_modes.py:correct", PEERS["truenorm"], ("truenorm", "backend", "numba")
    ),
    "truenorm-fast": Judged(
        "truenorm_modes.py:fast", PEERS["truenorm"], ("truenorm", "backend", "numba")
    ),
    "textbook64": Judged("textbook_numpy.py:wide", PEERS["textbook64"], ("truenorm", "ml_dtypes")),
    "textbook": Judged("textbook_numpy.py:plain", PEERS["textbook"], ("truenorm", "ml_dtypes")),
    "torch": Judged("pytorch.py:subject", PEERS["torch"], ("torch",)),
    "jax": Judged("jax_standardize.py:stable", PEERS["jax"], ("jax", "jaxlib")),
    "jax-fast": Judged("jax_standardize.py:fast", PEERS["jax"], ("jax", "jaxlib")),
    "onnxruntime": Judged(
        "onnx_runtime.py:subject", PEERS["onnxruntime"], ("onnxruntime", "onnx")
    ),
    "onnx": Judged("onnx_reference.py:subject", PEERS["onnxruntime"], ("onnx", "ml_dtypes")),
    "thinc": Judged("thinc_layer.py:subject", PEERS["thinc"], ("thinc",)),
}


def arguments_of(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.scoreboard",
        description="Judge layer normalizations, each in a process and environment of its own.",
    )
    described.add_argument("--json", action="store_true", help="print what --output gets")
    described.add_argument("--level", choices=LEVELS, default="quick", help="how many cases")
    described.add_argument(
        "--peers", choices=list(SUBJECTS), nargs="+", default=list(SUBJECTS), metavar="NAME",
        help="who is judged: " + ", ".join(SUBJECTS),
    )  # fmt: skip
    described.add_argument("--output", type=Path, default=RESULTS, help="the JSON file to write")
    described.add_argument(
        "--page",
        action="store_true",
        help="judge nobody: put what --output holds into the tables of docs/scoreboard.md",
    )
    return described.parse_args(argv)


def judge(key: str, python: Path, level: str) -> dict[str, Any]:
    """Judge one subject and return what the file says about it."""
    judged = SUBJECTS[key]

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
    named = {f"{kind}-{entry['name']}" for entry in entries(LAYER_NORM) for kind in FORMATS}
    mine = [case.name for kind in dtypes for case in cases(kind, report.level)]
    return {
        "name": report.subject,
        "cases": report.cases,
        "seconds": round(report.seconds, 1),
        "grades": [
            rounded(asdict(grade)) | {"beyond_kappa": beyond_kappa(report.results, grade)}
            for grade in report.grades
        ],
        "verdicts": report.verdicts,
        "families": families(report.results),
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


def families(results: Iterable[CaseResult]) -> list[dict[str, Any]]:
    """Return the largest error of each generated family, by type; a named case is none."""
    alone = {entry["name"] for entry in entries(LAYER_NORM)}
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
    pythons = {key: python_for(SUBJECTS[key].peer) for key in SUBJECTS if key in arguments.peers}
    report = {
        "machine": machine(usable_cores(), packages=("numpy",)),
        "level": arguments.level,
        "require": "stable",
        "subjects": {key: judge(key, python, arguments.level) for key, python in pythons.items()},
    }
    text = strict_json.write(report, arguments.output)
    print(text if arguments.json else heading(report["machine"]) + "\n\n" + overview(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
