"""Contestants compute layer normalization, and the floors move what they must."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from truenorm import textbook
from truenorm.bench.contestants import DIRECTIONS, FLOORS, Contest

SHAPE = (2, 3, 40)


@pytest.fixture(autouse=True)
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has to be compiled for these."""
    monkeypatch.setenv("TRUENORM_BACKEND", "reference")


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    # A hundred times the unit roundoff of the type: rows are 40 normal numbers.
    [(np.float16, 0.05), (ml_dtypes.bfloat16, 0.4), (np.float32, 6e-6), (np.float64, 2e-14)],
)
def test_they_agree_with_float64(dtype: Any, tolerance: float) -> None:
    contest = Contest(SHAPE, np.dtype(dtype), None)
    given = (contest.x, contest.gamma, contest.beta)
    x, gamma, beta = (each.astype(np.float64) for each in given)
    y, saved = textbook.forward(x, gamma, beta)
    right = {"forward": (y,), "backward": textbook.backward(contest.dy.astype(float), saved)}
    for direction in DIRECTIONS:
        for name, call in contest.of(direction).items():
            if name == FLOORS[direction]:
                continue
            results = call()
            if direction == "forward":
                # Beside y there may be what backward needs.
                results = results[:1] if isinstance(results, tuple) else (results,)
            for result, answer in zip(results, right[direction], strict=True):
                scale = np.abs(answer).max()
                assert np.abs(result.astype(float) - answer).max() <= tolerance * scale, name


def test_names_modes_threads_and_where_they_write() -> None:
    contest = Contest(SHAPE, np.dtype(np.float32), 3)
    forward, backward = contest.of("forward"), contest.of("backward")
    others = ["truenorm correct", "truenorm fast", "textbook", "textbook in float64"]
    assert list(forward) == ["copy", *others]
    assert list(backward) == ["triad", *others]
    for mode, saved in contest.saved.items():
        assert (saved.settings.rounding, saved.settings.threads) == (mode, 3)
        assert forward[f"truenorm {mode}"]()[0] is contest.out
        assert backward[f"truenorm {mode}"]().dx is contest.out
    wide = Contest(SHAPE, np.dtype(np.float64), None)
    assert list(wide.of("forward")) == ["copy", *others[:3]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floors_read_and_write_whole_arrays(dtype: str) -> None:
    contest = Contest(SHAPE, np.dtype(dtype), None)
    contest.of("forward")["copy"]()
    assert contest.out.tobytes() == contest.x.tobytes()
    contest.of("backward")["triad"]()
    pairs = zip(contest.x.tobytes(), contest.dy.tobytes(), strict=True)
    assert contest.out.tobytes() == bytes(one | other for one, other in pairs)
