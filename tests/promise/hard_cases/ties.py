"""Results on a midpoint, where r is rational, or beside one by what eps or a subnormal adds."""

import numpy as np

from promise.families import Array, Case
from promise.formats import FORMATS
from promise.hard_cases.maker import Maker


def beside(eps: float, root: int, make: Maker) -> tuple[float, int]:
    """Half the time the eps that makes r rational, half the time one ulp beside it."""
    side = make.rng.choice([0.0, np.inf] if eps == 0 else [0.0, 0.0, -np.inf, np.inf])
    return (float(np.nextafter(eps, side)) if side else eps), root


def _signs(make: Maker, rows: int, size: int) -> Array:
    """Return rows with c = +-1, hence v = 1, beside a mean that is an integer if it is taken."""
    signs = np.tile([1.0, -1.0], (rows, size // 2)) * make.rng.choice([1, -1], (rows, 1))
    return make.cast(signs + make.centred * make.rng.integers(-60, 60, (rows, 1)))


def _halves(make: Maker, size: int) -> tuple[Array, Array]:
    """Return integers and eighths whose sum and difference are midpoints of the type."""
    top = 2 ** (make.precision - 3)
    integers = make.rng.integers(top + 1, 2 * top, size).astype(np.float64)
    return integers, (2 * make.rng.integers(0, 4, size) + 1) / 8


def tie_y(make: Maker, size: int, eps: float, root: int) -> Case:
    integer, eighths = _halves(make, size)
    gamma, beta = make.cast(root * integer), make.cast(eighths)
    x = _signs(make, 1, size)
    return Case("tie", x, gamma, beta, make.normal(1, size), eps)


def tie_dx(make: Maker, size: int, eps: float, root: int) -> Case:
    """With c = (1, 1, -1, -1) and g = (a, b, 0, 0), dx_0 is a rational of a and b."""
    # dx_0 = (p*a - q*b)/n, where n is a power of two times the unit.
    p, q, unit = {1: (1, 1, 1), 2: (11, 5, 1), 3: (13, 5, 27)}[root]
    rows, top = size, 2 ** (make.precision - 4)
    a = make.rng.integers(-(-5 * top // (4 * p)), 2 * top // p, rows, endpoint=p > 1)
    b = (2 * make.rng.integers(0, 4, rows) + 1) / 16
    del q  # odd, which is all that matters of it
    dy = np.zeros((rows, 4))
    dy[:, 0], dy[:, 1] = unit * a, unit * b
    dy *= make.rng.choice([1, -1, 2, 0.5], (rows, 1))
    x = np.array([1.0, 1.0, -1.0, -1.0]) + make.rng.integers(-60, 60, (rows, 1))
    return Case("tie", make.cast(x), make.cast(np.ones(4)), None, make.cast(dy), eps, (0,))


def tie_dgamma(make: Maker, size: int, eps: float, root: int) -> Case:
    integer, eighths = _halves(make, size)
    x = _signs(make, 2, size)
    dy = make.cast(root * np.stack([integer, eighths]))
    return Case("tie", x, make.normal(1, size)[0], None, dy, eps)


def tie_dbeta(make: Maker, size: int) -> Case:
    """Midpoints, exact or one subnormal off, between two large numbers that cancel."""
    integer, eighths = _halves(make, size)
    subnormal = 2.0 ** FORMATS[make.dtype].quantum * make.rng.choice([-1, 0, 0, 1], size)
    large = 4 * make.rng.permutation(integer)
    dy = np.stack([integer, eighths, subnormal, large, -large]) * make.rng.choice([-1, 1], size)
    dy = make.rng.permuted(dy, axis=0)
    x, beta = make.normal(5, size), make.normal(1, size)[0]
    return Case("tie", x, None, beta, make.cast(dy), 1e-5)
