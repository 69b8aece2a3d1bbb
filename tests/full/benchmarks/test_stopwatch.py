"""The stopwatch for contestants that take turns."""

import time

import pytest

from benchmarks.stopwatch import Stopwatch, seconds_of
from shared.tools.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: made.now)
    return made


def test_each_round_starts_with_another_contestant(clock: Clock) -> None:
    watch, contestants = Stopwatch(), {name: clock.contestant(name, 1.0) for name in "abc"}
    assert [watch.go_round(contestants) for _ in range(4)] == [3.0] * 4
    assert "".join(clock.played) == "abc" + "bca" + "cab" + "abc"
    assert watch.seconds == {name: [1.0] * 4 for name in "abc"}


@pytest.mark.parametrize("calls", [4, {"a": 4}])
def test_several_calls_follow_an_untimed_one(clock: Clock, calls: int | dict[str, int]) -> None:
    watch = Stopwatch()
    assert watch.go_round({"a": clock.contestant("a", 70.0, 1.0, 2.0, 3.0)}, calls) == 9.0
    assert watch.seconds == {"a": [9.0 / 4]}
    assert len(clock.played) == 5


def test_seconds_of_some_calls(clock: Clock) -> None:
    assert seconds_of(clock.contestant("a", 1.0, 2.0, 4.0)) == 1.0
    assert seconds_of(clock.contestant("a", 1.0, 2.0, 4.0), calls=3) == 7.0


def test_statistics() -> None:
    watch = Stopwatch({"a": [4.0, 1.0, 1.0], "b": [2.0] * 150 + [9.0, 8.0]})
    watch.add("c", 3.0)
    assert (watch.p50("a"), watch.mean("a"), watch.p99("a")) == (1.0, 2.0, 4.0)
    assert (watch.p50("b"), watch.p99("b")) == (2.0, 8.0)
    assert (watch.ratio("b", to="a"), watch.ratio("c", to="b")) == (2.0, 1.5)
