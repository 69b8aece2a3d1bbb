"""Hints about a function for LLVM, so that it makes good vectors.

Only `add_in_any_order` has a say in results, and only in those of fast mode.
"""

from typing import Any

from numba import types
from numba.core import config
from numba.extending import intrinsic

__all__ = ["add_in_any_order", "arrays_are_apart", "prefer_wide_vectors"]


def _wide(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    # llvmlite's own `add` knows the attributes that are words; to LLVM this is a string.
    set.add(builder.function.attributes, '"prefer-vector-width"="512"')
    return context.get_dummy_value()


def _apart(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    for argument in builder.function.args:
        # The elements of an array; pointers to bytes belong to Numba's bookkeeping.
        kind = str(argument.type)
        if kind in {"float*", "double*", "i16*"}:
            argument.add_attribute("noalias")
    return context.get_dummy_value()


def _reordered(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.fadd(*arguments, flags=("reassoc", "contract"))


@intrinsic
def _wide_vectors(typing_context: Any) -> Any:
    return types.none(), _wide


@intrinsic
def _apart_arrays(typing_context: Any) -> Any:
    return types.none(), _apart


@intrinsic
def _add(typing_context: Any, total: Any, term: Any) -> Any:
    return types.float64(types.float64, types.float64), _reordered


def _nothing() -> None:
    """Stand in where nothing is compiled."""


def _plain_add(total: float, term: float) -> float:
    """Stand in where nothing is compiled."""
    return total + term


_COMPILES = not getattr(config, "DISABLE_JIT", False)

prefer_wide_vectors: Any = _wide_vectors if _COMPILES else _nothing
"""Ask for vectors of 512 bits in the calling function, where the processor has them.

LLVM takes 256 unless told otherwise, since wide vectors once slowed down the processor. For loops
that convert between float32 and float64 they are faster all the same.
"""

arrays_are_apart: Any = _apart_arrays if _COMPILES else _nothing
"""Promise that what the calling function writes overlaps none of its other arrays.

Else LLVM compares their addresses first, and gives up vectors where there are many.
"""

add_in_any_order: Any = _add if _COMPILES else _plain_add
"""Add a term to a sum in float64 whose terms LLVM may take in any order, nothing else.

For fast mode, whose bounds hold for any order of at most 2**20 terms, and where the sum may be
off.
"""
