"""Exact numbers as few bytes: by how many float64 numbers each differs from a guess.

A result is kept as its rounding to float64, from which its value in the type and what is left
over follow nearly always (`_split`); where they do not, as for a tie, the difference is kept too.
"""

import zlib

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.answers.question import Numbers, Question, fingerprint
from truenorm.verify.types import Float64s, ulps_of

__all__ = ["pack", "unpack"]

DIGEST = 32


@np.errstate(all="ignore")  # a guess may overflow, and an exact number be none
def pack(question: Question, numbers: Numbers) -> bytes:
    """Return bytes from which `unpack` makes the numbers, to the bit."""
    known, steps = dict(question.given), []
    for name, guess in question.guesses.items():
        exact, start = numbers[name], _finite(guess(known))
        known[name] = exact
        pairs = [(exact, start)]
        if name in question.types:
            value, rest = exact[..., 0], exact[..., 1]
            kind = question.types[name]
            wide = value + np.where(np.isfinite(value), rest * _ulps(value, kind), 0.0)
            pairs = [(wide, start), *zip((value, rest), _split(wide, kind), strict=True)]
        steps += [_bits(to) - _bits(origin) for to, origin in pairs]
    return fingerprint(numbers) + _squeezed(np.concatenate(steps))


@np.errstate(all="ignore")
def unpack(question: Question, content: bytes) -> Numbers | None:
    """Return the numbers, or None if these bytes do not give them."""
    known, numbers = dict(question.given), {}
    try:
        steps = _Steps(_unsqueezed(content[DIGEST:]))
    except (zlib.error, ValueError):
        return None
    for name, guess in question.guesses.items():
        found = steps.from_here(_finite(guess(known)))
        if name in question.types:
            split = _split(found, question.types[name])
            found = np.stack([steps.from_here(origin) for origin in split], axis=-1)
        known[name] = numbers[name] = found
    return numbers if fingerprint(numbers) == content[:DIGEST] else None


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


def _finite(guessed: Float64s) -> Float64s:
    """Return 0 for what is not finite: which NaN it is depends on the processor."""
    return np.where(np.isfinite(guessed), guessed, 0.0)


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
    """Compress differences, which are small with either sign."""
    signs = (steps >> 63) * np.uint64(2**64 - 1)
    zigzag = (steps << 1) ^ signs
    planes = zigzag.astype("<u8").view(np.uint8).reshape(-1, 8).T
    return zlib.compress(planes.tobytes(), 9)


def _unsqueezed(content: bytes) -> NDArray[np.uint64]:
    planes = np.frombuffer(zlib.decompress(content), np.uint8).reshape(8, -1)
    zigzag = np.ascontiguousarray(planes.T).view("<u8").ravel().astype(np.uint64)
    return (zigzag >> 1) ^ ((zigzag & 1) * np.uint64(2**64 - 1))
