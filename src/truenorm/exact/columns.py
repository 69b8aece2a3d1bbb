"""Sums over rows in integers: dgamma is a sum of square roots of different rationals (D8)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from truenorm.exact.formats import FloatFormat
from truenorm.exact.roots import InverseRoot
from truenorm.exact.rounding import round_ratio

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = ["Term", "round_sum_of_roots"]


class Term(NamedTuple):
    """One row's share of a column: (numerator/denominator)*root, with denominator > 0."""

    numerator: int
    denominator: int
    root: InverseRoot


def round_sum_of_roots(terms: Sequence[Term], target: FloatFormat) -> float:
    """Round the sum of the terms to the target type.

    Terminates: two roots are in one class if their ratio is rational. Roots of different classes
    are linearly independent over the rationals (Besicovitch 1940), so once each class is added
    up, the sum is rational only if no irrational class is left; then it is rounded as a ratio.
    Otherwise it is irrational, neither zero nor a tie, and shrinking brackets decide.
    """
    terms = [term for term in terms if term.numerator]
    rounded = _round_if_decided(terms, 128, target)
    if rounded is not None:
        return rounded
    rational, terms = _add_classes(terms)
    if not terms:
        return round_ratio(rational.numerator, rational.denominator, target)
    terms.append(Term(rational.numerator, rational.denominator, InverseRoot(1, 1)))
    bits = 256
    while (rounded := _round_if_decided(terms, bits, target)) is None:
        bits *= 2
    return rounded


def _round_if_decided(terms: Sequence[Term], bits: int, target: FloatFormat) -> float | None:
    """Bracket the sum to `bits` below its largest term; round it if both ends round alike."""
    largest = max((_magnitude(term) for term in terms if term.numerator), default=0)
    place = bits - largest
    low = high = 0
    for term in terms:
        # Guard bits for the root, so that a bracket of one unit of it is below one of the sum.
        root_place = bits - term.root.magnitude + 2
        below = term.root.scaled(root_place)
        ends = sorted(term.numerator * root for root in (below, below + 1))
        shift = place - root_place
        up, down = max(0, shift), max(0, -shift)
        low += (ends[0] << up) // (term.denominator << down)
        high -= -(ends[1] << up) // (term.denominator << down)
    if low <= 0 <= high:
        return None
    up, unit = max(0, -place), 1 << max(0, place)
    rounded = round_ratio(low << up, unit, target)
    return rounded if rounded == round_ratio(high << up, unit, target) else None


def _magnitude(term: Term) -> int:
    """Return the exponent of a term, to within two."""
    coefficient = term.numerator.bit_length() - term.denominator.bit_length()
    return coefficient + term.root.magnitude


def _add_classes(terms: Sequence[Term]) -> "tuple[Fraction, list[Term]]":
    """Add up the terms of each class; return the rational one and what is left of the others."""
    from fractions import Fraction  # slow to import, and most programs need no integers

    rational = Fraction(0)
    classes: dict[tuple[int, ...], list[tuple[InverseRoot, Fraction]]] = {}
    for numerator, denominator, root in terms:
        coefficient = Fraction(numerator, denominator)
        if root.rational is not None:
            rational += coefficient * Fraction(*root.rational)
            continue
        alike = classes.setdefault(root.fingerprint, [])
        for position, (first, total) in enumerate(alike):
            ratio = root.ratio_to(first)
            if ratio is not None:
                alike[position] = (first, total + coefficient * ratio)
                break
        else:
            alike.append((root, coefficient))
    left = [
        Term(total.numerator, total.denominator, root)
        for alike in classes.values()
        for root, total in alike
        if total
    ]
    return rational, left
