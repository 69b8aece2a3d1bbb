"""A report as strict JSON, for programs."""

import dataclasses
import json
import math
from typing import Any

from truenorm.verify.grading.report import Report

__all__ = ["strict_json", "to_json"]


def to_json(report: Report) -> str:
    """Return everything that a report has, and whether it is a pass."""
    told = {"passed": report.passed, **dataclasses.asdict(report)}
    del told["operation"]  # how it is judged, which is code
    return strict_json(told)


def strict_json(value: Any) -> str:
    """Return JSON that any parser takes: numbers that are not finite become strings.

    Examples
    --------
    >>> print(strict_json({"error": [0.5, float("inf"), float("-inf"), float("nan")]}))
    {
      "error": [
        0.5,
        "inf",
        "-inf",
        "nan"
      ]
    }
    """
    return json.dumps(_strict(value), allow_nan=False, indent=2)


def _strict(value: Any) -> Any:
    """Replace what JSON cannot say by its name."""
    if isinstance(value, dict):
        return {key: _strict(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(inner) for inner in value]
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value
