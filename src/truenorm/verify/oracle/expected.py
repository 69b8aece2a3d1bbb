"""What a case must give. Whoever wants an exact answer asks `expected`, and nobody else computes.

`computed` depends on nothing but the case and the sources of `exact`, of this wing and of the
operation, and what it returns are plain arrays: so they are kept.
"""

import math
from collections.abc import Iterable

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.oracle.cache import kept, types_of
from truenorm.verify.types import Array, Float64s, dtype_of, ulps_of, unit_roundoff

SINGLE = 2.0**-24
DIGITS_LEFT = 1 / 8
"""The error, relative to the scale, at which a sum that was added up one by one is no sum."""


def computed(case: Case) -> dict[str, Float64s]:
    """Compute the numbers of a case in integers: see `Operation.exact`."""
    with np.errstate(all="ignore"):  # whatever the caller has set
        return case.operation.exact(case)


KNOWN: "dict[Case, Expected]" = {}
"""The answers that this process has."""


def expected(case: Case) -> "Expected":
    """Return the answers to a case, computed once, if ever."""
    return KNOWN.get(case) or remember(case, kept(case, computed))


def remember(case: Case, exact: dict[str, Float64s]) -> "Expected":
    """Keep the answers to a case, from numbers that were computed elsewhere."""
    KNOWN[case] = found = Expected(case, exact)
    return found


def forget(cases: Iterable[Case]) -> None:
    """Let go of answers that nobody will ask for again."""
    for case in cases:
        KNOWN.pop(case, None)


class Expected:
    """What a case must give, and how far off a result may be.

    Attributes
    ----------
    types : dict of str to str
        The type of each output; one like an absent parameter has none.
    values : dict of str to ndarray or None
        The outputs, correctly rounded; None where there is no type.
    wide : dict of str to ndarray
        The same in float64.
    rests : dict of str to ndarray
        What the rounding left over, in ulp of the value.
    ulps : dict of str to ndarray
        The ulp of each value; of one that is not finite, the smallest.
    scales : Scales
        The natural scales of the results.
    """

    def __init__(self, case: Case, exact: dict[str, Float64s]) -> None:
        self._case = case
        self.types = types_of(case)
        self.values: dict[str, Array | None] = dict.fromkeys(
            each.name for each in case.operation.outputs
        )
        self.wide: dict[str, Float64s] = {}
        self.rests: dict[str, Float64s] = {}
        self.ulps: dict[str, Float64s] = {}
        with np.errstate(all="ignore"):
            for output, kind in self.types.items():
                pairs = self._repeated(output, exact[output])
                wide, self.rests[output] = pairs[..., 0], pairs[..., 1]
                self.values[output] = wide.astype(dtype_of(kind))
                self.wide[output] = wide
                self.ulps[output] = ulps_of(np.where(np.isfinite(wide), wide, 0.0), kind)
            self.scales = case.operation.scales(case, exact)
        self._allowed: dict[tuple[str, int], Float64s] = {}

    def _repeated(self, output: str, values: Float64s) -> Float64s:
        """Repeat rows as the case does."""
        if not self._case.operation.is_rows(output) or self._case.repeats == 1:
            return values
        return np.tile(values, (self._case.repeats, *(1,) * (values.ndim - 1)))

    def scale(self, output: str, power: int = 0) -> Float64s:
        """Return the natural scale of each element, for errors like that power of kappa."""
        scale = self._repeated(output, self.scales.of(output, power))
        return scale if self._case.operation.is_rows(output) else self._case.repeats * scale

    def unit(self, output: str) -> float:
        """Return u of a result; of none that is more precise than rows, but a plain sum of them.

        So a float32 result of bfloat16 rows may have been rounded to bfloat16 on the way, as some
        recipes do.
        """
        own = unit_roundoff(self.types[output])
        return own if output == "dbeta" else max(own, unit_roundoff(self._case.dtype))

    def factor(self, output: str, power: int = 0) -> float:
        """Return K: some roundings, and those of sums, which add up like the square root of n.

        Types of 16 bits are for storing: computed is in float32, so that there is little to
        round but the result, and sums cost next to nothing. Were it not so, a sum over many rows
        could be zero in bfloat16. A column added up one by one can be off by u for each of its n
        terms: that, too, is allowed from the first power of kappa on, as long as a digit is left.
        """
        unit = unit_roundoff(self._case.dtype)
        roundings = 8.0 if unit <= SINGLE else 3.0
        terms = self.scales.terms(output)
        stable = roundings + math.sqrt(terms) / 4 * min(1.0, SINGLE / unit)
        if power and not self._case.operation.is_rows(output):
            return max(stable, min(8.0 + self._case.shape[0], DIGITS_LEFT / unit))
        return stable

    def allowed(self, output: str, power: int = 0) -> Float64s:
        """Return how far each element may be off: by an ulp, and by K*u*scale.

        With a power, the scale of an algorithm whose error grows like that power of kappa. Where
        the value is not finite nothing is allowed.
        """
        place = (output, power)
        if place not in self._allowed:
            with np.errstate(all="ignore"):
                scale = self.scale(output, power) * self.factor(output, power)
                bound = self.ulps[output] + self.unit(output) * scale
            self._allowed[place] = np.where(np.isfinite(self.wide[output]), bound, 0.0)
        return self._allowed[place]
