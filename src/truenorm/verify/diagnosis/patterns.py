"""Describe the errors of a result that no hypothesis explains as a whole.

The description says which elements are wrong, which intermediate result must be wrong, that the
input of another call was used, or how the error grows with kappa.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.tools.text import number
from truenorm.verify.causes import EARLIER_CALLS, Cause
from truenorm.verify.diagnosis.accuracy import (
    MANY_ELEMENTS,
    MIN_CASES,
    UNKNOWN,
    Diagnosis,
    best,
    candidates,
    described_by,
    is_large,
    with_subject,
)
from truenorm.verify.diagnosis.matches import (
    Evidence,
    compare_with_hypotheses,
    distance,
    explained_share,
)
from truenorm.verify.distinctions import LISTED, distinguishing_size
from truenorm.verify.operation import Case, ErrorTerms, Growth, Hypothesis, Mixture
from truenorm.verify.oracle import FLOAT32_ROUNDOFF, expected
from truenorm.verify.types import FORMATS, Array, Float64s, unit_roundoff

Mask = NDArray[np.bool_]
TOLERATED = 2
"""The power of kappa of errors that count as right: the symptom is beyond it."""
WRONG_SHARE = 0.9
"""Share of the elements of a region that must be wrong: some are right by chance."""
CLEARLY_WRONG = 4.0
"""Least median error in a region, relative to the tolerance."""
MIN_SIZES = 3
"""Sizes at which a result must be right for a rule of sizes."""
ALIKE = 4.0
"""Largest ratio of errors that are alike in all cases."""
LEAST_PRECISE = 2.0**-6
"""Larger errors are not called a matter of precision."""
BLOCKS = tuple(2**k for k in range(1, 14))
SPARE = 4
"""A fit must leave at least this many elements of each row, or column, to test it."""
EQUAL_FACTORS = 0.05
"""Largest difference between relative errors that are taken for one factor."""
RIDGE = 1e-12
"""What is added to the diagonal of a fit, relative to its trace."""
CONTRAST = 16.0
"""Least error, relative to the tolerance, of which a fit of multiples says something."""


Rule = Callable[[int, Array, int], Array]
"""Selects indices along an axis, from a block size, the indices and the length of the axis."""
RULES: dict[Cause, Rule] = {
    Cause("last-{name}", "the last {name}"): lambda _, at, size: at == size - 1,
    Cause("first-{name}", "the first {name}"): lambda _, at, __: at == 0,
    Cause("second-half-of-{name}s", "the second half of the {name}s"): lambda _, at, size: (
        at >= size // 2
    ),
}
BLOCK_RULES: dict[Cause, Rule] = {
    Cause("{name}s-from({n})", "the {name}s from {n} on"): lambda n, at, _: at >= n,
    Cause(
        "{name}s-from-last-multiple({n}, longer)",
        "the {name}s from {N} - {N} % {n} on, where {N} > {n}",
    ): lambda n, at, size: (at >= size - size % n) & (size > n),
    Cause(
        "{name}s-from-last-multiple({n})", "the {name}s from {N} - {N} % {n} on"
    ): lambda n, at, size: at >= size - size % n,
    Cause("last-of-every-{name}s({n})", "the last of every {n} {name}s"): lambda n, at, _: (
        at % n == n - 1
    ),
    Cause(
        "first-of-every-{name}s({n})", "the first of every {n} {name}s but {name} 0"
    ): lambda n, at, _: (at % n == 0) & (at > 0),
}
"""Elements that a kernel may treat otherwise, by their index along an axis of length N."""
AXES = {"row": "N", "column": "D"}


class Region(NamedTuple):
    """Whole rows (`axis` 0) or whole columns (`axis` 1) of a result, in which a cause acts."""

    place: Cause
    axis: int
    rule: Rule
    block: int

    def mask(self, case: Case, shape: tuple[int, ...]) -> Mask:
        """Return the elements of a result of this shape that are in the region."""
        rows = shape if len(shape) > 1 else (case.shape[0], *shape)
        place = np.arange(rows[self.axis])
        selected = self.rule(self.block, place, len(place))
        mask = np.broadcast_to(np.expand_dims(selected, 1 - self.axis), rows)
        return mask if len(shape) > 1 else mask[0]


def _regions(axis: int) -> Iterator[Region]:
    name, length = list(AXES.items())[axis]
    for place, rule in RULES.items():
        yield Region(place.of(name=name), axis, rule, 1)
    for n in BLOCKS:
        for place, rule in BLOCK_RULES.items():
            yield Region(place.of(name=name, N=length, n=n), axis, rule, n)


ROWS, COLUMNS = (tuple(_regions(axis)) for axis in (0, 1))


class Errors(NamedTuple):
    """The errors of one result, relative to the tolerance; above 1 it is wrong."""

    evidence: Evidence
    excess: Float64s  # rows of elements
    wrong: Mask

    @classmethod
    def of(cls, evidence: Evidence) -> "Errors":
        """Measure a result."""
        exact, output = expected(evidence.case), evidence.output
        with np.errstate(all="ignore"):
            error = distance(evidence.result.astype(np.float64), exact.wide[output])
            excess = np.atleast_2d(error / exact.allowed(output, TOLERATED))
        return cls(evidence, excess, excess > 1)


def describe(evidence: Sequence[Evidence], hypotheses: Mapping[Cause, Hypothesis]) -> Diagnosis:
    """Describe which elements, or which intermediate results, are wrong on ordinary input."""
    errors = [Errors.of(each) for each in evidence if each.result.size]
    small = [each for each in errors if not is_large(each.evidence)]
    wrong = [each for each in small if each.wrong.any()]
    if len(wrong) < MIN_CASES:
        return UNKNOWN
    return (
        _describe_region(errors, small, hypotheses)
        or _describe_terms(small)
        or _describe_sizes(errors)
        or _describe_precision(small)
        or UNKNOWN
    )


def _describe_precision(errors: Sequence[Errors]) -> Diagnosis | None:
    """Return how many bits are right, if it is the same number in all cases.

    Cases of few elements are not measured; they must not be worse.
    """
    sizes, others = [], [0.0]
    for each in errors:
        case, output = each.evidence.case, each.evidence.output
        exact = expected(case)
        with np.errstate(all="ignore"):
            error = each.evidence.result.astype(np.float64) - exact.wide[output]
            relative = error / exact.wide[output]
            size = float(np.median(np.abs(relative)))
            once = exact.wide[output] / exact.number(output) - 1
            of_rounding = float(np.median(np.abs(once)))
        if each.evidence.result.size < MANY_ELEMENTS:
            others += [size] if each.wrong.any() else []
            continue
        sizes.append(size)
        if not abs(np.mean(np.sign(relative))) < 0.5:
            return None  # it is too large, or too small: not a matter of precision
        if not size > ALIKE * of_rounding:
            return None  # most elements are as precise as their type
    if len(sizes) < MIN_CASES or not max(sizes) <= min(ALIKE * min(sizes), LEAST_PRECISE):
        return None
    if not max(others) <= ALIKE * max(sizes):
        return None
    bits = round(-np.log2(np.median(sizes)))
    words = f"all elements of {output} have about {bits} correct bits, whatever D and eps are"
    return described_by(Cause("few-bits", words))


def _describe_sizes(errors: Sequence[Errors]) -> Diagnosis | None:
    wrong = [each for each in errors if each.wrong.any()]
    # Most elements must be wrong: else it may be a matter of values, of which few rows have none.
    clear = all(np.median(each.excess) >= CLEARLY_WRONG for each in wrong)
    sizes = _sizes(errors)
    output = errors[0].evidence.output
    if not (sizes and clear):
        return None
    return described_by(Cause("wrong-at-sizes", f"{output} is wrong only where {sizes}"))


def _sizes(errors: Sequence[Errors]) -> str:
    """Return the rule by which a size tells wrong results from right ones, if there is one."""
    wrong = [each.evidence.case for each in errors if each.wrong.any()]
    controls = [each.evidence.case for each in errors if not each.wrong.any()]
    sizes = distinguishing_size(wrong, controls)
    if any(len({case.shape[axis] for case in controls}) < MIN_SIZES for axis in (0, 1)):
        return ""
    # An error may fade with D, and wide cases have equal rows: an upper limit says nothing.
    least = min(case.shape[1] for case in (*wrong, *controls))
    return "" if LISTED in sizes or sizes.startswith(f"D is from {least} to") else sizes


def _describe_region(
    errors: Sequence[Errors], small: Sequence[Errors], hypotheses: Mapping[Cause, Hypothesis]
) -> Diagnosis | None:
    """Name the region outside of which a result is right, and what it holds inside."""
    output = errors[0].evidence.output
    by_rows = errors[0].evidence.case.operation.is_rows(output)
    shares = {
        region: share
        for region in (*COLUMNS, *(ROWS if by_rows else ()))
        if (share := _share_wrong(errors, region)) >= WRONG_SHARE
    }
    if not shares:
        return None
    region = max(shares, key=lambda each: shares[each])
    order = sorted((each.evidence for each in small), key=lambda each: each.correct)
    place = region.place
    inside = {
        Cause(f"{cause.id}@{place.id}", cause.words): partial(_inside, region, output, hypothesis)
        for cause, hypothesis in {**hypotheses, Cause("nan", "it is NaN"): _nan}.items()
    }
    chosen = best(candidates(inside.items(), order, TOLERATED))
    if chosen:
        return UNKNOWN._replace(output=output, place=place.words).naming(chosen)
    return described_by(Cause(f"wrong@{place.id}", f"{output} is wrong only in {place.words}"))


def _nan(_: Case) -> Float64s:
    return np.full(1, np.nan)


def _inside(region: Region, output: str, hypothesis: Hypothesis, case: Case) -> Float64s:
    """Return the exact answer, with a hypothesis in a region."""
    exact = expected(case).wide[output]
    return np.where(region.mask(case, exact.shape), hypothesis(case), exact)


def _share_wrong(errors: Sequence[Errors], region: Region) -> float:
    """Return the share of wrong elements in a region; 0 if it does not describe them."""
    inside = wrong = cases = 0
    is_part = False
    excess = []
    for each in errors:
        if region.axis == 0 and each.evidence.case.shape[0] == each.evidence.case.repeats:
            continue  # its rows are equal, and one may stand for another
        mask = np.atleast_2d(region.mask(each.evidence.case, each.evidence.result.shape))
        if (each.wrong & ~mask).any():
            return 0.0
        count = int(each.wrong.sum())
        inside, wrong, cases = inside + int(mask.sum()), wrong + count, cases + (count > 0)
        is_part |= count > 0 and not mask.all()
        excess.append(each.excess[each.wrong])
    clear = wrong and np.median(np.concatenate(excess)) >= CLEARLY_WRONG
    return wrong / inside if inside and cases >= MIN_CASES and is_part and clear else 0.0


def describe_stale(evidence: Sequence[Evidence]) -> Diagnosis | None:
    """Name what is taken from an earlier call, if that explains every wrong result.

    The evidence must be in the order of the calls.
    """
    small = [each for each in evidence if each.result.size and not is_large(each)]
    wrong = [k for k, each in enumerate(small) if not each.correct]
    if len(wrong) < MIN_CASES:
        return None
    output = small[0].output
    for step, mixture in small[0].case.operation.knowledge.error_patterns(output).mixtures.items():
        telling = (_telling_of_earlier(small[k], small[:k], mixture) for k in wrong)
        counts = list(takewhile(bool, telling))
        if len(counts) == len(wrong) and max(counts) >= MANY_ELEMENTS:
            words = f"{with_subject(step.words, output)} of an earlier call with the same sizes"
            return described_by(Cause(f"{EARLIER_CALLS}of({step.id})", words))
    return None


def _telling_of_earlier(each: Evidence, earlier: Sequence[Evidence], mixture: Mixture) -> int:
    """Return how many elements show that something of an earlier case was used, or 0."""
    others = [other.case for other in earlier if other.case.shape == each.case.shape]
    # A cache keeps one of the first calls, or one of the last.
    for other in (*others[:MIN_CASES], *others[:MIN_CASES:-1][:MIN_CASES]):
        hypothesis = Cause(EARLIER_CALLS, ""), partial(mixture, other)
        (match,) = compare_with_hypotheses(each, [hypothesis], TOLERATED)
        if match.fits and match.telling:
            return match.telling
    return 0


def _describe_terms(errors: Sequence[Errors]) -> Diagnosis | None:
    """Name the intermediate result by whose error all wrong results are explained."""
    evidence = errors[0].evidence
    every = evidence.case.operation.knowledge.error_patterns(evidence.output).error_terms
    for count in (1, 2):
        fits = [
            (each, fitted)
            for each in every
            if len(each.terms) == count and (fitted := _fit_terms(errors, each)) is not None
        ]
        if len(fits) == 1:
            ((terms, (multiples, shares)),) = fits
            return Diagnosis((_cause_of_terms(errors, terms, multiples),), 0, shares)
        if fits:
            return None
    return None


def _cause_of_terms(errors: Sequence[Errors], terms: ErrorTerms, multiples: Float64s) -> Cause:
    output, each = errors[0].evidence.output, "row" if terms.axis else "column"
    amount = factor_in_words(multiples) if terms.is_factor else ""
    are = "are" if len(terms.terms) > 1 else "is"
    words = f"in wrong {each}s, {terms.words} {are} wrong{amount}; the rest of {output} is right"
    sizes = _sizes(errors)
    return Cause(f"wrong-step({terms.steps})", f"where {sizes}, {words}" if sizes else words)


def factor_in_words(multiples: Float64s) -> str:
    """Return by which factor a result is wrong, given its relative errors.

    The cases of a fit are some of those that fail: a range of factors would be theirs alone. A
    factor within its own spread of 0 is 0, as in a row that is divided by infinity.
    """
    spread = float(np.ptp(multiples))
    if spread > EQUAL_FACTORS * np.abs(multiples).max():
        return ", by factors that differ"
    error = float(np.median(multiples))
    if abs(1 + error) <= spread + 2 * RIDGE:
        return ": it is 0, as after an overflow"
    factor = f"{1 + error:.4g}"
    if factor == "1":
        factor = f"1 {'-' if error < 0 else '+'} {number(abs(error))}"
    return f" by a factor of {factor}"


def _fit_terms(
    errors: Sequence[Errors], terms: ErrorTerms
) -> tuple[Float64s, dict[str, float]] | None:
    """Fit multiples of terms to errors; return None without a fit.

    Return the multiples of the first term in wrong rows, and the share of the errors of each case
    that the fit explains.
    """
    fitted, cases, shares = [], 0, {}
    for each in errors:
        case, output = each.evidence.case, each.evidence.output
        once = case.shape[0] // case.repeats
        if (once, case.shape[1])[terms.axis] < len(terms.terms) + SPARE:
            continue
        exact = expected(case)
        with np.errstate(all="ignore"):
            error = (each.evidence.result.astype(np.float64) - exact.wide[output])[:once]
            tolerance = exact.allowed(output, TOLERATED)[:once]
            parts = [term(case)[:once] for term in terms.terms]
        if not terms.axis:
            error, tolerance, parts = error.T, tolerance.T, [part.T for part in parts]
        multiples, rest = fit(parts, error, tolerance)
        if not (np.abs(rest) <= tolerance * np.maximum(1, 1 + np.abs(multiples).max())).all():
            return None
        changed = (np.abs(error) > CONTRAST * tolerance).any(axis=1)
        cases += bool(changed.any())
        fitted.append(multiples[changed, 0])
        shares[case.name] = explained_share(error / tolerance, rest / tolerance)
    return (np.concatenate(fitted), shares) if cases >= MIN_CASES else None


def fit(
    parts: Sequence[Float64s], error: Float64s, tolerance: Float64s
) -> tuple[Float64s, Float64s]:
    """Fit a sum of multiples of arrays to each row of errors; return the multiples and the rest.

    NaN errors have NaN multiples.
    """
    basis = np.stack([part / tolerance for part in parts], axis=-1)
    target = np.where(np.isfinite(error), error, np.nan) / tolerance
    normal = np.einsum("rdi,rdj->rij", basis, basis)
    scale = np.trace(normal, axis1=1, axis2=2)[:, np.newaxis, np.newaxis]
    normal += RIDGE * np.where(scale > 0, scale, 1.0) * np.eye(len(parts))
    right = np.einsum("rdi,rd->ri", basis, target)
    multiples = np.linalg.solve(normal, right[..., np.newaxis])[..., 0]
    rest = error - np.einsum("rdi,ri->rd", basis, multiples) * tolerance
    return multiples, rest


class _RowErrors(NamedTuple):
    """What the fit of `Growth.terms` to a row leaves: multiples, the rest, and kappa.

    `shares` are the shares of the error of the case that each term explains, and the rest. They
    are 0 in rows of few elements, which any terms fit.
    """

    multiples: Float64s  # (rows, terms)
    rest: Float64s  # root mean square of what no term explains, relative to the last term
    kappa: Float64s
    visible: Float64s  # least multiple that rounding does not explain
    shares: tuple[float, ...]


def describe_growth(evidence: Sequence[Evidence]) -> Diagnosis:
    """Name the cause of errors that grow with kappa, from what they have in common in a row."""
    growth = evidence[0].case.operation.knowledge.error_patterns(evidence[0].output).growth
    small = [each for each in evidence if each.result.size and not is_large(each)]
    if growth is None or not small:
        return UNKNOWN
    rows = [_row_errors(each, growth) for each in small]
    multiples, rest, kappa, visible = (
        np.concatenate(each) for each in zip(*(row[:4] for row in rows), strict=True)
    )
    unit = min(FLOAT32_ROUNDOFF, unit_roundoff(evidence[0].case.dtype))
    grows = partial(_grows, kappa, visible, unit)
    causes = [
        cause if grows(np.abs(multiples[:, k]), power) else None
        for k, (power, cause) in enumerate(zip(growth.powers, growth.causes, strict=True))
    ]
    causes.append(growth.rest if grows(rest, 1) else None)
    # A larger power of kappa hides smaller ones. Errors of single elements add up to a shift.
    for k in (0, 2, 1):
        if cause := causes[k]:
            shares = zip(small, (row.shares[k] for row in rows), strict=True)
            return Diagnosis((cause,), 0, {each.case.name: share for each, share in shares})
    return UNKNOWN


def describe_overflow(evidence: Sequence[Evidence], causes: Sequence[Cause]) -> Cause | None:
    """Return why results are not finite, if their squares overflow; or a variance is negative.

    `causes` are those of errors that grow with kappa: they may also explain rows of large kappa.
    """
    growth = evidence[0].case.operation.knowledge.error_patterns(evidence[0].output).growth
    # Only the largest power of kappa makes a result NaN.
    cancels = growth.causes[0] if growth and growth.causes[0] in causes else None
    unit = unit_roundoff(computed_in(evidence[0].case))
    overflowing = cancelling = 0
    for each in evidence:
        exact = expected(each.case)
        finite = np.isfinite(each.result.astype(np.float64))
        lost = (np.isfinite(exact.wide[each.output]) & ~finite).any(axis=-1)
        beyond = _squares(each.case) >= _limit(each.case) / 2
        with np.errstate(all="ignore"):
            ill = unit * np.resize(exact.scales.kappa[:, 0], lost.shape) ** 2 >= NEGATIVE
        if (lost & ~beyond & ~(ill if cancels else False)).any():
            return None
        overflowing += (lost & beyond).sum()
        cancelling += (lost & ~beyond).sum()
    overflow = _overflow(evidence)
    if overflowing and not overflow:
        return None
    both = [each for each in (cancels if cancelling else None, overflow) if each]
    ids, words = " + ".join(each.id for each in both), "; ".join(each.words for each in both)
    return Cause(ids, words) if both else None


def _overflow(evidence: Sequence[Evidence]) -> Cause | None:
    """Return that squares overflow, if rows whose squares do so are wrong as they must be.

    Divided by an infinite root, a row is 0 or NaN; a larger result is wrong for another reason.
    """
    seen = False
    for each in evidence:
        exact, result = expected(each.case), each.result.astype(np.float64)
        right = exact.wide[each.output]
        wrong = Errors.of(each).wrong.any(axis=-1)
        squares, limit = _squares(each.case), _limit(each.case)
        with np.errstate(all="ignore"):
            kappa = np.resize(exact.scales.kappa[:, 0], squares.shape)
            centred = squares / (1 + kappa**2) / each.case.shape[1]
            largest = np.abs(right).max(axis=-1, keepdims=True, initial=0.0)
            larger = np.isinf(result) | (np.abs(result) > 2 * largest)
        finite = np.isfinite(right).all(axis=-1)
        if (finite & (centred >= 4 * limit) & (~wrong | larger.any(axis=-1))).any():
            return None
        seen |= bool((finite & wrong & (squares >= limit / 2)).any())
    kind = computed_in(evidence[0].case)
    return Cause(f"squares-overflow({kind})", f"squares overflow in {kind}") if seen else None


def computed_in(case: Case) -> str:
    """Return the type that a kernel usually computes in."""
    return "float64" if case.dtype == "float64" else "float32"


def _limit(case: Case) -> float:
    """Return the end of the range of that type."""
    return float(np.ldexp(1.0, FORMATS[computed_in(case)].limit - 1))


def _squares(case: Case) -> Float64s:
    """Return the sum of squares of each row."""
    data = case.operation.inputs_of("data")
    with np.errstate(all="ignore"):
        rows = np.asarray(sum(np.abs(case.rows[name].astype(np.float64)) for name in data))
        return np.asarray((rows**2).sum(axis=-1))


NEGATIVE = 1 / 16
"""From u*kappa^2 on, a variance with the rounding error of the mean's square may be negative."""
MIN_ROWS = 8
"""Rows that must show how an error grows."""
LARGEST_SEEN = 0.5
"""A larger multiple is no small change of the result any more, and has stopped growing."""
MIN_GROWTH = 10.0
"""Least ratio of their largest kappa to the smallest."""
ROUNDINGS = (1 / 32, 16.0)
"""Errors relative to u times the power of kappa: their geometric mean is at least, each of them
is at most so much."""


def _grows(kappa: Float64s, visible: Float64s, unit: float, errors: Float64s, power: int) -> bool:
    """Return True if errors are roundings that a power of kappa magnifies, and no smaller one."""
    known = np.isfinite(errors)
    seen = known & (errors > visible) & (errors < LARGEST_SEEN)
    if seen.sum() < MIN_ROWS or kappa[seen].max() < MIN_GROWTH * kappa[seen].min():
        return False
    least, most = ROUNDINGS
    largest = most * unit * (1 + kappa[known]) ** power
    if (errors[known] > np.where(largest < LARGEST_SEEN, largest, np.inf)).any():
        return False
    relative = errors[seen] / (unit * kappa[seen] ** power)
    by_less = errors[seen] / (unit * (1 + kappa[seen]) ** (power - 1))
    typical = float(np.exp(np.log(relative).mean()))
    return least <= typical <= most and bool((by_less > most).any())


def _row_errors(evidence: Evidence, growth: Growth) -> _RowErrors:
    case, output = evidence.case, evidence.output
    once = case.shape[0] // case.repeats
    exact = expected(case)
    with np.errstate(all="ignore"):
        error = (evidence.result.astype(np.float64) - exact.wide[output])[:once]
        parts = [term(case)[:once] for term in growth.terms]
        size = np.maximum(np.abs(parts[-1]), np.finfo(np.float64).tiny)
        multiples, rest = fit(parts, error, size)
        visible = np.full(once, _visible(evidence))
        wide = case.shape[1] >= len(parts) + SPARE
        spare = wide & (_squares(case)[:once] < _limit(case) / 2)
        explained = [multiples[:, [k]] * part for k, part in enumerate(parts)]
        shares = [
            explained_share(error / size, (error - each) / size) if wide else 0.0
            for each in (*explained, rest)
        ]
        multiples = np.where(spare[:, np.newaxis], multiples, np.nan)
        rest = np.sqrt((rest**2).sum(axis=1) / (size**2).sum(axis=1))
        rest = np.where(spare, rest, np.nan)
    return _RowErrors(multiples, rest, exact.scales.kappa[:once, 0], visible, tuple(shares))


def _visible(evidence: Evidence) -> float:
    """Return the multiple above which an error is not the rounding of the result."""
    unit = expected(evidence.case).unit(evidence.output)
    return float(CONTRAST * max(unit / np.sqrt(evidence.case.shape[1]), min(unit, 2.0**-24)))
