"""Sums of square roots of different rationals: classes, cancellation, order."""

import itertools
from fractions import Fraction

import numpy as np

from truenorm.exact import FLOAT32, FLOAT64, InverseRoot, Term, round_sum_of_roots


def one_over_root_of(w: Fraction | int) -> InverseRoot:
    w = Fraction(w)
    return InverseRoot(w.numerator, w.denominator)


def term(coefficient: Fraction | int, w: Fraction | int) -> Term:
    coefficient = Fraction(coefficient)
    return Term(coefficient.numerator, coefficient.denominator, one_over_root_of(w))


def test_rational_roots_are_decided_exactly() -> None:
    """1/2 + 1/3 + 1/6 = 1, from roots of 4, 9 and 36."""
    assert round_sum_of_roots([term(1, 4), term(1, 9), term(1, 36)], FLOAT32) == 1.0
    tie = [term(1, 4), term(1, 9), term(1, 36), term(Fraction(1, 2**24), 1)]
    assert round_sum_of_roots(tie, FLOAT32) == 1.0


def test_a_class_that_cancels() -> None:
    """1/sqrt(2) - 2/sqrt(8) = 0: one class, rational ratio 2."""
    assert round_sum_of_roots([term(1, 2), term(-2, 8)], FLOAT64) == 0.0
    left = [term(1, 2), term(-2, 8), term(Fraction(-1, 3), 1)]
    assert round_sum_of_roots(left, FLOAT64) == -1 / 3


def test_nearly_cancelling_classes_stay_apart() -> None:
    """1/sqrt(w) - 1/sqrt(w + 2**-900) is about 2**-901: not zero, and its digits are right."""
    tiny = Fraction(1, 2**900)
    difference = round_sum_of_roots([term(1, 2), term(-1, 2 + tiny)], FLOAT64)
    assert difference == np.ldexp(np.sqrt(0.5) / 4, -900)


def test_order_does_not_matter() -> None:
    terms = [term(Fraction(k, 7), w) for k, w in [(3, 2), (-5, 3), (2, 8), (1, 12), (-1, 1)]]
    results = {round_sum_of_roots(order, FLOAT64) for order in itertools.permutations(terms)}
    assert len(results) == 1


def test_fingerprints_agree_within_a_class() -> None:
    for square in (4, 9, 49, 121, 3**2 * 5**2):
        same = one_over_root_of(6).fingerprint, one_over_root_of(6 * square).fingerprint
        assert same[0] == same[1]
    assert one_over_root_of(2).fingerprint != one_over_root_of(3).fingerprint


def test_no_terms_and_zero_terms() -> None:
    assert round_sum_of_roots([], FLOAT32) == 0.0
    assert round_sum_of_roots([term(0, 2)], FLOAT32) == 0.0
