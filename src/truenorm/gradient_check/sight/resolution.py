"""What the type of forward's results can show, and what is lost in it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.problem import Array, Problem, Shares
from truenorm.gradient_check.sight.steps import CLOSE, spread_of

__all__ = ["last_places", "norm_of"]

PRECISIONS = (8, 11, 24, 53)
"""Of bfloat16, float16, float32 and float64, in bits."""
LEAST = 2.0**-1074


def last_places(problem: Problem, inputs: Sequence[Array]) -> Shares:
    """Return what a unit in the last place of each output is in the loss, sum(dy*y).

    Where forward is flat in its type, all differences are zero, and so is their noise: what there
    is to see is then a unit in the last place, and no less.
    """
    points = (problem.outputs(point) for point in (inputs, *_near(inputs)))
    units = (_last_place(outputs[0], _bits_used(outputs)) for outputs in zip(*points, strict=True))
    return [np.abs(share) for share in problem.weighted(units)]


def norm_of(units: Shares) -> float:
    """Add up units as independent ones, which they are since dy is random."""
    largest = max((float(each.max()) for each in units if each.size), default=0.0)
    if not 0 < largest < math.inf:
        return largest
    return largest * math.hypot(*(float(np.linalg.norm(each / largest)) for each in units))


def _near(inputs: Sequence[Array]) -> Iterator[list[Array]]:
    """Yield points near the inputs whose numbers have all their digits, which 1.5 has not."""
    random = np.random.default_rng(0)
    for _ in range(2):
        yield [
            value
            + (CLOSE * spread_of(value) * random.uniform(-1, 1, value.shape)).astype(value.dtype)
            if value.size
            else value
            for value in inputs
        ]


def _last_place(y: Array, bits: int) -> NDArray[np.float64]:
    """Return the unit in the last place of each number, and 0 of a zero."""
    _, exponent = np.frexp(y.astype(np.float64))
    unit = np.maximum(np.ldexp(1.0, exponent - bits), LEAST)
    return np.where((y == 0) | ~np.isfinite(y), 0.0, unit)


def _bits_used(outputs: Iterable[Array]) -> int:
    """Return the precision that numbers have, which may be less than that of their type.

    A forward may round to a narrower type inside. Its results show that: none has more bits.
    """
    least = PRECISIONS[0]
    for y in outputs:
        mantissa, _ = np.frexp(y.astype(np.float64)[np.isfinite(y)])
        for bits, more in pairwise(PRECISIONS):
            scaled = np.ldexp(mantissa, bits)
            if not (scaled == np.rint(scaled)).all():
                least = max(least, more)
    return least
