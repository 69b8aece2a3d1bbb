"""Results near a midpoint: something that enters them linearly is chosen so."""

import numpy as np

from promise.families import Case
from promise.hard_cases.maker import Maker


def near_y(make: Maker, size: int, eps: float, offset: float) -> Case:
    """Of several gamma the one that comes nearest to a midpoint, and beta to bridge the rest."""
    tries = np.arange(4 if make.wide else 64)[:, np.newaxis]
    x = make.normal(1, size, offset=offset)
    xhat, _ = make.normalized(x, eps)
    start = xhat.astype(np.float64) * make.rng.uniform(0.5, 2, size)
    target = make.midpoint(start, tries)
    gamma = make.cast(target / xhat, make.parameters)
    rest = target - make.lift(gamma) * xhat
    best = np.argmin(np.abs(rest.astype(np.float64)), axis=0), np.arange(size)
    beta = make.cast(rest[best], make.parameters)
    missed = np.abs(((rest[best] - make.lift(beta)) / target[best]).astype(np.float64))
    columns = tuple(np.flatnonzero(missed <= make.near).tolist())
    return Case("near", x, gamma[best], beta, make.normal(1, size), eps, columns)


def near_dx(make: Maker, size: int, eps: float, offset: float) -> Case:
    """Tune the last column by the first ones, with ever smaller gamma: one element a row."""
    half = make.dtype == np.float16  # so little range that all of gamma, dy and x must share it
    stages = {11: 4, 8: 6, 24: 2, 53: 1}[make.precision]
    step = 9 if half else make.precision + 1
    rows, size = 100 if size > 17 else 1000, max(size, stages + 3)
    x = make.normal(rows, size, 256.0 if half else 1.0, offset)
    gamma = make.rng.uniform(0.5, 1, size) * (4096.0 if half else 1.0)
    gamma[:stages] = 2.0 ** ((12 if half else 0) - step * np.arange(1, stages + 1))
    gamma = make.cast(gamma, make.parameters)
    dy = make.normal(rows, size, 64.0 if half else 1.0)
    dy[:, :stages] = 0
    xhat, r = make.normalized(x, eps)
    g = make.lift(gamma) * make.lift(dy)
    mean, slope = (part.sum(axis=1) / size for part in (g * make.centred, g * xhat))
    last, r = xhat[:, -1], r[:, 0]
    tuning = [
        -r * make.lift(gamma[k : k + 1]) * (make.centred + last * xhat[:, k]) / size
        for k in range(stages)
    ]
    chosen, good = make.tune(r * (g[:, -1] - mean - last * slope), tuning)
    dy[:, :stages] = np.stack(chosen, axis=1)
    return Case("near", x[good], gamma, None, dy[good], eps, (size - 1,))


def near_dgamma(make: Maker, size: int, eps: float, offset: float) -> Case:
    """Further rows tune the sum of three; of small x where the type has no small dy."""
    half = make.dtype == np.float16
    tuned_by = {11: 4, 8: 6, 24: 2, 53: 1}[make.precision]
    scales, dy_scale = [1.0] * (3 + tuned_by), 1.0
    if half:
        scales = [2.0**13] * 3 + [2.0 ** (13 - 8 * k) for k in range(1, tuned_by + 1)]
        eps, dy_scale, offset = 2.0**26, 2.0**10, 0.0
    x = np.concatenate([make.normal(1, size, scale, offset) for scale in scales])
    dy = make.normal(3, size, dy_scale)
    xhat, _ = make.normalized(x, eps)
    value = (make.lift(dy) * xhat[:3]).sum(axis=0)
    chosen, good = make.tune(value, list(xhat[3:]))
    order = make.rng.permutation(len(x))
    dy = np.concatenate([dy, np.stack(chosen)])[order]
    gamma = make.normal(1, size)[0]
    return Case("near", x[order], gamma, None, dy, eps, tuple(np.flatnonzero(good).tolist()))
