"""The rows of a case with others below or among them, from which none of them may change."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from truenorm.verify.operation import Case

__all__ = ["padded", "with_idle_rows"]


def padded(case: Case, numbers: Sequence[float]) -> Case:
    """Return a case with rows of padding below its own: each is one number, over and over.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> padded(tv.case("float32-normal-4x2"), [0.0, float("inf")]).x[4:]
    array([[ 0.,  0.],
           [inf, inf]], dtype=float32)
    """
    below = np.array(numbers)[:, np.newaxis]
    more = {
        name: np.concatenate([rows, np.tile(below, rows.shape[1]).astype(rows.dtype)])
        for name, rows in case.rows.items()
    }
    return replace(case.with_inputs(**more), repeats=1)


def with_idle_rows(case: Case, *, among: bool) -> Case:
    """Return a case with each row once more, below all or after each, its gradients zero.

    So sums over rows have the same terms, and zeros.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> case = tv.case("float32-normal-4x2").part(slice(0, 2))
    >>> with_idle_rows(case, among=True).dy.any(axis=1)
    array([ True, False,  True, False])
    """
    rows = case.shape[0]
    order = np.repeat(np.arange(rows), 2) if among else np.tile(np.arange(rows), 2)
    idle = np.arange(2 * rows) % 2 == 1 if among else np.arange(2 * rows) >= rows
    more = {name: array[order] for name, array in case.rows.items()}
    for name in case.operation.inputs_of("gradient"):
        more[name][idle] = 0
    return replace(case.with_inputs(**more), repeats=1)
