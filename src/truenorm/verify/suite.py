"""All the cases of a type, of one operation."""

import re
import zlib
from collections.abc import Collection
from dataclasses import replace
from functools import cache, lru_cache

import numpy as np

from truenorm.verify.cases.families import SEEDS
from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations import LAYER_NORM
from truenorm.verify.types import FORMATS

LEVELS = ("quick", "full")


def cases(
    dtype: str,
    level: str = "quick",
    also: Collection[str] = (),
    *,
    operation: Operation = LAYER_NORM,
    seed: int = 0,
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
    seed : int
        With another one than 0, cases of the same kinds from other random numbers, some of them of
        other widths; their names end with it. Named cases, and those next to midpoints, stay.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> [str(case) for case in tv.cases("float32")][:2]
    ['float32-normal-4x2', 'float32-normal-4x3']
    >>> [str(case) for case in tv.cases("float32", seed=7)][:2]
    ['float32-normal-4x2-7', 'float32-normal-4x3-7']
    """
    if dtype not in FORMATS:
        raise ValueError(f"dtype is {dtype!r}; it is one of {', '.join(FORMATS)}")
    if level not in LEVELS:
        raise ValueError(f"level is {level!r}; it is one of {', '.join(LEVELS)}")
    if seed < 0:
        raise ValueError(f"seed is {seed}; it is 0 or above")
    known = operation.extensions
    if unknown := set(also) - set(known):
        raise ValueError(f"also has {sorted(unknown)}; known are {', '.join(known)}")
    return [each for each in _all(operation, dtype, level, seed) if each.needs <= set(also)]


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
        for seed in _seeds(name):
            for level in LEVELS:
                for each in _all(operation, dtype, level, seed):
                    if each.name == name:
                        return each
    raise ValueError(f"there is no case {name!r}; truenorm.verify.cases(dtype) lists them")


def _seeds(name: str) -> list[int]:
    """Return the seeds whose cases may have such a one, the likely one first.

    The level `full` has several beginning with 0, and what no seed changes is found with 0, too.
    """
    ends = re.search(r"-(\d+)$", name)
    if not ends:
        return [0]
    seed = int(ends[1])
    return [0, seed] if seed < SEEDS["full"] else [seed, 0]


@lru_cache(maxsize=4)  # of one seed some are asked for, then others; there are many seeds
def seeded_cases(operation: Operation, dtype: str, level: str, seed: int) -> tuple[Case, ...]:
    """Return the cases that no other seed has, in an order that the seed draws, too.

    Without the family `large`, for the sake of whose one call others would wait.
    """
    same = {each.name for each in _all(operation, dtype, level, 0)}
    found = [
        each
        for each in _made(operation, dtype, level, seed)
        if each.name not in same and each.family != "large"
    ]
    random = np.random.default_rng([zlib.crc32(dtype.encode()), seed])
    return tuple(found[place] for place in random.permutation(len(found)))


@cache
def _all(operation: Operation, dtype: str, level: str, seed: int) -> tuple[Case, ...]:
    return _made(operation, dtype, level, seed)


def _made(operation: Operation, dtype: str, level: str, seed: int) -> tuple[Case, ...]:
    with np.errstate(all="ignore"):  # whatever the caller has set
        found = tuple(operation.cases(dtype, level, seed))
    return tuple(replace(each, seeded=True) for each in found) if seed else found
