"""What the gate runs by backend and type, and what it leaves to the session `slow`.

Left are kernels of the fused backend that would take the gate a minute to compile: of float16, and
for RMSNorm of both types of 16 bits. The kernels of layer norm for bfloat16 show how such numbers
pass through all of them, `kernels/fused/test_encoding.py` how those of float16 are read and
rounded; the rest is as for float32. The reference does all types in the gate.
"""

from collections.abc import Callable, Mapping
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
    "SETS_OF_LAYER_NORM",
    "TYPES_OF_LAYER_NORM",
    "left_to_slow",
    "takes_half_by_fused",
]


def left_to_slow(dtype: np.dtype[Any], *backends: str) -> Any:
    """Return the marks of a test of RMSNorm that takes this type by these backends."""
    return pytest.mark.slow if dtype.itemsize == 2 and "fused" in backends else ()


def takes_half_by_fused(parameters: Mapping[str, Any]) -> bool:
    """Tell whether a test's parameters are the fused backend and float16 as the type of x.

    For `conftest.py`, which leaves it to `slow`: they may come from two fixtures.
    """
    dtype = parameters.get("dtype")
    names = [each for each in parameters.values() if isinstance(each, str)]
    return "fused" in names and isinstance(dtype, np.dtype) and _is_half(dtype)


def _is_half(dtype: np.dtype[Any]) -> bool:
    return dtype == np.float16


def _has_16_bits(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == 2


def _kinds(repeat: int) -> list[Any]:
    return [
        pytest.param(
            *names, dtype, marks=left_to_slow(dtype, *names), id=f"{'-'.join(names)}-{dtype}"
        )
        for *names, dtype in product(*[BACKENDS] * repeat, DTYPES)
    ]


def _types(left: Callable[[np.dtype[Any]], bool]) -> list[Any]:
    return [pytest.param(each, marks=pytest.mark.slow if left(each) else ()) for each in DTYPES]


def _sets(left: Callable[[np.dtype[Any]], bool]) -> list[Any]:
    """Return all backends for each type, and for one that is left also the reference alone."""
    return [
        pytest.param(
            names,
            dtype,
            marks=pytest.mark.slow if left(dtype) and "fused" in names else (),
            id=f"{'+'.join(names)}-{dtype}",
        )
        for dtype in DTYPES
        for names in {("reference",) if left(dtype) else BACKENDS: 0, BACKENDS: 1}
    ]


GATED_TYPES = _types(_has_16_bits)
"""The types, of a test of RMSNorm that the fused backend takes part in."""
TYPES_OF_LAYER_NORM = _types(_is_half)
BACKENDS_AND_TYPES = _kinds(1)
PAIRS_AND_TYPES = _kinds(2)
"""A backend for forward, another one for backward."""
SETS_AND_TYPES = _sets(_has_16_bits)
"""All backends on the same case, so that the judge is asked once; of 16 bits also less."""
SETS_OF_LAYER_NORM = _sets(_is_half)
