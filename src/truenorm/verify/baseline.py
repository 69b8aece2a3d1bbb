"""A baseline as a file: JSON in one order, which people may edit and which is read with care."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from truenorm.verify.grading.checks import GUARDS
from truenorm.verify.grading.report import ACCURACY, GRADES, Compared, Finding, Known, Report

SCHEMA = "truenorm/baseline-1"
NAMES = [each.name for each in fields(Known)]
NEEDED = ("subject", "operation", "dtype", "output", "check")


def key(entry: Known) -> tuple[str, ...]:
    """Return what tells one entry from another, and puts them in order."""
    return tuple(getattr(entry, name) for name in NEEDED)


def read(file: Path) -> tuple[Known, ...]:
    """Return what a baseline has; raise ValueError where it is none, and say what is wrong."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"there is no baseline {file}; --update-baseline, or update_baseline(), writes it"
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as broken:
        raise ValueError(f"the baseline {file} cannot be read: {broken}") from broken
    schema = told.get("schema") if isinstance(told, dict) else None
    if schema != SCHEMA or not isinstance(told.get("findings"), list):
        raise ValueError(
            f"{file} is no baseline that this version reads: it needs "
            f'"schema": "{SCHEMA}" and a list "findings"'
        )
    entries = []
    for place, entry in enumerate(told["findings"]):
        if refused := _refusal(entry):
            raise ValueError(f"the baseline {file}: findings[{place}] {refused}")
        entries.append(Known(**{**entry, "families": tuple(entry.get("families", ()))}))
    keys = [key(entry) for entry in entries]
    for place, each in enumerate(keys):
        if each in keys[:place]:
            first = keys.index(each)
            raise ValueError(
                f"the baseline {file}: findings[{place}] is about the same as findings[{first}]"
            )
    return tuple(entries)


def _refusal(entry: Any) -> str:
    """Return what is wrong with an entry, if something is: a slip must not lose a reason."""
    if not isinstance(entry, dict):
        return "is no object"
    if unknown := sorted(entry.keys() - set(NAMES)):
        return f"has {unknown[0]!r}; known are {', '.join(NAMES)}"
    if missing := [name for name in NEEDED if name not in entry]:
        return f"has no {missing[0]!r}"
    families = entry.get("families", [])
    if not isinstance(families, list) or not all(isinstance(each, str) for each in families):
        return "has families that are no list of strings"
    for name, value in entry.items():
        if name != "families" and not isinstance(value, str):
            return f"has a {name} that is no string"
    grade = entry.get("grade", "")
    if (entry["check"] == ACCURACY) != (grade in GRADES):
        return f"is about {entry['check']!r} with the grade {grade!r}; accuracy has one, no other"
    return ""


def write(entries: Iterable[Known], file: Path) -> None:
    """Write a baseline: sorted, so that the same findings are the same bytes."""
    told = []
    for entry in sorted(entries, key=key):
        one = asdict(entry) | {"families": sorted(entry.families)}
        told.append({name: one[name] for name in NAMES if one[name] or _always(name)})
    text = json.dumps({"schema": SCHEMA, "findings": told}, indent=2, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")


def _always(name: str) -> bool:
    """Tell whether it is written even if it is empty: a reason is there to be filled in."""
    return name in (*NEEDED, "reason")


BY_INPUT = (ACCURACY, "special", "subnormal", "raised", "shape", "type")
"""What depends on the rows: known for some families of cases. The rest is what a kernel does with
any rows, and where it shows may be chance, as with sums in a random order."""


def against(report: Report, known: Iterable[Known]) -> Report:
    """Return a report that tells known findings from new ones, the new ones first."""
    entries = _of(report, known)
    by_key = {key(entry): entry for entry in entries}
    marked = [_marked(each, report, by_key.get(_key(each, report))) for each in report.findings]
    vanished = [gone for entry in entries if (gone := _vanished(entry, report))]
    better = [entry for entry in entries if _is_better(entry, report)]
    known_now = sum(each.known for each in marked)
    compared = Compared(
        known_now, len(marked) - known_now, tuple(vanished), tuple(better), tuple(entries)
    )
    findings = tuple(sorted(marked, key=lambda each: each.known))
    return replace(report, findings=findings, baseline=compared)


def updated(report: Report, known: Iterable[Known]) -> list[Known]:
    """Return a baseline with what a report found, without what vanished, and with all reasons."""
    known = list(known)
    now = {key(entry): entry for entry in entries_of(report)}
    own = _of(report, known)
    kept = [entry for entry in known if entry not in own]
    for entry in own:
        gone = _vanished(entry, report)
        families = set(entry.families) - set(gone.families if gone else ())
        found = now.pop(key(entry), None)
        if found is not None:
            unseen = families - _run(report, entry.dtype)
            grade = min(found.grade, entry.grade, key=_height) if unseen else found.grade
            families |= set(found.families)
            kept.append(replace(entry, families=tuple(sorted(families)), grade=grade))
        elif gone is None or families:
            kept.append(replace(entry, families=tuple(sorted(families))))
    return [*kept, *now.values()]


def update_baseline(report: Report, file: str | Path) -> Report:
    """Write what a report found to a baseline, and return the report held against that.

    What is there is kept: reasons, other subjects, and what this run did not look for. What was
    looked for and not found is taken out.

    Parameters
    ----------
    report : Report
        Of `verify`.
    file : str or Path
        The baseline, which need not be there.

    Returns
    -------
    Report
        In which every finding is known.

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
    entries = updated(report, read(file) if file.exists() else ())
    write(entries, file)
    return against(report, entries)


def _of(report: Report, known: Iterable[Known]) -> list[Known]:
    """Return the entries that are about this subject and operation."""
    here = (report.subject, report.operation.spec)
    return [entry for entry in known if (entry.subject, entry.operation) == here]


def _key(finding: Finding, report: Report) -> tuple[str, ...]:
    place = (finding.dtype, finding.output, finding.check)
    return (report.subject, report.operation.spec, *place)


def _families(finding: Finding) -> set[str]:
    return set(finding.families) if finding.check in BY_INPUT else set()


def _height(grade: str) -> int:
    return GRADES.index(grade) if grade else len(GRADES)


def _grade(report: Report, dtype: str, output: str) -> str:
    """Return what a result got; nothing if it was not judged."""
    got = [each.grade for each in report.grades if (each.dtype, each.output) == (dtype, output)]
    return got[0] if got else ""


def _is_low(grade: str, report: Report) -> bool:
    return _height(grade) < _height(report.require)


def entries_of(report: Report) -> list[Known]:
    """Return a report's findings, and the grades that are too low, as a baseline has them."""
    families: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for finding in report.findings:
        families[_key(finding, report)] |= _families(finding)
    for each in report.grades:
        if _is_low(each.grade, report):
            place = (each.dtype, each.output, ACCURACY)
            families[report.subject, report.operation.spec, *place] |= set()
    found = []
    for subject, operation, dtype, output, check in families:
        seen = tuple(sorted(families[subject, operation, dtype, output, check]))
        grade = _grade(report, dtype, output) if check == ACCURACY else ""
        found.append(Known(subject, operation, dtype, output, check, seen, grade))
    return found


def _marked(finding: Finding, report: Report, entry: Known | None) -> Finding:
    """Return a finding that says whether it is known, and if not, what is new about it."""
    if entry is None:
        return replace(finding, known=False, reason="", new="the baseline does not have it")
    said = []
    # What is wrong on ordinary input is so on any, and hid what else there is until it is mended.
    more = sorted(_families(finding) - set(entry.families)) if entry.grade != "wrong" else []
    if more:
        said.append(f"the baseline does not have it in {', '.join(more)}")
    if entry.grade:
        grade = _grade(report, finding.dtype, finding.output)
        if _height(grade) < _height(entry.grade):
            said.append(f"the grade is {grade}, in the baseline {entry.grade}")
    return replace(finding, known=not said, reason=entry.reason, new="; ".join(said))


def _run(report: Report, dtype: str) -> set[str]:
    """Return the families of a type of which a case came to a result, or to a finding."""
    found = {each.family for each in report.results if each.dtype == dtype}
    return found.union(*(each.families for each in report.findings if each.dtype == dtype))


def _at(entry: Known, report: Report) -> Sequence[Finding]:
    """Return the findings that an entry is about."""
    return [each for each in report.findings if _key(each, report) == key(entry)]


def _looked_for(entry: Known, report: Report) -> bool:
    """Tell whether a run would have shown what an entry says."""
    types = {each.dtype for each in report.grades}
    judged = _grade(report, entry.dtype, entry.output) if entry.output else entry.dtype in types
    if not judged:
        return False
    if entry.check == ACCURACY:
        # What is wrong on ordinary input hides what is wrong on other.
        hidden = any(each.guard == "ordinary" for each in _at(entry, report))
        return _is_low(entry.grade, report) and not hidden
    if entry.check == "recipe":
        return bool(report.recipe)
    return report.verdicts.get(GUARDS.get(entry.check, ""), "") != "not judged"


def _vanished(entry: Known, report: Report) -> Known | None:
    """Return an entry with the families in which it was looked for and not found, if it was."""
    if not _looked_for(entry, report):
        return None
    found = _at(entry, report)
    if entry.check not in BY_INPUT or not entry.families:
        low = entry.grade and _is_low(_grade(report, entry.dtype, entry.output), report)
        return None if found or low else entry
    seen = set().union(*map(_families, found))
    gone = (set(entry.families) & _run(report, entry.dtype)) - seen
    return replace(entry, families=tuple(sorted(gone))) if gone else None


def _is_better(entry: Known, report: Report) -> bool:
    """Tell whether a grade that is still too low is higher than it was known to be."""
    if entry.check != ACCURACY or set(entry.families) - _run(report, entry.dtype):
        return False
    return bool(_at(entry, report)) and _height(entry.grade) < _height(
        _grade(report, entry.dtype, entry.output)
    )
