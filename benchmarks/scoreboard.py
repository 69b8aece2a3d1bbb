"""``python -m benchmarks.scoreboard``: judge the norms of other packages, and of truenorm.

Each subject of benchmarks/subjects runs in a process and an environment of its own; the exact
answers are computed once, here. docs/judge/scoreboard.md shows the files of results. ``--page``
fills the table of README.md from files that were written before.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import (
    RESULTS,
    ROOT,
    coloured,
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
from truenorm.verify.collecting import collect
from truenorm.verify.grading.report import CaseResult, Grade, Report
from truenorm.verify.inputs.named import entries
from truenorm.verify.judge import grade_records, scope, try_a_call
from truenorm.verify.operation import Operation
from truenorm.verify.operations import OPERATIONS
from truenorm.verify.running.process import subject_process
from truenorm.verify.suite import LEVELS
from truenorm.verify.types import FORMATS

FOLDER = ROOT / "benchmarks" / "subjects"
README = ROOT / "README.md"
DIGITS = 6  # of the numbers in the file; grades are computed before


class Entry(NamedTuple):
    """A subject: its file and name, the peer in whose environment it runs, and its packages.

    `calls` says what it calls, for the page.
    """

    target: str
    peer: str
    packages: tuple[str, ...]
    calls: str


OURS, NUMPY, ONNX = ("truenorm", "backend"), ("truenorm", "ml_dtypes"), ("onnxruntime", "onnx")
JAX = ("jax", "jaxlib")
WIDE = "`truenorm.textbook` on arrays widened to float64; results are cast"
REFERENCE = "the same model in `onnx.reference.ReferenceEvaluator`; forward only"
LAYER_NORM = {
    "truenorm": Entry(
        "truenorm_subjects.py:correct", "truenorm", OURS, 'layer norm with `rounding="correct"`'
    ),
    "truenorm-fast": Entry(
        "truenorm_subjects.py:fast", "truenorm", OURS, 'layer norm with `rounding="fast"`'
    ),
    "textbook64": Entry("numpy_subjects.py:wide", "textbook64", NUMPY, WIDE),
    "textbook": Entry(
        "numpy_subjects.py:textbook_form", "textbook", NUMPY,
        "`truenorm.textbook` in the type of x, eps as well",
    ),
    "torch": Entry(
        "torch_subjects.py:layer_norm", "torch", ("torch",),
        "`native_layer_norm` and its backward, which `torch.nn.functional.layer_norm` and "
        "autograd call",
    ),
    "jax": Entry(
        "jax_subjects.py:stable", "jax", JAX,
        '`jax.nn.standardize` with `algorithm="stable"` (two passes), times gamma, plus beta, '
        "compiled, with `jax.vjp`",
    ),
    "jax-fast": Entry(
        "jax_subjects.py:fast", "jax", JAX, 'the same with `"fast"`, its default (one pass)'
    ),
    "onnxruntime": Entry(
        "onnx_subjects.py:runtime_layer_norm", "onnxruntime", ONNX,
        "one node `LayerNormalization`, opset 17; forward only",
    ),
    "onnx": Entry(
        "onnx_subjects.py:layer_norm", "onnxruntime", ("onnx", "ml_dtypes"), REFERENCE
    ),
    "thinc": Entry(
        "thinc_subject.py:layer_norm", "thinc", ("thinc",),
        "the layer `LayerNorm`, whose eps is always 1e-8; the cases have others",
    ),
}  # fmt: skip
RMS_NORM = {
    "truenorm": Entry(
        "truenorm_subjects.py:rms_norm_correct", "truenorm", OURS,
        'RMSNorm with `rounding="correct"`',
    ),
    "truenorm-fast": Entry(
        "truenorm_subjects.py:rms_norm_fast", "truenorm", OURS, 'RMSNorm with `rounding="fast"`'
    ),
    "textbook64": Entry("numpy_subjects.py:rms_norm_wide", "textbook64", NUMPY, WIDE),
    "hugging-face": Entry(
        "numpy_subjects.py:hugging_face", "textbook", ("ml_dtypes",),
        "`LlamaRMSNorm` written anew, in float32 for every type; gradients by hand",
    ),
    "torch": Entry(
        "torch_subjects.py:rms_norm", "torch", ("torch",),
        "`torch.nn.functional.rms_norm` with autograd",
    ),
    "jax": Entry(
        "jax_subjects.py:rms_norm", "jax", JAX,
        "the formula in float32, or float64 for float64, compiled, with `jax.vjp`",
    ),
    "onnxruntime": Entry(
        "onnx_subjects.py:runtime_rms_norm", "onnxruntime", ONNX,
        "one node `RMSNormalization`, opset 23; forward only, no bfloat16",
    ),
    "onnxruntime-simplified": Entry(
        "onnx_subjects.py:simplified", "onnxruntime", ONNX,
        "its node `SimplifiedLayerNormalization`, an RMSNorm; forward only",
    ),
    "onnx": Entry("onnx_subjects.py:rms_norm", "onnxruntime", ("onnx", "ml_dtypes"), REFERENCE),
}  # fmt: skip


class Board(NamedTuple):
    """The scoreboard of one operation: its title, its subjects and its file."""

    title: str
    subjects: dict[str, Entry]
    results: Path


BOARDS = {
    "layer_norm": Board("Layer norm", LAYER_NORM, RESULTS / "scoreboard.json"),
    "rms_norm": Board("RMSNorm", RMS_NORM, RESULTS / "scoreboard_rms_norm.json"),
}
FILES = tuple(board.results for board in BOARDS.values())


def judge(key: str, entry: Entry, level: str) -> dict[str, Any]:
    """Judge one subject and return its part of the file; its calls are graded twice."""
    python, target = python_for(PEERS[entry.peer]), str(FOLDER / entry.target)
    with subject_process(target, {}, python=str(python), environment=VARIABLES) as process:
        spec = process.spec
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
    judged = [
        case.name
        for kind in dtypes
        for case in cases(kind, report.level, operation=operation)
        if case.name in named
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
        "named": judged,
        "failing": {output: failing(results, output, judged) for output in outputs},
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
    "truenorm": "truenorm",
    "truenorm-fast": "truenorm fast",
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
Subjects = Mapping[str, Mapping[str, Any]]

LEGEND = """\
The columns without "all" count rows with \\|x\\| ≤ 1e4 and κ ≤ 10, the default of
[`truenorm verify`](verify.md).
In these columns, a sum over n rows may have log2(n) times the error.
The columns with "all" count every case, as with `--strict`.
A grade is that of the worst case.
[Read the grades](../reference/grades.md#read-the-grades) defines the words and κ.
A dash means that the subject has no such output."""
FIGURE = """\
## Error against κ

![The error of y and of dx in float32 against the condition number, for each subject\
](../figures/scoreboard.svg)

Layer norm in float32: rows of 67 normal numbers whose mean grows.
The error is the largest beyond one ulp, in
[natural units](../reference/grades.md#read-the-grades).
Errors below 10⁻² are drawn at 10⁻²."""
VERDICTS = """\
## Checks

A dash means: not judged.
*Findings* counts all findings over all cases, including those about accuracy."""
FAMILIES = """\
## Largest error by family

The largest errors in float32, in ulp of the exact result.
A family is a group of generated cases of one kind.
Where terms of y or dx nearly cancel, a small error is many ulp.
*float64* and *NumPy* are the textbook form, in float64 and in the type of x."""
NAMED = """\
## Named cases

These are the cases of the [museum](museum.md), in all types of a subject.
The columns after *cases* count failures: an error larger than *stable* allows, or no result."""


def page(layer_norm: Mapping[str, Any], rms_norm: Mapping[str, Any]) -> str:
    """Return the grades of both operations, how they were measured, and the errors."""
    reports = {"layer_norm": layer_norm, "rms_norm": rms_norm}

    def both(table: Callable[[Mapping[str, Any]], str], about: str = "") -> list[str]:
        return [
            text
            for name, report in reports.items()
            if (rows := table(report))
            for text in (f"**{BOARDS[name].title}{about}**", rows)
        ]

    parts = ["## Grades in float32", *both(partial(grades, dtype="float32")), LEGEND]
    for dtype in (each for each in FORMATS if each != "float32"):
        parts += [f"## Grades in {dtype}", *both(partial(grades, dtype=dtype))]
    parts += [
        FIGURE,
        "## How it was run",
        how(layer_norm),
        *both(called),
        VERDICTS,
        *both(verdicts),
        "Where a check fails:",
        *both(failures),
        FAMILIES,
        *both(lambda report: per_family(report["subjects"], "y"), ", y"),
        *both(lambda report: per_family(report["subjects"], "dx"), ", dx"),
        NAMED,
        *both(named_cases),
    ]
    return "\n\n".join(parts) + "\n"


def outputs_of(report: Mapping[str, Any]) -> list[str]:
    """Return the outputs of the operation of a report."""
    return [each.name for each in OPERATIONS[report["operation"]].outputs]


def grades(report: Mapping[str, Any], dtype: str) -> str:
    """Return the grade of each output: within the default domain, then over all cases."""
    rows, outputs = [], outputs_of(report)
    for subject in report["subjects"].values():
        cells = [
            coloured(words[each]) if each in words else "-"
            for words in (grades_in(subject, dtype, key) for key in GRADES)
            for each in outputs
        ]
        if set(cells) != {"-"}:  # judged in this type
            rows.append([subject["name"], *cells])
    head = ["", *outputs, *(f"{each}, all" for each in outputs)]
    return markdown_table(head, rows, numbers=False)


GRADES = ("grades_within", "grades")
"""Keys of a subject: grades within the default domain, and over all cases."""


def grades_in(subject: Mapping[str, Any], dtype: str, key: str) -> dict[str, str]:
    """Return the grades of one type by output."""
    return {each["output"]: each["grade"] for each in subject[key] if each["dtype"] == dtype}


def how(report: Mapping[str, Any]) -> str:
    """Return machine, date and level."""
    facts = report["machine"]
    return (
        "Each subject ran in a process and an environment of its own, with the same cases and "
        "exact answers.\n"
        "Each uses as many threads as it chooses.\n"
        f"Run on {facts['date']}: {facts['cpu']}, {facts['cores']} cores, "
        f"Python {facts['python']}, NumPy {facts['numpy']}, {report['level']} level.\n"
        "The column *cases* has the number of all cases, and of those in the default domain."
    )


def called(report: Mapping[str, Any]) -> str:
    """Return what each subject calls, its versions and its number of cases."""
    rows = []
    for key, subject in report["subjects"].items():
        versions = ", ".join(
            f"{name} {version}"
            for name, version in subject["versions"].items()
            if name != "truenorm" and version != report["machine"].get(name)
        )
        calls = BOARDS[report["operation"]].subjects[key].calls
        cases = f"{subject['cases']}, {subject['cases_within']}"
        rows.append([subject["name"], calls, versions, cases])
    return markdown_table(["", "calls", "versions", "cases"], rows, numbers=False)


def verdicts(report: Mapping[str, Any]) -> str:
    """Return the verdicts beside the grades, a row for each."""
    subjects: Subjects = report["subjects"]
    rows = []
    for verdict in next(iter(subjects.values()))["verdicts"]:
        words = [each["verdicts"][verdict] for each in subjects.values()]
        rows.append(
            [verdict, *("-" if word == "not judged" else coloured(word) for word in words)]
        )
    rows.append(["findings", *(str(len(each["findings"])) for each in subjects.values())])
    return markdown_table(["", *(SHORT[key] for key in subjects)], rows, numbers=False)


def failures(report: Mapping[str, Any]) -> str:
    """Return an example of each failed verdict, and where it failed; empty if none failed."""
    rows = []
    for subject in report["subjects"].values():
        for verdict in (name for name, word in subject["verdicts"].items() if word == "fail"):
            findings = [each for each in subject["findings"] if each["verdict"] == verdict]
            places: dict[str, list[str]] = {}
            for each in findings:
                places.setdefault(each["dtype"], []).append(each["output"])
            text = "; ".join(f"{kind} {', '.join(names)}" for kind, names in places.items())
            example = f"`{findings[0]['case']}`: {findings[0]['symptom']}"
            rows.append([subject["name"], verdict, text, example])
    head = ["", "fails", "in", "for example"]
    return markdown_table(head, rows, numbers=False) if rows else ""


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


def named_cases(report: Mapping[str, Any]) -> str:
    """Return the number of named cases, over all types, and how many fail."""
    rows, outputs = [], outputs_of(report)
    for each in report["subjects"].values():
        failed = {
            output: coloured(str(len(names)), "fail" if names else "pass")
            for output, names in each["failing"].items()
        }
        cells = [failed.get(output, "-") for output in outputs]
        rows.append([each["name"], str(len(each["named"])), *cells])
    return markdown_table(["", "cases", *outputs], rows)


FRONT_SHAPES = ([2, 128, 64], [2, 128, 1024], [8, 1024, 4096])
FRONT = {  # the names of subjects, and of the same contestants in `benchmarks.peers`
    "truenorm": "truenorm correct",
    "truenorm-fast": "truenorm fast",
    "textbook": "textbook NumPy",
    "textbook64": "textbook in float64, then cast",
    "torch": "PyTorch",
}


def front_table(timings: Mapping[str, Any], scores: Mapping[str, Any]) -> str:
    """Return the table of README.md: grades of y in float32, and times divided by PyTorch's."""
    taken = {
        (tuple(each["shape"]), each["direction"], each["contestant"]): each["time"]
        for each in timings["figures"]
    }

    def times(name: str, shape: Sequence[int]) -> str:
        both = [
            f"{taken[*place, name] / taken[*place, 'PyTorch']:.2f}"
            for place in ((tuple(shape), "forward"), (tuple(shape), "backward"))
            if (*place, name) in taken
        ]
        return "/".join([*both, "none", "none"][:2])

    rows = []
    for key, name in FRONT.items():
        words = [grades_in(scores["subjects"][key], "float32", each)["y"] for each in GRADES]
        cells = [times(name, shape) for shape in FRONT_SHAPES]
        rows.append([name, *words, *cells])
    facts, noise = timings["machine"], "" if timings["quiet"] else ", not quiet"
    shapes = ", ".join("x".join(map(str, shape)) for shape in FRONT_SHAPES)
    head = ["float32", "ordinary rows", "any row", "small", "middle", "large"]
    return (
        f"{markdown_table(head, rows)}\n\n"
        "[Grades](docs/reference/grades.md) of y, best first: correct (every bit), faithful "
        "(within a step), stable (rounding errors), conditional, unstable (digits lost). "
        f"`python -m benchmarks.scoreboard`, {scores['machine']['date']}.\n"
        f"Times of forward/backward, PyTorch's = 1: {shapes} "
        f"(`python -m benchmarks.peers`, {facts['date']}, {facts['cpu']}, "
        f"{facts['cores']} cores{noise})."
    )


def main(argv: list[str] | None = None) -> int:
    """Judge, save and print; or fill README.md."""
    names = list(dict.fromkeys(name for board in BOARDS.values() for name in board.subjects))
    parser = options(
        "scoreboard", "Judge normalizations, each in its own process and environment.",
        page="fill the table of README.md",
    )  # fmt: skip
    add = parser.add_argument
    add("--output", type=Path, help="the JSON file to write")
    add("--level", choices=LEVELS, default="quick", help="how many cases")
    add("--operation", choices=list(BOARDS), default="layer_norm")
    add("--peers", choices=names, nargs="+", default=names, metavar="NAME", help=", ".join(names))
    arguments = parser.parse_args(argv)
    if arguments.page:
        timings, scores = read_results(RESULTS / "peers.json"), read_results(FILES[0])
        fill_page(README, {"front": front_table(timings, scores)})
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
    tables = [f"{dtype}\n\n{grades(report, dtype)}" for dtype in FORMATS]
    print(heading(report["machine"]), *tables, sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
