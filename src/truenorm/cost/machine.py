"""What this machine can do: bytes by a copy, FLOPs by a matrix product."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from truenorm.tools.stopwatch import seconds_of

__all__ = ["measure_bandwidth", "measure_flops_rate"]

ROUNDS = 8
MEGABYTES = 64
ORDER = 1024
"""Of the matrices: large enough that their product waits for arithmetic alone."""


def measure_bandwidth(threads: int = 1) -> float:
    """Measure how many bytes a second a copy reads and writes, on arrays of 64 MB.

    Parameters
    ----------
    threads : int
        How many copy at once, each its part of the array.

    Returns
    -------
    float
        Bytes read plus bytes written, per second, in the best of eight rounds: whatever else the
        machine does can only slow a copy down.

    Examples
    --------
    >>> from truenorm.cost import layer_norm_cost, measure_bandwidth
    >>> cost = layer_norm_cost((8, 1024, 4096))
    >>> milliseconds = cost.seconds(measure_bandwidth()) * 1e3
    """
    source = np.ones(MEGABYTES * 10**6 // 4, np.float32)
    target = np.zeros_like(source)  # written once, so that no page is new to the copy
    parts = list(
        zip(np.array_split(target, threads), np.array_split(source, threads), strict=True)
    )
    with ThreadPoolExecutor(threads) as pool:
        seconds = _best(lambda: list(pool.map(lambda part: np.copyto(*part), parts)))
    return 2 * source.nbytes / seconds


def measure_flops_rate(dtype: str = "float32") -> float:
    """Measure how many floating-point operations a second a matrix product reaches.

    Parameters
    ----------
    dtype : str
        "float64", or anything else for float32, in which narrower types are computed.

    Returns
    -------
    float
        FLOPs per second in the best of eight rounds, with the threads that NumPy's BLAS takes.

    Examples
    --------
    >>> from truenorm.cost import measure_flops_rate
    >>> measure_flops_rate("float32") > 0
    True
    """
    factor = np.ones((ORDER, ORDER), np.float64 if dtype == "float64" else np.float32)
    product = np.empty_like(factor)
    return 2 * ORDER**3 / _best(lambda: np.matmul(factor, factor, out=product))


def _best(work: Callable[[], object]) -> float:
    """Return the shortest of several times, in seconds."""
    return min(seconds_of(work) for _ in range(ROUNDS))
