"""Hypotheses of rows that are read where they are not: gaps in memory are passed over."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.operations.norms.definition import Definition
from truenorm.verify.operations.norms.hypotheses.steps import Steps
from truenorm.verify.types import Array, Float64s

__all__ = ["of_layouts"]


def of_layouts(norm: Definition, output: str) -> dict[str, Hypothesis]:
    """Return by their words what comes of rows that are taken to have no gaps."""
    found: dict[str, Hypothesis] = {}
    for names in _together(norm, output):
        *others, last = names
        these, are, were = last, "is", "it were"
        if others:
            these, are, were = f"{', '.join(others)} and {last}", "are", "they were"
        for words, only_in_rows in (
            (f"{were} contiguous", False),
            ("the elements of a row had no gaps", True),
        ):
            found[f"{these} {are} read as though {words}"] = partial(
                _misread, norm, output, names, only_in_rows
            )
    return found


def _together(norm: Definition, output: str) -> list[tuple[str, ...]]:
    """Return which rows may be read alike: one of them, or all that a pass is given."""
    data: tuple[str, ...] = ("x", "residual") if norm.adds else ("x",)
    gradients: tuple[str, ...] = ("dy", "dsum") if norm.adds else ("dy",)
    if output in ("y", "sum"):
        gradients = ()
    elif output == "dbeta":
        data, gradients = (), ("dy",)
    elif output == "dgamma":
        gradients = ("dy",)
    groups = [*((name,) for name in (*data, *gradients)), data, gradients, (*data, *gradients)]
    return [names for names in dict.fromkeys(groups) if names]


def _misread(
    norm: Definition, output: str, names: Sequence[str], only_in_rows: bool, case: Case
) -> Float64s:
    other = {name: _read(case, case.rows[name], only_in_rows) for name in names}
    return Steps(norm, case.with_inputs(**other), {})[output]


def _read(case: Case, rows: Array, only_in_rows: bool) -> Array:
    """Return the numbers that lie where rows would, were they without gaps in memory."""
    laid = case.laid_out(rows)
    if laid.ndim != rows.ndim or laid.flags.c_contiguous:
        return rows
    row = laid.strides[0] if only_in_rows else rows.shape[1] * rows.itemsize
    read: Array = np.lib.stride_tricks.as_strided(laid, laid.shape, (row, rows.itemsize))
    return read.copy()
