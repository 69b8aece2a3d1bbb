"""Refused rows and columns are left to NumPy until compiling pays, and nobody can tell."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("numba")

from gated import GATED_TYPES
from programs import run_python
from truenorm import layer_norm_backward, layer_norm_forward
from truenorm.kernels.drive import again
from truenorm.kernels.fused import compiling, narrow
from truenorm.kernels.fused.compiling import kernel
from truenorm.kernels.fused.first_call.loading import needs_compiling
from truenorm.kernels.fused.sums import columns
from truenorm.warmup.rows import Inputs, all_kinds

LEVELS = (narrow.NarrowForward, narrow.NarrowBackward, columns.PairColumns)


@kernel
def next_number(number: float) -> float:
    return number + 1


def hard(dtype: np.dtype[Any]) -> list[Inputs]:
    """Return data of which some elements are refused even in double-double."""
    return [each for each in all_kinds(dtype, [dtype]) if each.x.size <= 1000]


def results(data: list[Inputs]) -> Iterator[Any]:
    for x, gamma, beta, dy, eps in data:
        y, saved = layer_norm_forward(x, gamma, beta, eps=eps, backend="fused")
        yield from (y, *layer_norm_backward(dy, saved, backend="fused"))


def bits(data: list[Inputs]) -> list[bytes]:
    return [np.ascontiguousarray(each).tobytes() for each in results(data) if each is not None]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Have nothing compiled yet, as it seems; return how often compiled levels looked again."""
    found: Counter[str] = Counter()
    monkeypatch.setattr(again, "_waits", True)
    monkeypatch.setattr(again, "_left_to_numpy", Counter())

    def counted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def look(*given: Any) -> Any:
            found[name] += 1
            return original(*given)

        return look

    for level in LEVELS:
        monkeypatch.setattr(level, "would_compile", True)
        name = "add" if level is columns.PairColumns else "look_again"
        monkeypatch.setattr(level, name, counted(level.__name__, getattr(level, name)))
    return found


@pytest.mark.parametrize("dtype", GATED_TYPES[:3], ids=str)
def test_nobody_can_tell(
    looks: Counter[str], monkeypatch: pytest.MonkeyPatch, dtype: np.dtype[Any]
) -> None:
    data = hard(dtype)
    by_numpy = bits(data)
    assert not looks
    monkeypatch.setattr(again, "PAYS", 0)
    assert bits(data) == by_numpy
    assert set(looks) == {level.__name__ for level in LEVELS}


def test_until_it_pays(looks: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of work is counted for itself, before it is done."""
    data = hard(np.dtype("float32"))
    bits(data)
    most = max(again._left_to_numpy.values())
    assert not looks
    monkeypatch.setattr(again, "PAYS", most)
    bits(data)
    assert looks


@pytest.mark.slow
def test_each_type_is_counted_for_itself(
    looks: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bits(hard(np.dtype("float32")))
    monkeypatch.setattr(again, "PAYS", max(again._left_to_numpy.values()))
    bits(hard(np.dtype(ml_dtypes.bfloat16)))
    assert not looks


def test_what_is_at_hand_is_used(looks: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for level in LEVELS:
        monkeypatch.setattr(level, "would_compile", False)
    bits(hard(np.dtype("float32")))
    assert set(looks) == {level.__name__ for level in LEVELS}
    assert not again._left_to_numpy


def test_compiling_at_once(looks: Counter[str]) -> None:
    with again.compiling_at_once():
        bits(hard(np.dtype("float32")))
    assert set(looks) == {level.__name__ for level in LEVELS}
    looks.clear()
    bits(hard(np.dtype("float32")))
    assert not looks


def test_needs_compiling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is in memory or on disk needs none; and asking compiles nothing."""
    monkeypatch.setenv("TRUENORM_CACHE_DIR", str(tmp_path / "kept"))
    before = compiling.TALLY.copy()
    assert needs_compiling(lambda: next_number(1.0))
    assert before == compiling.TALLY
    assert next_number(1.0) == 2.0
    assert not needs_compiling(lambda: next_number(1.0))
    again_from_disk = kernel(next_number.py_func)  # type: ignore[attr-defined]
    assert not needs_compiling(lambda: again_from_disk(1.0))
    assert needs_compiling(lambda: next_number(1))


COLD = """
import sys
import numpy as np
from truenorm import layer_norm_backward, layer_norm_forward
from truenorm.kernels.drive import again

if sys.argv[1] == "many":
    again.PAYS = 0
random = np.random.default_rng(0)
x, dy = random.standard_normal((2, 64, 1024), np.float32)
_, saved = layer_norm_forward(x, np.ones(1024, np.float32))
layer_norm_backward(dy, saved)
print(sum(again._left_to_numpy.values()) > 0)
"""


@pytest.mark.slow
def test_a_new_process(tmp_path: Path) -> None:
    """One that refuses little compiles no double-double; the next compiles what is missing."""
    place = str(tmp_path / "kept")
    assert run_python(COLD, "few", TRUENORM_CACHE_DIR=place) == ["True"]
    assert not list((tmp_path / "kept").rglob("settle_dx-*"))
    assert run_python(COLD, "many", TRUENORM_CACHE_DIR=place) == ["False"]
    assert list((tmp_path / "kept").rglob("settle_dx-*"))
    assert run_python(COLD, "few", TRUENORM_CACHE_DIR=place) == ["False"]  # now it is at hand


def test_where_numpy_has_no_second_look_the_level_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In fast mode the reference backend has none for columns of float64."""
    sweep = Mock(would_compile=True)
    monkeypatch.setattr(again, "_waits", True)
    numpy = Mock()
    numpy.backward.return_value.dgamma_again.return_value = None
    monkeypatch.setattr(again, "numpy_backend", lambda: numpy)
    level = Mock()
    level.dgamma_again.return_value = sweep
    call = Mock(count=1, size=1)
    assert again.dgamma_again(call, level, Mock(), Mock()) is sweep
    assert numpy.backward.called
