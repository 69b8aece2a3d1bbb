"""Cases for partials, and partials of cases: whole, of some rows, and merged in some tree."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import truenorm as tn
from promise.checking import forward_pass
from promise.families import DTYPES, Array, Case, cases, full_range_cases, non_finite_cases

__all__ = ["NARROW", "drawn_cases", "merged_at_random", "nasty_cases", "partial_of"]

NARROW = DTYPES[:3]
"""The types of which there are partials."""

EPSILONS = (1e-5, 0.0, 1e30, 5e-324, 1.0, 1e-40, 1e300)


def partial_of(
    case: Case, backend: str, *, forward: str | None = None, threads: int | None = None
) -> tn.PartialGradients:
    """Return the partial of all rows; another backend may do forward."""
    _, saved = forward_pass(case, forward or backend)
    backward = tn.layer_norm_backward_partial if case.centred else tn.rms_norm_backward_partial
    return backward(case.dy, saved, backend=backend, threads=threads)[1]


def merged_at_random(
    parts: list[tn.PartialGradients], random: np.random.Generator
) -> tn.PartialGradients:
    """Merge them two at a time, in any tree."""
    left = list(parts)
    while len(left) > 1:
        i, j = random.permutation(len(left))[:2].tolist()
        total = left[i] + left[j]
        left = [part for k, part in enumerate(left) if k not in (i, j)] + [total]
    return left[0]


def _narrow(array: Array | None) -> Array | None:
    """Return a parameter as one of a type that partials have."""
    if array is None or array.dtype != np.float64:
        return array
    with np.errstate(all="ignore"):
        return array.astype(np.float32)


def drawn_cases(dtype: np.dtype[Any], elements: int) -> Iterator[Case]:
    """Yield those of the promise that are small enough, of both norms in turn."""
    drawn = [
        *(case for case in cases(dtype, 0) if case.x.size <= elements),
        *full_range_cases(dtype, 40),
        *non_finite_cases(dtype, 40, (1, 2, 7), (1, 2, 3, 17)),
    ]
    for case in drawn:
        narrow = replace(case, gamma=_narrow(case.gamma), beta=_narrow(case.beta))
        yield narrow
        yield narrow.as_rms_norm()


def nasty_cases(dtype: np.dtype[Any], rows: int, size: int, count: int) -> Iterator[Case]:
    """Yield batches whose rows are of different kinds, each of which breaks something."""
    top = float(np.finfo(np.float32).max) if dtype.itemsize == 4 else 3e4
    tiny = 2.0**-149 if dtype.itemsize == 4 else 2.0**-24
    random = np.random.default_rng([7, size, DTYPES.index(dtype)])

    def draw(shape: tuple[int, ...]) -> Array:
        z = random.standard_normal(shape)
        scale = 10.0 ** random.uniform(-18, 18, shape)
        kinds: list[Array] = [
            z,
            random.choice([1e4, 1e7]) + z,
            z * scale,
            np.full(shape, 3.0),
            np.copysign(0.0, z),
            z * tiny * 4,
            z * top,
            random.integers(-3, 4, shape).astype(np.float64),
            z * 10.0 ** random.uniform(-40, 38),
            np.where(random.random(shape) < 0.8, 0.0, z),
        ]
        return kinds[int(random.integers(len(kinds)))]

    def batch() -> Array:
        values = np.stack([draw((size,)) for _ in range(rows)])
        if random.random() < 0.3:
            values[:, random.integers(size)] = 0.0
        if random.random() < 0.2:  # rows that cancel each other
            values[rows // 2 :] = -values[: rows - rows // 2]
        with np.errstate(all="ignore"):
            found: Array = np.clip(values, -top, top).astype(dtype)
        if random.random() < 0.15:
            found[random.integers(rows), random.integers(size)] = random.choice(
                [np.inf, -np.inf, np.nan]
            )
        return found

    for k in range(count):
        kinds = [NARROW[random.integers(3)] if random.random() < 0.8 else None for _ in range(2)]
        gamma, beta = (
            None if kind is None else random.standard_normal(size).astype(kind) for kind in kinds
        )
        name = f"{dtype.name} nasty {rows}x{size} {k}"
        case = Case(name, batch(), gamma, beta, batch(), EPSILONS[k % len(EPSILONS)])
        yield case if k % 2 else case.as_rms_norm()
