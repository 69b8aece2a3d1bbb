"""Exact numbers as few bytes: by how many float64 numbers each differs from a guess.

A result is kept as its rounding to float64, from which its value in the type and what is left
over follow nearly always (`_split`); where they do not, as for a tie, the difference is kept too.
"""

import json
import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.answers.question import Arrays, Question, fingerprint
from truenorm.verify.parts import Guess
from truenorm.verify.types import Float64s, ulps_of

__all__ = ["pack", "unpack"]

DIGEST = 32
ALL_ONES = np.uint64(2**64 - 1)
Guesses = Mapping[str, Guess]


@np.errstate(all="ignore")  # a guess may overflow, and an exact number be none
def pack(question: Question, guesses: Guesses, exact: Arrays) -> bytes:
    """Return bytes from which `unpack` makes the exact numbers, to the bit.

    Those of a result have one axis more: its value, and what the rounding left over.
    """
    order = sorted(exact, key=lambda name: ([*guesses, name].index(name), name))
    known, steps, shapes = dict(question.given), [], {}
    for name in order:
        kind, numbers = question.types.get(name), exact[name]
        shapes[name] = numbers.shape[:-1] if kind else numbers.shape
        start = _start(name, shapes[name], guesses, known)
        pairs = [(numbers, start)]
        if kind:
            value, rest = numbers[..., 0], numbers[..., 1]
            wide = value + np.where(np.isfinite(value), rest * _ulps(value, kind), 0.0)
            pairs = [(wide, start), *zip((value, rest), _split(wide, kind), strict=True)]
        known[name] = numbers
        steps += [_bits(to) - _bits(origin) for to, origin in pairs]
    heading = json.dumps(shapes).encode() + b"\n"
    return fingerprint(exact) + zlib.compress(heading + _squeezed(np.concatenate(steps)), 9)


@np.errstate(all="ignore")
def unpack(question: Question, guesses: Guesses, content: bytes) -> Arrays | None:
    """Return the exact numbers, or None if these bytes do not give them."""
    try:
        heading, _, planes = zlib.decompress(content[DIGEST:]).partition(b"\n")
        shapes, steps = json.loads(heading), _Steps(_unsqueezed(planes))
    except (zlib.error, ValueError):
        return None
    known, exact = dict(question.given), {}
    for name, shape in shapes.items():
        found = steps.from_here(_start(name, shape, guesses, known))
        if name in question.types:
            split = _split(found, question.types[name])
            found = np.stack([steps.from_here(origin) for origin in split], axis=-1)
        known[name] = exact[name] = found
    return exact if fingerprint(exact) == content[:DIGEST] else None


def _start(name: str, shape: tuple[int, ...], guesses: Guesses, known: Arrays) -> Float64s:
    """Guess; 0 for what is not finite, since which NaN it is depends on the processor."""
    if name not in guesses:
        return np.zeros(shape)
    guessed = guesses[name](known)
    return np.where(np.isfinite(guessed), guessed, 0.0)


class _Steps:
    """Differences, taken from the first on."""

    def __init__(self, steps: NDArray[np.uint64]) -> None:
        self._steps, self._taken = steps, 0

    def from_here(self, origin: Float64s) -> Float64s:
        """Return the numbers at the next differences from here; without any, those here."""
        some = self._steps[self._taken : self._taken + origin.size]
        self._taken += origin.size
        bits = _bits(origin)
        bits[: some.size] += some
        return bits.view(np.float64).reshape(origin.shape)


def _ulps(values: Float64s, kind: str) -> Float64s:
    return ulps_of(np.where(np.isfinite(values), values, 0.0), kind)


def _split(wide: Float64s, kind: str) -> tuple[Float64s, Float64s]:
    """Round to the type; return that and what is left over, in ulp."""
    if kind == "float64":
        return wide, np.zeros_like(wide)
    ulps = _ulps(wide, kind)
    value = np.rint(wide / ulps) * ulps
    return value, (wide - value) / _ulps(value, kind)


def _bits(numbers: Float64s) -> NDArray[np.uint64]:
    """Return a flat copy of the bit patterns, of which neighbours differ by one."""
    return numbers.flatten().view(np.uint64)


def _squeezed(steps: NDArray[np.uint64]) -> bytes:
    """Return differences, small ones of either sign, as bytes that compress well."""
    signs = (steps >> np.uint64(63)) * ALL_ONES
    zigzag = (steps << np.uint64(1)) ^ signs
    planes = zigzag.astype("<u8").view(np.uint8).reshape(-1, 8).T
    return planes.tobytes()


def _unsqueezed(content: bytes) -> NDArray[np.uint64]:
    planes = np.frombuffer(content, np.uint8).reshape(8, -1)
    zigzag = np.ascontiguousarray(planes.T).view("<u8").ravel().astype(np.uint64)
    steps: NDArray[np.uint64] = (zigzag >> np.uint64(1)) ^ ((zigzag & np.uint64(1)) * ALL_ONES)
    return steps
