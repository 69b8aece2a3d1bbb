"""The page of released packages: tables of grades, findings, and how the norms were run."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.common import RESULTS, coloured, markdown_table
from benchmarks.world.listed import FOLDER, Finding, Tried, read_findings, read_tried
from truenorm.tools.text import number
from truenorm.verify.grading.report import GRADES
from truenorm.verify.types import FORMATS

FILES = (RESULTS / "world.json",)
CASES = (FOLDER / "packages.toml",)
NORMS = {"layer_norm": "Layer norm", "rms_norm": "RMSNorm"}
SOFTMAX = {
    "softmax": "Softmax",
    "log_softmax": "Logarithm of the softmax",
    "cross_entropy": "Cross-entropy, one loss for each row",
}
OUTPUTS = ("y", "dx", "dgamma", "dbeta")
MARKS = {
    "batch-invariant": "batch",
    "subnormals kept": "sub&shy;normals",
    "special values": "NaN, ∞",
}
"""Verdicts with a column, and its head."""
LENGTHS = ("1024", "16384")
MEAN = "10"
Row = Mapping[str, Any]

LEGEND = """\
The tables are sorted by the grades of the results, best first.
Bold names have a [finding](#findings).

- *y*, *dx*, *dgamma*, *dbeta*: the [grade](../reference/grades.md#read-the-grades) of the worst
  case with \\|x\\| ≤ 1e4 and κ ≤ 10. A dash: the norm has no such result, or no backward pass.
  With ≤, cases were left out since they would take too long: the grade may be lower.
- *D = 1024*, *D = 16384*: the largest error of y in ulp, in rows of this length: four of normal
  numbers, one of ±0.7. Of an element below 1, an ulp is that of 1. Correct is at most 0.5.
- *mean 10*: the same with D = 1024 and a mean of 10.
- *batch*, *subnormals*, *NaN, ∞*: whether the bits of a row depend on other rows, whether
  subnormal numbers become 0, and whether NaN and infinities appear where they must."""
SOFTMAX_LEGEND = """\
Softmax, its logarithm and cross-entropy are judged by [formulas](formula.md).
The columns are those of the norms.
An ulp is that of each element, however small: exp(x - top) has the rounding of x - top as a
relative error, so that an error of a few ulp is that of a stable algorithm."""
FIGURES = """\
![Largest error of y against the length of rows](../figures/world-length.svg)

Each line is a norm in float32, with rows of mean 0.
The lines with the largest errors have a name; the others are grey.

![Largest error of y against the mean of rows](../figures/world-mean.svg)

Each line is a layer norm in float32, with rows of 1,024 normal numbers about a mean.
The dotted line is proportional to the mean: what a mean in one float32 number costs."""


def page(report: Mapping[str, Any]) -> str:
    """Return the tables of every type, then the findings, and how the norms were run."""
    rows = report["rows"]
    parts = ["## Grades in float32", *tables(rows, "float32", NORMS), LEGEND, FIGURES]
    others = [each for each in FORMATS if each != "float32"]
    for dtype in others:
        if of_dtype := tables(rows, dtype, NORMS):
            parts += [f"## Grades in {dtype}", *of_dtype]
    parts += ["## Softmax and cross-entropy", SOFTMAX_LEGEND]
    for dtype in ("float32", *others):
        if of_dtype := tables(rows, dtype, SOFTMAX):
            parts += [f"### Grades in {dtype}", *of_dtype]
    parts += ["## Findings", *(finding_text(each, rows) for each in read_findings())]
    parts += ["## Not in the tables", outcomes(rows), not_tried(read_tried())]
    parts += ["## How it was run", how(report), called(rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def base_of(row: Row) -> str:
    """Return the name of the operation, without its options."""
    return str(row["operation"]).partition(",")[0]


def tables(rows: Sequence[Row], dtype: str, operations: Mapping[str, str]) -> list[str]:
    """Return a table for each operation, with its title."""
    texts = []
    for name, title in operations.items():
        of_name = [
            row
            for row in rows
            if row["outcome"] == "judged" and base_of(row) == name and grades_of(row, dtype)
        ]
        if of_name:
            texts += [f"**{title}**", table(sorted_by_grade(of_name, dtype), name, dtype)]
    return texts


def grades_of(row: Row, dtype: str) -> dict[str, str]:
    """Return the grades of one type by output."""
    return {each["output"]: each["grade"] for each in row["grades"] if each["dtype"] == dtype}


def sorted_by_grade(rows: Iterable[Row], dtype: str) -> list[Row]:
    """Return rows by the grade of y, then by the worst grade, then by the error of long rows."""

    def key(row: Row) -> tuple[int, int, float]:
        words = {output: -GRADES.index(each) for output, each in grades_of(row, dtype).items()}
        long = row["errors"].get(dtype, {}).get("length", {}).get(LENGTHS[-1])
        return words["y"], max(words.values()), float(long or 0.0)

    return sorted(rows, key=key)


def table(rows: Sequence[Row], name: str, dtype: str) -> str:
    """Return one table; that of float64 has no errors, and only that of float32 has marks."""
    outputs = [each for each in OUTPUTS if any(each in grades_of(row, dtype) for row in rows)]
    long, has_mean = dtype != "float64", name == "layer_norm"
    found = {norm for finding in read_findings() for norm in finding.norms}
    narrow = dtype in ("bfloat16", "float16") and name in NORMS
    head = ["", *outputs]
    if narrow:
        head.append("recipe")
    if long:
        head += [f"D = {LENGTHS[0]}", f"D = {LENGTHS[1]}"]
        head += [f"mean {MEAN}"] if has_mean else []
    head += MARKS.values() if dtype == "float32" else []
    body = []
    for row in rows:
        words = grades_of(row, dtype)
        label = breakable(row["name"])
        cells = [f"**{label}**" if row["name"] in found else label]
        most = (
            "≤" if any(each["cases"] for each in row["too_slow"] if each["dtype"] == dtype) else ""
        )
        cells += [f"{most}{coloured(words[each])}" if each in words else "-" for each in outputs]
        if narrow:
            cells.append(row["recipes"].get(dtype, "-"))
        if long:
            cells += [error(row, dtype, "length", each) for each in LENGTHS]
            cells += [error(row, dtype, "mean", MEAN)] if has_mean else []
        if dtype == "float32":
            cells += [mark(row["verdicts"].get(each, "")) for each in MARKS]
        body.append(cells)
    return markdown_table(head, body, numbers=False)


def breakable(name: str) -> str:
    """Return a name that a narrow column may break before a capital and after an underscore."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=_)", "&#8203;", name)


def error(row: Row, dtype: str, curve: str, place: str) -> str:
    """Return an error in ulp of 1, or a dash if it was not measured."""
    value = row["errors"].get(dtype, {}).get(curve, {}).get(place)
    return "-" if value is None else number(float(value))


def mark(word: str) -> str:
    """Return a verdict with its colour."""
    colours = {"pass": "pass", "fail": "fail", "warn": "conditional"}
    return coloured(word, colours[word]) if word in colours else "-"


def finding_text(finding: Finding, rows: Iterable[Row]) -> str:
    """Return a paragraph for users of a package, the likely causes, and the reproducer."""
    script = (FOLDER / "reproducers" / finding.reproducer).read_text(encoding="utf-8")
    return (
        f"### {finding.title}\n\n{finding.text.strip()}\n\n"
        f"{causes(row for row in rows if row['name'] in finding.norms)}"
        f"<details><summary>Reproduce it with the package alone</summary>\n\n"
        f"```python\n{script}```\n\n</details>"
    )


def causes(rows: Iterable[Row]) -> str:
    """Return the likely causes that the judge named, each with its results and a case."""
    lines: dict[str, list[str]] = {}
    for row in rows:
        for each in row.get("findings", ()):
            if each.get("cause"):
                result = f"{each['output']} in {each['dtype']} ({row['name']}, `{each['case']}`)"
                lines.setdefault(each["cause"], []).append(result)
    listed = [f"- {cause}: {', '.join(results)}" for cause, results in lines.items()]
    return (
        "\n".join(["Likely causes, as the judge names them:\n", *listed]) + "\n\n"
        if listed
        else ""
    )


def outcomes(rows: Iterable[Row]) -> str:
    """Return the norms without a verdict, and what was not judged of others."""
    lines = []
    for row in rows:
        if row["outcome"] != "judged":
            lines.append([row["name"], row["outcome"], in_code(row["reason"])])
            continue
        for what, reason in row["unsupported"].items():
            lines.append([row["name"], f"unsupported: {what}", in_code(reason)])
        if cases := sum(each["cases"] for each in row["too_slow"]):
            lines.append([row["name"], "in part", f"{cases} cases would take too long"])
    return markdown_table(["norm", "outcome", "reason"], lines, numbers=False) if lines else ""


def in_code(message: str) -> str:
    """Return the start of a message as one line of code in a cell of a table."""
    line = " ".join(message.replace("`", "'").replace("|", "/").split())
    return f"`{line[:200]}`"


def not_tried(tried: Iterable[Tried]) -> str:
    """Return the packages that could not be judged, with what was tried."""
    return "**Packages without a row**\n\n" + markdown_table(
        ["package", "reason"], [[each.name, each.reason] for each in tried], numbers=False
    )


def how(report: Mapping[str, Any]) -> str:
    """Return machine, date and limits."""
    facts = report["machine"]
    limits = [row.get("limits", report["limits"]) for row in report["rows"]]
    times = " or ".join(f"{each:g}" for each in sorted({each["time"] for each in limits}))
    packages = {row["package"] for row in report["rows"] if row["outcome"] == "judged"}
    return (
        f"{len(packages)} packages, each in its environment with exact versions, a process for "
        "each norm.\n"
        f"Run on {facts['date']}: {facts['cpu']}, {facts['instructions']}, {facts['cores']} "
        f"cores, Python {facts['python']}, quick level.\n"
        f"Calls of a norm may take about {times} s; *cases* is the number that were judged in "
        "that time.\n"
        "A dependence on the batch is a warning; it does not fail a library."
    )


def called(rows: Iterable[Row]) -> str:
    """Return what each norm calls, and its versions."""
    body = [
        [
            row["name"],
            row["calls"],
            f"`{row.get('operation') or '-'}`",
            ", ".join(each.replace("==", " ") for each in row["requirements"]) or "this checkout",
            str(row.get("cases", "-")),
        ]
        for row in rows
    ]
    head = ["norm", "calls", "judged as", "versions", "cases"]
    return markdown_table(head, body, numbers=False)
