"""Numbers of a type, and the arithmetic in which they are brought near a midpoint."""

from typing import Any

import numpy as np
from flint import arb

from promise.families import Array
from promise.formats import FORMATS

FLOAT64 = np.dtype(np.float64)
Dtype = np.dtype[Any]
_ball = np.frompyfunc(arb, 1, 1)
_ball_rsqrt = np.frompyfunc(arb.rsqrt, 1, 1)
_ball_root = np.frompyfunc(arb.sqrt, 1, 1)


class Maker:
    """Numbers of one type, with an arithmetic that is wide enough to see how close they come."""

    def __init__(
        self, dtype: Dtype, parameters: Dtype, seed: list[int], *, centred: bool = True
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype, self.parameters, self.centred = dtype, parameters, centred
        self.precision = FORMATS[dtype].precision
        # The 64 bits of longdouble are enough to come within 2^-60; balls go on from there.
        self.wide = FLOAT64 in (dtype, parameters)

    def normal(self, rows: int, size: int, scale: float = 1.0, offset: float = 0.0) -> Array:
        return self.cast(self.rng.standard_normal((rows, size)) * scale + offset)

    def cast(self, values: Array, dtype: Dtype | None = None) -> Array:
        narrow = values.astype(np.float64).astype(dtype or self.dtype)
        return np.where(np.isfinite(narrow.astype(np.float64)), narrow, np.ones((), narrow.dtype))

    def lift(self, values: Array) -> Array:
        if self.wide:
            return np.asarray(_ball(values.astype(np.float64)))
        return values.astype(np.longdouble)

    def root(self, values: Array) -> Array:
        return np.asarray(_ball_root(values)) if self.wide else np.sqrt(values)

    def midpoint(self, values: Array, steps: Array | int = 0) -> Array:
        """Return the midpoint of the two neighbours of each value, or of others in its binade."""
        head = values.astype(np.float64)
        _, exponent = np.frexp(head)
        ulp = np.copysign(np.ldexp(1.0, exponent - self.precision), head)
        binade = 2.0 ** (self.precision - 1)
        below = binade + (np.floor(head / ulp) - binade + steps) % binade
        return self.lift(below * ulp) + self.lift(ulp / 2)

    def normalized(self, x: Array, eps: float) -> tuple[Array, Array]:
        """Return xhat and r."""
        c = self.lift(x)
        if self.centred:
            c = c - c.sum(axis=1, keepdims=True) / x.shape[1]
        w = (c * c).sum(axis=1, keepdims=True) / x.shape[1] + self.lift(np.array(eps))
        r = np.asarray(_ball_rsqrt(w)) if self.wide else 1 / np.sqrt(w)
        return c * r, r

    def tune(self, value: Array, coefficients: list[Array]) -> tuple[list[Array], Array]:
        """Choose dy so that value + sum of coefficient*dy is a midpoint; say where it is so."""
        target, chosen = self.midpoint(value), []
        for coefficient in coefficients:
            dy = self.cast((target - value) / coefficient)
            value = value + coefficient * self.lift(dy)
            chosen.append(dy)
        distance = np.abs(((target - value) / target).astype(np.float64))
        # A coefficient that is zero up to noise asks for a huge dy, and tells nothing.
        sane = np.all([np.abs(dy.astype(np.float64)) < 1e5 for dy in chosen], axis=0)
        return chosen, (distance <= self.near) & sane

    @property
    def near(self) -> float:
        return 2.0**-98 if self.dtype == FLOAT64 else 2.0**-52
