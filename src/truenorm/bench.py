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
    from matplotlib.figure import Figure as Canvas

FLOORS = {"forward": "copy", "backward": "triad"}
"""The least work that moves the same bytes: NumPy on one thread."""
DIRECTIONS = tuple(FLOORS)
ARRAYS = {"forward": 2, "backward": 3}
"""Arrays of the size of x that are moved at least: x and y; x, dy and dx."""
MODES = ("correct", "fast")
TEXTBOOK, WIDENED = "textbook", "textbook in float64"

Array = NDArray[Any]
Calls = dict[str, Callable[[], Any]]
Shape = tuple[int, ...]


class Norm(NamedTuple):
    """An operation of truenorm and its textbook form, with the FLOPs per element of the latter.

    docs/learn/time-and-memory.md counts them.
    """

    title: str
    parameters: int
    flops: dict[str, int]
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    textbook_forward: Callable[..., Any]
    textbook_backward: Callable[..., Any]


NORMS = {
    "layer_norm": Norm(
        *("layer norm", 2, {"forward": 7, "backward": 11}),
        *(layer_norm_forward, layer_norm_backward, textbook.forward, textbook.backward),
    ),
    "rms_norm": Norm(
        *("RMSNorm", 1, {"forward": 4, "backward": 8}),
        *(rms_norm_forward, rms_norm_backward),
        *(textbook.rms_norm_forward, textbook.rms_norm_backward),
    ),
}


class Contest:
    """The contestants of one shape and type, on normal data of a seed."""

    def __init__(
        self,
        norm: Norm,
        shape: Shape,
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
        ours: Calls = {
            mode: partial(self.norm.forward, *self.arguments, rounding=mode, **self.options)
            for mode in MODES
        }
        floor: Callable[[], Any] = partial(np.copyto, self.out, self.x)
        narrow: Callable[[], Any] = partial(self.norm.textbook_forward, *self.arguments)
        wide: Callable[[], Any] = self._widened_forward
        if direction == "backward":  # each has what its own forward saved, untimed
            self.saved = {mode: call()[1] for mode, call in ours.items()}
            ours = {
                mode: partial(self.norm.backward, self.dy, saved, **self.options)
                for mode, saved in self.saved.items()
            }
            # On bits: sums of float16 would be limited by conversions.
            bits = np.dtype(f"u{self.x.itemsize}")
            x, dy, out = (array.view(bits) for array in (self.x, self.dy, self.out))
            floor = partial(np.bitwise_or, x, dy, out=out)
            narrow = partial(self.norm.textbook_backward, self.dy, narrow()[1])
            wide = partial(self._widened_backward, wide()[1])
        calls = {FLOORS[direction]: floor}
        calls |= {f"truenorm {mode}": call for mode, call in ours.items()}
        calls[TEXTBOOK] = narrow
        # For float64 the two textbook forms are one.
        return calls if self.x.dtype == np.float64 else calls | {WIDENED: wide}

    def _widened_forward(self) -> tuple[Array, textbook.Saved]:
        """Run forward in float64; the casts are part of the cost."""
        arguments = (each.astype(np.float64) for each in self.arguments)
        y, saved = self.norm.textbook_forward(*arguments)
        return y.astype(self.x.dtype), saved

    def _widened_backward(self, saved: textbook.Saved) -> list[Array]:
        gradients = self.norm.textbook_backward(self.dy.astype(np.float64), saved)
        return [each.astype(self.x.dtype) for each in gradients]


class Timing(NamedTuple):
    """Seconds of the first call, and the median of the turns."""

    first: float
    median: float
    calls: int  # in a turn


@dataclass(frozen=True)
class Figure:
    """One contestant at one shape, in one direction."""

    shape: Shape
    direction: str  # forward or backward
    contestant: str
    seconds: float  # of a call: the median over the rounds
    first_call: float  # seconds, with imports
    calls: int  # in a turn, whose time is their mean
    bytes_per_second: float  # of ARRAYS only
    flops_per_second: float  # of the textbook formula; 0 for copy and triad
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
    def shapes(self) -> list[Shape]:
        """The shapes, in order."""
        return list(dict.fromkeys(figure.shape for figure in self.figures))

    def of(self, shape: Shape, direction: str) -> dict[str, Figure]:
        """Return the figures of a shape and direction by contestant."""
        figures = [each for each in self.figures if each.shape == shape]
        return {each.contestant: each for each in figures if each.direction == direction}

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON; with the time that first calls of truenorm took longer."""
        extra: dict[str, float] = {}
        for each in self.figures:
            if each.contestant.startswith("truenorm"):
                name = f"{each.contestant.removeprefix('truenorm ')} {each.direction}"
                extra[name] = extra.get(name, 0.0) + max(0.0, each.first_call - each.seconds)
        counted = {"arrays_moved": ARRAYS, "flops_per_element": NORMS[self.operation].flops}
        return {**vars(self), **counted, "first_calls": extra}


def label(shape: Shape) -> str:
    """Return a shape as the command takes it: 2x128x1024."""
    return "x".join(map(str, shape))


def figures_of(
    norm: Norm, shape: Shape, itemsize: int, direction: str, timings: dict[str, Timing]
) -> list[Figure]:
    """Return the figures of one shape and direction."""
    size, floor = math.prod(shape), FLOORS[direction]
    moved, flops = size * ARRAYS[direction] * itemsize, size * norm.flops[direction]
    figures = []
    for name, (first, median, calls) in timings.items():
        rates = moved / median, 0.0 if name == floor else flops / median
        times_floor = median / timings[floor].median
        figures.append(Figure(shape, direction, name, median, first, calls, *rates, times_floor))
    return figures


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
NOTES = {
    "float64": (f"The {WIDENED}, then cast, is the {TEXTBOOK} itself for this type.",),
    "bfloat16": (f"The {TEXTBOOK} computes in float32: NumPy widens bfloat16 when it adds eps.",),
}


def measure(
    shapes: Sequence[Shape] = DEFAULT_SHAPES,
    *,
    operation: str = "layer_norm",
    dtype: str = "float32",
    threads: int | None = None,
    rounds: int = DEFAULT_ROUNDS,
    progress: Progress | None = None,
) -> Report:
    """Time truenorm, the textbook forms and a copy on normal data.

    `threads` limits truenorm; the other contestants are NumPy on one thread. `progress` is called
    with the number of finished rounds, the number of all, and the shape.

    Examples
    --------
    >>> from truenorm.bench import measure
    >>> report = measure([(2, 64)], rounds=1)
    >>> [figure.contestant for figure in report.figures][:3]
    ['copy', 'truenorm correct', 'truenorm fast']
    """
    kind, norm = dtype_of(dtype), NORMS[operation]
    for shape in shapes:
        if (size := math.prod(shape)) > LARGEST:
            raise ValueError(
                f"{label(shape)} has {size:,} elements, which may exceed the memory: "
                f"the limit is {LARGEST:,}"
            )
    if os.environ.get("TRUENORM_ROUNDING"):
        raise ValueError("TRUENORM_ROUNDING is set, so both modes would be the same: unset it")
    if threads is not None and threads_of(threads, variables().threads) != threads:
        raise ValueError("TRUENORM_THREADS is set and overrides the number of threads: unset it")
    machine = describe(*MACHINE)
    names = [f"{label(shape)} {direction}" for shape in shapes for direction in DIRECTIONS]
    turns = with_callback([name for name in names for _ in range(rounds)], progress, str)
    figures: list[Figure] = []
    for shape in shapes:
        contest = Contest(norm, shape, kind, threads)
        for direction in DIRECTIONS:
            timings = take_turns(contest.of(direction), islice(turns, rounds))
            figures += figures_of(norm, shape, kind.itemsize, direction, timings)
    backend = contest.saved["correct"].settings.backend
    used = thread_count(threads_of(threads, variables().threads)) if backend == "native" else 1
    notes = NOTES.get(dtype, ())
    return Report(operation, machine, backend, used, dtype, rounds, tuple(figures), notes)


def take_turns(contestants: Contestants, turns: Iterable[object]) -> dict[str, Timing]:
    """Time every contestant once a turn, with as many calls as fill `TURN`."""
    watch = Stopwatch()
    first: dict[str, float] = {}
    calls: dict[str, int] = {}
    for _ in turns:
        if not first:
            first = {name: seconds_of(call) for name, call in contestants.items()}
            second = {name: seconds_of(call) for name, call in contestants.items()}
            calls = {
                name: min(MOST_CALLS, math.ceil(TURN / max(seconds, TURN / MOST_CALLS)))
                for name, seconds in second.items()
            }
        watch.go_round(contestants, calls)
    return {name: Timing(first[name], watch.p50(name), calls[name]) for name in contestants}


HOW_TO_READ = (
    "Contestants take turns. Timings on a busy machine wander: trust ratios, of one run.",
    "copy: np.copyto, what forward must move at least; triad: two reads and one write, as "
    "backward.",
    f"GB/s: the {ARRAYS['forward']} arrays x and y forward, the {ARRAYS['backward']} arrays "
    "x, dy and dx backward, and no other traffic.",
    "truenorm and the copy write to an existing array (out=); the textbook forms make new ones.",
)


def rate(value: float) -> str:
    """Return a rate with few digits, or a dash for 0."""
    if value < 0.01:
        return "<0.01" if value else "-"
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def show_timings(report: Report, console: Console) -> None:
    """Print a report."""
    norm, first_calls = NORMS[report.operation], report.as_dict()["first_calls"]
    console.print()
    console.print(
        Text.assemble(
            (f"{norm.title} in {report.dtype}", "bold"),
            f": truenorm with the backend {report.backend!r} on "
            f"{counted(report.threads, 'thread')}, NumPy on one; "
            f"medians of {counted(report.rounds, 'round')}\n",
            (", ".join(f"{key} {value}" for key, value in report.machine.items()), "dim"),
        )
    )
    for shape in report.shapes:
        head: list[str | Text] = [Text(label(shape), style="bold not dim")]
        for direction, floor in FLOORS.items():
            head += [f"{direction}\nms", "\nGB/s", "GFLOP\n/s", f"times\n{floor}"]
        widths = [20, *(9, 5, 5, 5) * len(DIRECTIONS)]
        table = rich_table("l" + "rrrr" * len(DIRECTIONS), head, gap=1, widths=widths)
        both = [report.of(shape, direction).values() for direction in DIRECTIONS]
        for figures in zip(*both, strict=True):
            name = " | ".join(dict.fromkeys(each.contestant for each in figures))
            cells = []
            for each in figures:
                rates = each.bytes_per_second / 1e9, each.flops_per_second / 1e9, each.times_floor
                cells += [three_digits(each.seconds * 1e3), *map(rate, rates)]
            table.add_row(Text(name, "bold" if name.startswith("truenorm") else ""), *cells)
        console.print()
        console.print(table)
    extra = ", ".join(f"{name} {duration(seconds)}" for name, seconds in first_calls.items())
    console.print(f"\n[bold]first calls[/] took longer than the times above, by: {extra}.\n")
    counts = (
        f"GFLOP/s: operations of the textbook formula, {norm.flops['forward']} forward and "
        f"{norm.flops['backward']} backward for each element, for every contestant."
    )
    for line in (*HOW_TO_READ, counts, *report.notes):
        console.print(Text(line, style="dim"))


FLOOR_STYLE: dict[str, Any] = {"color": "#555555", "marker": "_", "ms": 26, "mew": 2}
# Colours of Okabe and Ito, which remain distinct for the colour-blind, and markers.
STYLES: dict[str, dict[str, Any]] = {
    "truenorm correct": {"color": "#0072b2", "marker": "o"},
    "truenorm fast": {"color": "#56b4e9", "marker": "D"},
    "textbook": {"color": "#d55e00", "marker": "s"},
    "textbook in float64": {"color": "#cc79a7", "marker": "^"},
}


def draw(report: Report) -> "Canvas":
    """Draw both directions side by side: a mark for each contestant and shape."""
    from matplotlib.figure import Figure as Canvas

    shapes = report.shapes
    width = max(11.0, 1.15 * len(shapes) + 3.0)
    canvas = Canvas(figsize=(width, 5.2), facecolor="white", layout="constrained")
    panels = canvas.subplots(1, 2, sharey=True, subplot_kw={"facecolor": "white"})
    for direction, axes in zip(DIRECTIONS, panels, strict=True):
        by_shape = [report.of(shape, direction) for shape in shapes]
        for number, name in enumerate(by_shape[0]):
            # The floor is in the middle, below all others.
            shift = (number - len(by_shape[0]) / 2) * 0.18 if number else 0
            places = [place + shift for place in range(len(shapes))]
            times = [figures[name].seconds * 1e3 for figures in by_shape]
            axes.plot(places, times, ls="", label=name, **STYLES.get(name, FLOOR_STYLE))
        for place in range(0, len(shapes), 2):
            axes.axvspan(place - 0.5, place + 0.5, color="#f3f3f3", zorder=0)
        axes.set(
            title=direction, xlabel="shape of x", yscale="log", xlim=(-0.5, len(shapes) - 0.5)
        )
        axes.set_xticks(range(len(shapes)), map(label, shapes), rotation=40, ha="right")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("time of a call, ms")
    marks, names = panels[0].get_legend_handles_labels()
    names[0] = f"{' | '.join(FLOORS.values())} (the same bytes moved)"
    canvas.legend(marks, names, loc="outside lower center", ncols=len(names), frameon=False)
    machine = report.machine
    canvas.suptitle(
        f"{NORMS[report.operation].title} in {report.dtype}, medians of {report.rounds} rounds: "
        f"backend {report.backend}, {counted(report.threads, 'thread')}\n"
        f"{machine['cpu']}, {machine['cores']} cores, NumPy {machine['numpy']}, "
        f"{machine['date']}",
        fontsize=10,
    )
    return canvas


def write(report: Report, file: Path) -> None:
    """Write the picture of a report."""
    from truenorm.tools.picture import save

    save(draw(report), file)
