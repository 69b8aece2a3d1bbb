"""The cases of an operation, by type, level and seed, or by name."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from truenorm.tools.arguments import require_choice, require_type
from truenorm.verify.inputs.families import EPS, SEEDS
from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations import LAYER_NORM, as_operation
from truenorm.verify.types import FORMATS

LEVELS = ("quick", "full")
USUAL_WIDTH = 64
"""A row length that every kernel supports."""


def cases(
    dtype: str,
    level: str = "quick",
    also: Collection[str] = (),
    *,
    operation: Operation | str = LAYER_NORM,
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
    operation : Operation or str
        Layer normalization, unless another is given.
    seed : int
        Another one than 0 gives cases of the same kinds from other random numbers, some of other
        widths; their names end with it. Named cases, and those next to midpoints, stay.

    Returns
    -------
    list of Case
        The cases of the operation in this type.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> [str(case) for case in tv.cases("float32")][:2]
    ['float32-normal-4x2', 'float32-normal-4x3']
    >>> [str(case) for case in tv.cases("float32", seed=7)][:2]
    ['float32-normal-4x2-7', 'float32-normal-4x3-7']
    """
    require_choice("dtype", dtype, FORMATS)
    require_choice("level", level, LEVELS)
    if seed < 0:
        raise ValueError(f"seed must be 0 or above; got {seed}")
    operation = as_operation(operation)
    extensions = operation.extensions
    if unknown := set(also) - set(extensions):
        raise ValueError(f"also must be of {', '.join(extensions)}; got {sorted(unknown)}")
    return [each for each in _all(operation, dtype, level, seed) if each.needs <= set(also)]


def case(name: str, *, operation: Operation | str = LAYER_NORM) -> Case:
    """Return a case by its name.

    Parameters
    ----------
    name : str
        The type, the family and the shape, as reports print it: ``float32-normal-4x17``.
    operation : Operation or str
        Layer normalization, unless another is given.

    Returns
    -------
    Case
        The case of the operation.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> tv.case("float32-offset-1e7-4x67").why
    'standard deviation 1, mean 1e+07'
    """
    require_type("name", name, str, "text such as 'float32-normal-4x17'")
    operation, dtype = as_operation(operation), name.partition("-")[0]
    if dtype in FORMATS:
        for seed in _seeds(name):
            for level in LEVELS:
                for each in _all(operation, dtype, level, seed):
                    if each.name == name:
                        return each
    raise ValueError(f"there is no case {name!r}; truenorm.verify.cases(dtype) lists them")


def _seeds(name: str) -> list[int]:
    """Return the seeds whose cases may have this name, the likely one first.

    The level `full` has several seeds from 0 on, and seed 0 has the cases without noise.
    """
    ending = re.search(r"-(\d+)$", name)
    if not ending:
        return [0]
    seed = int(ending[1])
    return [0, seed] if seed < SEEDS["full"] else [seed, 0]


def usual_cases(suite: Sequence[Case], dtype: str) -> list[Case]:
    """Return ordinary rows of a type, of a usual width, and rows of a usual eps, if any."""
    ordinary = [case for case in suite if case.dtype == dtype and case.family == "normal"]
    ordinary.sort(key=lambda case: abs(case.shape[1] - USUAL_WIDTH))
    usual = [case for case in ordinary if case.eps == EPS]
    return [*ordinary[:1], *(case for case in usual[:1] if case is not ordinary[0])]


@cache
def _all(operation: Operation, dtype: str, level: str, seed: int) -> tuple[Case, ...]:
    return _make(operation, dtype, level, seed)


def _make(operation: Operation, dtype: str, level: str, seed: int) -> tuple[Case, ...]:
    with np.errstate(all="ignore"):  # the caller's settings must not matter
        suite = tuple(operation.cases(dtype, level, seed))
    return tuple(replace(each, seeded=True) for each in suite) if seed else suite
