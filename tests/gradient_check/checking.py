"""Verdicts that tests demand of a check, with its report where another one was given."""

from typing import Any

import truenorm as tn
from truenorm.gradient_check import GradientCheck, Verdict

__all__ = ["FAIL", "INCONCLUSIVE", "PASS", "demand", "forbid"]

PASS, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


def demand(
    verdict: Verdict, forward: Any, backward: Any, inputs: Any, **options: Any
) -> GradientCheck:
    """Check a pair, and return the result if it is the one that is right."""
    result = tn.gradcheck(forward, backward, inputs, **options)
    assert result.verdict is verdict, str(result)
    return result


def forbid(verdict: Verdict, forward: Any, backward: Any, inputs: Any, **options: Any) -> None:
    """Check a pair that a false verdict may not be given on: to have no answer is right."""
    result = tn.gradcheck(forward, backward, inputs, **options)
    assert result.verdict is not verdict, str(result)
