"""Calls and rows for the tests of the driver and of backends."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from shared.promise.families import EPSILONS, X_FAMILIES, Array, Case, CaseSpec
from truenorm.exact import FloatFormat
from truenorm.kernels.call import LAYER_NORM, Call, Parameter, Settings
from truenorm.kernels.rows import Rows, format_of

KINDS = ("random", "proportional", "one_hot")


def each_family(dtype: Any, rows: int, *widths: int) -> Iterator[Case]:
    """Yield every family with three kinds of dy, cycling through widths and eps."""
    kind = np.dtype(dtype)
    parameter = ("random", kind)
    for seed, family in enumerate(X_FAMILIES):
        size, eps = widths[seed % len(widths)], EPSILONS[seed % len(EPSILONS)]
        for dy in KINDS:
            yield CaseSpec(family, rows, size, eps, dy, parameter, parameter).build(kind, seed)


def format_for(array: Array) -> FloatFormat:
    target = format_of(array.dtype)
    assert target is not None
    return target


def rows_for(array: Array) -> Rows:
    return Rows(array, (1,), format_for(array))


def parameter_for(values: Array) -> Parameter:
    return Parameter(values.astype(np.float64), format_for(values))


def call_for(case: Case) -> Call:
    """Return the call of a case in correct mode on the reference backend."""
    settings = Settings(LAYER_NORM, case.eps, "correct", "reference")
    gamma, beta = (parameter_for(values) for values in case.parameters)
    return Call.of(settings, rows_for(case.x), gamma, beta)
