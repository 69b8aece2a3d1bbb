"""The tables of docs/scoreboard.md, from what ``python -m benchmarks.scoreboard`` wrote."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages import markdown_table
from benchmarks.scoreboard_subjects import BOARDS
from truenorm.tools.text import number
from truenorm.verify.operations import OPERATIONS
from truenorm.verify.types import FORMATS

__all__ = ["PAGE", "tables"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "scoreboard.md"

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
"""Heads of columns."""

WORDS = {"pass": "yes", "fail": "**no**", "not judged": "-"}

Subject = Mapping[str, Any]


def tables(report: Mapping[str, Any]) -> dict[str, str]:
    """Return every table of an operation by name, as Markdown."""
    subjects: Mapping[str, Subject] = report["subjects"]
    operation = report["operation"]
    outputs = [each.name for each in OPERATIONS[operation].outputs]
    made = {
        "where": where(report),
        "grades": grades(subjects, outputs),
        "verdicts": verdicts(subjects),
        "failures": failures(subjects),
        "y per family": per_family(subjects, "y"),
        "dx per family": per_family(subjects, "dx"),
        "named cases": named_cases(subjects, outputs),
    }
    return {f"{BOARDS[operation].prefix}{name}": each for name, each in made.items()}


def where(report: Mapping[str, Any]) -> str:
    """Return machine, date and level; of each subject, versions that are not said above."""
    told = {**report["machine"], "level": report["level"]}
    lines = [[name, value] for name, value in told.items()]
    for subject in report["subjects"].values():
        own = [
            f"{name} {version}"
            for name, version in subject["versions"].items()
            if told.get(name) != version
        ]
        lines.append([subject["name"], f"{', '.join(own)}; {subject['cases']} cases"])
    return markdown_table(["", ""], lines, numbers=False)


def grades(subjects: Mapping[str, Subject], outputs: Sequence[str]) -> str:
    """Return the grade of each output, with the slope where the error grows."""
    rows = []
    for subject in subjects.values():
        found = {(each["dtype"], each["output"]): each for each in subject["grades"]}
        name = subject["name"]
        for kind in (kind for kind in FORMATS if (kind, "y") in found):
            rows.append([name, kind, *(_grade(found.get((kind, each))) for each in outputs)])
            name = ""  # once is enough
    return markdown_table(["", "type", *outputs], rows, numbers=False)


def _grade(grade: Mapping[str, Any] | None) -> str:
    if grade is None:
        return "-"
    if grade["slope"] is None:
        return str(grade["grade"])
    return f"{grade['grade']} ({float(grade['slope']):.1f})"


def verdicts(subjects: Mapping[str, Subject]) -> str:
    """Return what is said beside the grades."""
    heads = list(next(iter(subjects.values()))["verdicts"])
    rows = [
        [
            subject["name"],
            *(WORDS[subject["verdicts"][head]] for head in heads),
            str(len(subject["findings"])),
        ]
        for subject in subjects.values()
    ]
    return markdown_table(["", *heads, "findings"], rows, numbers=False)


def failures(subjects: Mapping[str, Subject]) -> str:
    """Return an example of each verdict that failed, and where else it did."""
    rows = []
    for subject in subjects.values():
        for verdict in (name for name, word in subject["verdicts"].items() if word == "fail"):
            found = [each for each in subject["findings"] if each["verdict"] == verdict]
            places: dict[str, list[str]] = {}
            for each in found:
                places.setdefault(each["dtype"], []).append(each["output"])
            told = "; ".join(f"{kind} {', '.join(names)}" for kind, names in places.items())
            example = f"`{found[0]['case']}`: {found[0]['symptom']}"
            rows.append([subject["name"], verdict, told, example])
    return markdown_table(["", "fails", "in", "for example"], rows, numbers=False)


def per_family(subjects: Mapping[str, Subject], output: str) -> str:
    """Return the largest error in ulp of each generated family, in float32."""
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
    rows = [[name, *(_ulp(column.get(name)) for column in columns.values())] for name in names]
    return markdown_table([output, *(SHORT[key] for key in columns)], rows)


def _ulp(value: float | str | None) -> str:
    if value is None:
        return "-"
    return "<0.01" if 0 < float(value) < 0.01 else number(float(value))


def named_cases(subjects: Mapping[str, Subject], outputs: Sequence[str]) -> str:
    """Return how many named cases fail, of how many, over all types of a subject."""
    rows = [
        [
            subject["name"],
            str(subject["named"]),
            *(
                str(len(subject["failing"][output])) if output in subject["failing"] else "-"
                for output in outputs
            ),
        ]
        for subject in subjects.values()
    ]
    return markdown_table(["", "cases", *outputs], rows)
