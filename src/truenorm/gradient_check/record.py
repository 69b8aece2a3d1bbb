"""What a check found, for programs."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from truenorm.gradient_check.result import GradientCheck

__all__ = ["record_of"]


def record_of(result: GradientCheck, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a result as plain values: of each gradient by the name of its input, or another."""
    found = [
        None if check is None else {**dataclasses.asdict(check), "verdict": str(check.verdict)}
        for check in result.inputs
    ]
    given = names or [
        f"input {position}" if check is None else check["name"]
        for position, check in enumerate(found)
    ]
    return {
        "verdict": str(result.verdict),
        "method": result.method,
        "why": result.why,
        "gradients": dict(zip(given, found, strict=True)),
    }
