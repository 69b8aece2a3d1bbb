"""What is asked for: the exact numbers of a case, whatever its name and its layout."""

from hashlib import sha256
from typing import NamedTuple

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.types import Float64s

__all__ = ["Arrays", "Question", "fingerprint", "types_of"]

Arrays = dict[str, Float64s]


class Question(NamedTuple):
    """The inputs of a case, and the types of its results.

    Attributes
    ----------
    given : dict of str to ndarray
        In float64: the inputs that are there, rows that are repeated once; eps; and repeats.
    types : dict of str to str
        Of each result that is there.
    variant : str
        What else the answers depend on.
    """

    given: Arrays
    types: dict[str, str]
    variant: str = ""

    @classmethod
    def of(cls, case: Case) -> "Question":
        """Return the question that a case is."""
        once = case.shape[0] // case.repeats
        rows = {name: array[:once] for name, array in case.rows.items()}
        others = {"eps": np.asarray(case.eps), "repeats": np.asarray(case.repeats)}
        parts = {**case.inputs, **rows, **others}
        given = {name: part.astype(np.float64) for name, part in parts.items() if part is not None}
        return cls(given, types_of(case), case.operation.variant)

    @property
    def name(self) -> str:
        """A name that no other question has: it depends on all bits, shapes and types."""
        kind = f"{self.types}{self.variant}".encode()
        return sha256(kind + fingerprint(self.given)).hexdigest()[:32]


def types_of(case: Case) -> dict[str, str]:
    """Return the type of each result; one like an absent parameter has none."""
    likes = {each.name: case.inputs[each.like] for each in case.operation.outputs}
    return {
        name: case.operation.type_of(name, like.dtype.name)
        for name, like in likes.items()
        if like is not None
    }


def fingerprint(arrays: Arrays) -> bytes:
    """Return a hash of the names, shapes and bits of arrays."""
    content = sha256()
    for name, array in sorted(arrays.items()):
        content.update(f"{name} {array.shape} ".encode())
        content.update(array.astype("<f8").tobytes())
    return content.digest()
