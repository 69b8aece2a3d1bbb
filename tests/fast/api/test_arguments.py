"""Arguments: accepted types, error messages, keywords of other libraries."""

import inspect
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.api.helpers import (
    BFLOAT16,
    DTYPES,
    MODES,
    ROW,
    Forward,
    X,
    assert_same_bits,
    exact_match,
)

ErrorCase = tuple[type[Exception], dict[str, Any], str]


def of_each(
    error: type[Exception], name: str, words: str, values: Iterable[Any]
) -> list[ErrorCase]:
    """Return an error case for each value of an argument; the message quotes the value."""
    return [(error, {name: value}, words.format(value)) for value in values]


NO_AXES: list[Any] = [
    1.0, None, True, (0, True), {1}, frozenset({1}), {1: 2}, "", "1", b"\x01", [[1]],
    np.array([True]), np.array(1.0), np.True_, np.datetime64("2020"), np.timedelta64(1, "s"),
]  # fmt: skip
NO_NUMBERS: list[Any] = [
    "1e-5", b"1e-5", bytearray(b"1"), np.str_("1"), np.bytes_(b"1"), np.array("1"), True, np.True_,
    np.array(True), None, [1.0, 2.0], np.array([1.0]), 1j, np.complex64(1), float,
    Decimal("sNaN"), np.datetime64("2020"), np.timedelta64(1, "s"),
]  # fmt: skip
TOO_SMALL = "eps is added to a variance and must be finite and >= 0, got {}"
BEYOND = "axis must be from -2 to 1 for an x with 2 dimensions, got {}"
TWICE = "axis must name an axis of x once, got {}"
NO_AXIS = "x must have at least one axis, got 0 dimensions"
OTHER_SHAPE = "{} must have shape (3,), got {}"
NO_ELEMENT = "rows must have at least one element, got lengths {} along axis={} of x"
ERRORS: list[ErrorCase] = [
    *[
        (ValueError, {name: np.ones(shape)}, OTHER_SHAPE.format(name, shape))
        for name in ("gamma", "beta")
        for shape in [(), (1,), (4,), (1, 3), (2, 3)]
    ],
    # The message names the axes where they are not the last one.
    (ValueError, {"gamma": np.ones((3, 2)), "axis": (1, 0)},
        "gamma must have shape (2, 3) for axes (0, 1) of x, got (3, 2)"),
    (ValueError, {"beta": np.ones(3), "axis": 0},
        "beta must have shape (2,) for axis 0 of x, got (3,)"),
    (ValueError, {"x": np.empty((3, 0))}, NO_ELEMENT.format((0,), -1)),
    (ValueError, {"x": np.empty((0, 0)), "axis": 0}, NO_ELEMENT.format((0,), 0)),
    (ValueError, {"x": np.empty((2, 3, 0)), "axis": (0, 2)}, NO_ELEMENT.format((2, 0), (0, 2))),
    (np.exceptions.AxisError, {"x": np.float32(1)}, NO_AXIS),
    *of_each(np.exceptions.AxisError, "axis", BEYOND, [2, -3, (0, 2), 10**30, (0, -(10**30))]),
    *of_each(ValueError, "axis", TWICE, [(0, 0), (1, -1)]),
    *of_each(ValueError, "axis", "axis must name at least one axis, got {}", [()]),
    *of_each(TypeError, "axis", "axis must be an int or a tuple of ints, got {!r}", NO_AXES),
    *of_each(ValueError, "eps", TOO_SMALL, [-1e-5, -5e-324, np.nan, np.inf, -np.inf]),
    (ValueError, {"x": X[:0], "eps": -1.0}, TOO_SMALL.format(-1.0)),  # even without rows
    (ValueError, {"eps": 10**400}, TOO_SMALL.format("inf")),
    *of_each(TypeError, "eps", "eps must be a real number >= 0, got {!r}", NO_NUMBERS),
    *of_each(
        ValueError,
        "rounding",
        "rounding must be 'correct' or 'fast', got {!r}",
        ["nearest", "", "Correct", None],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("error", "arguments", "words"), ERRORS)
def test_errors(
    forward: Forward, error: type[Exception], arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(error, match=exact_match(words)):
        forward(**{"x": X, **arguments})


class Flag:
    """A bool of another library, which has `__index__`."""

    def __index__(self) -> int:
        return 1

    def __dlpack__(self) -> Any:
        raise NotImplementedError


NO_INTEGERS: list[Any] = [
    Flag(),
    1.5, 2.0, "2", "many", b"2", True, np.True_, np.array(True), np.array([1, 2]), [2], 1j,
    np.datetime64("2020"), np.timedelta64(2, "s"), Decimal(2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "threads"),
    [
        *((ValueError, count) for count in (0, -1, 2**31, 2**64)),
        *((TypeError, value) for value in NO_INTEGERS),
    ],
)
def test_threads(forward: Forward, error: type[Exception], threads: Any) -> None:
    words = f"threads must be None or an integer from 1 to 2147483647, got {threads!r}"
    with pytest.raises(error, match=exact_match(words)):
        forward(X, threads=threads)
    with pytest.raises(error, match=exact_match(words)):
        tn.layer_norm_backward(X, tn.layer_norm_forward(X)[1], threads=threads)


NO_BACKENDS: list[Any] = [
    "abacus", "", b"reference", ["reference"], {}, np.array("reference"),
    np.timedelta64(1, "s"), True,
]  # fmt: skip


@pytest.mark.parametrize("name", NO_BACKENDS)
def test_backend(forward: Forward, name: Any) -> None:
    """Also for values that have no hash."""
    words = f"backend must be None or one of ['gpu', 'native', 'reference'], got {name!r}"
    with pytest.raises(ValueError, match=exact_match(words)):
        forward(X, backend=name)
    with pytest.raises(ValueError, match=exact_match(words)):
        tn.layer_norm_backward(X, tn.layer_norm_forward(X)[1], backend=name)


@pytest.mark.parametrize("stream", [0, "", False, ..., np.datetime64("2020")], ids=repr)
def test_stream(forward: Forward, backend: str, stream: Any) -> None:
    """Arrays in the memory of the CPU have no stream."""
    words = f"stream must be None for arrays that are not on a device, got {stream!r}: leave it"
    saved = tn.layer_norm_forward(X, backend=backend)[1]
    for x in (X, X.T, X.tolist()):
        with pytest.raises(ValueError, match=exact_match(words)):
            forward(x, backend=backend, stream=stream)
    with pytest.raises(ValueError, match=exact_match(words)):
        tn.layer_norm_backward(X, saved, backend=backend, stream=stream)


@pytest.mark.parametrize("x", [np.array(1, np.float32), np.array(1.0), np.float32(1), 1.0])
def test_no_dimensions(backend: str, x: Any) -> None:
    if backend == "gpu":
        x = np.float32(x)
    function: Forward
    for function in (tn.layer_norm, tn.layer_norm_forward, tn.rms_norm, tn.rms_norm_forward):
        for axis in (-1, (-1,)):
            with pytest.raises(np.exceptions.AxisError, match=NO_AXIS):
                function(x, axis=axis, backend=backend)
    rows = np.ones(1, np.asarray(x).dtype)
    for forward, backward in (
        (tn.layer_norm_forward, tn.layer_norm_backward),
        (tn.rms_norm_forward, tn.rms_norm_backward),
    ):
        with pytest.raises(ValueError, match=exact_match("dy must have shape (1,), got ()")):
            backward(x, forward(rows, backend=backend)[1], backend=backend)


@pytest.mark.parametrize("dy", [X.T, ROW])
def test_dy_of_another_shape(dy: Any) -> None:
    words = f"dy must have shape (2, 3), got {dy.shape}"
    with pytest.raises(ValueError, match=exact_match(words)):
        tn.layer_norm_backward(dy, tn.layer_norm_forward(X)[1])


def test_dy_has_the_type_of_x() -> None:
    for dtype in DTYPES:
        saved = tn.layer_norm_forward(X.astype(dtype), backend="reference")[1]
        for other in set(DTYPES) - {dtype}:
            words = f"dy must be of type {dtype} as x, got {other}: pass dy.astype(x.dtype)"
            with pytest.raises(TypeError, match=exact_match(words)):
                tn.layer_norm_backward(X.astype(other), saved)


@pytest.mark.parametrize("saved", [None, X, (X, X)], ids=["None", "array", "tuple"])
def test_saved(saved: Any) -> None:
    words = f"saved must be the second result of layer_norm_forward, got {type(saved).__name__}"
    with pytest.raises(TypeError, match=exact_match(words)):
        tn.layer_norm_backward(X, saved)


class Index:
    """An integer of another library."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return f"Index({self.value})"


REALS: list[Any] = [
    1, np.float32(1), np.int8(1), np.float64(1), BFLOAT16.type(1), np.array(1.0),
    np.array(1, BFLOAT16), np.longdouble(1), Fraction(1), Decimal(1),
]  # fmt: skip
SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *[
        ({"axis": axis}, {"axis": (0, 1)})
        for axis in ([0, 1], range(2), np.array([0, 1]), (np.int8(-1), -2))
    ],
    *[({"axis": axis}, {"axis": 0}) for axis in (np.int64(0), np.array(0))],
    *[({"eps": eps}, {"eps": 1.0}) for eps in REALS],
    *[({"threads": count}, {"threads": 2}) for count in (np.int8(2), np.array(2), Index(2))],
]


@pytest.mark.parametrize(("options", "plain"), SAME, ids=repr)
def test_integers_and_numbers_of_any_type(options: dict[str, Any], plain: dict[str, Any]) -> None:
    assert_same_bits((tn.layer_norm(X, **options),), (tn.layer_norm(X, **plain),))


def test_number_of_threads_does_not_change_bits(backend: str) -> None:
    for rounding in MODES:
        y, saved = tn.layer_norm_forward(X, ROW, ROW, rounding=rounding, backend=backend)
        right = (y, *tn.layer_norm_backward(X, saved, backend=backend))
        threads: Any
        for threads in (1, 2, 7, np.int64(3)):
            y, saved = tn.layer_norm_forward(
                X, ROW, ROW, rounding=rounding, backend=backend, threads=threads
            )
            gradients = tn.layer_norm_backward(X, saved, backend=backend, threads=threads)
            assert_same_bits((y, *gradients), right)


HINTS = {
    "weight": "the scale is named gamma",
    "bias": "the shift is named beta",
    "normalized_shape": "the axes to normalize are named by axis, not by their lengths",
    "epsilon": "it is named eps",
}
LAYER_NORMS: list[Forward] = [tn.layer_norm, tn.layer_norm_forward]
RMS_NORMS: list[Forward] = [tn.rms_norm, tn.rms_norm_forward]


def name_of(function: Forward) -> str:
    return function.__name__


@pytest.mark.parametrize("function", LAYER_NORMS + RMS_NORMS, ids=name_of)
@pytest.mark.parametrize("name", HINTS)
def test_names_of_other_libraries(function: Forward, name: str) -> None:
    hint = HINTS[name]
    if name == "bias" and function in RMS_NORMS:
        hint = "RMSNorm has no shift"
    words = f"{name_of(function)}() got an unexpected keyword argument {name!r}: {hint}"
    for value in (ROW, None):
        with pytest.raises(TypeError, match=f"^{exact_match(words)}$"):
            function(X, **{name: value})


@pytest.mark.parametrize("function", RMS_NORMS, ids=name_of)
def test_rms_norm_has_no_beta(function: Forward) -> None:
    words = f"{name_of(function)}() got an unexpected keyword argument 'beta': RMSNorm has no"
    with pytest.raises(TypeError, match=exact_match(words)):
        function(X, beta=ROW)


@pytest.mark.parametrize("function", LAYER_NORMS + RMS_NORMS, ids=name_of)
def test_any_other_name(function: Forward) -> None:
    """The message of Python."""
    words = f"{name_of(function)}() got an unexpected keyword argument 'roundign'"
    options: dict[str, Any] = {"roundign": "fast", "weight": ROW}
    with pytest.raises(TypeError, match=f"^{exact_match(words)}$"):
        function(X, **options)


BY_POSITION: dict[Forward, tuple[int, str, str]] = {
    tn.layer_norm: (2, "x, gamma and beta", "eps is a keyword: eps=1e-05"),
    tn.layer_norm_forward: (2, "x, gamma and beta", "eps is a keyword: eps=1e-05"),
    tn.rms_norm: (1, "x and gamma", "eps is a keyword: eps=1e-05"),
    tn.rms_norm_forward: (1, "x and gamma", "eps is a keyword: eps=1e-05"),
    tn.layer_norm_backward: (1, "dy and saved", "other arguments are keywords"),
    tn.rms_norm_backward: (1, "dy and saved", "other arguments are keywords"),
    tn.layer_norm_backward_partial: (1, "dy and saved", "other arguments are keywords"),
    tn.rms_norm_backward_partial: (1, "dy and saved", "other arguments are keywords"),
}
BACKWARDS = list(BY_POSITION)[4:]


@pytest.mark.parametrize("function", BY_POSITION, ids=name_of)
def test_keywords_given_by_position(function: Forward) -> None:
    others, names, hint = BY_POSITION[function]
    words = f"{name_of(function)}() takes {names} by position, {hint}"
    with pytest.raises(TypeError, match=f"^{exact_match(words)}$"):
        function(X, *[ROW] * others, 1e-5)


@pytest.mark.parametrize("function", RMS_NORMS, ids=name_of)
def test_rms_norm_has_no_beta_by_position(function: Forward) -> None:
    words = f"{name_of(function)}() takes x and gamma by position, RMSNorm has no shift"
    with pytest.raises(TypeError, match=f"^{exact_match(words)}$"):
        function(X, ROW, ROW)


@pytest.mark.parametrize("function", BACKWARDS, ids=name_of)
@pytest.mark.parametrize("name", ["axis", "eps", "rounding"])
def test_backward_has_the_settings_of_forward(function: Forward, name: str) -> None:
    norm = name_of(function).removesuffix("_partial").removesuffix("_backward")
    words = f"{name_of(function)}() got an unexpected keyword argument {name!r}"
    options: dict[str, Any] = {name: "fast"}
    with pytest.raises(TypeError, match=f"^{exact_match(words)}: {norm}_forward decided it$"):
        function(X, None, **options)


@pytest.mark.parametrize("function", [*LAYER_NORMS, *RMS_NORMS, *BACKWARDS], ids=name_of)
def test_signature_has_only_documented_arguments(function: Forward) -> None:
    parameters = inspect.signature(function).parameters.values()
    assert {each.kind for each in parameters} == {
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    }


def test_type_checkers_reject_them() -> None:
    with pytest.raises(TypeError, match="the scale is named gamma"):
        tn.layer_norm(X, weight=ROW)  # type: ignore[arg-type]
