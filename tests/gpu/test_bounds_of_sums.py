"""The bound of dgamma is summed in float32, and holds where that underflows."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fibers.runs import launcher_on, opencl
from promise.families import Case, usual_case
from truenorm.kernels.tuning import SUMS

ROWS, SIZE = 20, 67


def bounds_of(case: Case) -> NDArray[np.float64]:
    """Return the bound of each column's dgamma, as the device has it."""
    runtime = opencl()
    launcher = launcher_on(runtime, case)
    sums: NDArray[np.float64] = np.empty((SUMS, SIZE))
    x, dy = (runtime.upload(each) for each in (case.x, case.dy))
    unused, kept = runtime.empty(case.x.nbytes), runtime.empty(ROWS * 24)
    launcher.forward(x, unused, kept, ROWS)
    on_device = launcher.sums()
    launcher.backward(dy, x, kept, unused, on_device, ROWS)
    runtime.download(on_device, sums)
    found: NDArray[np.float64] = sums[2]
    return found


def test_small_xhat_beside_large_dy() -> None:
    """Far below sqrt(eps), xhat is in proportion to x, and so is the bound."""
    usual = replace(usual_case("normal", ROWS, SIZE, np.dtype(np.float32)), eps=1e-5)
    dy = np.ldexp(usual.dy, 20).astype(np.float32)
    small, smaller = (
        bounds_of(replace(usual, x=np.ldexp(usual.x, power).astype(np.float32), dy=dy))
        for power in (-40, -110)
    )
    assert (np.ldexp(smaller, 70) >= 0.99 * small).all()
