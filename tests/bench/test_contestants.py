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


def test_order_and_names() -> None:
    contest = Contest(SHAPE, np.dtype(np.float32), None)
    others = ["truenorm correct", "truenorm fast", "textbook", "textbook in float64"]
    assert list(contest.of("forward")) == ["copy", *others]
    assert list(contest.of("backward")) == ["triad", *others]
    wide = Contest(SHAPE, np.dtype(np.float64), None)
    assert list(wide.of("forward")) == ["copy", *others[:3]]


def test_modes_are_what_they_are_called() -> None:
    contest = Contest(SHAPE, np.dtype(np.float32), None)
    contest.of("backward")
    assert {name: saved.settings.rounding for name, saved in contest.saved.items()} == {
        "correct": "correct",
        "fast": "fast",
    }


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floors_read_and_write_whole_arrays(dtype: str) -> None:
    contest = Contest(SHAPE, np.dtype(dtype), None)
    contest.of("forward")["copy"]()
    assert contest.out.tobytes() == contest.x.tobytes()
    contest.of("backward")["triad"]()
    pairs = zip(contest.x.tobytes(), contest.dy.tobytes(), strict=True)
    assert contest.out.tobytes() == bytes(one | other for one, other in pairs)


def test_threads_are_passed_on() -> None:
    contest = Contest(SHAPE, np.dtype(np.float32), 3)
    contest.of("backward")
    assert contest.saved["fast"].settings.threads == 3


def test_truenorm_and_the_floors_write_to_one_array() -> None:
    contest = Contest(SHAPE, np.dtype(np.float32), None)
    assert contest.of("forward")["truenorm fast"]()[0] is contest.out
    assert contest.of("backward")["truenorm correct"]().dx is contest.out
