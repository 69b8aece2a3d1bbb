"""In fast mode nobody looks at rows again: the device itself must put NaN where it belongs."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import truenorm as tn
from fibers.runs import opencl

cl_array = pytest.importorskip("pyopencl.array")
pytestmark = pytest.mark.usefixtures("device")

ROWS = 40
OTHER_NAN = np.array([0xFFC00001], np.uint32).view(np.float32)[0]
Array = NDArray[np.float32]
Spoil = Callable[[Array, Array, Array, Array], None]


def _dy(_x: Array, dy: Array, _gamma: Array, _beta: Array) -> None:
    dy[3, 4], dy[5, 4], dy[6, 7], dy[8, 9] = np.inf, -np.inf, np.inf, OTHER_NAN


def _x_is_infinite(x: Array, _dy: Array, _gamma: Array, _beta: Array) -> None:
    x[3, 4], x[5, 4:6] = np.inf, (np.inf, -np.inf)


def _x_is_nan(x: Array, _dy: Array, _gamma: Array, _beta: Array) -> None:
    x[3, 4] = OTHER_NAN


def _parameters(_x: Array, _dy: Array, gamma: Array, beta: Array) -> None:
    gamma[3], gamma[5], beta[4], beta[6] = np.inf, OTHER_NAN, -np.inf, OTHER_NAN


def _rows_are_constant(x: Array, _dy: Array, _gamma: Array, _beta: Array) -> None:
    x[3], x[5] = 2, 0


def passes(given: list[Any], *, centred: bool, **options: Any) -> list[Any]:
    x, dy, gamma, beta = given
    if centred:
        y, saved = tn.layer_norm_forward(x, gamma, beta, rounding="fast", **options)
        return [y, *tn.layer_norm_backward(dy, saved, **options)]
    y, saved = tn.rms_norm_forward(x, gamma, rounding="fast", **options)
    return [y, *tn.rms_norm_backward(dy, saved, **options)[:2]]


@pytest.mark.parametrize("size", [67, pytest.param(4100, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "centred", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["layer_norm", "rms_norm"]
)
@pytest.mark.parametrize(
    "spoil", [_dy, _x_is_infinite, _x_is_nan, _parameters, _rows_are_constant]
)
def test_as_the_reference(spoil: Spoil, size: int, *, centred: bool) -> None:
    """What is not finite has its bits; the rest is near."""
    random = np.random.default_rng(0)
    given = [*random.normal(size=(2, ROWS, size)), *random.normal(size=(2, size))]
    x, dy, gamma, beta = (each.astype(np.float32) for each in given)
    spoil(x, dy, gamma, beta)
    queue = cast(Any, opencl()).queue
    arrays = [cl_array.to_device(queue, each) for each in (x, dy, gamma, beta)]
    found = passes(arrays, centred=centred)
    with np.errstate(all="ignore"):
        right = passes([x, dy, gamma, beta], centred=centred, backend="reference")
    for mine, theirs in zip((each.get() for each in found), right, strict=True):
        special = ~np.isfinite(theirs)
        assert mine[special].tobytes() == theirs[special].tobytes()
        np.testing.assert_allclose(mine[~special], theirs[~special], rtol=1e-4, atol=1e-5)
