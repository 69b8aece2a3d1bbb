"""Parameters of tests that every backend takes with every type."""

from itertools import product
from typing import Any

import pytest

from promise.families import DTYPES
from promise.judging import BACKENDS

__all__ = ["BACKENDS_AND_TYPES", "PAIRS_AND_TYPES", "SETS_AND_TYPES"]


def _kinds(repeat: int) -> list[Any]:
    return [
        pytest.param(*names, dtype, id=f"{'-'.join(names)}-{dtype}")
        for *names, dtype in product(*[BACKENDS] * repeat, DTYPES)
    ]


BACKENDS_AND_TYPES = _kinds(1)
PAIRS_AND_TYPES = _kinds(2)
"""A backend for forward, another one for backward."""
SETS_AND_TYPES = [
    pytest.param(BACKENDS, dtype, id=f"{'+'.join(BACKENDS)}-{dtype}") for dtype in DTYPES
]
"""All backends on the same case, so that the judge is asked once."""
