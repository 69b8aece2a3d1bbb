"""Hard elements of y, one in each row.

Where one element of a row is refused, a backend may do the others again too, and so mend what a
wrong bound let pass: hard cases have rows of nothing but hard elements of y, of which one is
always refused.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from promise.families import Case

__all__ = ["lonely_cases"]

ROWS = 64  # of a case, at most


def _apart(case: Case) -> Case:
    """Give some hard elements of y a row each: y depends on the other x, not on their order."""
    chosen = list(case.columns or ())[:ROWS]
    rows = np.repeat(case.x, len(chosen), axis=0)
    for row, j in zip(rows, chosen, strict=True):
        others = np.arange(len(row)) != j
        row[others] = np.roll(row[others], 1)
    name = f"{case.name} apart"
    dy = np.repeat(case.dy, len(chosen), axis=0)
    return Case(name, rows, case.gamma, case.beta, dy, case.eps, tuple(chosen))


def lonely_cases(hard: Iterable[Case], elements: int) -> Iterator[Case]:
    """Yield cases with at least so many hard elements in all, from hard cases of y.

    The i-th row is hard in the i-th of the columns to look at.
    """
    made = 0
    for case in hard:
        if " near " in case.name and case.columns:
            apart = _apart(case)
            made += len(apart.x)
            yield apart
            if made >= elements:
                return
    raise ValueError(f"{made} hard elements are too few: {elements} were asked for")
