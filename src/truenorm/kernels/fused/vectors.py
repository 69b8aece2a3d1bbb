"""A wish about the code that LLVM makes of a function. No result depends on it."""

from typing import Any

from numba import types
from numba.core import config
from numba.extending import intrinsic

__all__ = ["prefer_wide_vectors"]


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    # llvmlite's own `add` knows the attributes that are words; to LLVM this is a string.
    set.add(builder.function.attributes, '"prefer-vector-width"="512"')
    return context.get_dummy_value()


@intrinsic
def _wide_vectors(typing_context: Any) -> Any:
    return types.none(), _generate


def _nothing() -> None:
    """Stand in where nothing is compiled."""


prefer_wide_vectors: Any = _nothing if getattr(config, "DISABLE_JIT", False) else _wide_vectors
"""Ask for vectors of 512 bits in the calling function, where the processor has them.

LLVM takes 256 unless told otherwise, since wide vectors once slowed down the processor. For loops
that convert between float32 and float64 they are faster all the same.
"""
