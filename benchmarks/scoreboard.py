"""``python -m benchmarks.scoreboard``: judge the norms of other packages, and of truenorm.

Each subject of benchmarks/subjects runs in a process and an environment of its own; the exact
answers are computed once, here. ``--page`` fills the tables of docs/judge/scoreboard.md and of
README.md from files that were written before.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import (
    DOCS,
    RESULTS,
    ROOT,
    fill_page,
    heading,
    machine,
    markdown_table,
    options,
    progress,
    read_results,
)
from benchmarks.environments import PEERS, VARIABLES, peer_versions, python_for
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line
from truenorm.tools.text import number
from truenorm.verify import cases
from truenorm.verify.cases.named import entries
from truenorm.verify.grading.report import CaseResult, Grade, Report
from truenorm.verify.judge import collect, grade_records, scope, use_options
from truenorm.verify.operation import Operation
from truenorm.verify.operations import OPERATIONS
from truenorm.verify.running.process import SubjectProcess
from truenorm.verify.running.runners import try_a_call
from truenorm.verify.suite import LEVELS
from truenorm.verify.types import FORMATS

FOLDER = ROOT / "benchmarks" / "subjects"
PAGE, README = DOCS / "judge" / "scoreboard.md", ROOT / "README.md"
DIGITS = 6  # of the numbers in the file; grades are computed before


class Entry(NamedTuple):
    """A subject: its file and name, the peer in whose environment it runs, and its packages."""

    target: str
    peer: str
    packages: tuple[str, ...]


OURS, NUMPY, ONNX = ("truenorm", "backend"), ("truenorm", "ml_dtypes"), ("onnxruntime", "onnx")
LAYER_NORM = {
    "truenorm": Entry("truenorm_subjects.py:correct", "truenorm", OURS),
    "truenorm-fast": Entry("truenorm_subjects.py:fast", "truenorm", OURS),
    "textbook64": Entry("numpy_subjects.py:wide", "textbook64", NUMPY),
    "textbook": Entry("numpy_subjects.py:textbook_form", "textbook", NUMPY),
    "torch": Entry("torch_subjects.py:layer_norm", "torch", ("torch",)),
    "jax": Entry("jax_subjects.py:stable", "jax", ("jax", "jaxlib")),
    "jax-fast": Entry("jax_subjects.py:fast", "jax", ("jax", "jaxlib")),
    "onnxruntime": Entry("onnx_subjects.py:runtime_layer_norm", "onnxruntime", ONNX),
    "onnx": Entry("onnx_subjects.py:layer_norm", "onnxruntime", ("onnx", "ml_dtypes")),
    "thinc": Entry("thinc_subject.py:layer_norm", "thinc", ("thinc",)),
}
RMS_NORM = {
    "truenorm": Entry("truenorm_subjects.py:rms_norm_correct", "truenorm", OURS),
    "truenorm-fast": Entry("truenorm_subjects.py:rms_norm_fast", "truenorm", OURS),
    "textbook64": Entry("numpy_subjects.py:rms_norm_wide", "textbook64", NUMPY),
    "hugging-face": Entry("numpy_subjects.py:hugging_face", "textbook", ("ml_dtypes",)),
    "torch": Entry("torch_subjects.py:rms_norm", "torch", ("torch",)),
    "jax": Entry("jax_subjects.py:rms_norm", "jax", ("jax", "jaxlib")),
    "onnxruntime": Entry("onnx_subjects.py:runtime_rms_norm", "onnxruntime", ONNX),
    "onnxruntime-simplified": Entry("onnx_subjects.py:simplified", "onnxruntime", ONNX),
    "onnx": Entry("onnx_subjects.py:rms_norm", "onnxruntime", ("onnx", "ml_dtypes")),
}


class Board(NamedTuple):
    """The scoreboard of one operation: its subjects, its file, and the prefix of its tables."""

    subjects: dict[str, Entry]
    results: Path
    prefix: str = ""


BOARDS = {
    "layer_norm": Board(LAYER_NORM, RESULTS / "scoreboard.json"),
    "rms_norm": Board(RMS_NORM, RESULTS / "scoreboard_rms_norm.json", "RMSNorm: "),
}


def judge(key: str, entry: Entry, level: str) -> dict[str, Any]:
    """Judge one subject and return its part of the file; its calls are graded twice."""
    python, target = python_for(PEERS[entry.peer]), str(FOLDER / entry.target)
    with SubjectProcess(target, python=str(python), environment=VARIABLES) as process:
        spec = use_options(process, target, {})
        suite = scope(process.subject, level)
        records = [*try_a_call(process, suite), *collect(process, suite, progress(key))]
    status_line()
    subject = process.subject
    everywhere, within = (
        grade_records(
            subject,
            suite,
            records,
            spec,
            level=level,
            domain=subject.required_domain(strict=strict),
            strict=strict,
        )
        for strict in (True, False)
    )
    versions = peer_versions(PEERS[entry.peer], python)
    packages = {name: versions[name] for name in ("python", "numpy", *entry.packages)}
    return {"versions": packages, **summary(everywhere, within)}


def summary(report: Report, within: Report) -> dict[str, Any]:
    """Return what the page and the figure need of a report on all cases, and of one on few.

    `within` counts only the cases of the default domain.
    """
    dtypes = list(dict.fromkeys(grade.dtype for grade in report.grades))
    outputs = list(dict.fromkeys(grade.output for grade in report.grades))
    operation, results = report.operation, report.results
    named = {f"{kind}-{entry['name']}" for entry in entries(operation) for kind in FORMATS}
    suite = [
        case.name for kind in dtypes for case in cases(kind, report.level, operation=operation)
    ]
    keys = ("verdict", "dtype", "output", "case", "symptom", "also_in")
    return {
        "name": report.subject,
        "cases": report.cases,
        "seconds": round(report.seconds, 1),
        "grades": [
            rounded(asdict(grade)) | {"beyond_kappa": beyond_kappa(results, grade)}
            for grade in report.grades
        ],
        "grades_within": [rounded(asdict(grade)) for grade in within.grades],
        "cases_within": within.cases,
        "verdicts": report.verdicts,
        "families": families(results, operation),
        "named": sum(name in named for name in suite),
        "failing": {
            output: failing(results, output, [name for name in suite if name in named])
            for output in outputs
        },
        "against_kappa": {output: curve(results, output) for output in outputs},
        "findings": [{key: getattr(each, key) for key in keys} for each in report.findings],
    }


def rounded(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with its floats shortened."""
    return {k: short(value) if isinstance(value, float) else value for k, value in record.items()}


def short(value: float) -> float:
    """Return a number rounded to `DIGITS` digits."""
    return float(f"{value:.{DIGITS}g}")


def beyond_kappa(results: Iterable[CaseResult], grade: Grade) -> list[str]:
    """Return the cases whose error exceeds that of an algorithm with an error of order kappa."""
    place = grade.dtype, grade.output
    return [each.case for each in results if (each.dtype, each.output) == place and each.needs > 1]


def families(results: Iterable[CaseResult], operation: Operation) -> list[dict[str, Any]]:
    """Return the largest error of each generated family, by type; named cases are left out."""
    named = {entry["name"] for entry in entries(operation)}
    largest: dict[tuple[str, str, str], dict[str, float]] = {}
    for each in results:
        if each.family not in named:
            ulps = largest.setdefault((each.dtype, each.family, each.kind), {})
            ulps[each.output] = max(short(each.ulp), ulps.get(each.output, 0.0))
    return [
        {"dtype": dtype, "family": family, "kind": kind, "max_ulp": ulps}
        for (dtype, family, kind), ulps in largest.items()
    ]


def failing(results: Iterable[CaseResult], output: str, named: Sequence[str]) -> list[str]:
    """Return the named cases without a result or with an error that is not stable."""
    passed = {each.case for each in results if each.output == output and each.needs == 0}
    return [name for name in named if name not in passed]


def curve(results: Iterable[CaseResult], output: str) -> dict[str, list[float]]:
    """Return the errors of the sweep in float32, in natural units, by increasing kappa."""
    points = sorted(
        (short(each.kappa), short(each.natural))
        for each in results
        if (each.kind, each.dtype, each.output) == ("sweep", "float32", output)
    )
    return {"kappa": [kappa for kappa, _ in points], "natural": [error for _, error in points]}


SHORT = {
    "truenorm": "correct",
    "truenorm-fast": "fast",
    "textbook64": "float64",
    "textbook": "NumPy",
    "hugging-face": "Hugging Face",
    "torch": "torch",
    "jax": "JAX",
    "jax-fast": "JAX fast",
    "onnxruntime": "ORT",
    "onnxruntime-simplified": "ORT simplified",
    "onnx": "ONNX",
    "thinc": "thinc",
}
"""Column heads."""
WORDS = {"pass": "yes", "fail": "**no**", "not judged": "-"}
Subjects = Mapping[str, Mapping[str, Any]]


def tables(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the blocks of docs/judge/scoreboard.md for one operation."""
    subjects: Subjects = report["subjects"]
    operation = report["operation"]
    outputs = [each.name for each in OPERATIONS[operation].outputs]
    blocks = {
        "where": where(report),
        "grades": grades(subjects, outputs),
        "verdicts": verdicts(subjects),
        "failures": failures(subjects),
        "y per family": per_family(subjects, "y"),
        "dx per family": per_family(subjects, "dx"),
        "named cases": named_cases(subjects, outputs),
    }
    return {f"{BOARDS[operation].prefix}{name}": block for name, block in blocks.items()}


def where(report: Mapping[str, Any]) -> str:
    """Return machine, date and level, and each subject's versions that differ from them."""
    facts = {**report["machine"], "level": report["level"]}
    rows = [[name, value] for name, value in facts.items()]
    for subject in report["subjects"].values():
        own = [f"{k} {value}" for k, value in subject["versions"].items() if facts.get(k) != value]
        rows.append([subject["name"], f"{', '.join(own)}; {subject['cases']} cases"])
    return markdown_table(["", ""], rows, numbers=False)


def grades(subjects: Subjects, outputs: Sequence[str]) -> str:
    """Return the grade of each output, with the slope where the error grows."""

    def cell(grade: Mapping[str, Any] | None) -> str:
        if grade is None:
            return "-"
        slope = grade["slope"]
        return str(grade["grade"]) + ("" if slope is None else f" ({float(slope):.1f})")

    rows = []
    for subject in subjects.values():
        by_place = {(each["dtype"], each["output"]): each for each in subject["grades"]}
        name = subject["name"]
        for kind in (kind for kind in FORMATS if (kind, "y") in by_place):
            rows.append([name, kind, *(cell(by_place.get((kind, each))) for each in outputs)])
            name = ""  # only in the first row
    return markdown_table(["", "type", *outputs], rows, numbers=False)


def verdicts(subjects: Subjects) -> str:
    """Return the verdicts beside the grades."""
    heads = list(next(iter(subjects.values()))["verdicts"])
    rows = []
    for each in subjects.values():
        words = [WORDS[each["verdicts"][head]] for head in heads]
        rows.append([each["name"], *words, str(len(each["findings"]))])
    return markdown_table(["", *heads, "findings"], rows, numbers=False)


def failures(subjects: Subjects) -> str:
    """Return an example of each failed verdict, and the places where it failed."""
    rows = []
    for subject in subjects.values():
        for verdict in (name for name, word in subject["verdicts"].items() if word == "fail"):
            findings = [each for each in subject["findings"] if each["verdict"] == verdict]
            places: dict[str, list[str]] = {}
            for each in findings:
                places.setdefault(each["dtype"], []).append(each["output"])
            text = "; ".join(f"{kind} {', '.join(names)}" for kind, names in places.items())
            example = f"`{findings[0]['case']}`: {findings[0]['symptom']}"
            rows.append([subject["name"], verdict, text, example])
    return markdown_table(["", "fails", "in", "for example"], rows, numbers=False)


def per_family(subjects: Subjects, output: str) -> str:
    """Return the largest error in ulp of each generated family, in float32."""

    def cell(value: float | str | None) -> str:
        if value is None:
            return "-"
        return "<0.01" if 0 < float(value) < 0.01 else number(float(value))

    columns = {
        key: {
            each["family"]: each["max_ulp"][output]
            for each in subject["families"]
            if each["dtype"] == "float32" and output in each["max_ulp"]
        }
        for key, subject in subjects.items()
    }
    columns = {key: column for key, column in columns.items() if column}
    names = dict.fromkeys(name for column in columns.values() for name in column)
    rows = [[name, *(cell(column.get(name)) for column in columns.values())] for name in names]
    return markdown_table([output, *(SHORT[key] for key in columns)], rows)


def named_cases(subjects: Subjects, outputs: Sequence[str]) -> str:
    """Return the number of named cases, over all types, and how many fail."""
    rows = []
    for each in subjects.values():
        failed = {output: str(len(names)) for output, names in each["failing"].items()}
        cells = [failed.get(output, "-") for output in outputs]
        rows.append([each["name"], str(each["named"]), *cells])
    return markdown_table(["", "cases", *outputs], rows)


FRONT_SHAPE = [8, 1024, 4096]
FRONT = {  # the names of subjects, and of the same contestants in `benchmarks.peers`
    "truenorm": "truenorm correct, out=",
    "truenorm-fast": "truenorm fast, out=",
    "textbook": "textbook NumPy",
    "textbook64": "textbook in float64, then cast",
    "torch": "PyTorch",
    "jax": "JAX",
    "onnxruntime": "ONNX Runtime",
    "thinc": "thinc",
}


def front_table(timings: Mapping[str, Any], scores: Mapping[str, Any]) -> str:
    """Return the table of README.md: grades in float32, and times divided by PyTorch's."""
    taken = {
        (each["direction"], each["contestant"]): each["p50"]
        for each in timings["figures"]
        if each["shape"] == FRONT_SHAPE
    }
    rows = []
    for key, name in FRONT.items():
        by_output = {
            grade["output"]: grade["grade"]
            for grade in scores["subjects"][key]["grades"]
            if grade["dtype"] == "float32"
        }
        times = [
            f"{taken[d, name] / taken[d, 'PyTorch']:.2f}" if (d, name) in taken else "none"
            for d in ("forward", "backward")
        ]
        cells = [by_output.get(output, "none") for output in ("y", "dx", "dgamma")]
        rows.append([name.removesuffix(", out="), *cells, *times])
    facts, noise = timings["machine"], "" if timings["quiet"] else ", and it was not quiet"
    head = ["float32", "y", "dx", "dgamma", "forward", "backward"]
    return (
        f"{markdown_table(head, rows)}\n\n"
        f"Grades by `python -m benchmarks.scoreboard`, {scores['machine']['date']}. "
        f"Times of x of shape {tuple(FRONT_SHAPE)}, PyTorch's = 1, by "
        f"`python -m benchmarks.peers`, {facts['date']}, on {facts['cpu']} with "
        f"{facts['cores']} cores{noise}; truenorm and ONNX Runtime write to "
        "an array that exists, the others allocate."
    )


def main(argv: list[str] | None = None) -> int:
    """Judge, save and print; or fill the pages."""
    names = list(dict.fromkeys(name for board in BOARDS.values() for name in board.subjects))
    parser = options(
        "scoreboard", "Judge normalizations, each in its own process and environment.",
        page="fill the tables of docs/judge/scoreboard.md and README.md",
    )  # fmt: skip
    add = parser.add_argument
    add("--output", type=Path, help="the JSON file to write")
    add("--level", choices=LEVELS, default="quick", help="how many cases")
    add("--operation", choices=list(BOARDS), default="layer_norm")
    add("--peers", choices=names, nargs="+", default=names, metavar="NAME", help=", ".join(names))
    arguments = parser.parse_args(argv)
    if arguments.page:
        reports = {name: read_results(each.results) for name, each in BOARDS.items()}
        for report in reports.values():
            fill_page(PAGE, tables(report))
        timings = read_results(RESULTS / "peers.json")
        fill_page(README, {"front": front_table(timings, reports["layer_norm"])})
        return 0
    board = BOARDS[arguments.operation]
    chosen = {key: each for key, each in board.subjects.items() if key in arguments.peers}
    for entry in chosen.values():
        python_for(PEERS[entry.peer])  # all environments are installed before the first subject
    measured = {
        "operation": arguments.operation,
        "machine": machine(usable_cores(), packages=("numpy",)),
        "level": arguments.level,
        "require": "stable",
        "subjects": {key: judge(key, each, arguments.level) for key, each in chosen.items()},
    }
    output = arguments.output or board.results
    strict_json.write(measured, output)
    report = read_results(output)
    print(heading(report["machine"]), *tables(report).values(), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
