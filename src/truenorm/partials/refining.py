"""Columns that a partial leaves undecided, from the rows themselves, in integers."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from truenorm.exact import Term, round_sum_of_roots
from truenorm.kernels import integers
from truenorm.kernels.call import Call, Parameter
from truenorm.kernels.rows import Rows
from truenorm.ops import arguments
from truenorm.ops.output import as_parameter
from truenorm.ops.saved import Saved
from truenorm.partials.kind import Kind
from truenorm.partials.rounding import RoundedGradients

__all__ = ["refined"]


def refined(
    kind: Kind,
    rows: int,
    found: RoundedGradients,
    batches: Iterable[tuple[Any, Saved]],
    divide_by: int,
) -> RoundedGradients:
    """Return the gradients with all columns decided."""
    if found.dgamma is None or not len(found.undecided):
        return found
    terms: list[list[Term]] = [[] for _ in found.undecided]
    count = 0
    for dy, saved in batches:
        kind.check_same(Kind.of(saved))
        slopes, target = arguments.dy_of(dy, saved.x)
        dy_rows, x_rows = (Rows(array, saved.axes, target) for array in (slopes, saved.x))
        count += x_rows.count
        nothing = Parameter(np.zeros(kind.size), None)
        call = Call.of(saved.settings, x_rows, nothing, nothing)
        more = integers.terms_of(dy_rows, x_rows, found.undecided, call)
        for column, some in zip(terms, more, strict=True):
            column += [
                term._replace(denominator=term.denominator * divide_by)
                for term in some
                if term.numerator
            ]
    if count != rows:
        raise ValueError(f"the batches have {count} rows and the partial {rows}: pass all of them")
    dgamma = found.dgamma.astype(np.float64).ravel()
    target = kind.target("gamma")
    dgamma[found.undecided] = [round_sum_of_roots(column, target) for column in terms]
    assert kind.gamma is not None
    return RoundedGradients(
        as_parameter(dgamma, kind.gamma, kind.lengths), found.dbeta, np.empty(0, np.intp)
    )
