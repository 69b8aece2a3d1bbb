"""All the cases of a type: the named ones of `cases.toml` and the generated families."""

from collections.abc import Collection
from functools import cache

from truenorm.verify.families import extensions, hard, ordinary, sweeps
from truenorm.verify.inputs import EXTENSIONS, Case
from truenorm.verify.named import named_cases
from truenorm.verify.types import FORMATS

__all__ = ["LEVELS", "case", "cases"]

LEVELS = ("quick", "full")


def cases(dtype: str, level: str = "quick", also: Collection[str] = ()) -> list[Case]:
    """Return the cases of a type, the same ones each time.

    Parameters
    ----------
    dtype : str
        float16, bfloat16, float32 or float64.
    level : str
        ``quick``, or ``full``: more widths, more seeds, longer rows.
    also : collection of str
        The extensions to the default scope, by name.

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
    unknown = set(also) - set(EXTENSIONS)
    if unknown:
        raise ValueError(f"also has {sorted(unknown)}; known are {', '.join(EXTENSIONS)}")
    return [each for each in _all(dtype, level) if each.needs <= set(also)]


def case(name: str) -> Case:
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
            for each in _all(dtype, level):
                if each.name == name:
                    return each
    raise ValueError(f"there is no case {name!r}; truenorm.verify.cases(dtype) lists them")


@cache
def _all(dtype: str, level: str) -> tuple[Case, ...]:
    return (
        *ordinary(dtype, level),
        *sweeps(dtype, level),
        *hard(dtype, level),
        *named_cases(dtype),
        *extensions(dtype),
    )
