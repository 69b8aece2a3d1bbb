"""Turns, with a clock that moves only when a contestant works."""

import time
from collections.abc import Callable

import pytest

from truenorm.bench import stopwatch
from truenorm.bench.stopwatch import TURN, take_turns


class Clock:
    """A time that contestants spend; `played` lists who did, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.played: list[str] = []

    def contestant(self, name: str, *seconds: float) -> Callable[[], None]:
        """Return one whose calls take these times, the last one for ever."""
        left = list(seconds)

        def call() -> None:
            self.played.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: made.now)
    return made


def test_everyone_in_each_round_beginning_with_another(clock: Clock) -> None:
    long = 2 * TURN
    contestants = {name: clock.contestant(name, long) for name in "abc"}
    rounds: list[int] = []
    take_turns(contestants, 4, lambda: rounds.append(len(clock.played)))
    assert "".join(clock.played) == "abc" + "abc" + "abc" + "bca" + "cab" + "abc"
    assert rounds == [9, 12, 15, 18]


def test_the_first_call_is_kept_apart(clock: Clock) -> None:
    timing = take_turns({"a": clock.contestant("a", 60.0, 1.0)}, 3, lambda: None)["a"]
    assert timing == (60.0, 1.0, 1)


def test_the_median_of_the_turns(clock: Clock) -> None:
    """Two calls before the turns; one slow turn out of three does not count."""
    taken = take_turns({"a": clock.contestant("a", 1.0, 1.0, 2.0, 90.0, 3.0)}, 3, lambda: None)
    assert taken["a"].median == 3.0


def test_short_calls_fill_a_turn_after_one_that_is_not_timed(clock: Clock) -> None:
    # First, second, then of the only turn: one that is not timed, and four of TURN/4.
    each = TURN / 4
    calls = (9.0, each, 70.0, each)
    timing = take_turns({"a": clock.contestant("a", *calls)}, 1, lambda: None)["a"]
    assert timing.calls == 4
    assert timing.median == pytest.approx(each)
    assert len(clock.played) == 2 + 1 + 4


def test_a_clock_that_stands_still_is_not_waited_for(clock: Clock) -> None:
    timing = take_turns({"a": clock.contestant("a", 0.0)}, 1, lambda: None)["a"]
    assert timing.calls == stopwatch.MOST_CALLS
