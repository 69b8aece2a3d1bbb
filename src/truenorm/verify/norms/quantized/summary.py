"""Summarize codes and scales of a quantized norm: exact codes, noise, and rules of scales."""

from collections.abc import Iterator, Sequence

import numpy as np

from truenorm.verify.formulas.rounding import rounded
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.quant import FLOOR_ERROR
from truenorm.verify.norms.quantized.answers import Mask, QuantizedExpected, answers_of
from truenorm.verify.operation import Case, Quantization, Results
from truenorm.verify.types import Float64s

Run = tuple[Case, Results]
ENOUGH = 8
"""Scales in which two rules differ, for one of them to be named."""
NO_FLOOR = "none"


@np.errstate(all="ignore")
def summarize(norm: Norm, runs: Sequence[Run]) -> Quantization | None:
    """Summarize the results of one type; return None without codes of ordinary rows."""
    ordinary = [run for run in runs if run[0].family == "normal"]
    exact, total, squares = 0, 0, np.zeros(2)
    for case, results in ordinary:
        answers = answers_of(case).given(results)
        codes = answers.decoded("codes", results.get("codes"))
        if codes is None or answers.values["codes"] is None:
            continue
        exact += int((codes == answers.values["codes"]).sum())
        total += codes.size
        squares += _squares(answers, codes)
    if not total:
        return None
    scale, floors, zeros = "", {}, ""
    if norm.quant.scale_type == "float32":
        scales = list(_scales(runs))
        scale = _scale_rule([each for each in scales if each[0].case.family == "normal"])
        floors, zeros = _floors(scales), _scale_of_zeros(scales)
    noise = float(np.sqrt(squares[0] / squares[1])) if squares[1] else 1.0
    return Quantization(runs[0][0].dtype, exact / total, noise, scale, floors, zeros)


def _squares(answers: QuantizedExpected, codes: Float64s) -> Float64s:
    """Return the mean squared errors of codes, and of exact codes with exact scales."""
    y, code = answers.y, answers.quant.code
    ideal = answers if answers.quant.is_static else answers.given_exact()
    best = code.nearest(y / ideal.code_unit) * ideal.code_unit
    errors = codes * answers.code_unit - y, np.where(y == 0, 0.0, best - y)
    size = float(np.mean(y * y))
    return np.array([float(np.nanmean(each * each)) / size for each in errors])


def _scales(runs: Sequence[Run]) -> Iterator[tuple[QuantizedExpected, Float64s]]:
    for case, results in runs:
        answers = answers_of(case)
        scales = answers.decoded("scale", results.get("scale"))
        if scales is not None:
            yield answers, scales


def _scale_rule(scales: Sequence[tuple[QuantizedExpected, Float64s]]) -> str:
    """Name the rule that has the bits of all scales, where y was rounded to the type of x.

    The largest |y| is then a number of that type, so that both rules have known bits.
    """
    by_rule: dict[str, list[Mask]] = {"amax/qmax": [], "amax*[1/qmax]": []}
    differs: list[Mask] = []
    for answers, each in scales:
        qmax = np.float32(answers.quant.code.largest)
        amax = rounded(each * float(qmax), answers.case.dtype).astype(np.float32)
        rules = amax / qmax, amax * (np.float32(1) / qmax)
        for matches, rule in zip(by_rule.values(), rules, strict=True):
            matches.append((rule == each).ravel())
        differs.append((rules[0] != rules[1]).ravel())
    if not differs or np.concatenate(differs).sum() < ENOUGH:
        return ""
    named = [name for name, matches in by_rule.items() if np.concatenate(matches).all()]
    return named[0] if len(named) == 1 else ""


def _floors(scales: Sequence[tuple[QuantizedExpected, Float64s]]) -> dict[str, str]:
    """Return the rules for the least scale that tiny groups follow, each with a case.

    One rule is consistent if no scale is below it.
    """
    floors: dict[str, str] = {}
    least = np.inf
    for answers, each in scales:
        allowed = answers.allowed("scale") / answers.quant.code.largest
        exact = answers.amax / answers.quant.code.largest
        above = answers.is_floored(each) & (each - exact > allowed)
        if above.any():
            floor = float(each[above][0])
            floors.setdefault(answers.quant.floor_name(floor), answers.case.name)
            least = min(least, floor)
    for answers, each in scales:
        is_nonzero = np.isfinite(answers.wide["scale"]) & (answers.amax > 0)
        if floors and (is_nonzero & (each < least * (1 - FLOOR_ERROR))).any():
            floors.setdefault(NO_FLOOR, answers.case.name)
    return floors


def _scale_of_zeros(scales: Sequence[tuple[QuantizedExpected, Float64s]]) -> str:
    """Return the scale of groups of zeros, if all these groups have the same scale."""
    of_zeros = np.concatenate(
        [
            each[np.isfinite(answers.wide["scale"]) & (answers.amax == 0)]
            for answers, each in scales
        ]
    )
    return f"{of_zeros[0]:.6g}" if of_zeros.size and (of_zeros == of_zeros[0]).all() else ""
