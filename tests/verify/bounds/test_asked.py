"""What a bound does not take: other shapes and types, and what it does not know."""

from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from verify.bounds.arrays import computed, given


def test_shape_and_type_are_looked_at() -> None:
    arrays = given()
    y, *_ = computed(**arrays)
    bound = tv.bound("layer_norm", **arrays)
    with pytest.raises(
        AssertionError, match=r"y has the shape \(12, 32\); it should be \(3, 4, 32"
    ):
        bound.assert_close(y.reshape(-1, 32))
    with pytest.raises(AssertionError, match="y is float64; it should be float32"):
        bound.assert_close(y.astype(np.float64))
    with pytest.raises(AssertionError, match=r"(?s)y is float64.*dx is not stable"):
        bound.assert_close(y=y.astype(np.float64), dx=arrays["dy"])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"x": np.zeros((2, 3), np.int32)}, "x is int32; it is one of float16"),
        ({"x": np.zeros((2, 0), np.float32)}, r"x has the shape \(2, 0\)"),
        ({"dy": np.zeros((2, 3), np.float32)}, r"dy is float32 of the shape \(2, 3\); it should"),
        ({"gamma": np.zeros(3, np.float32)}, r"gamma has the shape \(3,\); x asks for \(32,\)"),
        ({"residual": np.zeros(3)}, "layer_norm takes no residual"),
        ({"operation": "add_rms_norm", "beta": None}, "add_rms_norm needs residual"),
        ({"operation": "batch_norm"}, "operation must be one of .* got 'batch_norm'"),
        ({"grade": "wrong"}, "grade is 'wrong'; it is one of conditional, stable"),
        ({"eps": -1.0}, "eps is -1.0"),
        ({"eps": float("nan")}, "eps is nan"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], said: str) -> None:
    arguments = {"operation": "layer_norm", **given(), **changed}
    with pytest.raises(ValueError, match=said):
        tv.bound(**arguments)


def test_what_cannot_be_compared() -> None:
    arrays = given()
    y, *_ = computed(**arrays)
    forward = tv.bound("layer_norm", **{**arrays, "dy": None})
    with pytest.raises(ValueError, match="there is no result 'dx'; there are y; for others, give"):
        forward.assert_close(dx=y)
    with pytest.raises(ValueError, match="there are 2 results; known are y"):
        forward.assert_close((y, y))
    with pytest.raises(TypeError, match="nothing to compare"):
        forward.assert_close()
    arrays["x"][0, 0, 0] = np.nan
    large = {**arrays, "x": np.tile(arrays["x"], (40, 1, 1)), "dy": None}
    with pytest.raises(ValueError, match="there are bounds for finite numbers"):
        tv.bound("layer_norm", **large)
