"""Find the likely cause of an inaccurate result, by hypotheses of what a kernel does wrong.

A hypothesis computes a result in float64 as it would be if one step were different. It explains a
result if it matches in every failing case, is consistent with the control cases (those that are
right), and no other hypothesis matches as well. It must also differ from the same computation
without the change: the steps that are right have the same rounding errors in both.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, takewhile
from typing import NamedTuple

import numpy as np

from truenorm.verify.causes import Cause
from truenorm.verify.diagnosis.matches import (
    Evidence,
    Match,
    compare_with_hypotheses,
    distance,
    sizes_of,
)
from truenorm.verify.distinctions import distinguishing_size, is_likelier
from truenorm.verify.operation import Case, Clamped, Hypothesis, Summed
from truenorm.verify.oracle import FLOAT32_ROUNDOFF, expected
from truenorm.verify.sums import EQUALLY_GOOD, Drift, Fit, fit, ways
from truenorm.verify.types import Array, Float64s, is_available, unit_roundoff

MIN_CASES, MIN_ELEMENTS, MANY_ELEMENTS = 2, 3, 32
"""A hypothesis must differ from the exact answer in several elements of two cases, or in many
elements of one case."""
MIN_CONTRAST = 16.0
"""In types of 16 bits, one case is enough only at this distance from the exact answer, relative to
the tolerance: a closer hypothesis could be confused with another bug."""
LARGE_CASE = 2**16
"""Elements of a case above which hypotheses take long to compute: it is compared last, and only
if a case of this size fails."""
AT_ONCE = 32
"""Hypotheses that are compared at once: their results for all cases fit into memory."""
EQUAL_IN_FLOAT64 = 2.0**-40
"""Relative difference up to which two hypotheses count as one."""
EXPLAINED = 0.9
"""The least share of the squared error of a case that a cause named for the case explains."""
NARROWER = ("float32", "bfloat16", "float16")
"""Types of partial sums that are tried in every type."""
LEAST_OF_TYPE = 2.0**-6
"""Partial sums of a type leave at least so much of its unit roundoff in the largest error."""
WIDE_CASES = 4
"""Cases beside the worst in which ways of a sum are compared."""
FACTOR_DIGITS = (1, 2, 3, 4)
"""Significant digits of a constant factor, tried in this order."""
LIMIT_POWERS = tuple(half / 2 for half in range(35))
"""Powers of two among which a limit is searched for first, up to the range of float16."""
LIMIT_DIGITS = (1, 2, 3, 4, 5, 6)
LIMIT_PRECISION = 2.0**-18
"""Least relative error of a fitted limit: it is rounded to as few digits as this allows."""
AMBIGUOUS = 2.0
"""Hypotheses whose distance is within this factor of the smallest are equally good."""
KAPPA_POWERS = 3
"""Powers of kappa, from 0 on, that rounding errors of a kernel with a bug may grow like."""
MOST_ULP = 1000
"""From this number of ulp on, the number says nothing."""


Check = tuple[str, str, str]
"""A check, a type and an output."""


class Diagnosis(NamedTuple):
    """The likely causes of a wrong result, none if they are unknown.

    Attributes
    ----------
    causes : tuple of Cause
        Causes that explain the result alike.
    tried : int
        The number of hypotheses that were compared.
    shares : mapping of str to float
        By name of a case: the share of its error that the causes explain. It is empty for causes
        that have no errors to compare.
    match : str
        How near the results are to what the causes predict; empty if they predict none.
    close : sequence of Candidate
        The hypotheses about `output` that explain it alike; `where` says at which sizes or on
        which input, and `place` in which elements.
    """

    causes: tuple[Cause, ...]
    tried: int
    shares: Mapping[str, float] = {}
    match: str = ""
    close: Sequence["Candidate"] = ()
    output: str = ""
    where: str = ""
    place: str = ""

    def naming(self, chosen: Sequence["Candidate"]) -> "Diagnosis":
        """Return the diagnosis with some of the hypotheses as its causes."""
        named = without_repeats(chosen)
        return self._replace(
            causes=tuple(each.cause for each in named),
            shares=chosen[0].shares,
            match=_match(self.output, named),
            close=chosen,
        )

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the causes."""
        return tuple(each.id for each in self.causes)

    def words(self, case: str = "") -> str:
        """Return the causes in words, with the share of the error of a case that they explain.

        Only ordinary cases are known to be right at other sizes and on other input.

        Examples
        --------
        >>> eps = Cause("no-term(eps)", "eps is left out")
        >>> Diagnosis((eps,), 9, {"a": 0.978}, "matches y within 1 ulp").words("a")
        'eps is left out (matches y within 1 ulp; explains 97 % of the error of this case)'
        """
        if not self.causes:
            return ""
        words, remarks = in_words(self.causes, self.output), [self.match]
        if self.where:
            words = f"where {self.where}, {words}"
            remarks.append(f"{self.output} is right in other ordinary cases")
        elif self.place:
            words = f"in {self.place}, {words}"
            remarks.append(f"{self.output} is right elsewhere")
        if case in self.shares:
            share = math.floor(100 * self.shares[case])
            remarks.append(f"explains {share} % of the error of this case")
        remark = "; ".join(filter(None, remarks))
        return f"{words} ({remark})" if remark else words


UNKNOWN = Diagnosis((), 0)


def described_by(cause: Cause | None, tried: int = 0) -> Diagnosis:
    """Return the diagnosis with a cause that predicts no result, or with none."""
    return Diagnosis((cause,) if cause else (), tried)


class Candidate(NamedTuple):
    """A hypothesis that explains a result, with its match in each case."""

    cause: Cause
    matches: dict[str, Match]

    @property
    def distance(self) -> float:
        """Largest distance over all cases."""
        return max(each.distance for each in self.matches.values())

    @property
    def ulp(self) -> float:
        """Largest distance in ulp over the telling cases."""
        return max(each.ulp for each in self.matches.values() if each.telling)

    @property
    def shares(self) -> dict[str, float]:
        """The share of the error of each case that is explained."""
        return {name: each.share for name, each in self.matches.items()}


def diagnose(
    evidence: Collection[Evidence], hypotheses: Mapping[Cause, Hypothesis], *, by_size: bool
) -> Diagnosis:
    """Return the likely cause of the wrong results of one output in one type.

    If no hypothesis explains all cases and `by_size` is true, try one that explains the failing
    cases, provided that a size or their family tells these from the control cases. Errors that
    grow with kappa are allowed only then: elsewhere, they are the symptom.
    """
    unknown = Diagnosis((), len(hypotheses))
    # Small failing cases first: they rule out most hypotheses at little cost.
    order = sorted(evidence, key=lambda each: (is_large(each), each.correct, _size(each)))
    if all(each.correct for each in order):
        return unknown
    if all(each.correct for each in order if is_large(each)):
        order = [each for each in order if not is_large(each)]
    for power in range(KAPPA_POWERS if by_size else 1):
        chosen, where = _explain(order, hypotheses, power, by_size=by_size)
        if chosen:
            return unknown._replace(output=order[0].output, where=where).naming(chosen)
    return unknown


def with_common_causes(diagnoses: Mapping[Check, Diagnosis]) -> dict[Check, Diagnosis]:
    """Name the hypothesis that explains most of several diagnoses, where some explain one alike.

    The outputs of a kernel that has a bug, and its types, have one cause.
    """
    explained = Counter(each.cause for one in diagnoses.values() for each in one.close)
    common = {}
    for check, one in diagnoses.items():
        most = max((explained[each.cause] for each in one.close), default=0)
        chosen = [each for each in one.close if explained[each.cause] == most]
        common[check] = one.naming(chosen) if chosen else one
    return common


def _explain(
    order: Sequence[Evidence], hypotheses: Mapping[Cause, Hypothesis], power: int, *, by_size: bool
) -> tuple[list[Candidate], str]:
    """Return the hypotheses that explain a result, and the sizes or the input where they do."""
    chosen = best(candidates(hypotheses.items(), order, power))
    if not chosen:
        fitted = (candidates([each], order, power) for each in _fitted(order))
        chosen = list(islice(chain.from_iterable(fitted), 1))
    if chosen or not by_size:
        return chosen, ""
    wrong = [each for each in order if not each.correct]
    controls = [each.case for each in order if each.correct]
    where = distinguishing_size([each.case for each in wrong], controls)
    families = {each.case.family for each in wrong}
    if not where and len(families) == 1 and families.isdisjoint(each.family for each in controls):
        where = f"the input is as in {wrong[0].case.name}"
    if where and not is_large(wrong[0]):  # small cases rule out most before large ones
        chosen = best(candidates(hypotheses.items(), wrong, power))
    return chosen, where


def _size(evidence: Evidence) -> int:
    return math.prod(evidence.case.shape)


def is_large(evidence: Evidence) -> bool:
    """Return True if hypotheses take long to compute for a case."""
    return _size(evidence) > LARGE_CASE


def _fitted(order: Sequence[Evidence]) -> Iterator[tuple[Cause, Hypothesis]]:
    """Yield hypotheses with a number, or the way of a sum, that is fitted to wrong cases."""
    wrong = [each for each in order if not each.correct]
    if wrong := [each for each in wrong if not is_large(each)] or wrong[:1]:
        yield from _sums(order, wrong)
        yield from _limits(wrong)
        yield from _clamps(wrong[0])
        yield from _constant_factors(wrong[-1])


def _sums(
    order: Sequence[Evidence], wrong: Sequence[Evidence]
) -> Iterator[tuple[Cause, Hypothesis]]:
    """Yield the output with sums that are taken in the ways that explain its errors best.

    The ways are found on the largest of the wrong cases, and compared on other wide cases.
    """
    largest, first = max(
        ((_largest_drift(each), each) for each in wrong),
        key=lambda pair: pair[0],
    )
    error = largest * unit_roundoff(first.case.dtype)
    others = sorted((each for each in order if not is_large(each)), key=_size)[-WIDE_CASES:]
    sums = first.case.operation.knowledge.error_patterns(first.output).sums
    for kind in kinds_of_sums(first.case.dtype):
        if error < unit_roundoff(kind) * LEAST_OF_TYPE:
            continue
        fits: list[tuple[Cause, Summed, Fit]] = []
        for cause, summed in sums.items():
            found = [each.way for each in fit([_drift_of(first, summed)], ways(kind))]
            if not found:
                continue
            drifts = [_drift_of(each, summed) for each in (first, *others)]
            fits += [(cause, summed, each) for each in fit(drifts, found)]
        least = min((each.left for *_, each in fits), default=0.0)
        for cause, summed, each in fits:
            if each.left <= least * EQUALLY_GOOD:
                in_way = Cause(f"{cause.id}({each.way.id})", f"{cause.words} {each.way.words}")
                yield in_way, partial(summed, each.way)


def kinds_of_sums(dtype: str) -> list[str]:
    """Return the types whose partial sums may leave an error in a result, the likely first."""
    kinds = ("float64", *NARROWER) if dtype == "float64" else NARROWER
    return [kind for kind in kinds if is_available(kind)]


def _largest_drift(evidence: Evidence) -> float:
    """Return the largest finite error of a result, in natural units."""
    drift = np.abs(_drift(evidence, evidence.result))
    return float(drift[np.isfinite(drift)].max(initial=0.0))


def _drift_of(evidence: Evidence, summed: Summed) -> Drift:
    return Drift(
        _drift(evidence, evidence.result), lambda way: _drift(evidence, summed(way, evidence.case))
    )


def _drift(evidence: Evidence, values: Array) -> Float64s:
    """Return the error of a result or of a hypothesis, in natural units."""
    exact, output = expected(evidence.case), evidence.output
    with np.errstate(all="ignore"):
        unit = exact.unit(output) * exact.scale(output)
        error = (values.astype(np.float64) - exact.wide[output]) / unit
    return np.where(np.isfinite(exact.wide[output]), error, 0.0)


def _limits(wrong: Sequence[Evidence]) -> Iterator[tuple[Cause, Hypothesis]]:
    """Yield the exact answer between limits that several elements have."""
    numbers = np.concatenate([each.result.astype(np.float64).ravel() for each in wrong])
    if not np.isfinite(numbers).all():
        return
    low, high = (
        limit if (numbers == limit).sum() >= MIN_ELEMENTS else beyond
        for limit, beyond in ((numbers.min(), -np.inf), (numbers.max(), np.inf))
    )
    limits = {"at least": low, "at most": high}
    texts = [f"{side} {limit:g}" for side, limit in limits.items() if np.isfinite(limit)]
    if texts:
        cause = Cause("limited", f"it is limited to {' and '.join(texts)}")
        yield cause, partial(_limited, low, high, wrong[0].output)


def _limited(low: float, high: float, output: str, case: Case) -> Float64s:
    return np.clip(expected(case).wide[output], low, high)


def _clamps(one: Evidence) -> Iterator[tuple[Cause, Hypothesis]]:
    """Yield the output with a clamped step; the limit is fitted to one wrong case."""
    for cause, clamped in one.case.operation.knowledge.error_patterns(one.output).clamped.items():
        fitted = _fit_limit(one, clamped)
        precision = max(unit_roundoff(one.case.dtype) / 2, LIMIT_PRECISION)
        for digits in LIMIT_DIGITS:
            limit = float(f"{fitted:.{digits}g}")
            if abs(limit - fitted) <= precision * fitted:
                words = f"{cause.words} to +-{limit:g}"
                yield cause.with_words(words), partial(clamped, limit)
                break


def _fit_limit(one: Evidence, clamped: Clamped) -> float:
    """Return the limit with the least squared distance from a result: a grid, then thirds."""
    case, output, result, _ = one
    got = result.astype(np.float64)
    allowed = expected(case).allowed(output)

    def squares(power: float) -> float:
        with np.errstate(all="ignore"):
            distances = distance(clamped(2.0**power, case), got) / allowed
            return float((distances**2).sum())

    nearest = min(LIMIT_POWERS, key=squares)
    low, high = nearest - 0.5, nearest + 0.5
    while high - low > LIMIT_PRECISION / 16:
        third = (high - low) / 3
        if squares(low + third) <= squares(high - third):  # equal where nothing is clamped
            high -= third
        else:
            low += third
    return float(2.0 ** ((low + high) / 2))


def _constant_factors(one: Evidence) -> Iterator[tuple[Cause, Hypothesis]]:
    """Yield the exact answer times a constant, fitted to one wrong case."""
    case, output, result, _ = one
    exact = expected(case).number(output)
    with np.errstate(all="ignore"):
        fitted = float((result.astype(np.float64) * exact).sum() / (exact * exact).sum())
    if not math.isfinite(fitted):
        return
    for digits in FACTOR_DIGITS:
        factor = float(f"{fitted:.{digits}g}")
        cause = Cause("times-a-factor", f"it is multiplied by {factor:g}")
        yield cause, partial(_times, factor, output)


def _times(factor: float, output: str, case: Case) -> Float64s:
    return factor * expected(case).number(output)


def _match(output: str, chosen: Sequence[Candidate]) -> str:
    """Return how near the results are to what hypotheses predict."""
    ulp = max(1, math.ceil(max(each.ulp for each in chosen)))
    within = f"within {ulp} ulp" if ulp < MOST_ULP else "within the roundings of its steps"
    return f"matches {output} {within}"


def in_words(causes: Sequence[Cause], output: str) -> str:
    """Return causes of which one is true; a common beginning of several is written once."""
    first, *others = (with_subject(each.words, output) for each in causes)
    start = _common_start([first, *others])
    return ", or ".join([first, *(each.removeprefix(start) for each in others)])


def with_subject(words: str, output: str) -> str:
    """Replace a leading "it" of a hypothesis by the name of the output."""
    if words.startswith("its "):
        return f"the {words.removeprefix('its ').replace(' ', f' of {output} ', 1)}"
    return f"{output} {words.removeprefix('it ')}" if words.startswith("it ") else words


def _common_start(texts: Sequence[str]) -> str:
    """Return the common beginning of several hypotheses if it ends with "is" or "to"."""
    columns = zip(*(text.split(" ") for text in texts), strict=False)
    start = [words[0] for words in takewhile(lambda column: len({*column}) == 1, columns)]
    return " ".join([*start, ""]) if start[-1:] in (["is"], ["to"]) else ""


def candidates(
    hypotheses: Iterable[tuple[Cause, Hypothesis]], order: Sequence[Evidence], power: int = 0
) -> Iterator[Candidate]:
    """Yield the hypotheses that fit all cases and differ enough from the exact answer."""
    least = 0.0 if unit_roundoff(order[0].case.dtype) <= FLOAT32_ROUNDOFF else MIN_CONTRAST
    several = iter(hypotheses)
    while some := [*islice(several, AT_ONCE)]:
        for cause, matches in _matches(order, some, power).items():
            telling = [each for each in matches.values() if each.telling >= MIN_ELEMENTS]
            if len(telling) >= MIN_CASES or any(
                each.telling >= MANY_ELEMENTS and each.contrast >= least for each in telling
            ):
                yield Candidate(cause, matches)


def _matches(
    order: Sequence[Evidence], hypotheses: Sequence[tuple[Cause, Hypothesis]], power: int
) -> dict[Cause, dict[str, Match]]:
    """Compare hypotheses with all cases; leave out each as soon as it cannot be a candidate.

    That is if a case contradicts it, or if it explains no wrong result: such as a hypothesis that
    changes nothing.
    """
    matches: dict[Cause, dict[str, Match]] = {cause: {} for cause, _ in hypotheses}
    unexplained = sum(not each.correct for each in order)
    explaining: set[Cause] = set()
    for each in order:
        unexplained -= not each.correct
        left = [pair for pair in hypotheses if pair[0] in matches]
        compared = compare_with_hypotheses(each, left, power)
        for (cause, _), match in zip(left, compared, strict=True):
            if match.fits and match.defined:
                matches[cause][each.case.name] = match
            elif match.defined and (match.differs or not each.correct):
                del matches[cause]
                continue
            if match.defined and not each.correct and match.share >= EXPLAINED:
                explaining.add(cause)
            if cause not in explaining and not unexplained:
                del matches[cause]
    return matches


def best(explaining: Iterator[Candidate]) -> list[Candidate]:
    """Return the closest candidate and its equivalents; none if another one is as close.

    Of equivalents, those without the bits of results that another one has are left out.
    """
    every = list(explaining)
    if not every:
        return []
    best = min(every, key=lambda each: each.distance)
    close = [each for each in every if each.distance <= AMBIGUOUS * best.distance]
    if not all(_equivalent(best, each) for each in close):
        return []
    return [each for each in close if not any(_is_likelier(other, each) for other in close)]


def _is_likelier(one: Candidate, other: Candidate) -> bool:
    shared = one.matches.keys() & other.matches.keys()
    masks = (
        np.concatenate([each.matches[case].same.ravel() for case in shared])
        for each in (one, other)
    )
    return is_likelier(*masks)


def without_repeats(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates that are different computations."""
    named: list[Candidate] = []
    for each in candidates:
        if not any(_is_repeated(each, other) for other in named):
            named.append(each)
    return named


def _is_repeated(one: Candidate, other: Candidate) -> bool:
    """Return True if two hypotheses are the same computation.

    float16 and TF32 have the same precision; only their ranges differ, which few cases show.
    Blocks of 128 and of 256 are the same in cases whose sizes have the same remainder.
    """
    by_type = one.cause.id.replace("TF32", "float16") == other.cause.id
    by_number = one.cause.differs_in_numbers(other.cause)
    return not by_type and not by_number and _equivalent(one, other, relative=EQUAL_IN_FLOAT64)


def _equivalent(one: Candidate, other: Candidate, relative: float = 0.0) -> bool:
    """Return True if two hypotheses agree in all cases, within the tolerance or `relative`.

    The relative distance is that from elements of the size of their row: terms may cancel.
    """
    with np.errstate(all="ignore"):
        for case, mine in one.matches.items():
            theirs = other.matches.get(case)
            tolerance = relative * sizes_of(mine.values) if relative else mine.tolerance
            if theirs and not (distance(mine.values, theirs.values) <= tolerance).all():
                return False
    return True
