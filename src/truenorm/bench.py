"""Time truenorm on this machine, beside the textbook forms, a copy and a triad.

truenorm, the copy and the triad write to an existing array; the textbook forms allocate.
Contestants take turns on the same normal data. ``truenorm bench`` prints and draws the report.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from truenorm import textbook
from truenorm.api.arguments import threads_of
from truenorm.api.layer_norm import layer_norm_backward, layer_norm_forward
from truenorm.api.rms_norm import rms_norm_backward, rms_norm_forward
from truenorm.api.saved import Saved
from truenorm.api.settings import variables
from truenorm.threads import thread_count
from truenorm.tools.machine import Contestants, Stopwatch, describe, seconds_of
from truenorm.tools.progress import Progress, with_callback
from truenorm.tools.rich_tables import rich_table
from truenorm.tools.text import counted, duration, three_digits
from truenorm.verify.types import dtype_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

FLOORS = {"forward": "copy", "backward": "triad"}
"""The least work that moves the same bytes: NumPy on one thread."""
DIRECTIONS = tuple(FLOORS)
MODES = ("correct", "fast")
TEXTBOOK, WIDENED = "textbook", "textbook in float64"

Array = NDArray[Any]
Calls = dict[str, Callable[[], Any]]


class Norm(NamedTuple):
    """An operation of truenorm, and its textbook form."""

    parameters: int
    forward: Callable[..., tuple[Array, Saved]]
    backward: Callable[..., Any]
    textbook_forward: Callable[..., tuple[Array, textbook.Saved]]
    textbook_backward: Callable[..., tuple[Array, ...]]


NORMS = {
    "layer_norm": Norm(
        2, layer_norm_forward, layer_norm_backward, textbook.forward, textbook.backward
    ),
    "rms_norm": Norm(
        1,
        rms_norm_forward,
        rms_norm_backward,
        textbook.rms_norm_forward,
        textbook.rms_norm_backward,
    ),
}


class Contest:
    """The contestants of one shape and type, on normal data of a seed."""

    def __init__(
        self,
        norm: Norm,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        threads: int | None,
        *,
        backend: str | None = None,
        seed: int = 0,
    ) -> None:
        random = np.random.default_rng(seed)
        self.norm = norm
        self.x, self.dy = (random.standard_normal(shape).astype(dtype) for _ in range(2))
        drawn = random.standard_normal((norm.parameters, shape[-1])).astype(dtype)
        self.arguments = (self.x, *drawn)
        self.out = np.empty_like(self.x)
        self.options: dict[str, Any] = {"out": self.out, "threads": threads, "backend": backend}
        self.saved: dict[str, Saved] = {}

    def of(self, direction: str) -> Calls:
        """Return the calls of a direction by name, the floor first."""
        calls = self._forward() if direction == "forward" else self._backward()
        if self.x.dtype == np.float64:
            del calls[WIDENED]  # equal to the textbook form
        return calls

    def _forward(self) -> Calls:
        return {
            FLOORS["forward"]: partial(np.copyto, self.out, self.x),
            **{f"truenorm {mode}": partial(self._truenorm, mode) for mode in MODES},
            TEXTBOOK: partial(self.norm.textbook_forward, *self.arguments),
            WIDENED: lambda: self._widened_forward()[0],
        }

    def _backward(self) -> Calls:
        """Return backward calls; each has what its own forward saved, untimed."""
        self.saved = {mode: self._truenorm(mode)[1] for mode in MODES}
        _, narrow = self.norm.textbook_forward(*self.arguments)
        _, wide = self._widened_forward()
        # On bits: sums of float16 would be limited by conversions.
        bits = np.dtype(f"u{self.x.itemsize}")
        x, dy, out = (array.view(bits) for array in (self.x, self.dy, self.out))
        return {
            FLOORS["backward"]: partial(np.bitwise_or, x, dy, out=out),
            **{
                f"truenorm {mode}": partial(self.norm.backward, self.dy, saved, **self.options)
                for mode, saved in self.saved.items()
            },
            TEXTBOOK: partial(self.norm.textbook_backward, self.dy, narrow),
            WIDENED: lambda: self._widened_backward(wide),
        }

    def _truenorm(self, mode: str) -> tuple[Array, Saved]:
        return self.norm.forward(*self.arguments, rounding=mode, **self.options)

    def _widened_forward(self) -> tuple[Array, textbook.Saved]:
        """Run forward in float64; the casts are part of the cost."""
        y, saved = self.norm.textbook_forward(
            *(each.astype(np.float64) for each in self.arguments)
        )
        return y.astype(self.x.dtype), saved

    def _widened_backward(self, saved: textbook.Saved) -> list[Array]:
        gradients = self.norm.textbook_backward(self.dy.astype(np.float64), saved)
        return [each.astype(self.x.dtype) for each in gradients]


ARRAYS = {"forward": 2, "backward": 3}
"""Arrays of the size of x that are moved at least: x and y; x, dy and dx."""
FLOPS = {
    "layer_norm": {"forward": 7, "backward": 11},
    "rms_norm": {"forward": 4, "backward": 8},
}
"""Operations per element of the textbook formula, counted in docs/time-and-memory.md."""


class Timing(NamedTuple):
    """Seconds of the first call, and the median of the turns."""

    first: float
    median: float
    calls: int  # in a turn


@dataclass(frozen=True)
class Figure:
    """One contestant at one shape, in one direction."""

    shape: tuple[int, ...]
    direction: str  # forward or backward
    contestant: str
    seconds: float  # of a call: the median over the rounds
    first_call: float  # seconds, with imports
    calls: int  # in a turn, whose time is their mean
    bytes_per_second: float  # of ARRAYS only
    flops_per_second: float  # of FLOPS; 0 for copy and triad
    times_floor: float  # seconds over those of the copy (forward) or the triad (backward)


@dataclass(frozen=True)
class Report:
    """All figures of a run, and where it ran."""

    operation: str  # layer_norm or rms_norm
    machine: dict[str, str]  # date, processor, cores, load and versions
    backend: str  # of truenorm
    threads: int  # of truenorm
    dtype: str
    rounds: int
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()  # remarks about the figures

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes, in order."""
        return list(dict.fromkeys(figure.shape for figure in self.figures))

    def of(self, shape: tuple[int, ...]) -> dict[str, dict[str, Figure]]:
        """Return the figures of a shape by direction and contestant."""
        by_place: dict[str, dict[str, Figure]] = {direction: {} for direction in DIRECTIONS}
        for figure in self.figures:
            if figure.shape == shape:
                by_place[figure.direction][figure.contestant] = figure
        return by_place

    def first_calls(self) -> dict[str, float]:
        """Return the seconds that truenorm's first calls took longer than later ones."""
        extra: dict[str, float] = {}
        for figure in self.figures:
            if figure.contestant.startswith("truenorm"):
                name = f"{figure.contestant.removeprefix('truenorm ')} {figure.direction}"
                seconds = max(0.0, figure.first_call - figure.seconds)
                extra[name] = extra.get(name, 0.0) + seconds
        return extra

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        counted = {"arrays_moved": ARRAYS, "flops_per_element": FLOPS[self.operation]}
        return {**vars(self), **counted, "first_calls": self.first_calls()}


def label(shape: tuple[int, ...]) -> str:
    """Return a shape as the command takes it: 2x128x1024."""
    return "x".join(map(str, shape))


def figures_of(
    operation: str,
    shape: tuple[int, ...],
    itemsize: int,
    direction: str,
    timings: dict[str, Timing],
) -> list[Figure]:
    """Return the figures of one shape and direction."""
    moved, flops = (math.prod(shape) * each[direction] for each in (ARRAYS, FLOPS[operation]))
    floor = FLOORS[direction]
    return [
        Figure(
            shape,
            direction,
            name,
            timing.median,
            timing.first,
            timing.calls,
            moved * itemsize / timing.median,
            0.0 if name == floor else flops / timing.median,
            timing.median / timings[floor].median,
        )
        for name, timing in timings.items()
    ]


DEFAULT_SHAPES = (
    *((1, 1, 64), (1, 1, 1024), (1, 1, 4096)),
    *((2, 128, 64), (2, 128, 1024), (2, 128, 4096)),
    *((4, 512, 1024), (4, 512, 4096)),
)
DEFAULT_ROUNDS = 15
LARGEST = 2**27
"""Elements of x. The textbook form in float64 needs about ten times the bytes of float32 data."""
TURN = 0.005
"""The least seconds of a turn, since clock and scheduler are coarser than short calls."""
MOST_CALLS = 1000
MACHINE = ("date", "cpu", "cores", "load", "system", "python", "numpy", "truenorm")


def shape_of(text: str) -> tuple[int, ...]:
    """Parse a shape: lengths with an x between them; the last one is D.

    Examples
    --------
    >>> shape_of("2x128x1024")
    (2, 128, 1024)
    """
    lengths = text.lower().split("x")
    if not all(length.isdecimal() and int(length) > 0 for length in lengths):
        raise ValueError(f"expected a shape such as 2x128x1024, got {text!r}")
    return tuple(map(int, lengths))


def measure(
    shapes: Sequence[tuple[int, ...]] = DEFAULT_SHAPES,
    *,
    operation: str = "layer_norm",
    dtype: str = "float32",
    threads: int | None = None,
    rounds: int = DEFAULT_ROUNDS,
    progress: Progress | None = None,
) -> Report:
    """Time truenorm, the textbook forms and a copy on normal data.

    Parameters
    ----------
    shapes : sequence of tuple of int
        Shapes of x, at least one; the last axis is normalized.
    operation : str
        layer_norm or rms_norm.
    dtype : str
        float16, bfloat16, float32 or float64.
    threads : int, optional
        The most threads of truenorm. The other contestants are NumPy on one thread.
    rounds : int
        Turns of each contestant, at least one.
    progress : callable, optional
        Called with the number of finished rounds, the number of all, and the shape.

    Returns
    -------
    Report
        ``report.figures``, one for each shape, direction and contestant.

    Examples
    --------
    >>> from truenorm.bench import measure
    >>> report = measure([(2, 64)], rounds=1)
    >>> [figure.contestant for figure in report.figures][:3]
    ['copy', 'truenorm correct', 'truenorm fast']
    """
    kind = dtype_of(dtype)
    _check(shapes, threads)
    machine = describe(*MACHINE)
    names = [f"{label(shape)} {direction}" for shape in shapes for direction in DIRECTIONS]
    turns = with_callback([name for name in names for _ in range(rounds)], progress, str)
    figures: list[Figure] = []
    for shape in shapes:
        contest = Contest(NORMS[operation], shape, kind, threads)
        for direction in DIRECTIONS:
            timings = take_turns(contest.of(direction), islice(turns, rounds))
            figures += figures_of(operation, shape, kind.itemsize, direction, timings)
    backend = contest.saved["correct"].settings.backend
    used = thread_count(threads_of(threads, variables().threads)) if backend == "native" else 1
    return Report(operation, machine, backend, used, dtype, rounds, tuple(figures), _notes(kind))


def take_turns(contestants: Contestants, turns: Iterable[object]) -> dict[str, Timing]:
    """Time every contestant once a turn, with as many calls as fill `TURN`."""
    watch = Stopwatch()
    first: dict[str, float] = {}
    calls: dict[str, int] = {}
    for _ in turns:
        if not first:
            first = {name: seconds_of(call) for name, call in contestants.items()}
            calls = {name: _in_a_turn(seconds_of(call)) for name, call in contestants.items()}
        watch.go_round(contestants, calls)
    return {name: Timing(first[name], watch.p50(name), calls[name]) for name in contestants}


def _in_a_turn(seconds: float) -> int:
    return MOST_CALLS if seconds <= 0 else min(MOST_CALLS, math.ceil(TURN / seconds))


def _check(shapes: Sequence[tuple[int, ...]], threads: int | None) -> None:
    """Raise ValueError for shapes that are too large and for variables that override arguments."""
    for shape in shapes:
        if math.prod(shape) > LARGEST:
            raise ValueError(
                f"{label(shape)} has {math.prod(shape):,} elements, which may exceed the memory: "
                f"the limit is {LARGEST:,}"
            )
    if os.environ.get("TRUENORM_ROUNDING"):
        raise ValueError("TRUENORM_ROUNDING is set, so both modes would be the same: unset it")
    if threads is not None and threads_of(threads, variables().threads) != threads:
        raise ValueError("TRUENORM_THREADS is set and overrides the number of threads: unset it")


def _notes(kind: np.dtype[Any]) -> tuple[str, ...]:
    """Return remarks about a type."""
    if kind == np.float64:
        return (f"The {TEXTBOOK} in float64, then cast, is the {TEXTBOOK} itself for this type.",)
    if kind.name == "bfloat16":
        return (f"The {TEXTBOOK} computes in float32: NumPy widens bfloat16 when it adds eps.",)
    return ()


FLOOR = " | ".join(FLOORS.values())
TITLES = {"layer_norm": "layer norm", "rms_norm": "RMSNorm"}
HOW_TO_READ = (
    "Contestants take turns. Timings on a busy machine wander: trust ratios, of one run.",
    "copy: np.copyto, what forward must move at least; triad: two reads and one write, as "
    "backward.",
    f"GB/s: the {ARRAYS['forward']} arrays x and y forward, the {ARRAYS['backward']} arrays "
    "x, dy and dx backward, and no other traffic.",
    "truenorm and the copy write to an existing array (out=); the textbook forms make new ones.",
)


def rate(value: float) -> str:
    """Return a rate with few digits.

    Examples
    --------
    >>> [rate(value) for value in (0.0012, 0.913, 19.24, 285.8)]
    ['<0.01', '0.91', '19.2', '286']
    """
    if value < 0.01:
        return "<0.01"
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def show_timings(report: Report, console: Console) -> None:
    """Print a report."""
    machine = ", ".join(f"{key} {value}" for key, value in report.machine.items())
    heading = Text.assemble(
        (f"{TITLES[report.operation]} in {report.dtype}", "bold"),
        f": truenorm with the backend {report.backend!r} on {counted(report.threads, 'thread')}, "
        f"NumPy on one; medians of {counted(report.rounds, 'round')}\n",
        (machine, "dim"),
    )
    calls = ", ".join(
        f"{name} {duration(seconds)}" for name, seconds in report.first_calls().items()
    )
    first = Text.assemble(
        ("first calls", "bold"),
        f" took longer than the times above, by: {calls}.",
    )
    for part in (heading, *(_block(report, shape) for shape in report.shapes), first):
        console.print()
        console.print(part)
    console.print()
    flops = FLOPS[report.operation]
    counts = (
        f"GFLOP/s: operations of the textbook formula, {flops['forward']} forward and "
        f"{flops['backward']} backward for each element, for every contestant."
    )
    for line in (*HOW_TO_READ, counts, *report.notes):
        console.print(Text(line, style="dim"))


def _block(report: Report, shape: tuple[int, ...]) -> Table:
    head: list[str | Text] = [Text(label(shape), style="bold not dim")]
    for direction, floor in FLOORS.items():
        head += [f"{direction}\nms", "\nGB/s", "GFLOP\n/s", f"times\n{floor}"]
    columns, widths = "l" + "rrrr" * len(DIRECTIONS), [20, *(9, 5, 5, 5) * len(DIRECTIONS)]
    table = rich_table(columns, head, gap=1, widths=widths)
    by_line = zip(*(report.of(shape)[direction].values() for direction in DIRECTIONS), strict=True)
    for figures in by_line:
        name = figures[0].contestant
        title = FLOOR if name in FLOORS.values() else name
        cells = []
        for each in figures:
            flops = each.flops_per_second
            cells += [
                three_digits(each.seconds * 1e3),
                rate(each.bytes_per_second / 1e9),
                rate(flops / 1e9) if flops else "-",
                rate(each.times_floor),
            ]
        style = "bold" if name.startswith("truenorm") else ""
        table.add_row(Text(title, style=style), *cells)
    return table


FLOOR_COLOUR: dict[str, Any] = {"color": "#555555", "marker": "_", "ms": 26, "mew": 2}
# Colours of Okabe and Ito, which remain distinct for the colour-blind, and markers.
STYLES: dict[str, dict[str, Any]] = {
    "truenorm correct": {"color": "#0072b2", "marker": "o"},
    "truenorm fast": {"color": "#56b4e9", "marker": "D"},
    "textbook": {"color": "#d55e00", "marker": "s"},
    "textbook in float64": {"color": "#cc79a7", "marker": "^"},
}


def draw(report: Report) -> "Canvas":
    """Draw both directions side by side."""
    from matplotlib.figure import Figure as Canvas

    width = max(11.0, 1.15 * len(report.shapes) + 3.0)
    canvas = Canvas(figsize=(width, 5.2), facecolor="white", layout="constrained")
    look = {"facecolor": "white"}
    panels = canvas.subplots(1, len(DIRECTIONS), sharey=True, subplot_kw=look)
    for direction, axes in zip(DIRECTIONS, panels, strict=True):
        _panel(report, direction, axes)
    panels[0].set_ylabel("time of a call, ms")
    marks, names = panels[0].get_legend_handles_labels()
    names[0] = f"{' | '.join(FLOORS.values())} (the same bytes moved)"
    canvas.legend(marks, names, loc="outside lower center", ncols=len(names), frameon=False)
    machine = report.machine
    canvas.suptitle(
        f"Layer norm in {report.dtype}, medians of {report.rounds} rounds: backend "
        f"{report.backend}, {counted(report.threads, 'thread')}\n"
        f"{machine['cpu']}, {machine['cores']} cores, NumPy {machine['numpy']}, "
        f"{machine['date']}",
        fontsize=10,
    )
    return canvas


def write(report: Report, file: Path) -> None:
    """Write the picture of a report."""
    from truenorm.tools.picture import save

    save(draw(report), file)


def _panel(report: Report, direction: str, axes: "Axes") -> None:
    """Draw one direction: a mark for each contestant and shape, side by side."""
    by_shape = [report.of(shape)[direction] for shape in report.shapes]
    for number, name in enumerate(by_shape[0]):
        # The floor is in the middle, below all others.
        shift = (number - len(by_shape[0]) / 2) * 0.18 if number else 0
        places = [place + shift for place in range(len(by_shape))]
        times = [figures[name].seconds * 1e3 for figures in by_shape]
        axes.plot(places, times, ls="", label=name, **STYLES.get(name, FLOOR_COLOUR))
    for place in range(0, len(by_shape), 2):
        axes.axvspan(place - 0.5, place + 0.5, color="#f3f3f3", zorder=0)
    axes.set(title=direction, xlabel="shape of x", yscale="log", xlim=(-0.5, len(by_shape) - 0.5))
    axes.set_xticks(range(len(by_shape)), map(label, report.shapes), rotation=40, ha="right")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
