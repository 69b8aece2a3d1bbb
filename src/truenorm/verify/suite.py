"""All the cases of a type, of one operation."""

from collections.abc import Collection
from functools import cache

from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations import LAYER_NORM
from truenorm.verify.types import FORMATS

__all__ = ["LEVELS", "case", "cases"]

LEVELS = ("quick", "full")


def cases(
    dtype: str,
    level: str = "quick",
    also: Collection[str] = (),
    *,
    operation: Operation = LAYER_NORM,
) -> list[Case]:
    """Return the cases of a type, the same ones each time.

    Parameters
    ----------
    dtype : str
        float16, bfloat16, float32 or float64.
    level : str
        ``quick``, or ``full``: more widths, more seeds, longer rows.
    also : collection of str
        The extensions to the default scope, by name.
    operation : Operation
        Layer normalization, unless another is given.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> [str(case) for case in tv.cases("float32")][:2]
    ['float32-normal-4x2', 'float32-normal-4x3']
    """
    if dtype not in FORMATS:
        raise ValueError(f"dtype is {dtype!r}; it is one of {', '.join(FORMATS)}")
    if level not in LEVELS:
        raise ValueError(f"level is {level!r}; it is one of {', '.join(LEVELS)}")
    known = operation.extensions
    if unknown := set(also) - set(known):
        raise ValueError(f"also has {sorted(unknown)}; known are {', '.join(known)}")
    return [each for each in _all(operation, dtype, level) if each.needs <= set(also)]


def case(name: str, *, operation: Operation = LAYER_NORM) -> Case:
    """Return a case by its name.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> tv.case("float32-offset-1e7-4x67").why
    'standard deviation 1, mean 1e+07'
    """
    dtype = name.partition("-")[0]
    if dtype in FORMATS:
        for level in LEVELS:
            for each in _all(operation, dtype, level):
                if each.name == name:
                    return each
    raise ValueError(f"there is no case {name!r}; truenorm.verify.cases(dtype) lists them")


@cache
def _all(operation: Operation, dtype: str, level: str) -> tuple[Case, ...]:
    return tuple(operation.cases(dtype, level))
