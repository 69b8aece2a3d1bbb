"""docs/recipes-table.md, from what ``python -m benchmarks.recipes`` wrote."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.pages import markdown_table

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "recipes-table.md"
TYPES = ("bfloat16", "float16")
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
            f"{each['project']}, {each['what']}",
            each["operation"].replace(",", ", "),
            _recipe(each),
            *(_shares(each, dtype) for dtype in TYPES),
        ]
        for each in subjects
    ]
    head = ["norm", "taken for", "recipe", *(f"{dtype}, %" for dtype in TYPES)]
    return markdown_table(head, rows, numbers=False)


def _recipe(subject: Mapping[str, Any]) -> str:
    """Return the recipe, and what is different in a type; or why there is none."""
    if "cannot" in subject:
        return f"cannot run: {subject['cannot']}"
    names = {dtype: _name(subject, found) for dtype, found in subject["recipes"].items()}
    first, *others = dict.fromkeys(names.values())
    return "; ".join(
        [
            first,
            *(f"{dtype}: {names[dtype]}" for dtype in names if others and names[dtype] != first),
        ]
    )


def _name(subject: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if "failed" in found:
        return f"fails: {found['failed']}"
    if not found["names"]:
        return _without(subject, found)
    name, *same = found["names"]
    return f"**{name}**" + (f" ({', '.join(same)})" if same else "")


def _shares(subject: Mapping[str, Any], dtype: str) -> str:
    """Return the largest shares, the best first."""
    found = {} if "cannot" in subject else subject["recipes"].get(dtype, {})
    shares = {} if "failed" in found else found.get("shares", {})
    order = sorted(shares, key=lambda name: -shares[name])[:2]
    return "; ".join(f"{name} {100 * shares[name]:.2f}" for name in order) or "-"


def _without(subject: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Say why no recipe is named."""
    grade = found["grades"]["y"]
    if grade == "wrong":
        return "no recipe fits, y is wrong"
    # To float32: what was rounded to 16 bits on the way would not be stable there.
    if "result=float32" in subject["operation"] and grade in ("stable", "faithful", "correct"):
        return "nothing is rounded to 16 bits"
    return "no recipe fits"
