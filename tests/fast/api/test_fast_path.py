"""Fast-path arrays go straight to the C core; the general path gives the same bits."""

import pickle
from collections.abc import Iterator
from itertools import chain, product
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.api.helpers import read_only
from shared.programs import run_python
from shared.promise.checking import BACKENDS, both_passes, bytes_of, without_entry
from shared.promise.families import (
    DTYPES,
    X_FAMILIES,
    Array,
    Case,
    CaseSpec,
    non_finite_cases,
    usual_case,
)
from truenorm.api import fast_path, settings
from truenorm.kernels import driver

pytestmark = pytest.mark.skipif("native" not in BACKENDS, reason="needs the C core")
FLOAT32 = np.dtype(np.float32)
SHAPES = [(1, 64), (1, 4097), (3, 2), (5, 1), (9, 67), (300, 257), (70, 1024)]


def some_cases(dtype: np.dtype[Any]) -> Iterator[Case]:
    """Yield parameters of the type of x, of others, and none; rows of many kinds."""
    own, wide = ("random", dtype), ("random", FLOAT32)
    widest = ("random", np.dtype(np.float64))
    for seed, (rows, size) in enumerate(SHAPES):
        for gamma, beta in ((own, own), (wide, wide), (own, wide), (widest, own), (wide, widest)):
            yield CaseSpec("normal", rows, size, 1e-5, "random", gamma, beta).build(dtype, seed)
        case = usual_case("normal", rows, size, dtype)
        yield Case("no beta", case.x, case.gamma, None, case.dy, 1e-5)
        yield Case("no gamma", case.x, None, case.beta, case.dy, 1e-5)
        if case.beta is not None:
            swapped = case.beta.astype(">f8")
            yield Case("beta of another byte order", case.x, case.gamma, swapped, case.dy, 1e-5)
        yield Case("neither", case.x, None, None, case.dy, 0.0)
    for family in X_FAMILIES:
        yield CaseSpec(family, 9, 67, 1e-5, "random", own, own).build(dtype, 0)


@pytest.mark.parametrize("mode", ["correct", "fast"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_both_paths_give_the_same_bits(
    dtype: np.dtype[Any], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = list(chain(some_cases(dtype), non_finite_cases(dtype, 40, (1, 7), (5, 67))))
    for threads in (1, 3):
        straight = [
            bytes_of(*both_passes(case, "native", mode, threads=threads)) for case in cases
        ]
        with monkeypatch.context() as patched:
            without_entry(patched)
            general = [
                bytes_of(*both_passes(case, "native", mode, threads=threads)) for case in cases
            ]
        for case, one, other in zip(cases, straight, general, strict=True):
            assert one == other, (str(case), threads)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Count how often the C core asks Python for settings."""
    names: list[str] = []
    for name in ("settings_of", "settings_of_backward"):
        function = getattr(settings, name)

        def counted(*arguments: Any, name: str = name, function: Any = function) -> Any:
            names.append(name)
            return function(*arguments)

        monkeypatch.setattr(settings, name, counted)
    fast_path.connect()
    yield names
    monkeypatch.undo()
    fast_path.connect()


def test_settings_are_asked_for_once_while_no_variable_changes(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.ones((3, 5), np.float32)
    monkeypatch.delenv("TRUENORM_ROUNDING", raising=False)
    monkeypatch.setenv("TRUENORM_THREADS", "2")
    for value in ("", "fast", "correct", "fast", None, ""):
        if value is None:
            monkeypatch.delenv("TRUENORM_ROUNDING")
        else:
            monkeypatch.setenv("TRUENORM_ROUNDING", value)
        asked.clear()
        for _ in range(3):
            _, saved = tn.layer_norm_forward(x)
            assert saved.settings.rounding == (value or "correct")
            tn.layer_norm_backward(x, saved)
        assert asked == ["settings_of", "settings_of_backward"]
    monkeypatch.setenv("TRUENORM_ROUNDING", "up")
    with pytest.raises(ValueError, match="TRUENORM_ROUNDING is set to 'up'"):
        tn.layer_norm(x)


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make calls of the driver fail."""

    def fail(*_: Any) -> None:
        raise AssertionError("this call went through the driver")

    for name in ("forward", "backward"):
        monkeypatch.setattr(driver, name, fail)


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize("mode", ["correct", "fast"])
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_fast_path_arrays_need_no_driver(dtype: np.dtype[Any], mode: str) -> None:
    case = usual_case("normal", 2, 64, dtype)
    both_passes(case, "native", mode)
    out = np.empty_like(case.x)
    y, saved = tn.layer_norm_forward(case.x, case.gamma, case.beta, rounding=mode, out=out)
    assert y is out
    assert tn.layer_norm_backward(case.dy, saved, out=np.empty_like(out)).dx.shape == out.shape


def arrays() -> tuple[Array, Array, Array]:
    case = usual_case("normal", 4, 32, FLOAT32)
    assert case.gamma is not None
    assert case.beta is not None
    return case.x, case.gamma, case.beta


def unaligned(array: Array) -> Array:
    memory = np.empty(array.nbytes + 1, np.uint8)[1:]
    copied: Array = memory.view(array.dtype).reshape(array.shape)
    copied[...] = array
    return copied


CHANGES: dict[str, Any] = {
    "a view": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "big-endian": lambda array: array.astype(">f4"),
    "little-endian": lambda array: array.astype("<f4"),
    "unaligned": unaligned,
    "unpickled": lambda array: pickle.loads(pickle.dumps(array)),
    "read-only": read_only,
    "with metadata": lambda array: array.astype(np.dtype(np.float32, metadata={"unit": "m"})),
}


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_small_arrays_of_any_layout_need_no_driver(change: Any) -> None:
    """Each argument is changed alone, and the bits stay."""
    x, gamma, beta = arrays()
    dy = x[::-1].copy()
    right: Any = None
    for k in range(5):
        given: Any = [x, gamma, beta, dy]
        if k:
            given[k - 1] = change(given[k - 1])
        y, saved = tn.layer_norm_forward(*given[:3], backend="native")
        assert saved.x is given[0]
        results = bytes_of(y, *tn.layer_norm_backward(given[3], saved))
        right = right or results
        assert results == right


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("types", list(product(DTYPES, DTYPES)), ids=str)
def test_parameters_of_any_type_need_no_driver(dtype: np.dtype[Any], types: Any) -> None:
    case = CaseSpec(
        "normal", 9, 67, 1e-5, "random", ("random", types[0]), ("random", types[1])
    ).build(dtype, 0)
    both_passes(case, "native")


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize("axis", [(-1,), (1,), 1, -1])
def test_the_last_axis_needs_no_driver(axis: Any) -> None:
    x, gamma, beta = arrays()
    _, saved = tn.layer_norm_forward(x, gamma, beta, axis=axis, backend="native")
    assert saved.axes == (1,)


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize("axis", [(1, 2), (-1, -2), (-2, -1), (2, 1)])
def test_the_last_axes_need_no_driver(axis: Any) -> None:
    x, gamma, beta = arrays()
    boxed = [each.reshape(*each.shape[:-1], 4, 8) for each in (x, gamma, beta)]
    y, saved = tn.layer_norm_forward(*boxed, axis=axis, backend="native")
    assert saved.axes == (1, 2)
    gradients = tn.layer_norm_backward(boxed[0], saved)
    flat, flat_saved = tn.layer_norm_forward(x, gamma, beta, backend="native")
    flat_gradients = tn.layer_norm_backward(x, flat_saved)
    assert gradients.dgamma is not None
    assert gradients.dgamma.shape == (4, 8)
    assert bytes_of(y, *gradients) == bytes_of(flat, *flat_gradients)


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_rows_need_no_driver(dtype: np.dtype[Any]) -> None:
    case = usual_case("normal", 4, 32, dtype).rows(slice(0))
    y, dx, dgamma, dbeta = both_passes(case, "native")
    assert y.shape == dx.shape == (0, 32)
    assert dgamma is not None
    assert dbeta is not None
    assert not dgamma.any()
    assert not dbeta.any()
    assert dgamma.dtype == dbeta.dtype == dtype


@pytest.mark.usefixtures("no_driver")
def test_small_results_need_no_driver() -> None:
    """`out` may be x, overlap an input, or not be plain."""
    x, gamma, beta = arrays()
    right = tn.layer_norm(x, gamma, beta, backend="native").tobytes()
    in_place, unaligned_too = x.copy(), unaligned(x)
    pairs = [
        (in_place, in_place), (unaligned_too, unaligned_too), (x, unaligned(x)),
        (x, np.empty((4, 64), np.float32)[:, ::2]), (x, np.empty((4, 32), ">f4")),
    ]  # fmt: skip
    for given, out in pairs:
        assert tn.layer_norm(given, gamma, beta, out=out, backend="native") is out
        assert out.astype(np.float32).tobytes() == right
    place = np.zeros(200, np.float32)
    for shift in (0, 1, 32, 70):
        shifted, place[:128] = place[shift : shift + 128].reshape(4, 32), x.ravel()
        y = tn.layer_norm(place[:128].reshape(4, 32), gamma, beta, out=shifted, backend="native")
        assert y.tobytes() == right


def test_a_declined_call_reads_x_again() -> None:
    """The core does not write to x before it knows that the call needs no driver."""
    x, gamma, beta = (each.copy() for each in arrays())
    gamma[3] = np.nan
    x[2] = np.tile(np.array([1, -1], np.float32), 16)
    right = tn.layer_norm(x, gamma, beta, backend="reference")
    assert tn.layer_norm(x, gamma, beta, out=x, backend="native") is x
    assert bytes_of(x) == bytes_of(right)


@pytest.mark.parametrize("name", ["x", "dy"])
def test_out_may_not_overlap_what_is_copied(name: str) -> None:
    """The copy of an array that is not plain lies elsewhere; backward reads the array."""
    x, gamma, beta = arrays()
    given = {"x": x, "dy": x.copy()} | {name: unaligned(x)}
    _, saved = tn.layer_norm_forward(given["x"], gamma, beta, backend="native")
    with pytest.raises(ValueError, match=f"out must not overlap {name}"):
        tn.layer_norm_backward(given["dy"], saved, out=given[name])


LARGE = 2**18 + 32
LARGE_X: Array = np.zeros(LARGE, np.float32)
OTHER_CALLS: dict[str, Any] = {
    "gamma a list": lambda x, gamma, _: tn.layer_norm(x, gamma.tolist()),
    "gamma beyond float32": lambda x, _, beta: tn.layer_norm(x, beta.astype(np.float64) * 1e300),
    "another axis": lambda x, _, beta: tn.layer_norm(x.T, beta, axis=0),
    "rows along two axes": lambda x, *_: tn.layer_norm(x.reshape(2, 2, 32), axis=(0, 2)),
    "a large view": lambda *_: tn.layer_norm(np.zeros(2 * LARGE, np.float32)[::2]),
    "a large out that is x": lambda *_: tn.layer_norm(LARGE_X, out=LARGE_X),
}


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize("call", OTHER_CALLS.values(), ids=OTHER_CALLS)
def test_other_calls_go_through_the_driver(call: Any) -> None:
    with pytest.raises(AssertionError, match="through the driver"):
        call(*arrays())


def test_output_may_overlap_parameters() -> None:
    """Kernels read parameters after they have begun to write."""
    x, gamma, beta = arrays()
    expected = tn.layer_norm(x, gamma, beta, backend="native")
    place = np.zeros(x.size + 32, np.float32)
    for start in (0, 16, 32):
        shifted = place[start : start + x.size].reshape(x.shape)
        for k, parameter in enumerate((gamma, beta)):
            place[16:48] = parameter
            parameters = [gamma, beta]
            parameters[k] = place[16:48]
            y = tn.layer_norm(x, *parameters, out=shifted, backend="native")
            assert y.tobytes() == expected.tobytes(), (start, k)


NOT_NEEDED = (
    "logging", "importlib.resources", "pathlib", "truenorm.kernels.driver",
    "truenorm.kernels.gpu", "truenorm.kernels.native.blocks", "truenorm.api.run",
)  # fmt: skip
FIRST_CALL = """
import sys
import numpy as np
import truenorm as tn

before = set(sys.modules)
x = np.ones((3, 5), np.float32)
y, saved = tn.layer_norm_forward(x, x[0], x[0], backend="native")
tn.layer_norm_backward(x, saved, backend="native")
print(*sorted(set(sys.modules) - before), sep="\\n")
"""


def test_imports_of_the_first_call() -> None:
    imported = run_python(FIRST_CALL)
    assert "truenorm.kernels.native._core" in imported
    assert [name for name in imported if name.startswith(NOT_NEEDED)] == []
