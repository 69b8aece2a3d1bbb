"""Fast-path arrays go straight to the C core; the general path gives the same bits."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest

import truenorm as tn
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
    """Yield parameters of the type of x, of float32, and none; rows of many kinds."""
    own, wide = ("random", dtype), ("random", FLOAT32)
    for seed, (rows, size) in enumerate(SHAPES):
        for gamma, beta in ((own, own), (wide, wide), (own, wide)):
            yield CaseSpec("normal", rows, size, 1e-5, "random", gamma, beta).build(dtype, seed)
        case = usual_case("normal", rows, size, dtype)
        yield Case("no beta", case.x, case.gamma, None, case.dy, 1e-5)
        yield Case("no gamma", case.x, None, case.beta, case.dy, 1e-5)
        if rows * size < 1000 and case.beta is not None:  # float64 parameters are slow
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


OTHER_ARRAYS = {
    "x a view": lambda x, gamma, beta: (np.repeat(x, 2, axis=1)[:, ::2], gamma, beta),
    "x big-endian": lambda x, gamma, beta: (x.astype(">f4"), gamma, beta),
    "gamma a list": lambda x, gamma, beta: (x, gamma.tolist(), beta),
    "beta a view": lambda x, gamma, beta: (x, gamma, np.repeat(beta, 2)[::2]),
    "beta of float64": lambda x, gamma, beta: (x, gamma, beta.astype(np.float64)),
}


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize("change", OTHER_ARRAYS.values(), ids=OTHER_ARRAYS)
def test_other_arrays_go_through_the_driver(change: Any) -> None:
    with pytest.raises(AssertionError, match="through the driver"):
        tn.layer_norm(*change(*arrays()), backend="native")


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
