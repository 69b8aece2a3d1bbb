"""A report in a job of GitHub: annotations of the subject's file, and a summary in Markdown.

Names, symptoms and reproducers come from the subject: `escaped` and `_command` keep them text.
"""

import ast
import html
import os
import re
from pathlib import Path

from truenorm.tools.command_line import print_command
from truenorm.tools.text import one_line
from truenorm.verify.grading.report import Finding, Report
from truenorm.verify.report.wording import (
    baseline_changes,
    baseline_counts,
    batch_line,
    conclusion,
    likely_cause,
    location,
    max_ulp,
    slope,
)
from truenorm.verify.running.loading import dotted_path, file_and_name

HEAD = ("type", "output", "grade", "max ulp", "slope", "worst case")


def write(report: Report, file: Path, target: str = "") -> None:
    """Append the summary to a file, and print the annotations to stderr.

    GitHub reads the commands of stderr as those of stdout, where the report is.
    """
    with file.open("a", encoding="utf-8") as stream:
        stream.write(summary(report))
    for line in annotations(report, target):
        print_command(line)


def annotations(report: Report, target: str = "") -> list[str]:
    """Return a command of GitHub for each new finding that does not follow from another.

    Without such a finding, a report that fails has one annotation.
    """
    place = _place(target)
    causes = [each for each in report.findings if not (each.known or each.follows)]
    if not causes and not report.passed:
        title = f"truenorm: {report.subject}"
        return [_command(conclusion(report), {**place, "title": title})]
    return [
        _command(
            _text(each),
            {**place, "title": f"truenorm: {location(each)}"},
            "warning" if each.warning else "error",
        )
        for each in causes
    ]


def summary(report: Report) -> str:
    """Return the grades and the new findings in Markdown."""
    outcome = "PASS" if report.passed else "FAIL"
    rows = [
        (each.dtype, each.output, each.grade, max_ulp(each), slope(each), each.worst_case)
        for each in report.grades
    ]
    table = [
        "| " + " | ".join(map(escaped, cells)) + " |"
        for cells in (HEAD, ("---",) * len(HEAD), *rows)
    ]
    parts = [
        f"## {outcome}: {escaped(report.subject)}",
        escaped(f"{report.operation.title}: {conclusion(report)}"),
        "\n".join(table),
    ]
    if batch := batch_line(report):
        parts.insert(2, escaped(batch))
    if counts := baseline_counts(report):
        parts.append(
            "\n".join(f"- {escaped(each)}" for each in [counts, *baseline_changes(report)])
        )
    for number, finding in enumerate(report.findings, 1):
        if not finding.known:
            parts += _section(number, finding)
    return "\n\n".join(parts) + "\n\n"


def escaped(text: str) -> str:
    r"""Return a text as one line of Markdown without markup.

    Examples
    --------
    >>> print(escaped("a|b <b>*c*"))
    a\|b &lt;b&gt;\*c\*
    """
    return re.sub(r"([\\`*_\[\]|~$#])", r"\\\1", html.escape(one_line(text), quote=False))


def _section(number: int, finding: Finding) -> list[str]:
    """Return the heading, the text and the reproducer of a finding."""
    parts = [f"### {number}. {escaped(location(finding))}", escaped(_text(finding))]
    if finding.reproducer:
        runs = re.findall("`+", finding.reproducer)
        fence = "`" * max([3, *(len(run) + 1 for run in runs)])
        code = f"{fence}python\n{finding.reproducer.rstrip()}\n{fence}"
        parts += ["<details><summary>Reproducer</summary>", code, "</details>"]
    return parts


def _text(finding: Finding) -> str:
    """Return the symptom, the case that shows it, and the likely cause."""
    cause = likely_cause(finding)
    text = f"{finding.symptom} (case {finding.case})"
    return f"{text}. Likely cause: {cause}" if cause else text


def _command(message: str, properties: dict[str, str], kind: str = "error") -> str:
    """Return a workflow command, an error or a warning; GitHub reads %0A as the end of a line."""
    given = ",".join(
        f"{name}={_quoted(one_line(value), '%:,')}" for name, value in properties.items()
    )
    return f"::{kind} {given}::{_quoted(one_line(message), '%')}"


def _quoted(text: str, characters: str) -> str:
    return "".join(f"%{ord(each):02X}" if each in characters else each for each in text)


def _place(target: str) -> dict[str, str]:
    """Return the file and the line of a target ``file.py:name``; nothing for other targets."""
    if not target or dotted_path(target):
        return {}
    path, name = file_and_name(target)
    file = Path(path)
    if not file.is_file():
        return {}
    workspace = Path(os.environ.get("GITHUB_WORKSPACE", "")).resolve()
    inside = file.relative_to(workspace) if file.is_relative_to(workspace) else file
    return {"file": inside.as_posix(), "line": str(_line(file, name))}


def _line(file: Path, name: str) -> int:
    """Return the line of a file that defines a name, or 1."""
    try:
        statements = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return 1
    for each in statements:
        targets = each.targets if isinstance(each, ast.Assign) else [each]
        names = [getattr(one, "name", getattr(one, "id", "")) for one in targets]
        if name in names:
            return each.lineno
    return 1
