"""Errors that no hypothesis explains as a whole are described, and similar ones are not."""

from collections.abc import Callable

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.causes import Cause
from truenorm.verify.diagnosis import patterns
from truenorm.verify.diagnosis.accuracy import MANY_ELEMENTS, UNKNOWN, Diagnosis
from truenorm.verify.diagnosis.matches import Evidence
from truenorm.verify.grading.symptoms import measure
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.types import Array, Float64s, dtype_of

SMALL = 2**13
Kernel = Callable[[Case], Float64s]


def evidence_of(kernel: Kernel, *kinds: str, output: str = "y", wrong: int = 3) -> list[Evidence]:
    evidence = []
    for case in tv.cases("float32"):
        if case.kind in kinds and case.x.size <= SMALL:
            exact = expected(case)
            with np.errstate(all="ignore"):
                result = np.asarray(kernel(case)).astype(dtype_of(exact.types[output]))
            needs = measure(exact, output, result).needs
            evidence.append(Evidence(case, output, result, needs < wrong))
    return evidence


def described(kernel: Kernel, output: str = "y") -> Diagnosis:
    evidence = evidence_of(kernel, "ordinary", output=output)
    return patterns.describe(evidence, tv.LAYER_NORM.knowledge.hypotheses(output))


def exact_y(case: Case) -> Float64s:
    return expected(case).wide["y"].copy()


def in_float32(variance: Callable[[Array, Array], Array]) -> Kernel:
    """Return layer norm with a mean in float64, and another variance."""

    def y(case: Case) -> Float64s:
        x: Float64s = case.x.astype(np.float64)
        c = x - x.mean(axis=1, keepdims=True)
        r = 1 / np.sqrt(variance(x, c) + case.eps)
        return np.asarray(c * r * case.gamma.astype(np.float64) + case.beta.astype(np.float64))

    return y


def one_pass(x: Float64s, _: Float64s) -> Float64s:
    square, mean = (each.astype(np.float32) for each in (x * x, x))
    difference = square.mean(axis=1, keepdims=True) - mean.mean(axis=1, keepdims=True) ** 2
    return np.asarray(np.maximum(difference, 0).astype(np.float64))


def off_like_kappa(x: Float64s, c: Float64s) -> Float64s:
    w = (c * c).mean(axis=1, keepdims=True)
    return np.asarray(w + 2.0**-21 * np.sqrt(w * (x * x).mean(axis=1, keepdims=True)))


def test_one_pass_variance_is_told_by_the_square_of_kappa() -> None:
    growth = patterns.describe_growth(evidence_of(in_float32(one_pass), "sweep", "hard", wrong=1))
    assert growth.ids == ("one-pass",)
    assert growth.shares["float32-offset-1e3-4x67"] > 0.99
    assert growth.shares["float32-constant-4x67"] < 0.5
    near = patterns.describe_growth(evidence_of(in_float32(off_like_kappa), "sweep", wrong=1))
    assert near == UNKNOWN


def with_shift(roundings: float) -> Kernel:
    """Return y with a mean that is off by some roundings of float32."""

    def y(case: Case) -> Float64s:
        x: Float64s = case.x.astype(np.float64)
        mean = x.mean(axis=1, keepdims=True)
        shift = roundings * 2.0**-24 * mean * expected(case).scales.kappa
        root = np.sqrt((x * x).mean(axis=1, keepdims=True))
        error = case.gamma.astype(np.float64) * shift / np.maximum(root, 1e-30)
        return np.asarray(exact_y(case) + error)

    return y


def test_mean_in_one_number_is_told_by_kappa() -> None:
    growth = patterns.describe_growth(evidence_of(with_shift(1), "sweep", wrong=1))
    assert growth.ids == ("mean-in-one-number",)
    assert growth.shares["float32-offset-1e4-4x67"] > 0.99
    assert growth.shares["float32-offset-1-4x67"] < 0.9
    more = patterns.describe_growth(evidence_of(with_shift(99), "sweep", wrong=1))
    assert more == UNKNOWN


def product_of_the_mean_rounded(case: Case) -> Float64s:
    """Return y as gamma*(x*r + b), where b = -mean*r is rounded to float32, as in ncnn."""
    x: Float64s = case.x.astype(np.float64)
    mean = x.mean(axis=1, keepdims=True)
    r = 1 / np.sqrt(x.var(axis=1, keepdims=True) + case.eps)
    b = (-mean * r).astype(np.float32).astype(np.float64)
    return np.asarray(case.gamma.astype(np.float64) * (x * r + b) + case.beta)


def test_a_row_that_any_shift_fits_does_not_show_that_the_mean_is_rounded() -> None:
    """The mean of one element is the element: it is exact in one number."""
    growth = patterns.describe_growth(
        evidence_of(product_of_the_mean_rounded, "sweep", "hard", wrong=1)
    )
    assert growth.ids == ("mean-in-one-number",)
    assert growth.shares["float32-offset-1e4-4x67"] > 0.99
    assert growth.shares["float32-one-element-large-gamma"] == 0.0


@pytest.mark.parametrize(("columns", "place", "words"), [
    (lambda j, size: j >= size - size % 8, "columns-from-last-multiple(8)", "from D - D % 8 on"),
    (lambda j, _: j >= 64, "columns-from(64)", "the columns from 64 on"),
    (lambda j, size: j == size - 1, "last-column", "the last column"),
    (lambda j, _: j % 16 == 15, "last-of-every-columns(16)", "the last of every 16 columns"),
])  # fmt: skip
def test_wrong_columns(columns: Callable[[Array, int], Array], place: str, words: str) -> None:
    def kernel(fill: float, case: Case) -> Float64s:
        y = exact_y(case)
        place = np.arange(y.shape[1])
        y[:, columns(place, len(place))] *= fill
        return y

    zeros = described(lambda case: kernel(0.0, case))
    assert zeros.ids == (f"nothing-written@{place}",)
    assert zeros.words().startswith("in the ")
    assert f"{words}, " in zeros.words()
    assert zeros.words().endswith("y is right elsewhere)")
    unknown = described(lambda case: kernel(-3.0, case))
    assert unknown.ids == (f"wrong@{place}",)


@pytest.mark.parametrize("spread", [0.0, 4e-5, 0.04])
def test_a_factor_within_its_spread_of_zero_is_zero(spread: float) -> None:
    multiples = -1 + spread * np.array([-0.5, 0.01, 0.5])
    assert patterns.factor_in_words(multiples) == ": it is 0, as after an overflow"
    assert patterns.factor_in_words(multiples + 0.05).startswith(" by a factor of 0.05")


def with_few_bits(worse: float, bits: int = 14) -> Kernel:
    """Return y with errors of 2^-bits; those of cases with few elements are larger."""
    random = np.random.default_rng(7)

    def y(case: Case) -> Float64s:
        size = 2.0**-bits * (worse if case.x.size < MANY_ELEMENTS else 1)
        return np.asarray(exact_y(case) * (1 + size * random.choice([-1, 1], case.shape)))

    return y


def test_few_correct_bits_are_told_unless_small_cases_have_fewer() -> None:
    """Paddle's losses have 64 in place of 7063, in cases of four rows, and are right elsewhere."""
    (cause,) = described(with_few_bits(1.0)).causes
    assert cause.id == "few-bits"
    assert "about 14 correct bits" in cause.words
    assert described(with_few_bits(1e4)) == UNKNOWN


def test_bits_are_those_of_the_numbers_not_of_their_steps() -> None:
    """As of a tanh in float16: the natural scale does not fall where a result does."""
    random = np.random.default_rng(7)

    def y(case: Case) -> Float64s:
        error = 2.0**-14 * random.normal(size=case.shape)
        return np.asarray(exact_y(case) + error * np.abs(exact_y(case)).max())

    assert described(y) == UNKNOWN


@pytest.mark.parametrize(("bits", "told"), [(20, True), (26, False)])
def test_a_precision_is_told_if_it_is_less_than_that_of_the_type(bits: int, told: bool) -> None:
    evidence = evidence_of(with_few_bits(1.0, bits), "ordinary")
    errors = [patterns.Errors.of(each) for each in evidence]
    assert bool(patterns._describe_precision(errors)) == told


def test_two_wrong_terms_are_not_called_one() -> None:
    random = np.random.default_rng(6)
    assert described(lambda case: exact_y(case) * random.uniform(0.8, 1.2, case.shape)) == UNKNOWN


def test_parameters_of_an_earlier_call() -> None:
    """Only if two results are right with those of an earlier case of the same shape."""
    suite = [case for case in tv.cases("float32") if case.shape == (4, 67)][:3]
    first = suite[0]
    y = tv.LAYER_NORM.knowledge.error_patterns("y").mixtures[Cause("gamma", "")]
    evidence = [Evidence(first, "y", exact_y(first).astype(np.float32), correct=True)]
    evidence += [
        Evidence(case, "y", y(first, case).astype(np.float32), correct=False) for case in suite[1:]
    ]
    stale = patterns.describe_stale(evidence)
    assert stale is not None
    assert stale.ids == ("earlier-calls:of(gamma)",)
    assert patterns.describe_stale(evidence[:2]) is None
    assert patterns.describe_stale([evidence[1], evidence[0], evidence[2]]) is None
