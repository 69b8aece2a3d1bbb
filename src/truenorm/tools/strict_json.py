"""JSON that any parser takes: without the words NaN and Infinity, which JSON does not have."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

__all__ = ["dumps", "loads", "write"]

NAMES = ("inf", "-inf", "nan")


def dumps(value: Any, indent: int | None = 2) -> str:
    """Return a value as JSON: numbers that are not finite become strings, dataclasses objects.

    Examples
    --------
    >>> print(dumps({"error": [0.5, float("inf"), float("-inf"), float("nan")]}, indent=None))
    {"error": [0.5, "inf", "-inf", "nan"]}
    """
    return json.dumps(_strict(value), allow_nan=False, indent=indent)


def loads(text: str) -> Any:
    """Return what `dumps` was given, dataclasses as dictionaries: names of numbers are numbers."""
    return _numbers(json.loads(text))


def write(value: Any, path: Path) -> str:
    """Write a value to a file as JSON, with the folders that it needs, and return that text."""
    text = dumps(value)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
    return text


def _strict(value: Any) -> Any:
    """Replace what JSON cannot say by its name."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: _strict(getattr(value, each.name)) for each in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {key: _strict(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(inner) for inner in value]
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(value: Any) -> Any:
    """Replace names of numbers that are not finite by the numbers."""
    if isinstance(value, dict):
        return {key: _numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    return float(value) if value in NAMES else value
