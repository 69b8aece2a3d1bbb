"""Is it another operation? What came back is held against what relatives would give."""

from collections import defaultdict
from collections.abc import Collection

import numpy as np

from truenorm.verify.answers.expected import expected
from truenorm.verify.grading.guards import Judged
from truenorm.verify.own.cases import is_own

__all__ = ["mistaken_in"]

ROOM = 16.0
"""Units of roundoff of an element and of the largest in its row: a mistake is far beyond."""


def mistaken_in(judged: Collection[Judged]) -> dict[str, str]:
    """Return, by type, what the first result is instead, if it is that on all ordinary rows."""
    fits: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for one in judged:
        if one.output != one.case.operation.outputs[0].name or is_own(one.case):
            continue
        got = one.result.astype(np.float64)
        unit = ROOM * expected(one.case).unit(one.output)
        for name, instead in one.case.operation.mistaken(one.case).items():
            with np.errstate(invalid="ignore"):
                sizes = np.abs(instead) + np.abs(instead).max(axis=1, keepdims=True)
                close = bool((np.abs(got - instead) <= unit * sizes).all())
            fits[one.case.dtype][name].append(close)
    return {
        dtype: name
        for dtype, by_name in fits.items()
        for name, close in by_name.items()
        if all(close)
    }
