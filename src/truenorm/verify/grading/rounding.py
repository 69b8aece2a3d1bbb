"""Checks of accurate results: outputs that must be rounded as required, or to nearest."""

from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.grading.symptoms import MeasuredResult, Symptom, first_index
from truenorm.verify.oracle import expected


def rounding_symptoms(
    measured: Iterable[MeasuredResult], places: Collection[tuple[str, str]]
) -> list[Symptom]:
    """Return the results that are stable but not rounded as required, at these places."""
    return [
        Symptom(
            "rounding",
            one.case,
            one.record,
            one.output,
            f"{one.output} is off by {one.error.ulp:.3g} ulp",
            severity=one.error.ulp,
        )
        for one in measured
        if one.type_and_output in places and not one.error.correct
    ]


MOST_NOT_NEAREST = 1e-3
"""The share of elements of an output that is rounded once which may not be the nearest number.
Half an ulp of bias in a sum that is used again shrinks it with every layer (aiter#5151)."""


def biased_symptoms(measured: Iterable[MeasuredResult]) -> list[Symptom]:
    """Return a symptom for each output that is rounded once, but often not to nearest."""
    groups: dict[tuple[str, str], list[MeasuredResult]] = {}
    for one in measured:
        once = one.output in one.case.operation.rounded_once and one.case.kind == "ordinary"
        if once and one.result.size:  # results of user cases are not kept
            groups.setdefault(one.type_and_output, []).append(one)
    symptoms = []
    for group in groups.values():
        wrong = sum(int((~_nearest(one)).sum()) for one in group)
        share = wrong / max(sum(one.result.size for one in group), 1)
        if share > MOST_NOT_NEAREST:
            one = max(group, key=lambda one: int((~_nearest(one)).sum()))
            text = f"{one.output} is not rounded to nearest in {100 * share:.2g} % of its elements"
            at = first_index(~_nearest(one))
            symptoms.append(Symptom("biased", one.case, one.record, one.output, text, at))
    return symptoms


def _nearest(one: MeasuredResult) -> NDArray[np.bool_]:
    return expected(one.case).element_errors(one.output, one.result).correct


def explain_bias(output: str, measured: Iterable[MeasuredResult]) -> str:
    """Return in which direction an output is rounded, if that is the same everywhere."""
    towards_zero = down = True
    for one in measured:
        if one.output == output and one.case.kind == "ordinary" and one.result.size:
            answers, result = expected(one.case), one.result.astype(np.float64)
            exact = answers.wide[output] + answers.remainders[output] * answers.ulps[output]
            towards_zero &= bool((np.abs(result) <= np.abs(exact)).all())
            down &= bool((result <= exact).all())
    if towards_zero:
        return f"{output} is truncated, not rounded to nearest"
    return f"{output} is rounded down" if down else ""
