"""A baseline as a file: JSON in one order, which people may edit and which is read with care."""

import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from truenorm.verify.grading.report import ACCURACY, GRADES, Known

__all__ = ["SCHEMA", "read", "write"]

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
