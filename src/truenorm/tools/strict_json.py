"""Standard JSON: without NaN and Infinity, which are not part of it."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

NONFINITE = ("inf", "-inf", "nan")


def dumps(value: Any, indent: int | None = 2) -> str:
    """Return a value as JSON: non-finite numbers become strings, dataclasses become objects.

    Examples
    --------
    >>> print(dumps({"error": [0.5, float("inf"), float("-inf"), float("nan")]}, indent=None))
    {"error": [0.5, "inf", "-inf", "nan"]}
    """
    text = json.dumps(_strict(value), allow_nan=False, indent=indent)
    # A job of GitHub executes ##[, which can only be in a string, at any place of a line.
    return text.replace("##[", r"##\u005b")


def loads(text: str) -> Any:
    """Parse JSON of `dumps`: dataclasses are dictionaries, and non-finite numbers are floats."""
    return _numbers(json.loads(text))


def write(value: Any, path: Path) -> str:
    """Write a value to a file as JSON, create its folders, and return the text."""
    text = dumps(value)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
    return text


def _strict(value: Any) -> Any:
    """Replace values that JSON does not have."""
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
    """Replace the names of non-finite numbers by the numbers."""
    if isinstance(value, dict):
        return {key: _numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    return float(value) if value in NONFINITE else value
