"""Patterns in the errors of a norm that no hypothesis explains as a whole."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from truenorm.verify.causes import Cause
from truenorm.verify.formulas.rounding import rounded
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
    Summed,
)
from truenorm.verify.sums import Way
from truenorm.verify.types import Float64s

SUMMANDS = {"dgamma": "terms", "dbeta": "dy"}
"""The steps whose rows are added, by output."""


def error_patterns_of(norm: Norm, output: str) -> ErrorPatterns:
    """Return the patterns for one output of a norm."""
    growth = _growth(norm) if norm.centred and output == "y" else None
    return ErrorPatterns(
        _error_terms(norm, output),
        _mixtures(norm, output),
        growth,
        _clamped_steps(norm, output),
        _sums(norm, output),
    )


def _term(norm: Norm, value: Step) -> Hypothesis:
    """Return a product of steps, as a function of a case."""
    return lambda case: np.broadcast_to(value(Steps(norm, case, {})), case.shape)


def _error_terms(norm: Norm, output: str) -> list[ErrorTerms]:
    """Return the errors of an output if one number of each row or column is wrong."""

    def of_rows(step: str, words: str, *values: Step, is_factor: bool = False) -> ErrorTerms:
        terms = tuple(_term(norm, each) for each in values)
        return ErrorTerms(step, words, 1, terms, is_factor)

    def of_columns(step: str, *values: Step) -> ErrorTerms:
        return ErrorTerms(step, step, 0, tuple(_term(norm, each) for each in values))

    if output == "y":
        scale: Step = lambda at: at["gain"] * at["xhat"]  # noqa: E731
        shift: Step = lambda at: at["gain"]  # noqa: E731
        terms = [of_rows("r", R, scale, is_factor=True)]
        if norm.centred:
            terms.append(of_rows("mean", "the mean that is subtracted", shift))
            terms.append(of_rows("mean, r", f"the mean and {R}", scale, shift))
        terms.append(of_columns("gamma", lambda at: at["xhat"]))
        if "beta" in norm.parameters:
            terms.append(of_columns("beta", lambda at: at.column(1.0)))
        return terms
    if output in ("dx", "dresidual"):
        in_mean: Step = lambda at: at["r"]  # noqa: E731
        projected: Step = lambda at: at["r"] * at["xhat"]  # noqa: E731
        terms = [
            of_rows(
                "r", f"{R}, by which it is multiplied,", lambda at: at["dnorm"], is_factor=True
            ),
            of_rows("mean-gxhat", "mean(g*xhat)", projected),
        ]
        if norm.centred:
            terms.append(of_rows("mean-g", "mean(g)", in_mean))
            words = "mean(g) and mean(g*xhat)"
            terms.append(of_rows("mean-g, mean-gxhat", words, in_mean, projected))
        return terms
    return []


MIXED = {
    Cause("mean, r", f"the mean and {R} are those"): ("mean", "r"),
    Cause("r", f"{R} is that"): ("r",),
    Cause("gamma", "gamma is that"): ("gain",),
    Cause("beta", "beta is that"): ("beta",),
    Cause("eps", "eps is that"): ("eps",),
    Cause("result", "it is that"): ("y", "dx", "dgamma", "dbeta"),
}
"""Steps whose results may be cached by mistake; the words continue with the call."""


def _mixtures(norm: Norm, output: str) -> dict[Cause, Mixture]:
    """Return an output with steps of another case, by the name of the steps."""
    return {
        cause: partial(_mixed, norm, output, steps)
        for cause, steps in MIXED.items()
        if STEPS_OF[output] & {*steps} and (norm.centred or "mean" not in steps)
    }


def _mixed(norm: Norm, output: str, steps: Sequence[str], other: Case, case: Case) -> Float64s:
    others = Steps(norm, other, {})
    return Steps(norm, case, {name: partial(_of_others, others, name) for name in steps})[output]


def _of_others(others: Steps, name: str, _: Steps) -> Float64s:
    return others[name]


def _clamped_steps(norm: Norm, output: str) -> dict[Cause, Clamped]:
    """Return an output with a clamped step, by the name of the step."""
    row = "x + residual" if norm.adds else "x"
    steps = {"rows": row, "xhat": "xhat"}
    if norm.centred:
        steps["c"] = f"{row} - mean"
    return {
        Cause(f"clamped({step})", f"{words} is clamped"): partial(
            _with_clamped, norm, output, step
        )
        for step, words in steps.items()
        if step in STEPS_OF[output]
    }


def _with_clamped(norm: Norm, output: str, step: str, limit: float, case: Case) -> Float64s:
    return Steps(norm, case, changed(lambda _, right: right.clip(-limit, limit), step))[output]


SumSteps = dict[str, Callable[[Way, Steps], Float64s]]
"""Steps that take a sum in a way."""


def _sums(norm: Norm, output: str) -> dict[Cause, Summed]:
    """Return an output with sums that are taken in a way, by a clause for the sums."""
    squares: SumSteps = {"w": mean_square}
    products: SumSteps = {"projection": _projection}
    sums = {
        Cause("squares-summed", "squares are summed"): squares,
        Cause("mean-gxhat-summed", "the terms of mean(g*xhat) are summed"): products,
    }
    if norm.centred:
        centre: SumSteps = {"mean": partial(_mean_of, "rows")}
        mean_g: SumSteps = {"mean_g": partial(_mean_of, "g")}
        sums |= {
            Cause("mean-summed", "the mean is summed"): centre,
            Cause("both-sums-added", "both sums of a row are added"): centre | squares,
            Cause(
                "one-pass-summed",
                "the variance is computed in one pass, as mean(x^2) - mean^2, with sums",
            ): {"mean": partial(_mean_of, "rows"), "w": _square_less_square},
            Cause("mean-g-summed", "mean(g) is summed"): mean_g,
            Cause("means-summed", "mean(g) and mean(g*xhat) are summed"): mean_g | products,
            Cause("all-sums-added", "all sums of a row are added"): (
                centre | squares | mean_g | products
            ),
        }
    for name, terms in SUMMANDS.items():
        cause = Cause(f"rows-added({name})", f"rows are added to {name}")
        sums[cause] = {name: partial(sum_of_rows, terms)}
    return {
        cause: partial(_with_sums, norm, output, steps)
        for cause, steps in sums.items()
        if STEPS_OF[output] & steps.keys()
    }


def _with_sums(norm: Norm, output: str, steps: SumSteps, way: Way, case: Case) -> Float64s:
    return Steps(norm, case, {name: partial(step, way) for name, step in steps.items()})[output]


def _terms(values: Float64s, way: Way) -> Float64s:
    """Round the factors of terms to the type of the sum, unless the sum rounds no term."""
    return values if way.fused else rounded(values, way.kind)


def _mean_of(name: str, way: Way, at: Steps) -> Float64s:
    return way.sum(at[name])[:, np.newaxis] / at.size


def mean_square(way: Way, at: Steps) -> Float64s:
    """Return the mean square of each row, with squares that are summed in a way."""
    c = _terms(at["c"], way)
    return way.sum(c * c)[:, np.newaxis] / at.size


def _square_less_square(way: Way, at: Steps) -> Float64s:
    x = _terms(at["rows"], way)
    mean = rounded(at["mean"], way.kind)
    w = rounded(way.sum(x * x)[:, np.newaxis] / at.size, way.kind)
    return rounded(w - mean * mean, way.kind)


def _projection(way: Way, at: Steps) -> Float64s:
    terms = _terms(at["g"], way) * _terms(at["xhat"], way)
    return at["xhat"] * way.sum(terms)[:, np.newaxis] / at.size


def sum_of_rows(name: str, way: Way, at: Steps) -> Float64s:
    """Return the sum of the rows of a step, summed in a way."""
    return way.sum(at[name].T)


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
            Cause(
                "one-pass",
                f"the variance is computed in one pass, as mean({row}^2) - mean^2: it has the "
                "rounding error of the square of the mean",
            ),
            Cause(
                "mean-in-one-number",
                "the mean is held in one number, and its rounding error shifts the whole row",
            ),
        ),
        Cause(
            "scaled-before-mean",
            f"{row} is scaled before the mean is subtracted, so that large terms cancel",
        ),
    )
