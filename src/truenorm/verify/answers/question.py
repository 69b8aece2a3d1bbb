"""What is asked for: exact numbers by name, from inputs by name."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import NamedTuple

from truenorm.verify.types import Float64s

__all__ = ["Guess", "Known", "Numbers", "Question", "fingerprint"]

Known = Mapping[str, Float64s]
Guess = Callable[[Known], Float64s]
Numbers = dict[str, Float64s]
"""By name. Those of a result have one axis more: its value, and what the rounding left over."""


class Question(NamedTuple):
    """The inputs of a case, and what is to be found.

    Attributes
    ----------
    given : mapping of str to ndarray
        The inputs, in float64.
    types : mapping of str to str
        The results, and the type of each.
    guesses : mapping of str to callable
        For every number to be found, in this order, a number near it; from the inputs, and from
        the exact numbers that come before.
    """

    given: Known
    types: Mapping[str, str]
    guesses: Mapping[str, Guess]

    @property
    def name(self) -> str:
        """A name that no other question has: it depends on all bits, shapes and types."""
        asked = repr((sorted(self.types.items()), list(self.guesses))).encode()
        return sha256(asked + fingerprint(self.given)).hexdigest()[:32]


def fingerprint(arrays: Known) -> bytes:
    """Return a hash of the names, shapes and bits of arrays."""
    content = sha256()
    for name, array in arrays.items():
        content.update(f"{name} {array.shape} ".encode())
        content.update(array.astype("<f8").tobytes())
    return content.digest()
