"""Which hypothesis is named, in which words, and when none is."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from truenorm.verify.diagnosis.evidence import Came, Held, apart, held, where
from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.oracle import FLOAT32_ROUNDOFF, expected
from truenorm.verify.types import Float64s, unit_roundoff

CASES, SEVERAL, MANY = 2, 3, 32
"""A hypothesis must be what came back, and be told from the exact answer, in several elements
each of two cases, or in many of one."""
FAR = 16.0
"""In types of 16 bits one case will do only if the hypothesis is so many times the room from the
exact answer: where it is near, there is room for another mistake."""
LARGE = 2**16
"""Elements of a case above which it takes long: it is looked at last, if something is wrong in
one that is so large."""
FLOAT64 = 2.0**-40
"""What float64 may get wrong, of a number: so near to each other, two hypotheses are one."""
DIGITS = (1, 2, 3, 4)
"""With so many a factor is said."""
CLEARLY = 2.0
"""A hypothesis that is farther off by this factor than another is not as good."""


class Cause(NamedTuple):
    """What is wrong, in words, or nothing if none fits; and how many hypotheses were tried."""

    words: str
    tried: int


UNKNOWN = Cause("", 0)


class Fit(NamedTuple):
    """A hypothesis that fits, and how well it does in each case."""

    words: str
    by_case: dict[str, Held]

    @property
    def distance(self) -> float:
        """How far off it is in the case in which that is most."""
        return max(each.distance for each in self.by_case.values())

    @property
    def ulp(self) -> float:
        """The largest that it is off, where it tells something."""
        return max(each.ulp for each in self.by_case.values() if each.tells)


def cause_of(
    came: Collection[Came], hypotheses: Mapping[str, Hypothesis], *, partly: bool
) -> Cause:
    """Name the hypothesis that fits what came back for one result, in one type.

    If none does in all cases, and `partly` allows it, one may be named that fits wherever
    something is wrong, with words that say what sets these cases apart.
    """
    none = Cause("", len(hypotheses))
    # The small ones first, where something is wrong above all: there most of them fall.
    order = sorted(came, key=lambda one: (_is_large(one), one.right, _size(one)))
    if all(one.right for one in order):
        return none
    if all(one.right for one in order if _is_large(one)):
        order = [one for one in order if not _is_large(one)]
    everywhere = (_fit(words, order, each) for words, each in hypotheses.items())
    chosen, place = _chosen([fit for fit in everywhere if fit]), ""
    if not chosen:
        chosen = [fit for words, each in _factors(order) if (fit := _fit(words, order, each))][:1]
    if not chosen:
        wrong = [one for one in order if not one.right]
        place = where(_cases(wrong), _cases(one for one in order if one.right))
        if not partly or not place or _is_large(wrong[-1]):
            return none
        there = (_fit(words, wrong, each) for words, each in hypotheses.items())
        chosen = _chosen([fit for fit in there if fit])
        if not chosen:
            return none
    return Cause(_sentence(order[0].output, chosen, place), len(hypotheses))


def _factors(order: Sequence[Came]) -> Iterator[tuple[str, Hypothesis]]:
    """Yield the exact answer times what one wrong case suggests, in few digits first."""
    wrong = [one for one in order if not one.right and not _is_large(one)]
    if not wrong:
        return
    output, case = wrong[-1].output, wrong[-1].case
    exact, result = expected(case).wide[output], wrong[-1].result.astype(np.float64)
    with np.errstate(all="ignore"):
        factor = float((result * exact).sum() / (exact * exact).sum())
    if not math.isfinite(factor):
        return
    for digits in DIGITS:
        times = float(f"{factor:.{digits}g}")
        yield f"it is multiplied by {times:g}", partial(_times, times, output)


def _times(factor: float, output: str, case: Case) -> Float64s:
    return factor * expected(case).wide[output]


def _size(came: Came) -> int:
    rows, size = came.case.shape
    return rows * size


def _is_large(came: Came) -> bool:
    return _size(came) > LARGE


def _cases(came: Iterable[Came]) -> list[Case]:
    return [one.case for one in came]


def _sentence(output: str, chosen: Sequence[Fit], place: str) -> str:
    """Return the cause in words; what several have in common is said once."""
    ulp = max(1, math.ceil(max(fit.ulp for fit in chosen)))
    first, *others = (fit.words for fit in chosen)
    start = _in_common([first, *others])
    either = ", or ".join([first, *(each.removeprefix(start) for each in others)])
    said = f"{output} is, to {ulp} ulp, what comes out if {either}"
    return f"{place}, {said}; elsewhere it is right" if place else said


def _in_common(texts: Sequence[str]) -> str:
    """Return the words with which all begin, if what follows is a phrase."""
    by_place = zip(*(text.split(" ") for text in texts), strict=False)
    start = [words[0] for words in takewhile(lambda some: len({*some}) == 1, by_place)]
    return " ".join([*start, ""]) if start[-1:] == ["is"] else ""


def _fit(words: str, order: Sequence[Came], hypothesis: Hypothesis) -> Fit | None:
    """Hold a hypothesis against all cases, until one speaks against it."""
    by_case = {}
    for came in order:
        found = held(came, hypothesis)
        if not found.known:
            continue
        if not found.fits and (found.differs or not came.right):
            return None
        if found.fits:
            by_case[came.case.name] = found
    told = [each.tells for each in by_case.values() if each.tells >= SEVERAL]
    least = 0.0 if unit_roundoff(came.case.dtype) <= FLOAT32_ROUNDOFF else FAR
    alone = any(each.tells >= MANY and each.contrast >= least for each in by_case.values())
    return Fit(words, by_case) if len(told) >= CASES or alone else None


def _chosen(fits: Sequence[Fit]) -> list[Fit]:
    """Return the nearest, and those that cannot be told from it; none if another is as near."""
    if not fits:
        return []
    best = min(fits, key=lambda fit: fit.distance)
    near = [fit for fit in fits if fit.distance <= CLEARLY * best.distance]
    if not all(_alike(best, fit) for fit in near):
        return []
    named: list[Fit] = []
    for fit in near:
        if not any(_alike(fit, other, exactly=True) for other in named):
            named.append(fit)
    return named


def _alike(one: Fit, other: Fit, *, exactly: bool = False) -> bool:
    """Tell whether two hypotheses give the same in all cases: to rounding, or in float64."""
    with np.errstate(all="ignore"):
        for case, mine in one.by_case.items():
            theirs = other.by_case.get(case)
            room = FLOAT64 * np.abs(mine.numbers) if exactly else mine.room
            if theirs and not (apart(mine.numbers, theirs.numbers) <= room).all():
                return False
    return True
