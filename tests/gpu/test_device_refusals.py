"""What is refused of arrays of pyopencl, and of arguments beside them."""

from typing import Any

import numpy as np
import pytest

import truenorm as tn

cl = pytest.importorskip("pyopencl")
cl_array = pytest.importorskip("pyopencl.array")

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize("axis", [True, 1.0, None, "1", 1j], ids=repr)
def test_an_axis_that_is_no_integer(queue: Any, axis: Any) -> None:
    with pytest.raises(TypeError, match="pass an int or a tuple of ints"):
        tn.layer_norm(cl_array.zeros(queue, (2, 4), np.float32), axis=axis)


def test_no_dimensions(queue: Any) -> None:
    words = "axis is -1 but x has 0 dimensions: pass an array with at least one axis"
    with pytest.raises(np.exceptions.AxisError, match=words):
        tn.layer_norm(cl_array.zeros(queue, (), np.float32))


def test_dy_without_dimensions(queue: Any) -> None:
    _, saved = tn.layer_norm_forward(cl_array.zeros(queue, (1,), np.float32))
    with pytest.raises(ValueError, match=r"dy has shape \(\)"):
        tn.layer_norm_backward(np.float32(1), saved)


@pytest.mark.parametrize("stream", [0, "", False, "queue", ...], ids=repr)
def test_a_stream_that_is_no_queue(queue: Any, stream: Any) -> None:
    x = cl_array.zeros(queue, (2, 4), np.float32)
    with pytest.raises(TypeError, match=r"stream must be None or a pyopencl\.CommandQueue"):
        tn.layer_norm(x, stream=stream)


def test_what_is_no_array_of_floats(queue: Any) -> None:
    x = cl_array.zeros(queue, (2, 4), np.float32)
    masked = np.ma.masked_equal(np.ones(4, np.float32), 2)
    with pytest.raises(TypeError, match="gamma is a masked array"):
        tn.layer_norm(x, masked)
    with pytest.raises(TypeError, match="beta is of type int64: pass float16"):
        tn.layer_norm(x, None, [1, 2, 3, 4])
    with pytest.raises(TypeError, match="dy is None: pass an array"):
        tn.layer_norm_backward(None, tn.layer_norm_forward(x)[1])


def test_foreign_byte_order(queue: Any) -> None:
    """Kernels read native numbers: any other would be taken for something else."""
    swapped = cl_array.to_device(queue, np.ones((2, 4), ">f4"))
    x = cl_array.zeros(queue, (2, 4), np.float32)
    with pytest.raises(TypeError, match="x must be of native byte order on a device, got >f4"):
        tn.layer_norm(swapped)
    with pytest.raises(TypeError, match="gamma must be of native byte order"):
        tn.layer_norm(x, cl_array.to_device(queue, np.ones(4, ">f4")))


def test_float64(queue: Any) -> None:
    with pytest.raises(TypeError, match="float16, bfloat16 and float32 are taken"):
        tn.layer_norm(cl_array.zeros(queue, (2, 4), np.float64))


def test_another_axis(queue: Any) -> None:
    with pytest.raises(
        ValueError, match="axis must be the last axis of an array on a device, got 0"
    ):
        tn.layer_norm(cl_array.zeros(queue, (2, 4), np.float32), axis=0)


def test_a_queue_of_any_order(queue: Any) -> None:
    any_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    other = cl.CommandQueue(queue.context, properties=any_order)
    x = cl_array.zeros(queue, (2, 4), np.float32)
    with pytest.raises(ValueError, match="takes commands in any order"):
        tn.layer_norm(x, stream=other)


def test_no_queue(queue: Any) -> None:
    x = cl_array.zeros(queue, (2, 4), np.float32).with_queue(None)
    with pytest.raises(ValueError, match="pass stream=, the queue"):
        tn.layer_norm(x)


def test_a_part_that_begins_anywhere(queue: Any) -> None:
    with pytest.raises(ValueError, match=r"pass x\.copy\(\)"):
        tn.layer_norm(cl_array.zeros(queue, (3, 5), np.float32)[1:])


def test_another_layout(queue: Any) -> None:
    with pytest.raises(ValueError, match="not C-contiguous"):
        tn.layer_norm(cl_array.zeros(queue, (2, 4), np.float32).T)


def test_gamma_of_another_length(queue: Any) -> None:
    x = cl_array.zeros(queue, (2, 4), np.float32)
    with pytest.raises(ValueError, match="gamma has shape"):
        tn.layer_norm(x, np.ones(3, np.float32))


def test_dy_of_another_shape(queue: Any) -> None:
    x = cl_array.zeros(queue, (2, 4), np.float32)
    _, saved = tn.layer_norm_forward(x)
    with pytest.raises(ValueError, match="dy has shape"):
        tn.layer_norm_backward(x[:1], saved)


def test_partials(queue: Any) -> None:
    x = cl_array.zeros(queue, (2, 4), np.float32)
    _, saved = tn.layer_norm_forward(x)
    with pytest.raises(TypeError, match="x is on a device"):
        tn.layer_norm_backward_partial(x, saved)


def test_out(queue: Any) -> None:
    x = cl_array.zeros(queue, (2, 4), np.float32)
    with pytest.raises(ValueError, match="leave it out"):
        tn.layer_norm(x, out=x)


def test_float64_by_name() -> None:
    with pytest.raises(ValueError, match="not float64"):
        tn.layer_norm(np.eye(3), backend="gpu")
