"""The one irrational number of a row: r = 1/sqrt(w), with w = numerator/denominator."""

import math
from functools import cached_property
from typing import TYPE_CHECKING

from truenorm.exact.formats import FloatFormat
from truenorm.exact.rounding import round_ratio

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = ["InverseRoot"]

ODD_PRIMES = [3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73]


class InverseRoot:
    """r = sqrt(denominator/numerator), as close as asked for, and exactly if it is rational."""

    def __init__(self, numerator: int, denominator: int) -> None:
        self.numerator = numerator
        self.denominator = denominator
        self._brackets: dict[int, int] = {}
        self._ratios: dict[InverseRoot, Fraction | None] = {}

    def scaled(self, bits: int) -> int:
        """Return the integer R with R <= r*2**bits < R + 1; bits may be negative."""
        if bits not in self._brackets:
            up, down = max(0, 2 * bits), max(0, -2 * bits)
            quotient = (self.denominator << up) // (self.numerator << down)
            self._brackets[bits] = math.isqrt(quotient)
        return self._brackets[bits]

    @cached_property
    def magnitude(self) -> int:
        """The exponent of r, to within one."""
        return (self.denominator.bit_length() - self.numerator.bit_length()) // 2

    @cached_property
    def radicand(self) -> int:
        """The integer W with r = sqrt(W)/numerator."""
        return self.numerator * self.denominator

    @cached_property
    def rational(self) -> tuple[int, int] | None:
        """Return r as (numerator, denominator) if it is rational, else None."""
        root = math.isqrt(self.radicand)
        return (root, self.numerator) if root * root == self.radicand else None

    @cached_property
    def fingerprint(self) -> tuple[int, ...]:
        """What is the same for all roots of a class, so that few pairs need a square root.

        If the product of two radicands is a square, each prime divides both to even powers or
        both to odd ones, and what is left of them is a square modulo the prime for both or
        for neither.
        """
        marks = []
        for prime in ODD_PRIMES:
            parity = 0
            rest = self.radicand
            while rest % prime == 0:
                rest //= prime
                parity ^= 1
            marks.append(2 * parity + (pow(rest % prime, (prime - 1) // 2, prime) == 1))
        return tuple(marks)

    def ratio_to(self, other: "InverseRoot") -> "Fraction | None":
        """Return this root over the other if that is rational: then they are in one class."""
        from fractions import Fraction

        if other not in self._ratios:
            product = self.radicand * other.radicand
            root = math.isqrt(product)
            # sqrt(W) = sqrt(W*V)/V * sqrt(V), with W and V the radicands
            self._ratios[other] = (
                Fraction(root * other.numerator, other.radicand * self.numerator)
                if root * root == product
                else None
            )
        return self._ratios[other]

    def round_linear(self, a: int, b: int, denominator: int, target: FloatFormat) -> float:
        """Round (a*r + b)/denominator to the target type.

        Terminates: if r is irrational and a is not 0, the value is irrational, so it is neither
        zero nor half-way between two numbers of the type. Brackets that shrink towards it end
        up on one side of every such point. If r is rational, the value is a ratio of integers.
        """
        if a == 0:
            return round_ratio(b, denominator, target)
        if self.rational is not None:
            over, under = self.rational
            return round_ratio(a * over + b * under, denominator * under, target)
        bits = 96
        while True:
            place = max(0, bits - self.magnitude)
            below = self.scaled(place)
            ends = sorted(a * root + (b << place) for root in (below, below + 1))
            if not ends[0] < 0 < ends[1]:
                low, high = (round_ratio(end, denominator << place, target) for end in ends)
                if low == high and 0 not in ends:
                    return low
            # What was not decided is nearly always next to a tie, of which eps or a term far below
            # the others keeps it away: then many more digits are needed.
            bits *= 6

    def nearest(self, a: int, denominator: int) -> int:
        """Return the integer nearest to a*r/denominator, ties to even.

        Terminates as `round_linear` does: an irrational value is no tie.
        """
        if a == 0:
            return 0
        if self.rational is not None:
            from fractions import Fraction

            over, under = self.rational
            return round(Fraction(a * over, denominator * under))
        bits = 96
        while True:
            place = max(0, bits - self.magnitude)
            below = self.scaled(place)
            unit = denominator << place
            # Halves are where the nearest integer changes.
            low, high = (2 * a * root // unit for root in (below, below + 1))
            if low == high:
                return (low + 1) // 2
            bits *= 6
