"""Arrays of pyopencl: normalized where they are, with the bits of NumPy's."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

import truenorm as tn
from promise.checking import bytes_of

ml_dtypes = pytest.importorskip("ml_dtypes")
cl = pytest.importorskip("pyopencl")
cl_array = pytest.importorskip("pyopencl.array")

ROWS, SIZE = 40, 67
pytestmark = pytest.mark.usefixtures("device")


def rows(dtype: Any) -> list[Any]:
    """Return x, dy, gamma and beta."""
    random = np.random.default_rng(0)
    x, dy = random.normal(size=(2, ROWS, SIZE)).astype(np.float32)
    gamma, beta = random.normal(size=(2, SIZE)).astype(np.float32)
    return [each.astype(dtype) for each in (x, dy, gamma, beta)]


def passes(given: Sequence[Any], **options: Any) -> list[Any]:
    """Return y, dx, dgamma and dbeta."""
    x, dy, gamma, beta = given
    y, saved = tn.layer_norm_forward(x, gamma, beta, **options)
    return [y, *tn.layer_norm_backward(dy, saved, backend=options.get("backend"))]


def on_device(queue: Any, arrays: Sequence[Any]) -> list[Any]:
    return [None if each is None else cl_array.to_device(queue, each) for each in arrays]


def assert_same_bits(queue: Any, given: Sequence[Any]) -> None:
    found = passes(on_device(queue, given))
    assert all(isinstance(each, cl_array.Array) for each in found)
    assert bytes_of(*(each.get() for each in found)) == bytes_of(
        *passes(given, backend="reference")
    )


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["float32", "bfloat16"])
def test_same_bits(queue: Any, dtype: Any) -> None:
    assert_same_bits(queue, rows(dtype))


@pytest.mark.parametrize("what", ["x", "dy", "gamma", "flat", "zeros"])
def test_same_bits_where_the_host_must_help(queue: Any, what: str) -> None:
    x, dy, gamma, beta = rows(np.float32)
    if what == "x":
        x[3, 2], x[7, 1] = np.inf, np.nan
    elif what == "dy":
        dy[5, 1], dy[6, 2] = np.inf, np.nan
    elif what == "gamma":
        gamma[4], beta[5] = np.inf, np.nan
    elif what == "flat":
        x[7], x[8, :] = 4, np.arange(SIZE)  # a mean that is an element
        beta[:] = 0
    else:
        dy[:] = 1
        gamma[:] = 2  # dx is exactly zero
    assert_same_bits(queue, [x, dy, gamma, beta])


@pytest.mark.slow
def test_what_pairs_refuse_goes_to_the_host(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With bounds a million times too wide nothing is decided on the device."""
    from truenorm.kernels.gpu import opencl
    from truenorm.kernels.gpu.plan import source_of

    monkeypatch.setattr(
        opencl, "source_of", lambda kernel: source_of(kernel).replace("SLACK 1.01", "SLACK 1e30")
    )
    opencl.compiled.cache_clear()
    try:
        assert_same_bits(queue, rows(np.float32))
    finally:
        opencl.compiled.cache_clear()


def test_rms_norm_and_parameters_of_another_type(queue: Any) -> None:
    x, dy, gamma, _ = rows(ml_dtypes.bfloat16)
    wide = gamma.astype(np.float32)
    y, saved = tn.rms_norm_forward(x, wide, backend="reference")
    right = [y, *tn.rms_norm_backward(dy, saved, backend="reference")]
    on = on_device(queue, (x, dy, wide))
    y, saved = tn.rms_norm_forward(on[0], on[2])
    found: list[Any] = [y, *tn.rms_norm_backward(on[1], saved)]
    assert found[3] is None
    assert bytes_of(*(each.get() for each in found[:3])) == bytes_of(*right[:3])


def test_columns_of_zeros_need_no_host(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """RMSNorm after a ReLU: where x is zero, a term of dgamma is, without any error."""
    x, dy, gamma, _ = rows(np.float32)
    x[:, ::3] = 0
    y, saved = tn.rms_norm_forward(x, gamma, backend="reference")
    right = [y, *tn.rms_norm_backward(dy, saved, backend="reference")]
    on = on_device(queue, (x, dy, gamma))
    monkeypatch.setattr("truenorm.devices.passes.DeviceCall._backward_by_host", None)
    y, saved = tn.rms_norm_forward(on[0], on[2])
    found: list[Any] = [y, *tn.rms_norm_backward(on[1], saved)]
    assert bytes_of(*(each.get() for each in found[:3])) == bytes_of(*right[:3])


def test_a_part_of_an_array(queue: Any) -> None:
    x, *_ = rows(np.float32)
    part = cl_array.to_device(queue, x)[32:]  # which begins at a multiple of what devices ask
    found = cast(Any, tn.layer_norm(part))
    assert bytes_of(found.get()) == bytes_of(tn.layer_norm(x[32:], backend="reference"))


def test_fast_mode_reads_nothing_back(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from truenorm.kernels.gpu.opencl import OpenCL

    def refuse(*_: Any) -> None:
        raise AssertionError("it waits for the device")

    x, dy, gamma, beta = on_device(queue, rows(np.float32))
    for name in ("download", "upload", "write"):  # all that waits
        monkeypatch.setattr(OpenCL, name, refuse)
    passes([x, dy, gamma, beta], rounding="fast")
    passes([x, dy, None, None], rounding="fast")
    with pytest.raises(AssertionError, match="waits"):
        passes([x, dy, gamma, beta])


def test_correct_mode_reads_little_back(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte a row; and after backward, one for each dgamma and dbeta."""
    from truenorm.kernels.gpu.opencl import OpenCL

    download, sizes = OpenCL.download, []

    def noted(self: OpenCL, buffer: Any, into: Any, start: int = 0) -> None:
        sizes.append(into.nbytes)
        download(self, buffer, into, start)

    monkeypatch.setattr(OpenCL, "download", noted)
    passes(on_device(queue, rows(np.float32)))
    assert sizes == [ROWS, ROWS, SIZE, SIZE]


def test_another_queue(queue: Any) -> None:
    """It waits for the queue that wrote the array, and whoever takes the result for this one."""
    given = rows(np.float32)
    other = cl.CommandQueue(queue.context)
    x, dy, gamma, beta = on_device(queue, given)
    y, saved = tn.layer_norm_forward(x, gamma, beta, stream=other)
    found = [y, *tn.layer_norm_backward(dy, saved, stream=queue)]
    assert all(cast(Any, each).events for each in found)
    right = passes(given, backend="reference")
    assert bytes_of(*(cast(Any, each).get() for each in found)) == bytes_of(*right)
    assert "owns 3 numbers for each of 40 rows, 960 bytes" in repr(saved)


def test_no_rows(queue: Any) -> None:
    x = cl_array.zeros(queue, (0, 4), np.float32)
    y, saved = tn.layer_norm_forward(x, np.ones(4, np.float32))
    found = cast(Any, tn.layer_norm_backward(x, saved))
    assert y.shape == found.dx.shape == (0, 4)
    assert found.dgamma.get().tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", ["other byte order", "strided"])
def test_numpy_arrays_beside_it(queue: Any, kind: str) -> None:
    """Of any byte order and strides, as on the CPU."""
    x, dy, gamma, beta = rows(np.float32)
    right = passes([x, dy, gamma, beta], backend="reference")
    if kind == "strided":
        others = [np.repeat(each, 2, axis=-1)[..., ::2] for each in (dy, gamma, beta)]
    else:
        others = [each.astype(each.dtype.newbyteorder()) for each in (dy, gamma, beta)]
    found = passes([*on_device(queue, [x]), *others])
    assert bytes_of(*(each.get() for each in found)) == bytes_of(*right)


@pytest.mark.parametrize("axis", [1, [-1], np.array([1]), (np.int8(-1),)], ids=repr)
def test_the_last_axis_by_any_name(queue: Any, axis: Any) -> None:
    x, *_ = rows(np.float32)
    found = cast(Any, tn.layer_norm(cl_array.to_device(queue, x), axis=axis))
    assert bytes_of(found.get()) == bytes_of(tn.layer_norm(x, backend="reference"))
