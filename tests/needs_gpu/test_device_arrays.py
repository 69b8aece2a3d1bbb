"""Arrays of pyopencl: normalized on their device, with the bits of NumPy arrays."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from flint import arb, ctx
from numpy.typing import NDArray

import truenorm as tn
from fast.api.test_settings import ON_GLIBC, ROUND_UP, control_bits
from shared.fibers.runtime import launcher_on, opencl_runtime
from shared.promise.cached_cases import some_cached_cases
from shared.promise.checking import ball_results, both_passes, bytes_of
from shared.promise.families import Case, usual_case
from shared.promise.hard_cases import hard_cases
from shared.promise.oracle import BallRow
from truenorm.kernels.tuning import SUMS

SLOW = pytest.mark.slow(reason="PoCL compiles and computes for a minute")

ml_dtypes = pytest.importorskip("ml_dtypes")
cl = pytest.importorskip("pyopencl")
cl_array = pytest.importorskip("pyopencl.array")

ROWS, SIZE = 40, 67
FLOAT32 = np.dtype(np.float32)
BACKWARD_ON_HOST = "truenorm.devices.call.DeviceCall._backward_on_host"
OTHER_NAN = np.array([0xFFC00001], np.uint32).view(np.float32)[0]
Array = NDArray[np.float32]
pytestmark = pytest.mark.usefixtures("device")


def random_inputs(dtype: Any = np.float32, size: int = SIZE) -> list[Any]:
    """Return x, dy, gamma and beta."""
    random = np.random.default_rng(0)
    x, dy = random.normal(size=(2, ROWS, size)).astype(np.float32)
    gamma, beta = random.normal(size=(2, size)).astype(np.float32)
    return [each.astype(dtype) for each in (x, dy, gamma, beta)]


def passes(inputs: Sequence[Any], *, centred: bool = True, **options: Any) -> list[Any]:
    """Return y, dx, dgamma and, for layer norm, dbeta."""
    x, dy, gamma, beta = inputs
    backend = options.get("backend")
    if centred:
        y, saved = tn.layer_norm_forward(x, gamma, beta, **options)
        return [y, *tn.layer_norm_backward(dy, saved, backend=backend)]
    y, saved = tn.rms_norm_forward(x, gamma, **options)
    dx, dgamma, dbeta = tn.rms_norm_backward(dy, saved, backend=backend)
    assert dbeta is None
    return [y, dx, dgamma]


def on_device(queue: Any, arrays: Sequence[Any]) -> list[Any]:
    return [None if each is None else cl_array.to_device(queue, each) for each in arrays]


def downloaded(arrays: Sequence[Any]) -> list[Any]:
    assert all(isinstance(each, cl_array.Array) for each in arrays)
    return [each.get() for each in arrays]


def assert_same_bits(queue: Any, inputs: Sequence[Any], *, centred: bool = True) -> None:
    results = downloaded(passes(on_device(queue, inputs), centred=centred))
    assert bytes_of(*results) == bytes_of(*passes(inputs, centred=centred, backend="reference"))


class TestSameBits:
    @pytest.mark.parametrize(
        "dtype", [np.float32, ml_dtypes.bfloat16], ids=["float32", "bfloat16"]
    )
    def test_types(self, queue: Any, dtype: Any) -> None:
        assert_same_bits(queue, random_inputs(dtype))

    @pytest.mark.parametrize("special", ["x", "dy", "gamma", "flat", "zeros"])
    def test_special_values(self, queue: Any, special: str) -> None:
        x, dy, gamma, beta = random_inputs()
        if special == "x":
            x[3, 2], x[7, 1] = np.inf, np.nan
        elif special == "dy":
            dy[5, 1], dy[6, 2] = np.inf, np.nan
        elif special == "gamma":
            gamma[4], beta[5] = np.inf, np.nan
        elif special == "flat":
            x[7], x[8, :] = 4, np.arange(SIZE)  # a mean that is an element
            beta[:] = 0
        else:
            dy[:] = 1
            gamma[:] = 2  # dx is exactly zero
        assert_same_bits(queue, [x, dy, gamma, beta])

    @SLOW
    def test_undecided_on_the_device(self, queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """With very wide bounds nothing is decided on the device."""
        from truenorm.kernels.gpu import opencl
        from truenorm.kernels.gpu.plan import source_of

        monkeypatch.setattr(
            opencl,
            "source_of",
            lambda kernel: source_of(kernel).replace("SLACK 1.01", "SLACK 1e30"),
        )
        opencl.compiled.cache_clear()
        try:
            assert_same_bits(queue, random_inputs())
        finally:
            opencl.compiled.cache_clear()

    def test_rms_norm_with_parameters_of_another_type(self, queue: Any) -> None:
        x, dy, gamma, beta = random_inputs(ml_dtypes.bfloat16)
        assert_same_bits(queue, [x, dy, gamma.astype(np.float32), beta], centred=False)

    def test_zero_columns_need_no_host(self, queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """RMSNorm after a ReLU: where x is zero, a term of dgamma is exactly zero."""
        x, dy, gamma, beta = random_inputs()
        x[:, ::3] = 0
        monkeypatch.setattr(BACKWARD_ON_HOST, None)
        assert_same_bits(queue, [x, dy, gamma, beta], centred=False)

    def test_a_part_of_an_array(self, queue: Any) -> None:
        x, *_ = random_inputs()
        part = cl_array.to_device(queue, x)[32:]  # starts at a multiple that devices allow
        (y,) = downloaded([tn.layer_norm(part)])
        assert bytes_of(y) == bytes_of(tn.layer_norm(x[32:], backend="reference"))

    def test_no_rows(self, queue: Any) -> None:
        x = cl_array.zeros(queue, (0, 4), np.float32)
        y, saved = tn.layer_norm_forward(x, np.ones(4, np.float32))
        gradients = cast(Any, tn.layer_norm_backward(x, saved))
        assert y.shape == gradients.dx.shape == (0, 4)
        assert gradients.dgamma.get().tolist() == [0, 0, 0, 0]

    @pytest.mark.parametrize("kind", ["other byte order", "strided"])
    def test_numpy_parameters(self, queue: Any, kind: str) -> None:
        """dy, gamma and beta may be NumPy arrays of any byte order and strides."""
        x, *others = inputs = random_inputs()
        if kind == "strided":
            others = [np.repeat(each, 2, axis=-1)[..., ::2] for each in others]
        else:
            others = [each.astype(each.dtype.newbyteorder()) for each in others]
        results = downloaded(passes([*on_device(queue, [x]), *others]))
        assert bytes_of(*results) == bytes_of(*passes(inputs, backend="reference"))

    @pytest.mark.parametrize("axis", [1, [-1], np.array([1]), (np.int8(-1),)], ids=repr)
    def test_the_last_axis(self, queue: Any, axis: Any) -> None:
        x, *_ = random_inputs()
        (y,) = downloaded([tn.layer_norm(cl_array.to_device(queue, x), axis=axis)])
        assert bytes_of(y) == bytes_of(tn.layer_norm(x, backend="reference"))


class TestOrder:
    """What waits for the device, and for other queues."""

    def test_fast_mode_reads_nothing_back(
        self, queue: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from truenorm.kernels.gpu.opencl import OpenCL

        def fail(*_: Any) -> None:
            raise AssertionError("it waits for the device")

        x, dy, gamma, beta = on_device(queue, random_inputs())
        for name in ("download", "upload", "write"):  # everything that waits
            monkeypatch.setattr(OpenCL, name, fail)
        passes([x, dy, gamma, beta], rounding="fast")
        passes([x, dy, None, None], rounding="fast")
        with pytest.raises(AssertionError, match="waits"):
            passes([x, dy, gamma, beta])

    def test_correct_mode_reads_little_back(
        self, queue: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A byte per row; after backward, a byte for each dgamma and dbeta."""
        from truenorm.kernels.gpu.opencl import OpenCL

        download, sizes = OpenCL.download, []

        def recorded(self: OpenCL, buffer: Any, into: Any, start: int = 0) -> None:
            sizes.append(into.nbytes)
            download(self, buffer, into, start)

        monkeypatch.setattr(OpenCL, "download", recorded)
        passes(on_device(queue, random_inputs()))
        assert sizes == [ROWS, ROWS, SIZE, SIZE]

    def test_another_queue(self, queue: Any) -> None:
        """The call waits for the queue that wrote the array; users of the result wait for it."""
        inputs = random_inputs()
        other = cl.CommandQueue(queue.context)
        x, dy, gamma, beta = on_device(queue, inputs)
        y, saved = tn.layer_norm_forward(x, gamma, beta, stream=other)
        results = [y, *tn.layer_norm_backward(dy, saved, stream=queue)]
        assert all(cast(Any, each).events for each in results)
        expected = passes(inputs, backend="reference")
        assert bytes_of(*downloaded(results)) == bytes_of(*expected)
        assert "owns 3 numbers for each of 40 rows, 960 bytes" in repr(saved)


class TestUndecidedColumns:
    """Columns that tier 1 leaves undecided are summed in double-double on the device."""

    rows = 70

    @pytest.fixture
    def counts(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Record the number of columns of each tier-2 sum, and forbid the host fallback."""
        from truenorm.kernels.gpu.runtime import Launcher

        counts: list[int] = []
        columns_tier2 = Launcher.columns_tier2

        def recorded(self: Launcher, *arguments: Any) -> None:
            counts.append(len(arguments[3]))
            columns_tier2(self, *arguments)

        monkeypatch.setattr(Launcher, "columns_tier2", recorded)
        monkeypatch.setattr(BACKWARD_ON_HOST, None)
        return counts

    def assert_same_sums(self, queue: Any, case: Case) -> None:
        """Compare dgamma and, for layer norm, dbeta with the reference."""
        inputs = on_device(queue, (case.x, case.dy, case.gamma, case.beta))
        _, _, *sums = passes(inputs, centred=case.centred, eps=case.eps)
        expected = both_passes(case, "reference")[2:]
        stored = [b"" if each is None else each.get().tobytes() for each in sums]
        assert stored == bytes_of(*expected)[: len(stored)]

    @SLOW
    @pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])
    def test_dgamma_near_midpoints(self, queue: Any, counts: list[int], *, centred: bool) -> None:
        made = (
            some_cached_cases("dgamma", FLOAT32, 300)
            if centred
            else hard_cases("dgamma", FLOAT32, 100, centred=False)
        )
        for case in made:
            self.assert_same_sums(queue, case)
        assert sum(counts) > 50

    def test_dbeta_of_many_magnitudes(self, queue: Any, counts: list[int]) -> None:
        """The sum of a column has more than 53 bits and fewer than 106."""
        case = usual_case("normal", self.rows, SIZE, FLOAT32)
        powers = np.random.default_rng(1).integers(-25, 25, case.dy.shape)
        dy = np.ldexp(case.dy, powers).astype(np.float32)
        self.assert_same_sums(queue, replace(case, dy=dy))
        assert counts

    def test_host_fallback(self, queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Double-double leaves sums of more than 106 bits undecided, here with a tie."""
        from truenorm.devices.call import DeviceCall

        case = usual_case("normal", self.rows, SIZE, FLOAT32)
        dy = case.dy.copy()
        dy[:, 4] = 0
        dy[:4, 4] = 1, 2.0**-24, 2.0**-140, -(2.0**-140)
        dy[:3, 5] = 2.0**100, 1, 2.0**-100
        calls: list[Any] = []
        backward_on_host = DeviceCall._backward_on_host

        def recorded(self: DeviceCall, *arguments: Any) -> None:
            calls.append(arguments)
            backward_on_host(self, *arguments)

        monkeypatch.setattr(DeviceCall, "_backward_on_host", recorded)
        self.assert_same_sums(queue, replace(case, dy=dy))
        assert calls

    @pytest.mark.parametrize("offset", [0, 1000])
    def test_the_bound_holds_and_is_tight(self, offset: float) -> None:
        """(H5): a bound 4096 times as tight would not hold."""
        usual = usual_case("normal", self.rows, SIZE, FLOAT32)
        case = replace(usual, x=usual.x + np.float32(offset))
        runtime = opencl_runtime()
        launcher, buffer = launcher_on(runtime, case), runtime.zeros(SUMS * SIZE * 8)
        x, dy = (runtime.upload(each) for each in (case.x, case.dy))
        launcher.columns_tier2(dy, x, buffer, np.arange(SIZE), len(case.x))
        sums = np.empty((SUMS, SIZE))
        runtime.download(buffer, sums)
        high, low, bound, *dbeta = sums
        with ctx.workprec(500):
            rows = [BallRow(row, case.eps, centred=True) for row in case.x.tolist()]
            exact = ball_results(case, rows, "dgamma")
            columns = zip(exact, high.tolist(), low.tolist(), bound.tolist(), strict=True)
            errors = [abs(arb(a) + arb(b) - value) / arb(most) for value, a, b, most in columns]
        worst = max(float(each.upper()) for each in errors)
        assert 1 / 4096 < worst < 1
        assert np.array_equal(dbeta[0] + dbeta[1], case.dy.astype(np.float64).sum(axis=0))


def _special_dy(_x: Array, dy: Array, _gamma: Array, _beta: Array) -> None:
    dy[3, 4], dy[5, 4], dy[6, 7], dy[8, 9] = np.inf, -np.inf, np.inf, OTHER_NAN


def _infinite_x(x: Array, _dy: Array, _gamma: Array, _beta: Array) -> None:
    x[3, 4], x[5, 4:6] = np.inf, (np.inf, -np.inf)


def _nan_x(x: Array, _dy: Array, _gamma: Array, _beta: Array) -> None:
    x[3, 4] = OTHER_NAN


def _special_parameters(_x: Array, _dy: Array, gamma: Array, beta: Array) -> None:
    gamma[3], gamma[5], beta[4], beta[6] = np.inf, OTHER_NAN, -np.inf, OTHER_NAN


def _constant_rows(x: Array, _dy: Array, _gamma: Array, _beta: Array) -> None:
    x[3], x[5] = 2, 0


@pytest.mark.parametrize("size", [67, pytest.param(4100, marks=SLOW)])
@pytest.mark.parametrize(
    "centred", [True, pytest.param(False, marks=SLOW)], ids=["layer_norm", "rms_norm"]
)
@pytest.mark.parametrize(
    "change", [_special_dy, _infinite_x, _nan_x, _special_parameters, _constant_rows]
)
def test_special_values_in_fast_mode(
    queue: Any, change: Callable[..., None], size: int, *, centred: bool
) -> None:
    """No host fallback: kernels write NaN and infinities with the bits of the reference."""
    inputs = random_inputs(size=size)
    change(*inputs)
    results = downloaded(passes(on_device(queue, inputs), centred=centred, rounding="fast"))
    with np.errstate(all="ignore"):
        expected = passes(inputs, centred=centred, rounding="fast", backend="reference")
    for mine, theirs in zip(results, expected, strict=True):
        special = ~np.isfinite(theirs)
        assert mine[special].tobytes() == theirs[special].tobytes()
        np.testing.assert_allclose(mine[~special], theirs[~special], rtol=1e-4, atol=1e-5)


@ON_GLIBC
def test_other_arithmetic(queue: Any) -> None:
    """The host computes undecided elements."""
    x = cl_array.zeros(queue, (2, 4), np.float32)
    _, saved = tn.layer_norm_forward(x)
    for call in (lambda: tn.layer_norm(x), lambda: tn.layer_norm_backward(x, saved)):
        with control_bits(ROUND_UP), pytest.raises(RuntimeError, match="results would be wrong"):
            call()


def zeros(queue: Any, *shape: int, dtype: Any = np.float32) -> Any:
    return cl_array.zeros(queue, shape, dtype)


def out_of_order(queue: Any) -> Any:
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    return cl.CommandQueue(queue.context, properties=properties)


def swapped(queue: Any, *shape: int) -> Any:
    """Return an array whose byte order kernels do not read."""
    return cl_array.to_device(queue, np.ones(shape, ">f4"))


def backward(x: Any, dy: Any) -> Any:
    return tn.layer_norm_backward(dy, tn.layer_norm_forward(x)[1])


def with_options(**options: Any) -> Callable[[Any, Any], Any]:
    return lambda x, _: tn.layer_norm(x, **options)


FLOATS = "float16, bfloat16, float32 or float64, got"
MASKED = np.ma.masked_equal(np.ones(4, np.float32), 2)
NO_AXES = (True, 1.0, None, "1", 1j)
NO_QUEUES = (0, "", False, "queue", ...)
Refusal = tuple[Callable[[Any, Any], Any], type[Exception], str]
REFUSED: dict[str, Refusal] = {
    **{f"axis {axis!r}": (
        with_options(axis=axis), TypeError, "axis must be an int or a tuple of ints")
       for axis in NO_AXES},
    **{f"stream {stream!r}": (
        with_options(stream=stream), TypeError, r"stream must be None or a pyopencl\.CommandQueue")
       for stream in NO_QUEUES},
    "another axis": (
        lambda x, _: tn.layer_norm(x, axis=0),
        ValueError, "axis must be the last axis of an array on a device, got 0"),
    "no dimensions": (
        lambda _, queue: tn.layer_norm(zeros(queue)),
        np.exceptions.AxisError, "x must have at least one axis, got 0 dimensions"),
    "dy without dimensions": (
        lambda _, queue: backward(zeros(queue, 1), np.float32(1)),
        ValueError, r"dy must have the shape \(1,\).*got shape \(\)"),
    "dy of another shape": (
        lambda x, _: backward(x, x[:1]), ValueError, "dy must have the shape"),
    "an out-of-order queue": (
        lambda x, queue: tn.layer_norm(x, stream=out_of_order(queue)),
        ValueError, "kernels need an in-order queue"),
    "no queue": (
        lambda x, _: tn.layer_norm(x.with_queue(None)), ValueError, "pass stream=, the queue"),
    "a masked array": (
        lambda x, _: tn.layer_norm(x, MASKED),
        TypeError, "gamma must not be a masked array: pass gamma"),
    "integers": (
        lambda x, _: tn.layer_norm(x, None, [1, 2, 3, 4]),
        TypeError, f"beta must be of type {FLOATS} int64: pass for"),
    "no dy": (lambda x, _: backward(x, None), TypeError, f"dy must be an array of {FLOATS} None"),
    "gamma of another length": (
        lambda x, _: tn.layer_norm(x, np.ones(3, np.float32)),
        ValueError, r"gamma must have shape \(4,\), got \(3,\)"),
    "x of another byte order": (
        lambda _, queue: tn.layer_norm(swapped(queue, 2, 4)),
        TypeError, "x must be of native byte order on a device, got >f4"),
    "gamma of another byte order": (
        lambda x, queue: tn.layer_norm(x, swapped(queue, 4)),
        TypeError, "gamma must be of native byte order"),
    "float64": (
        lambda _, queue: tn.layer_norm(zeros(queue, 2, 4, dtype=np.float64)),
        TypeError, "x must be float16, bfloat16 or float32 on a device, got float64"),
    "a part at a bad offset": (
        lambda _, queue: tn.layer_norm(zeros(queue, 3, 5)[1:]), ValueError, r"pass x\.copy\(\)"),
    "another layout": (lambda x, _: tn.layer_norm(x.T), ValueError, "x must be C-contiguous"),
    "partials": (
        lambda x, _: tn.layer_norm_backward_partial(x, tn.layer_norm_forward(x)[1]),
        TypeError, "x must be a NumPy array, got an array on a device: copy it to one"),
    "out": (lambda x, _: tn.layer_norm(x, out=x), ValueError, "leave it out"),
}  # fmt: skip
"""Calls with an x on the device, the error, and what its message says."""


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, queue: Any) -> None:
    call, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        call(zeros(queue, 2, 4), queue)
