"""Patterns in the errors of a norm that no hypothesis explains as a whole."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from truenorm.verify.norms.changes import R, changed
from truenorm.verify.norms.hypotheses import STEPS_OF
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.steps import Step, Steps
from truenorm.verify.operation import (
    Case,
    Clamped,
    ErrorPatterns,
    ErrorTerms,
    Growth,
    Hypothesis,
    Mixture,
)
from truenorm.verify.types import Float64s


def error_patterns_of(norm: Norm, output: str) -> ErrorPatterns:
    """Return the patterns for one output of a norm."""
    growth = _growth(norm) if norm.centred and output == "y" else None
    return ErrorPatterns(
        _error_terms(norm, output), _mixtures(norm, output), growth, _clamped_steps(norm, output)
    )


def _term(norm: Norm, value: Step) -> Hypothesis:
    """Return a product of steps, as a function of a case."""
    return lambda case: np.broadcast_to(value(Steps(norm, case, {})), case.shape)


def _error_terms(norm: Norm, output: str) -> list[ErrorTerms]:
    """Return the errors of an output if one number of each row or column is wrong."""

    def of_rows(words: str, *values: Step, is_factor: bool = False) -> ErrorTerms:
        return ErrorTerms(words, 1, tuple(_term(norm, each) for each in values), is_factor)

    def of_columns(words: str, *values: Step) -> ErrorTerms:
        return ErrorTerms(words, 0, tuple(_term(norm, each) for each in values))

    if output == "y":
        scale: Step = lambda at: at["gain"] * at["xhat"]  # noqa: E731
        shift: Step = lambda at: at["gain"]  # noqa: E731
        terms = [of_rows(R, scale, is_factor=True)]
        if norm.centred:
            terms.append(of_rows("the mean that is subtracted", shift))
            terms.append(of_rows(f"the mean and {R}", scale, shift))
        terms.append(of_columns("gamma", lambda at: at["xhat"]))
        if "beta" in norm.parameters:
            terms.append(of_columns("beta", lambda at: at.column(1.0)))
        return terms
    if output in ("dx", "dresidual"):
        in_mean: Step = lambda at: at["r"]  # noqa: E731
        projected: Step = lambda at: at["r"] * at["xhat"]  # noqa: E731
        terms = [
            of_rows(f"{R}, by which it is multiplied,", lambda at: at["dnorm"], is_factor=True),
            of_rows("mean(g*xhat)", projected),
        ]
        if norm.centred:
            terms.append(of_rows("mean(g)", in_mean))
            terms.append(of_rows("mean(g) and mean(g*xhat)", in_mean, projected))
        return terms
    return []


MIXED = {
    f"the mean and {R} are those": ("mean", "r"),
    f"{R} is that": ("r",),
    "gamma is that": ("gain",),
    "beta is that": ("beta",),
    "eps is that": ("eps",),
    "it is that": ("y", "dx", "dgamma", "dbeta"),
}
"""Steps whose results may be cached by mistake."""


def _mixtures(norm: Norm, output: str) -> dict[str, Mixture]:
    """Return an output with steps of another case, by the name of the steps."""
    return {
        words: partial(_mixed, norm, output, steps)
        for words, steps in MIXED.items()
        if STEPS_OF[output] & {*steps} and (norm.centred or "mean" not in steps)
    }


def _mixed(norm: Norm, output: str, steps: Sequence[str], other: Case, case: Case) -> Float64s:
    others = Steps(norm, other, {})
    return Steps(norm, case, {name: partial(_of_others, others, name) for name in steps})[output]


def _of_others(others: Steps, name: str, _: Steps) -> Float64s:
    return others[name]


def _clamped_steps(norm: Norm, output: str) -> dict[str, Clamped]:
    """Return an output with a clamped step, by the name of the step."""
    row = "x + residual" if norm.adds else "x"
    steps = {row: "rows", "xhat": "xhat"}
    if norm.centred:
        steps[f"{row} - mean"] = "c"
    return {
        words: partial(_with_clamped, norm, output, step)
        for words, step in steps.items()
        if step in STEPS_OF[output]
    }


def _with_clamped(norm: Norm, output: str, step: str, limit: float, case: Case) -> Float64s:
    return Steps(norm, case, changed(lambda _, right: right.clip(-limit, limit), step))[output]


def _growth(norm: Norm) -> Growth:
    """Return the errors of y that grow with kappa."""
    row = "x + residual" if norm.adds else "x"
    return Growth(
        (
            _term(norm, lambda at: at["gain"] * at["xhat"]),
            _term(norm, lambda at: at["gain"]),
        ),
        (2, 1),
        (
            f"the variance is computed in one pass, as mean({row}^2) - mean^2: it has the "
            "rounding error of the square of the mean",
            "the mean is held in one number, and its rounding error shifts the whole row",
        ),
        f"{row} is scaled before the mean is subtracted, so that large terms cancel",
    )
