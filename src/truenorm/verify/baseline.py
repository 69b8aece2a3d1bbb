"""Baselines: known findings of a subject in a JSON file, which pass while new findings fail.

An entry identifies a finding by subject, operation, type, output and check. `read_baseline` and
`write_baseline` are the file; `compare_with_baseline` marks the findings of a report as known or
new; `update_baseline` writes the findings of a report.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from truenorm.verify.grading.report import ACCURACY, GRADES, Compared, Finding, Known, Report
from truenorm.verify.grading.symptoms import GUARDS

SCHEMA = "truenorm/baseline-1"
NAMES = [each.name for each in fields(Known)]
REQUIRED = ("subject", "operation", "dtype", "output", "check")


def key(entry: Known) -> tuple[str, ...]:
    """Return the fields that identify an entry."""
    return tuple(getattr(entry, name) for name in REQUIRED)


def read_baseline(file: Path) -> tuple[Known, ...]:
    """Return the entries of a baseline. Raise ValueError if it is malformed."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"there is no baseline {file}; write it with --update-baseline or update_baseline()"
        ) from None
    except (OSError, ValueError, RecursionError) as broken:
        raise ValueError(f"the baseline {file} cannot be read: {broken}") from broken
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA or not isinstance(content.get("findings"), list):
        raise ValueError(
            f"{file} is not a baseline that this version can read: it must have "
            f'"schema": "{SCHEMA}" and a list "findings"'
        )
    entries = []
    for index, entry in enumerate(content["findings"]):
        if problem := _problem(entry):
            raise ValueError(f"the baseline {file}: findings[{index}] {problem}")
        entries.append(Known(**{**entry, "families": tuple(entry.get("families", ()))}))
    keys = [key(entry) for entry in entries]
    for index, each in enumerate(keys):
        if each in keys[:index]:
            raise ValueError(
                f"the baseline {file}: findings[{index}] duplicates findings[{keys.index(each)}]"
            )
    return tuple(entries)


def _problem(entry: Any) -> str:
    """Describe the error of an entry; a typing error must not lose a reason."""
    if not isinstance(entry, dict):
        return "must be an object"
    if unknown := sorted(entry.keys() - set(NAMES)):
        return f"has the unknown key {unknown[0]!r}; known are {', '.join(NAMES)}"
    if missing := [name for name in REQUIRED if name not in entry]:
        return f"has no {missing[0]!r}"
    families = entry.get("families", [])
    if not isinstance(families, list) or not all(isinstance(each, str) for each in families):
        return "must have a list of strings as 'families'"
    for name, value in entry.items():
        if name != "families" and not isinstance(value, str):
            return f"must have a string as {name!r}"
    grade = entry.get("grade", "")
    if (entry["check"] == ACCURACY) != (grade in GRADES):
        return f"has the check {entry['check']!r} and the grade {grade!r}; only accuracy has one"
    return ""


def write_baseline(entries: Iterable[Known], file: Path) -> None:
    """Write a baseline, sorted: equal findings give equal bytes."""
    findings = []
    for entry in sorted(entries, key=key):
        values = asdict(entry) | {"families": sorted(entry.families)}
        # An empty reason is written, to be filled in.
        always = (*REQUIRED, "reason")
        findings.append({name: values[name] for name in NAMES if values[name] or name in always})
    text = json.dumps({"schema": SCHEMA, "findings": findings}, indent=2, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")


BY_INPUT = (ACCURACY, "special", "subnormal", "raised", "result", "shape", "type")
"""Checks that depend on the input, and are known for some families of cases. For other checks,
chance may decide which cases fail, as with sums in a random order."""


def compare_with_baseline(report: Report, baseline: Iterable[Known]) -> Report:
    """Return a report whose findings are marked as known or new; new findings come first."""
    entries = _entries_of_subject(report, baseline)
    by_key = {key(entry): entry for entry in entries}
    marked = [_marked(each, report, by_key.get(_key(each, report))) for each in report.findings]
    vanished = [gone for entry in entries if (gone := _vanished(entry, report))]
    better = [entry for entry in entries if _is_better(entry, report)]
    known = sum(each.known for each in marked)
    new = sum(each.fails for each in marked)
    compared = Compared(known, new, tuple(vanished), tuple(better), tuple(entries))
    order = sorted(range(len(marked)), key=lambda place: marked[place].known)
    numbers = {0: 0, **{place + 1: number for number, place in enumerate(order, 1)}}
    findings = (replace(marked[place], follows=numbers[marked[place].follows]) for place in order)
    return replace(report, findings=tuple(findings), baseline=compared)


def updated_entries(report: Report, baseline: Iterable[Known]) -> list[Known]:
    """Return a baseline with the findings of a report, without vanished findings.

    Reasons, other subjects and entries that the report did not check are preserved.
    """
    baseline = list(baseline)
    current = {key(entry): entry for entry in entries_of(report)}
    of_subject = _entries_of_subject(report, baseline)
    updated = [entry for entry in baseline if entry not in of_subject]
    for entry in of_subject:
        vanished = _vanished(entry, report)
        families = set(entry.families) - set(vanished.families if vanished else ())
        finding = current.pop(key(entry), None)
        if finding is not None:
            not_run = families - _families_run(report, entry.dtype)
            grade = min(finding.grade, entry.grade, key=_rank) if not_run else finding.grade
            families |= set(finding.families)
            updated.append(replace(entry, families=tuple(sorted(families)), grade=grade))
        elif vanished is None or families:
            updated.append(replace(entry, families=tuple(sorted(families))))
    return [*updated, *current.values()]


def update_baseline(report: Report, file: str | Path) -> Report:
    """Write the findings of a report to a baseline, and compare the report with it.

    Reasons, entries of other subjects and entries that this run did not check are preserved.
    Entries that were checked and not found are removed.

    Parameters
    ----------
    report : Report
        A report of `verify`.
    file : str or Path
        The baseline; it is created if it does not exist.

    Returns
    -------
    Report
        The report, with all findings known.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import truenorm.verify as tv
    >>> kernel = tv.Subject(lambda x, gamma, beta, eps: 0 * x, name="zeros")
    >>> report = tv.verify(kernel)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     known = tv.update_baseline(report, Path(folder) / "known.json")
    >>> report.passed, known.passed, known.baseline.new
    (False, True, 0)
    """
    file = Path(file)
    entries = updated_entries(report, read_baseline(file) if file.exists() else ())
    write_baseline(entries, file)
    return compare_with_baseline(report, entries)


def _entries_of_subject(report: Report, baseline: Iterable[Known]) -> list[Known]:
    subject = (report.subject, report.operation.label)
    return [entry for entry in baseline if (entry.subject, entry.operation) == subject]


def _key(finding: Finding, report: Report) -> tuple[str, ...]:
    subject = (report.subject, report.operation.label)
    return (*subject, finding.dtype, finding.output, finding.check)


def _families(finding: Finding) -> set[str]:
    return set(finding.families) if finding.check in BY_INPUT else set()


def _rank(grade: str) -> int:
    return GRADES.index(grade) if grade else len(GRADES)


def _grade(report: Report, dtype: str, output: str) -> str:
    """Return the grade of an output, or an empty string if it was not judged."""
    place = (dtype, output)
    return next((each.grade for each in report.grades if (each.dtype, each.output) == place), "")


def _is_low(grade: str, report: Report) -> bool:
    return _rank(grade) < _rank(report.require)


def entries_of(report: Report) -> list[Known]:
    """Return the findings of a report, and its grades below the required grade, as entries.

    A wrong shape is a separate entry, since it says nothing about accuracy. A warning is no entry.
    """
    families: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for finding in report.findings:
        if not finding.warning:
            families[_key(finding, report)] |= _families(finding)
    misshapen = {(each.dtype, each.output) for each in report.findings if each.guard == "shape"}
    for each in report.grades:
        if _is_low(each.grade, report) and (each.dtype, each.output) not in misshapen:
            place = (each.dtype, each.output, ACCURACY)
            families[report.subject, report.operation.label, *place] |= set()
    entries = []
    for (subject, operation, dtype, output, check), names in families.items():
        grade = _grade(report, dtype, output) if check == ACCURACY else ""
        names_in_order = tuple(sorted(names))
        entries.append(Known(subject, operation, dtype, output, check, names_in_order, grade))
    return entries


def _marked(finding: Finding, report: Report, entry: Known | None) -> Finding:
    """Return a finding that is marked as known, or as new with the reason."""
    if entry is None:
        return replace(finding, known=False, reason="", new="it is not in the baseline")
    new = []
    # An output that is wrong on ordinary input hides findings in other families.
    more = sorted(_families(finding) - set(entry.families)) if entry.grade != "wrong" else []
    if more:
        new.append(f"the baseline does not have it in {', '.join(more)}")
    if entry.grade:
        grade = _grade(report, finding.dtype, finding.output)
        if _rank(grade) < _rank(entry.grade):
            new.append(f"the grade is {grade}, in the baseline {entry.grade}")
    return replace(finding, known=not new, reason=entry.reason, new="; ".join(new))


def _families_run(report: Report, dtype: str) -> set[str]:
    """Return the families of a type that have a finding, or results of all their cases."""
    families = {each.family for each in report.results if each.dtype == dtype}
    families -= {each.family for each in report.too_slow if each.dtype == dtype}
    return families.union(*(each.families for each in report.findings if each.dtype == dtype))


def _findings_of_entry(entry: Known, report: Report) -> Sequence[Finding]:
    return [each for each in report.findings if _key(each, report) == key(entry)]


def _was_checked(entry: Known, report: Report) -> bool:
    """Return True if the run would have shown the finding of an entry."""
    types = {each.dtype for each in report.grades}
    judged = _grade(report, entry.dtype, entry.output) if entry.output else entry.dtype in types
    if not judged:
        return False
    if entry.check == ACCURACY:
        # An output that is wrong on ordinary input hides findings in other families.
        hidden = any(each.guard == "ordinary" for each in _findings_of_entry(entry, report))
        return _is_low(entry.grade, report) and not hidden
    if entry.check == "recipe":
        return bool(report.recipe)
    return report.verdicts.get(GUARDS.get(entry.check, ""), "") != "not judged"


def _vanished(entry: Known, report: Report) -> Known | None:
    """Return an entry with the families that were checked without a finding, or None."""
    if not _was_checked(entry, report):
        return None
    findings = _findings_of_entry(entry, report)
    if entry.check not in BY_INPUT or not entry.families:
        low = entry.grade and _is_low(_grade(report, entry.dtype, entry.output), report)
        left_out = any(each.dtype == entry.dtype for each in report.too_slow)
        return None if findings or low or left_out else entry
    still_there = set().union(*map(_families, findings))
    gone = (set(entry.families) & _families_run(report, entry.dtype)) - still_there
    return replace(entry, families=tuple(sorted(gone))) if gone else None


def _is_better(entry: Known, report: Report) -> bool:
    """Return True if a grade has improved but is still below the required grade."""
    if entry.check != ACCURACY or set(entry.families) - _families_run(report, entry.dtype):
        return False
    better = _rank(entry.grade) < _rank(_grade(report, entry.dtype, entry.output))
    return better and bool(_findings_of_entry(entry, report))
