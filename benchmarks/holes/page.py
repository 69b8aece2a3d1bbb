"""docs/holes.md, from what ``python -m benchmarks.holes`` wrote."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.pages import markdown_table
from truenorm.tools.text import number

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "holes.md"
HEAD = """\
<!-- Written by python -m benchmarks.holes from benchmarks/results/holes.json: change that. -->
# What tests let pass

[`truenorm audit`](audit.md), pointed at **imitations** of how seven projects test their norms. An
imitation has the shapes, distributions and tolerances of the project's test file, as far as the
third column and the head of its file say; its arithmetic is NumPy's, what it tests are right
kernels written for this page, and no line of the project is in it. So nothing here is about the
kernels of these projects: it says which wrong kernels such inputs and tolerances cannot tell from
a right one. The files are in `benchmarks/holes`.

{ran}"""
RAN = "Python {python}, NumPy {numpy}, {cpu}, {date}; made by `python -m benchmarks.holes`."
DETAILS = """\
## What each saw

How far a kernel that passed was from the right result in these tests: the largest difference, and
the largest number of the result it is in. *none* is a fault that the inputs of the tests do not
touch. *Shown by* is the smallest ordinary [case of the judge](verify.md) on which it fails, or
another one if no ordinary case shows it."""


def page(report: Mapping[str, Any]) -> str:
    """Return the whole file."""
    audits = report["audits"]
    ran = RAN.format(**report["machine"])
    table = markdown_table(
        ["imitation", "wrong kernels", "taken from the project", "let pass"],
        [_row(each) for each in audits],
        numbers=False,
    )
    parts = [HEAD.format(ran=ran), table, DETAILS]
    for each in audits:
        if passed := _passed(each):
            parts += [f"### {each['project']}, {each['what']}", f"    {each['command']}"]
            head = ["wrong kernel", "what is wrong", "difference", "shown by"]
            parts.append(markdown_table(head, [_detail(one) for one in passed], numbers=False))
    return "\n\n".join(parts) + "\n"


def _passed(audit: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in audit["outcomes"] if not each["caught"]]


def _row(audit: Mapping[str, Any]) -> list[str]:
    passed, total = _passed(audit), len(audit["outcomes"])
    names = ", ".join(each["name"] for each in passed) or "none"
    name = f"{audit['project']}, {audit['what']}"
    return [name, f"{len(passed)} of {total} pass", audit["taken"], names]


def _detail(outcome: Mapping[str, Any]) -> list[str]:
    seen = "none"
    if outcome["output"]:
        difference, size = float(outcome["difference"]), float(outcome["size"])
        seen = f"{outcome['output']} by {number(difference)} of {number(size)}"
    case = outcome["witness"]["case"]
    return [outcome["name"], outcome["words"].replace("|", "\\|"), seen, f"`{case}`"]
