"""How rows, as which a case holds them, lie in memory when a subject gets them."""

from collections.abc import Callable

import numpy as np

from truenorm.verify.types import Array

__all__ = ["LAYOUTS"]


def _with_gaps(rows: Array) -> Array:
    """Return the same values, each followed by a number that is none of them."""
    wide = np.full((*rows.shape, 2), 77.0, rows.dtype)
    wide[..., 0] = rows
    return wide[..., 0]


def _with_padding(rows: Array) -> Array:
    """Return the same values as the middle columns of a wider array."""
    size = rows.shape[-1]
    wide = np.full((*rows.shape[:-1], 3 * size), 77.0, rows.dtype)
    wide[..., size : 2 * size] = rows
    return wide[..., size : 2 * size]


def _column_by_column(rows: Array) -> Array:
    """Return the same values, those of a column next to each other."""
    return np.ascontiguousarray(rows.T).T


def _read_only(rows: Array) -> Array:
    """Return the same memory, which nobody may write to by this array."""
    view = rows.view()
    view.flags.writeable = False
    return view


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "rows": lambda rows: rows,
    "one-axis": lambda rows: rows.reshape(-1),
    "three-axes": lambda rows: rows.reshape(2, -1, rows.shape[1]),
    "strided": _with_gaps,
    "padded": _with_padding,
    "transposed": _column_by_column,
    "read-only": _read_only,
}
"""How rows, as which a case holds them, are given to the subject."""
