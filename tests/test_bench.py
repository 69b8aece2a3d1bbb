"""`truenorm bench`: its contestants, a whole run, the report, the table and the picture."""

import re
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from matplotlib import image, rc_context

from sample_reports import bench_report
from tools.clock import Clock
from tools.screen import printed
from truenorm import bench
from truenorm.bench import (
    ARRAYS,
    DEFAULT_SHAPES,
    DIRECTIONS,
    FLOORS,
    NORMS,
    TURN,
    Contest,
    draw,
    label,
    measure,
    rate,
    show_timings,
    take_turns,
    write,
)
from truenorm.cost import rms_norm_cost
from truenorm.tools import strict_json
from truenorm.tools.text import parse_shape

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


def test_names_modes_threads_and_outputs() -> None:
    contest = Contest(NORMS["layer_norm"], SHAPE, np.dtype(np.float32), 3)
    forward, backward = contest.of("forward"), contest.of("backward")
    others = ["truenorm correct", "truenorm fast", "textbook", "textbook in float64"]
    assert list(forward) == ["copy", *others]
    assert list(backward) == ["triad", *others]
    for mode, saved in contest.saved.items():
        assert (saved.settings.rounding, saved.settings.threads) == (mode, 3)
        assert forward[f"truenorm {mode}"]()[0] is contest.out
        assert backward[f"truenorm {mode}"]().dx is contest.out
    wide = Contest(NORMS["layer_norm"], SHAPE, np.dtype(np.float64), None)
    assert list(wide.of("forward")) == ["copy", *others[:3]]


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


def test_every_shape_direction_and_contestant() -> None:
    steps: list[tuple[int, int, str]] = []
    report = measure([(3, 8), (5,)], rounds=2, progress=lambda *step: steps.append(step))
    assert report.shapes == [(3, 8), (5,)]
    assert len(report.figures) == 2 * 2 * 5
    for figure in report.figures:
        assert figure.seconds > 0
        assert figure.first_call > 0
        assert (figure.times_floor == 1) == (figure.contestant in ("copy", "triad"))
    assert (report.backend, report.threads, report.rounds) == ("reference", 1, 2)
    assert list(report.machine)[:3] == ["date", "cpu", "cores"]
    names = ["3x8 forward", "3x8 backward", "5 forward", "5 backward"]
    assert steps == [(done, 8, names[done // 2]) for done in range(8)]


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

    def test_stopped_clock(self, clock: Clock) -> None:
        timing = take_turns({"a": clock.contestant("a", 0.0)}, range(1))["a"]
        assert timing.calls == bench.MOST_CALLS


def test_shapes_round_trip() -> None:
    for shape in DEFAULT_SHAPES:
        assert parse_shape(label(shape)) == shape
    assert parse_shape("4X5") == (4, 5)


@pytest.mark.parametrize(
    ("shape", "options", "variable", "message"),
    [
        ((10**6, 10**6), {}, "", "1000000x1000000 has 1,000,000,000,000 elements"),
        ((2, 2), {"dtype": "float8"}, "", "float8"),
        ((2, 2), {}, "ROUNDING=fast", "both modes would be the same: unset it"),
        ((2, 2), {"threads": 2}, "THREADS=1", "TRUENORM_THREADS is set"),
    ],
)
def test_invalid_arguments(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], options: dict[str, int],
    variable: str, message: str,
) -> None:  # fmt: skip
    name, _, value = variable.partition("=")
    monkeypatch.setenv(f"TRUENORM_{name}", value)
    with pytest.raises(ValueError, match=message):
        measure([shape], **options)  # type: ignore[arg-type]


def test_variable_equal_to_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUENORM_THREADS", "1")
    assert measure([(2, 2)], threads=1, rounds=1).threads == 1


PAGE = Path(__file__).parents[1] / "docs" / "learn" / "time-and-memory.md"


@pytest.mark.parametrize(
    ("direction", "name", "milliseconds", "arrays", "flops"),
    [
        ("forward", "copy", 1, 2, 0),
        ("forward", "truenorm correct", 2, 2, 7),
        ("backward", "triad", 1, 3, 0),
        ("backward", "textbook", 4, 3, 11),
    ],
)
def test_rates(direction: str, name: str, milliseconds: int, arrays: int, flops: int) -> None:
    """2 x 250 elements of 4 bytes; the floor takes 1 ms."""
    figure = bench_report().of((2, 250), direction)[name]
    assert figure.seconds == milliseconds / 1e3
    assert figure.bytes_per_second == pytest.approx(arrays * 2000 / figure.seconds)
    assert figure.flops_per_second == pytest.approx(flops * 500 / figure.seconds)
    assert figure.times_floor == pytest.approx(milliseconds)


def test_json() -> None:
    """1.5 s each, at two shapes; the textbook's are not ours to explain."""
    report = bench_report(((2, 250), (4, 4)))
    data = strict_json.loads(strict_json.dumps(report.as_dict()))
    first = data["first_calls"]
    assert list(first) == ["correct forward", "fast forward", "correct backward", "fast backward"]
    assert first["correct forward"] == pytest.approx(2 * (1.5 - 0.002))
    assert first["fast backward"] == pytest.approx(2 * (1.5 - 0.003))
    assert data["arrays_moved"] == ARRAYS
    assert data["flops_per_element"] == {"forward": 7, "backward": 11}
    assert data["figures"][0]["contestant"] == "copy"


def test_flops_match_the_page() -> None:
    """The page itself is tested against what NumPy is asked to do."""
    text = PAGE.read_text(encoding="utf-8")
    for direction, pattern in (("forward", "Forward"), ("backward", "Backward")):
        section = text.split(f"\n## {pattern}\n")[1].split("\n## ")[0]
        total = re.search(r"\*\*total\*\* \| +\| \*\*(\d+) N\*\*", section)
        assert total
        assert NORMS["layer_norm"].flops[direction] == int(total[1])
        counted = rms_norm_cost((2**10, 2**10), form="textbook", keep="xhat").passes[direction]
        assert NORMS["rms_norm"].flops[direction] == round(counted.flops / 2**20)
        fused = re.search(rf"\| {direction}, fused \| \d+ N \| (\d+) N \|", text)
        assert fused
        assert ARRAYS[direction] == int(fused[1])


def table(dtype: str = "float32") -> str:
    return printed(show_timings, bench_report(((2, 250), (1, 1)), dtype))


def test_table() -> None:
    text = table()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in text
    assert "\x1b" not in text  # no colours in a pipe
    line = next(line for line in lines if line.startswith("truenorm correct"))
    # 2000 bytes and 500 elements in 2 ms; the floor takes 1 ms.
    assert line.split()[2:] == ["2.00", "<0.01", "<0.01", "2.00"] * 2
    floor = next(line for line in lines if line.startswith("copy | triad"))
    assert floor.split()[3:] == ["1.00", "<0.01", "-", "1.00"] * 2
    assert sum(line.startswith("textbook in float64") for line in lines) == 2
    assert "textbook in float64" not in table("float64")
    for words in (
        "backend 'native' on 2 threads",
        "medians of 7 rounds",
        "date 2026-01-02, cpu abacus, cores 4",
        "Timings on a busy machine wander",
        "7 forward and 11 backward for each element",
        "correct forward 3.0 s",
        "(out=)",
        "A note.",
    ):
        assert words in " ".join(text.split())


def test_rate() -> None:
    values = (0, 0.00999, 0.01, 9.994, 9.996, 99.94, 99.96, 285.8)
    assert [*map(rate, values)] == ["-", "<0.01", "0.01", "9.99", "10.0", "99.9", "100", "286"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shapes", [((2, 250),), tuple((k, 1000) for k in range(1, 12))])
def test_png(tmp_path: Path, shapes: tuple[tuple[int, ...], ...], dtype: str) -> None:
    file = tmp_path / "picture"
    with rc_context({"figure.facecolor": "black", "savefig.facecolor": "auto"}):
        write(bench_report(shapes, dtype), file)
    pixels = image.imread(file, format="png")
    assert pixels.shape[1] >= 1600
    assert pixels[0, 0, :3].tolist() == [1, 1, 1]  # white, whatever is behind it


def test_picture() -> None:
    canvas = draw(bench_report(((2, 250), (4, 5))))
    forward, backward = canvas.axes
    assert [forward.get_title(), backward.get_title()] == ["forward", "backward"]
    assert forward.get_ylabel() == "time of a call, ms"
    assert forward.get_yscale() == "log"
    assert [tick.get_text() for tick in backward.get_xticklabels()] == ["2x250", "4x5"]
    assert [np.asarray(line.get_ydata()).tolist() for line in forward.get_lines()] == [
        [milliseconds, milliseconds] for milliseconds in (1, 2, 3, 4, 5)
    ]
    names = [text.get_text() for text in canvas.legends[0].get_texts()]
    assert names[:2] == ["copy | triad (the same bytes moved)", "truenorm correct"]
    assert len(names) == 5
    assert "abacus" in canvas.get_suptitle()
    assert "2026-01-02" in canvas.get_suptitle()
