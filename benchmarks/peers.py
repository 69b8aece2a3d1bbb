"""``python -m benchmarks.peers``: time truenorm beside other packages, each in its own process.

The report goes to results/peers.json. ``--page`` draws docs/figures/peers.svg from it and fills
the tables of docs/speed.md; it needs Matplotlib (the dependency group "figures").
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import (
    DOCS,
    FIGURES,
    RESULTS,
    fill_page,
    heading,
    machine,
    markdown_table,
    options,
    read_results,
)
from benchmarks.environments import PEERS, PeerProcess, all_cpu_seconds, python_for
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line
from truenorm.tools.text import table, three_digits

SHAPES = (
    *((1, 1, 64), (1, 1, 1024), (1, 1, 4096)),
    *((2, 128, 64), (2, 128, 1024), (2, 128, 4096)),
    *((4, 512, 1024), (4, 512, 4096), (8, 1024, 4096)),
)
OTHER_TYPES = {"textbook", "torch", "truenorm"}
RMS_NORM = {"textbook", "textbook64", "torch", "truenorm"}
ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
DIRECTIONS = ("forward", "backward")
STATISTICS = {
    "p50": "p50",
    "mean": "mean",
    "min": "min",
    "first_mean": "mean of the first 100 calls after the first",
    "first_max": "slowest of the first 100 calls after the first",
}
"""Fields of a figure, and their names in a table."""
QUIET = 0.05  # cores that other programs may take on average
PAUSE = 0.05  # seconds: thread pools spin for some milliseconds after work
MEGABYTE = 10**6
MIDDLE = 2 * 128 * 1024
"""Elements from which on fast mode should be ahead of all peers."""
FILE, PAGE = RESULTS / "peers.json", DOCS / "speed.md"


@dataclass(frozen=True)
class Figure:
    """The times of one contestant at one shape in one direction, in seconds."""

    shape: tuple[int, ...]
    megabytes: float  # of x
    direction: str
    peer: str
    contestant: str
    writes_to: str
    p50: float
    mean: float
    min: float
    samples: int
    first_mean: float  # of the first 100 calls after the first one
    first_max: float


@dataclass(frozen=True)
class Verdict:
    """A goal at one shape in one direction, reached if neither ratio exceeds `allowed`.

    The ratios are those of medians and of means. Where the ratio of the fastest calls is very
    different, the machine was busy.
    """

    goal: str
    shape: tuple[int, ...]
    direction: str
    contestant: str
    rival: str
    ratio: float
    ratio_of_mean: float
    ratio_of_min: float
    allowed: float
    reached: bool


def label(shape: Sequence[int]) -> str:
    """Return a shape as 2x128x1024."""
    return "x".join(map(str, shape))


def shape_of(text: str) -> tuple[int, ...]:
    """Parse a shape such as 2x128x1024."""
    shape = tuple(int(length) for length in text.split("x"))
    if min(shape) < 1:
        raise argparse.ArgumentTypeError(f"{text}: every length must be at least 1")
    return shape


def python_option(text: str) -> tuple[str, Path]:
    """Parse NAME=PATH, where PATH is an interpreter or the folder of an environment."""
    name, _, path = text.partition("=")
    names = sorted({peer.environment for peer in PEERS.values()})
    if name not in names:
        raise argparse.ArgumentTypeError(f"{text}: NAME must be one of {', '.join(names)}")
    # Not resolved: the link leads to the interpreter without its environment.
    python = Path(path).absolute()
    if python.is_dir():
        python /= "Scripts/python.exe" if sys.platform == "win32" else "bin/python"
    if not path or not python.exists():
        raise argparse.ArgumentTypeError(f"{text}: there is no {python}")
    return name, python


def arguments_of(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = options(
        "peers", "Time the norms of several packages, each in its own process.",
        output=FILE, page="draw the figure and fill docs/speed.md from --output",
    )  # fmt: skip
    add = parser.add_argument
    add("--rounds", type=int, default=7, help="turns of each contestant")
    add("--seconds", type=float, default=0.1, help="length of a turn")
    add("--shapes", type=shape_of, nargs="+", default=SHAPES, metavar="2x128x1024")
    only = "PyTorch, truenorm and the textbook take part"
    add("--operation", choices=["layer_norm", "rms_norm"], default="layer_norm",
        help=f"for RMSNorm, {only}")  # fmt: skip
    add("--dtype", choices=list(ITEMSIZE), default="float32", help=f"except for float32, {only}")
    add("--peers", choices=list(PEERS), nargs="+", default=list(PEERS), metavar="NAME",
        help=", ".join(PEERS))  # fmt: skip
    add("--python", type=python_option, action="append", default=[], metavar="NAME=PATH",
        help="an existing environment, such as torch=/path/to/venv; may be repeated")  # fmt: skip
    return parser.parse_args(argv)


@dataclass
class Turns:
    """The length and number of turns, and how much of the cores other processes used."""

    rounds: int
    seconds: float
    dtype: str = "float32"
    operation: str = "layer_norm"
    _elapsed: float = field(default=0.0, init=False)
    _by_peers: float = field(default=0.0, init=False)
    _by_others: float = field(default=0.0, init=False)

    def disturbance(self) -> dict[str, float]:
        """Return the cores taken, on average, from the peer that was timed."""
        elapsed = self._elapsed or 1.0
        return {
            "by_other_peers": self._by_peers / elapsed,
            "by_other_programs": self._by_others / elapsed,
        }

    def figures(self, shape: tuple[int, ...], processes: list[PeerProcess]) -> Iterator[Figure]:
        """Time every contestant of every peer at one shape."""
        entrants, checksums = [], set()
        for process in processes:
            status_line(f"{label(shape)}: {process.peer.name} prepares")
            prepared = process.ask(
                "prepare", shape=shape, seed=0, dtype=self.dtype, operation=self.operation
            )
            checksums.add(prepared["checksum"])
            entrants += [(process, k, each) for k, each in enumerate(prepared["contestants"])]
        if len(checksums) > 1:
            raise RuntimeError(f"the peers drew different numbers at {label(shape)}")
        turns: list[list[dict[str, float]]] = [[] for _ in entrants]
        for number in range(self.rounds):
            status_line(f"{label(shape)}: round {number + 1} of {self.rounds}")
            # Each round starts with another one, so that predecessors differ.
            first = number * len(entrants) // self.rounds
            for k in [*range(first, len(entrants)), *range(first)]:
                process, which, _ = entrants[k]
                turns[k].append(self._turn(process, which, processes))
        status_line()
        megabytes = math.prod(shape) * ITEMSIZE[self.dtype] / MEGABYTE
        for (process, _, entrant), times in zip(entrants, turns, strict=True):
            yield Figure(
                shape,
                megabytes,
                entrant["direction"],
                process.peer.name,
                entrant["name"],
                entrant["writes_to"],
                statistics.median(turn["p50"] for turn in times),
                statistics.fmean(turn["mean"] for turn in times),
                min(turn["min"] for turn in times),
                int(sum(turn["samples"] for turn in times)),
                statistics.fmean(entrant["first_calls"]),
                max(entrant["first_calls"]),
            )

    def _turn(
        self, process: PeerProcess, which: int, processes: list[PeerProcess]
    ) -> dict[str, float]:
        """Run one contestant, and add up the processor time of all other processes."""
        time.sleep(PAUSE)

        def spent() -> tuple[float, float, float]:
            asleep = sum(each.cpu_seconds() for each in processes if each is not process)
            return process.cpu_seconds(), asleep, all_cpu_seconds()

        before, start = spent(), time.perf_counter()
        answer: dict[str, float] = process.ask("time", which=which, seconds=self.seconds)
        self._elapsed += time.perf_counter() - start
        own, asleep, everyone = (b - a for a, b in zip(before, spent(), strict=True))
        self._by_peers += asleep
        self._by_others += everyone - own - asleep
        return answer


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Start the peers, let them take turns, and return the report."""
    threads, pythons = usable_cores(), dict(arguments.python)
    able = set(PEERS) if arguments.dtype == "float32" else OTHER_TYPES
    if arguments.operation == "rms_norm":
        able = able & RMS_NORM
    peers = [PEERS[name] for name in PEERS if name in arguments.peers and name in able]
    # All environments are installed before the first process starts.
    ready = [(peer, pythons.get(peer.environment) or python_for(peer)) for peer in peers]
    turns = Turns(arguments.rounds, arguments.seconds, arguments.dtype, arguments.operation)
    figures: list[Figure] = []
    with ExitStack() as stack:
        processes = []
        for peer, python in ready:
            processes.append(PeerProcess(peer, python, threads))
            stack.callback(processes[-1].close)
        versions = {each.peer.name: each.versions() for each in processes}
        for shape in arguments.shapes:
            figures += turns.figures(shape, processes)
    taken = turns.disturbance()
    return {
        "machine": machine(threads, packages=()),
        "versions": versions,
        "operation": arguments.operation,
        "dtype": arguments.dtype,
        "rounds": arguments.rounds,
        "seconds_per_turn": arguments.seconds,
        "cores_taken": taken,
        "quiet": sum(taken.values()) <= QUIET,
        "unit": "second",
        "figures": [asdict(figure) for figure in figures],
        "goals": [asdict(verdict) for verdict in verdicts(figures)],
    }


def verdicts(figures: Iterable[Figure]) -> Iterator[Verdict]:
    """Yield every goal for which there are figures."""
    groups: dict[tuple[tuple[int, ...], str], list[Figure]] = {}
    for figure in figures:
        groups.setdefault((figure.shape, figure.direction), []).append(figure)
    for group in groups.values():
        if math.prod(group[0].shape) >= MIDDLE:
            everyone = {figure.peer for figure in group} - {"truenorm"}
            yield from _compare(group, "fast", everyone, 1.0, "ahead of the best peer")
        else:
            yield from _compare(group, "fast", {"torch"}, 2.0, "within 2x of PyTorch")
        times = 2.0 if group[0].direction == "forward" else 3.0
        yield from _compare(group, "correct", {"torch"}, times, f"within {times:.0f}x of PyTorch")
        for mode in ("fast", "correct"):
            yield from _compare(group, mode, {"textbook"}, 1.0, "ahead of the textbook")


def _compare(
    group: list[Figure], mode: str, rivals: set[str], allowed: float, goal: str
) -> Iterator[Verdict]:
    """Compare a mode with the fastest rival that writes to the same kind of array."""
    by_name = {figure.contestant: figure for figure in group}
    for form in (", out=", ""):
        ours = by_name.get(f"truenorm {mode}{form}")
        if ours is None:
            continue
        theirs = [each for each in group if each.peer in rivals]
        theirs = [each for each in theirs if each.writes_to == ours.writes_to]
        if not theirs:
            continue
        best = min(theirs, key=lambda figure: figure.p50)
        ratio, of_means = ours.p50 / best.p50, ours.mean / best.mean
        yield Verdict(
            f"{mode} {goal}",
            ours.shape,
            ours.direction,
            ours.contestant,
            best.contestant,
            ratio,
            of_means,
            ours.min / best.min,
            allowed,
            max(ratio, of_means) <= allowed,
        )


def report_of(report: dict[str, Any]) -> str:
    """Return the report as text."""
    versions, taken = report["versions"].items(), report["cores_taken"]
    parts = [
        heading(report["machine"]),
        *(f"{peer + ':':13s}{', '.join(map(' '.join, each.items()))}" for peer, each in versions),
        f"cores taken during a turn by sleeping peers: {taken['by_other_peers']:.3f}, "
        f"by other programs: {taken['by_other_programs']:.3f}",
    ]
    if not report["quiet"]:
        parts.append("NOT QUIET: do not publish this; pools that spin are slowed down most")
    for direction in DIRECTIONS:
        chosen = [each for each in report["figures"] if each["direction"] == direction]
        shapes = list(dict.fromkeys(label(each["shape"]) for each in chosen))
        by_place = {(each["contestant"], label(each["shape"])): each for each in chosen}
        writes_to = {each["contestant"]: each["writes_to"] for each in chosen}
        for statistic, title in STATISTICS.items():
            head = [f"{direction}, {title} in ms", "result in", *shapes]
            rows = [
                [name, place, *(f"{by_place[name, s][statistic] * 1e3:.4g}" for s in shapes)]
                for name, place in writes_to.items()
            ]
            parts.append(f"\n{table(head, rows)}")
    goals = report["goals"]
    reached = sum(each["reached"] for each in goals)
    parts.append(f"\ngoals reached: {reached} of {len(goals)}")
    if goals:
        head = ["goal", "shape", "", "contestant", "rival", "x p50", "x mean", "x min", "allowed"]
        rows = [
            [
                each["goal"],
                label(each["shape"]),
                *(each[name] for name in ("direction", "contestant", "rival")),
                *(f"{each[name]:.2f}" for name in ("ratio", "ratio_of_mean", "ratio_of_min")),
                f"{each['allowed']:.2f}",
                "reached" if each["reached"] else "missed",
            ]
            for each in goals
        ]
        parts.append(table([*head, ""], rows))
    return "\n".join(parts)


Times = dict[str, dict[str, float]]
"""Medians in seconds, by shape and contestant."""
PACKAGES = {  # display name: the peer whose versions have it, and its package
    "NumPy": ("textbook", "numpy"),
    "truenorm": ("truenorm", "truenorm"),
    "PyTorch": ("torch", "torch"),
    "JAX": ("jax", "jax"),
    "ONNX Runtime": ("onnxruntime", "onnxruntime"),
    "thinc": ("thinc", "thinc"),
}
# Colours of Okabe and Ito, which remain distinct for the colour-blind.
STYLES: dict[str, dict[str, Any]] = {
    "truenorm correct, out=": {"color": "#0072b2", "marker": "o", "lw": 2},
    "truenorm correct": {"color": "#0072b2", "marker": "o", "lw": 1, "mfc": "white", "ls": "--"},
    "truenorm fast, out=": {"color": "#56b4e9", "marker": "D", "lw": 2},
    "truenorm fast": {"color": "#56b4e9", "marker": "D", "lw": 1, "mfc": "white", "ls": "--"},
    "textbook NumPy": {"color": "#d55e00", "marker": "s", "lw": 1},
    "textbook in float64, then cast": {"color": "#cc79a7", "marker": "^", "lw": 1},
    "thinc": {"color": "#8c8c8c", "marker": "v", "lw": 1},
    "JAX": {"color": "#009e73", "marker": "P", "lw": 1},
    "ONNX Runtime": {"color": "#e69f00", "marker": "X", "lw": 1},
}


def times_of(report: dict[str, Any], direction: str) -> Times:
    """Return the medians of one direction."""
    times: Times = {}
    for figure in report["figures"]:
        if figure["direction"] == direction:
            times.setdefault(label(figure["shape"]), {})[figure["contestant"]] = figure["p50"]
    return times


def tables(report: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of docs/speed.md."""
    counts: dict[str, list[bool]] = {}
    for goal in report["goals"]:
        counts.setdefault(goal["goal"], []).append(goal["reached"])
    counts["all"] = [goal["reached"] for goal in report["goals"]]
    goals = [[name, str(sum(reached)), str(len(reached))] for name, reached in counts.items()]
    blocks = {
        "where": _where(report),
        "fastest": _fastest(report),
        "goals": markdown_table(["goal", "reached", "of"], goals),
    }
    megabytes = {label(each["shape"]): each["megabytes"] for each in report["figures"]}
    for direction in DIRECTIONS:
        times = times_of(report, direction)
        for size in ("small", "large"):
            shapes = [shape for shape in times if (megabytes[shape] < 1) == (size == "small")]
            names = dict.fromkeys(name for shape in shapes for name in times[shape])
            rows = [[n, *(three_digits(times[shape][n] * 1e3) for shape in shapes)] for n in names]
            blocks[f"{direction} {size}"] = markdown_table([f"{direction}, ms", *shapes], rows)
    return blocks


def _fastest(report: dict[str, Any]) -> str:
    """Return, for each shape, the fastest other package, and truenorm's times over its time."""
    head, rows = ["shape"], dict[str, list[str]]()
    for direction in DIRECTIONS:
        head += [f"fastest other, {direction}", "fast", "correct"]
        for shape, taken in times_of(report, direction).items():
            others = {name: t for name, t in taken.items() if not name.startswith("truenorm")}
            best = min(others, key=others.__getitem__)
            ours = ("truenorm fast, out=", "truenorm correct, out=")
            ratios = [f"{taken[name] / others[best]:.2f}" for name in ours]
            rows.setdefault(shape, [shape]).extend([best, *ratios])
    return markdown_table(head, list(rows.values()))


def _where(report: dict[str, Any]) -> str:
    facts, taken, versions = report["machine"], report["cores_taken"], report["versions"]
    packages = ", ".join(f"{name} {versions[p][k]}" for name, (p, k) in PACKAGES.items())
    quiet = "The machine was quiet" if report["quiet"] else "**The machine was not quiet**"
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['threads']} threads; Python "
        f"{facts['python']}, {packages}; {facts['date']}. {report['rounds']} rounds, turns "
        f"of {report['seconds_per_turn']} s. {quiet}: other programs took "
        f"{taken['by_other_programs']:.2f} cores during the turns, peers that were to sleep "
        f"{taken['by_other_peers']:.2f}."
    )


def draw(report: dict[str, Any]) -> None:
    """Draw times divided by PyTorch's over the shapes."""
    from matplotlib.figure import Figure as Canvas

    from truenorm.tools.picture import save

    canvas = Canvas(figsize=(7.4, 8.6), facecolor="white", layout="constrained")
    panels = canvas.subplots(2, 1, sharex=True, sharey=True)
    for direction, axes in zip(DIRECTIONS, panels, strict=True):
        times = times_of(report, direction)
        for name, style in STYLES.items():
            if name in next(iter(times.values())):
                ratios = [taken[name] / taken["PyTorch"] for taken in times.values()]
                axes.plot(list(times), ratios, ms=5, label=name, **style)
        axes.axhline(1, color="black", lw=1.2, label="PyTorch (1)")
        axes.set_yscale("log")
        axes.set_yticks([0.2, 0.5, 1, 2, 5, 10, 20, 50])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.set_ylabel("time, PyTorch's = 1")
        axes.set_title(f"{direction}: below the black line is faster than PyTorch", fontsize=11)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    for tick in panels[1].get_xticklabels():
        tick.set(rotation=35, horizontalalignment="right", rotation_mode="anchor")
    panels[1].set_xlabel("shape of x, float32")
    facts, quiet = report["machine"], "" if report["quiet"] else ", not quiet"
    title = f"Median time of a call, {facts['cores']} cores{quiet}, {facts['date']}"
    canvas.suptitle(title, fontsize=11)
    handles, names = panels[0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    save(canvas, FIGURES / "peers.svg")


def main(argv: list[str] | None = None) -> int:
    """Measure, save and print; or write the page."""
    arguments = arguments_of(argv)
    if arguments.page:
        report = read_results(arguments.output)
        draw(report)
        fill_page(PAGE, tables(report))
        return 0
    report = measure(arguments)
    text = strict_json.write(report, arguments.output)
    print(text if arguments.json else report_of(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
