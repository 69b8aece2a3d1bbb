"""What the gate runs by backend and type, and what it leaves to the session `slow`.

Left are kernels of the fused backend that would take the gate minutes to compile: of types of 16
bits. `kernels/fused/test_encoding.py` shows how these are read and rounded; the rest is as for
float32. The reference does all types in the gate.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest

from promise.families import DTYPES
from promise.judging import BACKENDS

__all__ = [
    "BACKENDS_AND_TYPES",
    "COMPILED",
    "GATED_TYPES",
    "PAIRS_AND_TYPES",
    "SETS_AND_TYPES",
    "left_to_slow",
    "takes_16_bits_by_fused",
]

COMPILED = {"fused"}
"""Backends that compile kernels for 16 bits."""


def left_to_slow(dtype: np.dtype[Any], *backends: str) -> Any:
    """Return the marks of a test that takes this type by these backends."""
    return pytest.mark.slow if _has_16_bits(dtype) and COMPILED & set(backends) else ()


def takes_16_bits_by_fused(parameters: Mapping[str, Any]) -> bool:
    """Tell whether a test's parameters are the fused backend and such a type as that of x.

    For `conftest.py`, which leaves it to `slow`: they may come from two fixtures.
    """
    dtype = parameters.get("dtype")
    names = [each for each in parameters.values() if isinstance(each, str)]
    return bool(COMPILED & set(names)) and isinstance(dtype, np.dtype) and _has_16_bits(dtype)


def _has_16_bits(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == 2


def _kinds(repeat: int) -> list[Any]:
    return [
        pytest.param(
            *names, dtype, marks=left_to_slow(dtype, *names), id=f"{'-'.join(names)}-{dtype}"
        )
        for *names, dtype in product(*[BACKENDS] * repeat, DTYPES)
    ]


def _sets() -> list[Any]:
    """Return all backends for each type, and for one that is left also the reference alone."""
    return [
        pytest.param(
            names, dtype, marks=left_to_slow(dtype, *names), id=f"{'+'.join(names)}-{dtype}"
        )
        for dtype in DTYPES
        for names in {("reference",) if _has_16_bits(dtype) else BACKENDS: 0, BACKENDS: 1}
    ]


GATED_TYPES = [pytest.param(each, marks=left_to_slow(each, "fused")) for each in DTYPES]
"""The types, of a test that the fused backend takes part in."""
BACKENDS_AND_TYPES = _kinds(1)
PAIRS_AND_TYPES = _kinds(2)
"""A backend for forward, another one for backward."""
SETS_AND_TYPES = _sets()
"""All backends on the same case, so that the judge is asked once; of 16 bits also less."""
