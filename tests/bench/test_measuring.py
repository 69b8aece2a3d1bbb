"""A whole run, on little arrays, and what it refuses."""

import time

import pytest

from tools.clock import Clock
from truenorm import bench
from truenorm.bench import DEFAULT_SHAPES, TURN, label, measure, shape_of, take_turns


@pytest.fixture(autouse=True)
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUENORM_BACKEND", "reference")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: made.now)
    return made


def test_every_shape_direction_and_contestant() -> None:
    told: list[tuple[int, int, str]] = []
    report = measure([(3, 8), (5,)], rounds=2, progress=lambda *step: told.append(step))
    assert report.shapes == [(3, 8), (5,)]
    assert len(report.figures) == 2 * 2 * 5
    for figure in report.figures:
        assert figure.seconds > 0
        assert figure.first_call > 0
        assert (figure.times_floor == 1) == (figure.contestant in ("copy", "triad"))
    assert (report.backend, report.threads, report.rounds) == ("reference", 1, 2)
    assert list(report.machine)[:3] == ["date", "cpu", "cores"]
    names = ["3x8 forward", "3x8 backward", "5 forward", "5 backward"]
    assert told == [(done, 8, names[done // 2]) for done in range(8)]


@pytest.mark.parametrize(
    ("dtype", "contestants", "note"),
    [("float64", 4, "itself for this type"), ("bfloat16", 5, "widens bfloat16")],
)
def test_types_with_a_note(dtype: str, contestants: int, note: str) -> None:
    report = measure([(2, 4)], dtype=dtype, rounds=1)
    assert len(report.figures) == 2 * contestants
    assert note in report.notes[0]


class TestTurns:
    """On a clock that moves only when a contestant works."""

    def test_the_first_call_is_kept_apart(self, clock: Clock) -> None:
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

    def test_a_clock_that_stands_still_is_not_waited_for(self, clock: Clock) -> None:
        timing = take_turns({"a": clock.contestant("a", 0.0)}, range(1))["a"]
        assert timing.calls == bench.MOST_CALLS


@pytest.mark.parametrize("text", ["", "x", "3x", "2x-1", "2x0x3", "2*3", "1.5", "2x 3"])
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(ValueError, match="such as 2x128x1024"):
        shape_of(text)


def test_shapes_are_written_as_they_are_read() -> None:
    for shape in DEFAULT_SHAPES:
        assert shape_of(label(shape)) == shape
    assert shape_of("4X5") == (4, 5)


@pytest.mark.parametrize(
    ("shape", "options", "variable", "said"),
    [
        ((10**6, 10**6), {}, "", "1000000x1000000 has 1,000,000,000,000 elements"),
        ((2, 2), {"dtype": "float8"}, "", "float8"),
        ((2, 2), {}, "ROUNDING=fast", "both modes would be the same: unset it"),
        ((2, 2), {"threads": 2}, "THREADS=1", "TRUENORM_THREADS is set"),
    ],
)
def test_what_is_refused(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], options: dict[str, int],
    variable: str, said: str,
) -> None:  # fmt: skip
    name, _, value = variable.partition("=")
    monkeypatch.setenv(f"TRUENORM_{name}", value)
    with pytest.raises(ValueError, match=said):
        measure([shape], **options)  # type: ignore[arg-type]


def test_a_variable_that_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUENORM_THREADS", "1")
    assert measure([(2, 2)], threads=1, rounds=1).threads == 1
