"""RMSNorm by backend and type: what the gate runs, and what it leaves to the session `slow`.

Left are 16-bit types by the fused backend, whose kernels would take the gate a minute to compile.
How numbers of these types are read and rounded, the kernels of layer norm show, which share that;
the rest is as for float32. The reference does them in the gate.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest

from promise.families import DTYPES
from promise.judging import BACKENDS

__all__ = [
    "BACKENDS_AND_TYPES",
    "GATED_TYPES",
    "PAIRS_AND_TYPES",
    "SETS_AND_TYPES",
    "left_to_slow",
]


def left_to_slow(dtype: np.dtype[Any], *backends: str) -> Any:
    """Return the marks of a test of RMSNorm that takes this type by these backends."""
    return pytest.mark.slow if dtype.itemsize == 2 and "fused" in backends else ()


def _kinds(repeat: int) -> list[Any]:
    return [
        pytest.param(
            *names, dtype, marks=left_to_slow(dtype, *names), id=f"{'-'.join(names)}-{dtype}"
        )
        for *names, dtype in product(*[BACKENDS] * repeat, DTYPES)
    ]


GATED_TYPES = [pytest.param(dtype, marks=left_to_slow(dtype, "fused")) for dtype in DTYPES]
"""The types, of a test that the fused backend takes part in."""
BACKENDS_AND_TYPES = _kinds(1)
PAIRS_AND_TYPES = _kinds(2)
"""A backend for forward, another one for backward."""
SETS_AND_TYPES = [
    pytest.param(names, dtype, marks=left_to_slow(dtype, *names), id=f"{'+'.join(names)}-{dtype}")
    for dtype in DTYPES
    for names in {("reference",) if dtype.itemsize == 2 else BACKENDS: 0, BACKENDS: 1}
]
"""All backends on the same case, so that the judge is asked once; of 16 bits also less."""
