"""What a part of a large case must give, as far as balls tell: answers with a bound for each."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from truenorm.verify.answers.expected import Expected
from truenorm.verify.answers.question import types_of
from truenorm.verify.grading.measuring import Bounds
from truenorm.verify.operation import Case
from truenorm.verify.own.balls import Ball
from truenorm.verify.parts import Scales
from truenorm.verify.types import FORMATS, Float64s, dtype_of, ulps_of

__all__ = ["ColumnScales", "Enclosed"]


@dataclass(frozen=True)
class ColumnScales:
    """Scales of sums over rows, by output and power of kappa: see `Scales`."""

    sums: Mapping[tuple[str, int], Float64s]
    counts: Mapping[str, int]
    kappa: Float64s

    def of(self, output: str, power: int) -> Float64s:
        """Return the scale of each column."""
        return self.sums[output, power]

    def terms(self, output: str) -> int:
        """Return how many numbers are added up for one of the result."""
        return self.counts[output]


class Enclosed(Expected):
    """Answers of which the middle and the radius are known; other ones than `outputs` are none.

    Attributes
    ----------
    bounds : dict of str to Bounds
        By output: how far the middle may be from the answer, and what that may be when rounded.
    """

    def __init__(self, case: Case, balls: Mapping[str, Ball], scales: Scales) -> None:
        self._case = case
        self.types = {name: kind for name, kind in types_of(case).items() if name in balls}
        self.values, self.wide, self.rests, self.ulps = {}, {}, {}, {}
        self.bounds: dict[str, Bounds] = {}
        with np.errstate(all="ignore"):
            for output, kind in self.types.items():
                self._enclose(output, kind, balls[output])
        self.scales = scales
        self._allowed: dict[tuple[str, int], Float64s] = {}

    def _enclose(self, output: str, kind: str, ball: Ball) -> None:
        if not np.isfinite(ball.radius).all():
            raise ValueError(
                f"there is no bound for {output} of {self._case.name}: its numbers are too large, "
                "or too small for its eps"
            )
        wide = _rounded(ball.high, kind)
        finite = np.isfinite(wide)
        ulps = ulps_of(np.where(finite, wide, 0.0), kind)
        self.values[output] = wide.astype(dtype_of(kind))
        self.wide[output], self.ulps[output] = wide, ulps
        self.rests[output] = np.where(finite, ((ball.high - wide) + ball.low) / ulps, 0.0)
        # Beside the radius, what float64 rounds here and in `measure`.
        radius = ball.radius * (1 + 2.0**-50) + 2.0**-51 * np.abs(ball.low) + 2.0**-52 * ulps
        low, high = ball.high + (ball.low - radius), ball.high + (ball.low + radius)
        if kind != "float64":  # rounded twice: what is next to a tie of the type is left open
            low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
        self.bounds[output] = Bounds(radius, _rounded(low, kind), _rounded(high, kind))


def _rounded(values: Float64s, kind: str) -> Float64s:
    """Return float64 numbers, rounded to a type, ties to even, as float64 again."""
    ulps = ulps_of(values, kind)
    found = np.rint(values / ulps) * ulps
    return np.where(np.abs(found) < 2.0 ** (FORMATS[kind].limit - 1) * 2, found, found * np.inf)
