"""Contestants of timings: their results, names and turns."""

import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from benchmarks.contestants import DIRECTIONS, FLOORS, NORMS, TURN, Contest, take_turns
from shared.tools.clock import Clock

SHAPE = (2, 3, 40)


@pytest.fixture(autouse=True)
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUENORM_BACKEND", "reference")


@pytest.mark.parametrize("operation", list(NORMS))
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    # A hundred times the unit roundoff of the type: rows are 40 normal numbers.
    [(np.float16, 0.05), (ml_dtypes.bfloat16, 0.4), (np.float32, 6e-6), (np.float64, 2e-14)],
)
def test_contestants_agree_with_float64(operation: str, dtype: Any, tolerance: float) -> None:
    norm = NORMS[operation]
    contest = Contest(norm, SHAPE, np.dtype(dtype), None)
    y, saved = norm.textbook_forward(*(each.astype(np.float64) for each in contest.arguments))
    right = {"forward": (y,), "backward": norm.textbook_backward(contest.dy.astype(float), saved)}
    for direction in DIRECTIONS:
        for name, call in contest.of(direction).items():
            if name == FLOORS[direction]:
                continue
            results = call()[:1] if direction == "forward" else call()  # without what is saved
            results = [each for each in results if each is not None]  # RMSNorm has no dbeta
            for result, answer in zip(results, right[direction], strict=True):
                scale = np.abs(answer).max()
                assert np.abs(result.astype(float) - answer).max() <= tolerance * scale, name


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floors_read_and_write_whole_arrays(dtype: str) -> None:
    contest = Contest(NORMS["layer_norm"], SHAPE, np.dtype(dtype), None)
    contest.of("forward")["copy"]()
    assert contest.out.tobytes() == contest.x.tobytes()
    contest.of("backward")["triad"]()
    pairs = zip(contest.x.tobytes(), contest.dy.tobytes(), strict=True)
    assert contest.out.tobytes() == bytes(one | other for one, other in pairs)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: fake.now)
    return fake


class TestTurns:
    """On a clock that moves only when a contestant works."""

    def test_first_call_is_separate(self, clock: Clock) -> None:
        """Two calls before the turns; one slow turn out of three does not count."""
        calls = (60.0, 1.0, 2.0, 90.0, 3.0)
        assert take_turns({"a": clock.contestant("a", *calls)}, range(3))["a"] == (60.0, 3.0, 1)

    def test_short_calls_fill_a_turn(self, clock: Clock) -> None:
        """First, second, and in the only turn one that is not timed and four of TURN/4."""
        each = TURN / 4
        timing = take_turns({"a": clock.contestant("a", 9.0, each, 70.0, each)}, range(1))["a"]
        assert timing.calls == 4
        assert timing.median == pytest.approx(each)
        assert len(clock.played) == 2 + 1 + 4
