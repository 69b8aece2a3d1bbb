"""docs/recipes-table.md, from what ``python -m benchmarks.recipes`` wrote."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.pages import markdown_table

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "recipes-table.md"
HEAD = """\
<!-- Written by python -m benchmarks.recipes from benchmarks/results/recipes.json: change that. -->
"""
RAN = """\
**Run on a CPU**: {versions}; Python {python}, {cpu}, {date}. The share is that of elements which
have the recipe's bits, over the judge's ordinary cases; the next best recipe stands behind it.
Recipes in brackets give the same bits for these types."""
WRITTEN = """\
**Written anew from its formula**, in float32 with NumPy: these kernels need a GPU, or did not
install. The bits are those of the formula as their sources have it, and not of the kernel."""


def page(report: Mapping[str, Any]) -> str:
    """Return the whole file."""
    where, subjects = report["machine"], report["subjects"]
    versions = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    said = RAN.format(
        versions=versions, python=where["python"], cpu=where["cpu"], date=where["date"]
    )
    parts = [
        *(HEAD.strip(), said, _table(each for each in subjects if each["ran"])),
        *(WRITTEN, _table(each for each in subjects if not each["ran"])),
    ]
    return "\n\n".join(parts) + "\n"


def _table(subjects: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        [
            each["project"],
            each["what"],
            f"`{each['operation']}`",
            *(_cell(each, dtype) for dtype in ("bfloat16", "float16")),
        ]
        for each in subjects
    ]
    head = ["project", "norm", "taken for", "bfloat16", "float16"]
    return markdown_table(head, rows, numbers=False)


def _cell(subject: Mapping[str, Any], dtype: str) -> str:
    """Return the recipe and its share, and the next; or why there is none."""
    if "cannot" in subject:
        return f"cannot run: {subject['cannot']}"
    found = subject["recipes"].get(dtype)
    if found is None:
        return "-"
    if "failed" in found:
        return f"fails: {found['failed']}"
    (first, share), *others = sorted(found["shares"].items(), key=lambda each: -each[1])
    nearest = "".join(f"; {name} {_percent(other)}" for name, other in others[:1])
    if not found["names"]:
        return f"{_without(subject, found)}: {first} {_percent(share)}{nearest}"
    same = f" ({', '.join(found['names'][1:])})" if found["names"][1:] else ""
    return f"**{first}**{same} {_percent(share)}{nearest}"


def _without(subject: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Say why no recipe is named."""
    grade = found["grades"]["y"]
    if grade == "wrong":
        return "no recipe fits, y is wrong"
    # To float32: what was rounded to 16 bits on the way would not be stable there.
    if "result=float32" in subject["operation"] and grade in ("stable", "faithful", "correct"):
        return "nothing is rounded to 16 bits"
    return "no recipe fits"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
