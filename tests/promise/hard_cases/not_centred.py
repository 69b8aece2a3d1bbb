"""Hard cases of a norm that has neither a mean nor a beta, where those of layer norm need them."""

import numpy as np

from promise.families import Case
from promise.hard_cases.maker import Maker


def near_y_by_x(make: Maker, size: int, eps: float, offset: float) -> Case:
    """Lower the last y of a row to a midpoint: the first x, ever smaller, add to mean(x^2)."""
    half = make.dtype == np.float16  # which has a small range: x is made large
    stages = {11: 5, 8: 8, 24: 2, 53: 1}[make.precision]
    rows, size = 100 if size > 17 else 1000, max(size, stages + 3)
    x = make.normal(rows, size, 1024.0 if half else 1.0, offset)
    x[:, :stages] = 0
    gamma = make.cast(make.rng.uniform(0.5, 1, size), make.parameters)
    last = make.lift(x[:, -1]) * make.lift(gamma[-1:])
    xhat, r = make.normalized(x, eps)
    value = xhat[:, -1] * make.lift(gamma[-1:])
    target = make.midpoint(value)
    target = np.where(np.abs(target) < np.abs(value), target, make.midpoint(value, -1))
    w = 1 / (r * r)[:, 0]
    wanted = (last / target) ** 2
    for k in range(stages):
        step = make.root((wanted - w) * size)
        # Rounded down, so that the next step has something left to add.
        x[:, k] = make.cast(step * (1 - 2.0**-make.precision * 1.5))
        w = w + make.lift(x[:, k]) ** 2 / size
    missed = np.abs(((wanted - w) / w).astype(np.float64)) / 2
    good = (missed <= make.near) & (np.abs(x.astype(np.float64)) < 1e5).all(axis=1)
    return Case("near", x[good], gamma, None, make.normal(rows, size)[good], eps, (size - 1,))


def tie_y_by_product(make: Maker, size: int, eps: float, root: int) -> Case:
    """Give x times gamma an odd factor, and so one digit more than the type has."""
    # The mean square of (7, 1) is 25, and that of (3, 1, 1, 1) is 3.
    odd, ones, multiple = (7, 1, 5) if root == 5 else (3, 3, 1)
    x = np.resize([odd, *[1] * ones], (1, size - size % (ones + 1)))
    top = 2**make.precision
    lowest, highest = -(-top // odd), min(2 * top // odd, top // multiple)
    digits = 2 * make.rng.integers(lowest // 2, (highest - 1) // 2, x.shape[1]) + 1
    gamma = make.cast(digits * float(multiple))
    columns = tuple(range(0, x.shape[1], ones + 1))
    return Case("tie", make.cast(x), gamma, None, make.normal(*x.shape), eps, columns)


def tie_dx_of_two(make: Maker, size: int, eps: float, root: int) -> Case:
    """With x = (1, -1) and g = (a, b), dx_0 = (p*a + b)/n, n a power of two times the unit."""
    p, unit = {1: (1, 1), 2: (7, 1), 3: (17, 27)}[root]
    top = 2 ** (make.precision - 4)
    a = make.rng.integers(-(-top // p), (2 * top - 1) // p, size, endpoint=True)
    b = (2 * make.rng.integers(0, 4, size) + 1) / 16
    dy = unit * np.stack([a, b], axis=1) * make.rng.choice([1, -1, 2, 0.5], (size, 1))
    x = make.cast(np.tile([1.0, -1.0], (size, 1)))
    return Case("tie", x, make.cast(np.ones(2)), None, make.cast(dy), eps, (0,))
