"""Who takes a second look at what was refused.

The answer is unique, so nobody can tell who found it. A backend that compiles takes seconds before
its first second look, and most calls refuse little: until so much was refused that compiling pays,
NumPy's double-double does it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.backend import Backend, Backward, ColumnSweep, SecondLook
from truenorm.kernels.call import Call
from truenorm.kernels.drive.lattice import LatticeColumns
from truenorm.kernels.rows import Rows, Source

__all__ = [
    "compiling_at_once",
    "dgamma_again",
    "dgamma_on_lattice",
    "numpy_backend",
    "second_look",
]

Look = TypeVar("Look", bound=SecondLook)

PAYS = 2**22
"""Elements of one kind that NumPy takes as long for as the compiler, 5 s: docs/engine.md."""

_left_to_numpy: Counter[Any] = Counter()
"""How many elements of each kind NumPy has looked at."""
_counting = Lock()
_waits = True


@contextmanager
def compiling_at_once() -> Iterator[None]:
    """Leave nothing to NumPy: what is refused is compiled for, whatever that takes."""
    global _waits
    before, _waits = _waits, False
    try:
        yield
    finally:
        _waits = before


def numpy_backend() -> Backend:
    """Return the backend that compiles nothing."""
    from truenorm.kernels.reference.backend import ReferenceBackend

    return ReferenceBackend()


def second_look(level: Look, call: Call, elements: int, stand_in: Callable[[], Look]) -> Look:
    """Return who looks again at so many elements: the level itself, or who stands in for it."""
    if not (_waits and level.would_compile):
        return level
    kind = type(level), call.target, call.norm
    with _counting:
        if _left_to_numpy[kind] + elements > PAYS:
            return level
        _left_to_numpy[kind] += elements
    return stand_in()


def dgamma_on_lattice(
    call: Call, level: Backward[Any], columns: NDArray[np.intp], dy: Rows
) -> ColumnSweep[Any] | None:
    """Return how to know some columns of dgamma better, if the lattice is a way."""
    terms = level.lattice
    return None if terms is None else _or_numpy(call, LatticeColumns(level, terms, columns), dy)


def dgamma_again(
    call: Call, level: Backward[Any], columns: NDArray[np.intp], dy: Rows
) -> ColumnSweep[Any] | None:
    """Return how to know some columns of dgamma better, short of integers."""
    sweep = level.dgamma_again(columns)
    return None if sweep is None else _or_numpy(call, sweep, dy)


def _or_numpy(call: Call, sweep: ColumnSweep[Any], dy: Rows) -> ColumnSweep[Any]:
    """Return a sweep, or NumPy's in its place if it would have to be compiled."""

    def stand_in() -> ColumnSweep[Any]:
        found = numpy_backend().backward(call, Source(dy)).dgamma_again(sweep.columns)
        # In fast mode it has none for float64, which its first look sums in pairs.
        return sweep if found is None else found

    return second_look(sweep, call, call.count * call.size, stand_in)
