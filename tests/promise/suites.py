"""Mixtures of the families, and of what is not finite, with all that goes with a row.

`cases` mixes them with every eps, width, kind of dy, gamma and beta, and type of parameter, until
a budget of elements is used up.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from promise.families import (
    ABSENT,
    DTYPES,
    DY_KINDS,
    EPSILONS,
    PARAMETER_KINDS,
    X_FAMILIES,
    Array,
    Case,
    Choice,
    usual_case,
)
from promise.formats import FORMATS

# Powers of two hide bugs: each of them has a neighbour that is none.
WIDTHS = (1, 2, 3, 5, 16, 17, 64, 67, 513, 1000, 1024, 4096)
SMALL_ODD_WIDTHS = (17, 67, 5, 3)
ROWS = (1, 2, 7)
SHAPE = (7, 67)  # of each family, where they are compared


def _shapes() -> Iterator[tuple[str, int, int]]:
    """Every family at a small width that is no power of two; every width; many rows."""
    families = list(X_FAMILIES)
    for k, family in enumerate(families):
        # Two mirrored rows leave nothing of dgamma; of seven one is left over.
        rows = {"mirrored": 2, "mirrored_doubled": 7}.get(family, ROWS[k % len(ROWS)])
        yield family, rows, SMALL_ODD_WIDTHS[k % len(SMALL_ODD_WIDTHS)]
    for k, size in enumerate(WIDTHS):
        yield families[7 * k % len(families)], 7 if size < 10 else 1, size
    yield "mirrored_doubled", 1000, 5


def cases(dtype: Any, budget: int, seed: int = 0) -> Iterator[Case]:
    """Yield cases of about `budget` elements of x in all, at least the core of 13,785.

    The core has every family, width, eps, kind and pair of types; the rest is drawn at random
    (by a fixed seed) and crosses them.
    """
    wanted = np.dtype(dtype)
    rng = np.random.default_rng([seed, DTYPES.index(wanted)])
    present = list(PARAMETER_KINDS)
    parameters = [*present, ABSENT]
    kinds = list(DY_KINDS)
    used = 0
    for k, (family, rows, size) in enumerate(_shapes()):
        # The strides are coprime to the lengths, so that each list is gone through.
        gamma_type, beta_type = DTYPES[k % 4], DTYPES[(k // 4) % 4]
        if k % 3 == 0:
            gamma_type = beta_type = wanted
        # These are about sums over rows, which an absent parameter does not have.
        mirrored = family.startswith("mirrored")
        choice = Choice(
            family, rows, size, EPSILONS[5 * k // 2 % 6], kinds[k % len(kinds)],
            (present[k // 2 % 5] if mirrored else parameters[k // 2 % 6], gamma_type),
            (present[k // 3 % 5] if mirrored else parameters[k // 3 % 6], beta_type),
        )  # fmt: skip
        used += rows * size
        yield choice.build(wanted, seed + k)
    number = 1000
    while used < budget:
        fitting = [size for size in WIDTHS if size <= max(1, budget - used)]
        size = int(rng.choice(fitting))
        rows = min(int(rng.choice(ROWS)), max(1, (budget - used) // size))
        types = [wanted if rng.random() < 0.5 else DTYPES[rng.integers(4)] for _ in range(2)]
        choice = Choice(
            str(rng.choice(list(X_FAMILIES))), rows, size, float(rng.choice(EPSILONS)),
            str(rng.choice(kinds)), (str(rng.choice(parameters)), types[0]),
            (str(rng.choice(parameters)), types[1]),
        )  # fmt: skip
        used += rows * size
        number += 1
        yield choice.build(wanted, seed + number)


def each_family_alike(dtype: np.dtype[Any]) -> Iterator[Case]:
    """Give every family the same weight and the usual eps; `cases` does neither."""
    for family in X_FAMILIES:
        for seed in range(3):
            yield usual_case(family, *SHAPE, dtype, seed)


def _anywhere(random: np.random.Generator, dtype: np.dtype[Any], *shape: int) -> Array:
    """Return numbers of the type with exponents over its whole range, and zeros among them."""
    form = FORMATS[dtype]
    top = form.quantum + 2 ** (form.width - form.precision) + form.precision - 3
    exponents = random.integers(form.quantum, top, shape)
    values: Array = np.ldexp(random.choice([-1.0, 1.0, 1.0], shape), exponents)
    values[random.random(shape) < 0.2] = 0.0
    rounded: Array = values.astype(dtype)
    return rounded


def cases_from_anywhere(dtype: np.dtype[Any], count: int) -> Iterator[Case]:
    """Yield small cases of huge and tiny numbers; parameters are of every type in turn."""
    random = np.random.default_rng(0)
    for seed in range(count):
        rows, size = int(random.integers(1, 4)), int(random.integers(1, 7))
        eps = float(random.choice(EPSILONS))
        other = DTYPES[seed % 4]
        x, dy = (_anywhere(random, dtype, rows, size) for _ in range(2))
        gamma, beta = (_anywhere(random, other, size) for _ in range(2))
        yield Case(f"anywhere {seed}", x, gamma, beta, dy, eps)


def not_finite_cases(
    dtype: np.dtype[Any], count: int, rows: tuple[int, ...], widths: tuple[int, ...]
) -> Iterator[Case]:
    """Yield cases with infinities and NaN: in a few places of each array, in many or in none.

    So many of these shapes; parameters are of every type in turn.
    """
    random = np.random.default_rng(DTYPES.index(dtype))

    def draw(kind: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        array: Array = random.standard_normal(shape).astype(kind)
        chosen = random.random(shape) < random.choice([0.0, 0.01, 0.3])
        array[chosen] = random.choice([np.inf, -np.inf, np.nan], int(chosen.sum()))
        return array

    for seed in range(count):
        shape = int(random.choice(rows)), int(random.choice(widths))
        other = DTYPES[seed % 4]
        x, dy = draw(dtype, shape), draw(dtype, shape)
        gamma, beta = draw(other, shape[1:]), draw(other, shape[1:])
        eps = float(random.choice(EPSILONS))
        yield Case(f"{dtype.name} not finite {shape} {seed}", x, gamma, beta, dy, eps)
