"""Layer normalization from scratch: forward, backward, gradient check, stability and cost.

It needs NumPy alone. Read it from top to bottom, and run it: ``python examples/from_scratch.py``.
x has shape (B, T, D), gamma and beta have shape (D,). Each row of D numbers is normalized alone:

    r = 1/sqrt(var + eps)        xhat = (x - mean)*r        y = gamma*xhat + beta

dy is the gradient of a loss with respect to y, and g = gamma*dy that with respect to xhat.
x reaches xhat along three paths: directly, through the mean (d mean/dx = 1/D) and through the
variance (d var/dx = 2*(x - mean)/D, d r/d var = -r^3/2). Their sum, and the sums over all rows:

    dx = r*(g - mean(g) - xhat*mean(g*xhat))
    dgamma = sum of dy*xhat        dbeta = sum of dy

Backward reuses xhat and r. A fused GPU kernel keeps a row in registers, so that it reads x and
writes y once; it saves mean and r, and computes xhat again: docs/learn/fuse.md.
"""

import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
EPS = 1e-5


def mean(x: Array) -> Any:
    """Return the mean of each row; the last axis has length 1."""
    return x.mean(axis=-1, keepdims=True)


def centre(x: Array) -> Array:
    """Subtract the mean of each row, then the mean of what is left: the first one was rounded."""
    once = x - mean(x)
    return np.asarray(once - mean(once))


def forward(x: Array, gamma: Array, beta: Array) -> tuple[Array, tuple[Array, ...]]:
    """Compute y, and save what backward reuses. Convert float16 to float32 first: squares."""
    centred = centre(x)
    var = mean(centred * centred)  # of centred numbers: never negative, nothing cancels
    rstd = 1 / np.sqrt(var + EPS)  # a constant row gives 0/sqrt(eps) = 0, not 0/0
    xhat = centred * rstd
    return gamma * xhat + beta, (xhat, rstd, gamma)


def backward(dy: Array, saved: tuple[Array, ...]) -> tuple[Array, Array, Array]:
    """Compute dx, dgamma and dbeta from dy and the saved arrays alone."""
    xhat, rstd, gamma = saved
    g = centre(gamma * dy)  # g - mean(g); since mean(xhat) = 0, mean(g*xhat) is the same
    dx = rstd * (g - xhat * mean(g * xhat))
    dgamma = (dy * xhat).sum(axis=(0, 1), dtype=np.float64)  # in float32, a long sum loses digits
    dbeta = dy.sum(axis=(0, 1), dtype=np.float64)
    return dx, dgamma.astype(gamma.dtype), dbeta.astype(gamma.dtype)


def check_gradients(h: float = 1e-5) -> bool:
    """Compare the gradients with central differences of the loss sum(dy*y).

    Their error is about h^2 from truncation and 1e-16/h from rounding: h = 1e-5 balances both.
    dy and gamma are random, since dx is 0 if both are constant.
    """
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, 4, 8, 16))
    gamma, beta = rng.standard_normal((2, 16))
    gradients = backward(dy, forward(x, gamma, beta)[1])
    inputs = {"x": x, "gamma": gamma, "beta": beta}
    passed = True
    for (name, array), gradient in zip(inputs.items(), gradients, strict=True):
        numeric = np.empty_like(array)
        for place in np.ndindex(array.shape):
            value, losses = array[place], []
            for moved in (value - h, value + h):
                array[place] = moved
                losses.append((dy * forward(x, gamma, beta)[0]).sum())
            array[place] = value
            numeric[place] = (losses[1] - losses[0]) / (2 * h)
        error = np.linalg.norm(gradient - numeric) / np.linalg.norm(numeric)
        passed = passed and bool(error < 1e-8)
        print(f"d{name:6} {error:.1e}  {'PASS' if error < 1e-8 else 'FAIL'}")
    return passed


def show_stability() -> None:
    """Print the variance in one and in two passes, and y with the mean as a number and a pair."""
    offsets = (1e4, 1e6, 1e8, 1e10, 1e12, 1e14)
    rows = np.arange(5.0) + np.array(offsets)[:, None]  # the variance is 2
    one_pass, two_passes = mean(rows * rows) - mean(rows) ** 2, mean(centre(rows) ** 2)
    print("arange(5) + offset      ", *(f"{offset:.0e}" for offset in offsets))
    print("variance in one pass    ", *(f"{var:5.0f}" for var in one_pass.ravel()))
    print("variance in two passes  ", *(f"{var:5.0f}" for var in two_passes.ravel()), "  right")
    row = np.array([1e7, 1e7 + 1, 1e7 + 1], dtype=np.float32)
    once = row - mean(row)  # NumPy's mean is 1e7 here; it should be 1e7 + 2/3
    pair, _ = forward(row, np.ones(3, np.float32), np.zeros(3, np.float32))
    print("row [0, 1, 1] + 1e7 in float32")
    print("y, mean in one number   ", (once / np.sqrt(mean(once * once) + EPS)).round(4))
    print("y, mean as a pair       ", pair.round(4), "  right")


def measure() -> None:
    """Print times, and bytes of x and of what forward saves: xhat, and r for each row."""
    print("shape, float32     forward/ms  backward/ms  x/MB  saved/MB")
    for shape in ((2, 128, 64), (2, 128, 1024), (8, 256, 1024)):
        x, dy = np.random.default_rng(0).standard_normal((2, *shape), dtype=np.float32)
        gamma, beta = np.ones(shape[-1], np.float32), np.zeros(shape[-1], np.float32)
        times, saved = [], forward(x, gamma, beta)[1]
        for _ in range(10):
            start = time.perf_counter()
            forward(x, gamma, beta)
            middle = time.perf_counter()
            backward(dy, saved)
            times.append((middle - start, time.perf_counter() - middle))
        forward_ms, backward_ms = np.min(times, axis=0) * 1e3
        size, kept = x.nbytes / 1e6, (saved[0].nbytes + saved[1].nbytes) / 1e6
        print(f"{shape!s:17} {forward_ms:11.2f} {backward_ms:12.2f} {size:5.2f} {kept:9.2f}")


if __name__ == "__main__":
    print("Gradients by hand and by central differences: relative errors")
    passed = check_gradients()
    print("\nNumerical stability")
    show_stability()
    print("\nTime and memory: O(B*T*D)")
    measure()
    sys.exit(not passed)
