"""Exact integer arithmetic for both norms: tier 3, and the oracle of `truenorm.verify`.

All of a row is rational except r = 1/sqrt(w). So y = A*r + B and dx = N*r with rational A, B and
N, and a column of dgamma is a sum of such terms. Each result is rounded once, whatever precision
that takes; docs/learn/derivation.md has the equations.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fractions import Fraction

DIGITS = 53
ODD_PRIMES = [3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73]


@dataclass(frozen=True, eq=False)  # compared by identity, which is fast
class FloatFormat:
    """A binary floating-point type. Its finite numbers are multiples of 2**quantum.

    Attributes
    ----------
    name : str
        The name of its NumPy dtype.
    precision : int
        Bits of a normal number, including the leading one.
    quantum : int
        Exponent of the smallest positive number.
    limit : int
        Results that round to 2**limit or more are infinite.
    """

    name: str
    precision: int
    quantum: int
    limit: int


FLOAT16 = FloatFormat("float16", 11, -24, 16)
BFLOAT16 = FloatFormat("bfloat16", 8, -133, 128)
FLOAT32 = FloatFormat("float32", 24, -149, 128)
FLOAT64 = FloatFormat("float64", 53, -1074, 1024)


def scaled_integers(values: Iterable[float]) -> tuple[list[int], int]:
    """Return integers n and one k >= 0 with values = n/2**k exactly.

    Examples
    --------
    >>> scaled_integers([0.5, -3.0, 0.0])
    ([1, -6, 0], 1)
    """
    # as_integer_ratio of each value takes four times as long.
    parts = [math.frexp(value) for value in values]
    k = max([0, *(DIGITS - exponent for fraction, exponent in parts if fraction)])
    integers = [
        int(fraction * 2.0**DIGITS) << (exponent + k - DIGITS) if fraction else 0
        for fraction, exponent in parts
    ]
    bits = reduce(or_, integers, 0)
    common = min(k, (bits & -bits).bit_length() - 1) if bits else 0
    return [value >> common for value in integers], k - common


def round_ratio(numerator: int, denominator: int, target: FloatFormat) -> float:
    """Round numerator/denominator (> 0) to a number of the target type, given as a float.

    Zero gives +0.0; a non-zero ratio that rounds to zero keeps its sign. Every number of the four
    types is a float64, so the float is exact. Results from 2**limit on are infinite.

    Examples
    --------
    >>> from truenorm.exact import FLOAT32
    >>> round_ratio(1, 3, FLOAT32), round_ratio(-1, 2**200, FLOAT32)
    (0.3333333432674408, -0.0)
    """
    if numerator == 0:
        return 0.0
    sign = -1.0 if numerator < 0 else 1.0
    numerator = abs(numerator)
    # The bit lengths give the exponent of the quotient to within one; the comparison decides.
    exponent = numerator.bit_length() - denominator.bit_length()
    if numerator << max(0, -exponent) < denominator << max(0, exponent):
        exponent -= 1
    # The exponent of the last bit that the type has here.
    place = max(exponent - target.precision + 1, target.quantum)
    scaled = numerator << max(0, -place)
    unit = denominator << max(0, place)
    digits, remainder = divmod(scaled, unit)
    if 2 * remainder > unit or (2 * remainder == unit and digits & 1):
        digits += 1
    if digits.bit_length() + place > target.limit:
        return sign * math.inf
    return sign * math.ldexp(digits, place)


class InverseRoot:
    """r = sqrt(denominator/numerator): to any precision, and exactly if it is rational."""

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
        """Exponent of r, to within one."""
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
        """A key that all roots of a class share, so that few pairs need a square root.

        If the product of two radicands is a square, each prime divides both to even powers or
        both to odd ones. The cofactors are then both squares modulo the prime, or neither is.
        """
        key = []
        for prime in ODD_PRIMES:
            parity = 0
            rest = self.radicand
            while rest % prime == 0:
                rest //= prime
                parity ^= 1
            key.append(2 * parity + (pow(rest % prime, (prime - 1) // 2, prime) == 1))
        return tuple(key)

    def ratio_to(self, other: "InverseRoot") -> "Fraction | None":
        """Return self/other if that is rational: then both are in one class. Else return None."""
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
        zero nor a midpoint of two numbers of the type. Shrinking brackets end up on one side of
        every such point. If r is rational, the value is a ratio of integers.
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
            # An undecided value is nearly always next to a tie, separated from it by eps or by a
            # term far below the others: many more bits are needed.
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
            # The nearest integer changes at halves.
            low, high = (2 * a * root // unit for root in (below, below + 1))
            if low == high:
                return (low + 1) // 2
            bits *= 6


def centred_signs(x: Sequence[float]) -> list[int]:
    """Return the signs of x - mean(x): -1, 0 or 1 for each element."""
    integers, _ = scaled_integers(x)
    size, total = len(integers), sum(integers)
    return [(size * value > total) - (size * value < total) for value in integers]


class ExactRow:
    """A row of finite numbers, with eps such that w = var + eps is not zero.

    Attributes
    ----------
    is_centred : bool
        True if the mean is subtracted.
    centred : list of int
        C, with c = C/`scale`.
    scale : int
        n*2**k.
    root : InverseRoot
        r = 1/sqrt(w).
    """

    def __init__(self, x: Sequence[float], eps: float, *, is_centred: bool = True) -> None:
        integers, k = scaled_integers(x)
        size = len(integers)
        total = sum(integers) if is_centred else 0
        self.is_centred = is_centred
        self.centred = [size * value - total for value in integers]
        self.scale = size << k
        squares = sum([value * value for value in self.centred])
        eps_over, eps_under = float(eps).as_integer_ratio()
        # w = squares/(n*scale**2) + eps, over one denominator.
        unit = size * self.scale * self.scale
        self.eps_under = eps_under
        self.root = InverseRoot(squares * eps_under + eps_over * unit, eps_under * unit)

    def y(self, j: int, gamma: float, beta: float, target: FloatFormat) -> float:
        """Round gamma*c_j*r + beta (D6)."""
        gamma_over, gamma_under = gamma.as_integer_ratio()
        beta_over, beta_under = beta.as_integer_ratio()
        under = self.scale * gamma_under
        return self.root.round_linear(
            gamma_over * self.centred[j] * beta_under,
            beta_over * under,
            under * beta_under,
            target,
        )


class RowGradient:
    """The gradient dx of a row (D17), from g = gamma*dy.

    dx = r*(g - mean(g) - c*mean(g*c)/w). With g = G/2**k and w = root.numerator/root.denominator,
    the factor of r is `bracket(j)`/`denominator`. Many rows share gamma, so it is passed as
    `scaled_integers` returns it.
    """

    def __init__(
        self, row: ExactRow, gamma: tuple[Sequence[int], int], dy: Sequence[float]
    ) -> None:
        gammas, gamma_k = gamma
        dys, dy_k = scaled_integers(dy)
        self.row = row
        self.g = [a * b for a, b in zip(gammas, dys, strict=True)]
        self.total = sum(self.g) if row.is_centred else 0
        along = sum([a * c for a, c in zip(self.g, row.centred, strict=True)])
        # In c*mean(g*c)/w the factor n*scale**2 of w's denominator cancels; eps_under remains.
        self.slope = along * row.eps_under * len(self.g)
        self.denominator = len(self.g) * row.root.numerator << (gamma_k + dy_k)

    def bracket(self, j: int) -> int:
        """Return g_j - mean(g) - c_j*mean(g*c)/w, times `denominator`."""
        centred = len(self.g) * self.g[j] - self.total
        return centred * self.row.root.numerator - self.row.centred[j] * self.slope

    def dx(self, j: int, target: FloatFormat) -> float:
        """Round dx_j."""
        return self.row.root.round_linear(self.bracket(j), 0, self.denominator, target)


class Term(NamedTuple):
    """The term of one row in a column: (numerator/denominator)*root, with denominator > 0."""

    numerator: int
    denominator: int
    root: InverseRoot


def round_sum_of_roots(terms: Sequence[Term], target: FloatFormat) -> float:
    """Round the sum of the terms to the target type.

    Terminates: two roots are in one class if their ratio is rational. Roots of different classes
    are linearly independent over the rationals (Besicovitch 1940). So after each class has been
    added, the sum is rational only if no irrational class remains; then it is rounded as a ratio.
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
    """Bracket the sum to `bits` below its largest term; round it if both ends round equally."""
    largest = max((_magnitude(term) for term in terms if term.numerator), default=0)
    place = bits - largest
    low = high = 0
    for term in terms:
        # Guard bits of the root make its bracket narrower than one unit of the sum.
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
    """Add the terms of each class; return the rational sum and the non-zero irrational ones."""
    from fractions import Fraction  # slow to import, and rarely needed

    rational = Fraction(0)
    classes: dict[tuple[int, ...], list[tuple[InverseRoot, Fraction]]] = {}
    for numerator, denominator, root in terms:
        coefficient = Fraction(numerator, denominator)
        if root.rational is not None:
            rational += coefficient * Fraction(*root.rational)
            continue
        members = classes.setdefault(root.fingerprint, [])
        for position, (first, total) in enumerate(members):
            ratio = root.ratio_to(first)
            if ratio is not None:
                members[position] = (first, total + coefficient * ratio)
                break
        else:
            members.append((root, coefficient))
    irrational = [
        Term(total.numerator, total.denominator, root)
        for members in classes.values()
        for root, total in members
        if total
    ]
    return rational, irrational
