"""``python -m benchmarks.peers``: time truenorm beside other packages, each in its own process.

The report goes to results/peers.json. ``--page`` fills the tables of docs/inside/speed.md and of
README.md in this folder from it; Sphinx adds the table of all times. ``--instructions avx2``
measures a processor without AVX-512: PyTorch and truenorm, into results/peers_avx2.json.
"""

import math
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.common import (
    DOCS,
    RESULTS,
    fill_page,
    heading,
    machine,
    markdown_table,
    options,
    read_results,
)
from benchmarks.contestants import DIRECTIONS, label
from benchmarks.environments import (
    PEERS,
    PeerProcess,
    all_cpu_seconds,
    peer_versions,
    python_for,
)
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line
from truenorm.tools.text import parse_shape, three_digits

SHAPES = (
    *((1, 1, 64), (1, 1, 1024), (1, 1, 4096)),
    *((2, 128, 64), (2, 128, 1024), (2, 128, 4096)),
    *((4, 512, 1024), (4, 512, 4096), (8, 1024, 4096)),
)
OTHER_TYPES = {"textbook", "torch", "truenorm"}
RMS_NORM = {"textbook", "textbook64", "torch", "truenorm"}
ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
QUIET = 0.05  # cores that other programs may take on average
PAUSE = 0.05  # seconds: thread pools spin for some milliseconds after work
SMALL = 2**14
"""Elements of a call that one thread computes, in microseconds. The interruptions of one turn, and
of single calls, are as long as the difference of two packages. So these calls have more and
shorter turns, and a low quantile takes the place of the median."""
BLOCKS = 6  # turns of small calls in place of one
OF_TURNS = 0.2
"""The quantile of the turns of small calls."""
MIDDLE = 2 * 128 * 1024
"""Elements from which on fast mode should be ahead of all peers."""
FILE, PAGE = RESULTS / "peers.json", DOCS / "inside" / "speed.md"
FILE_AVX2 = FILE.with_name("peers_avx2.json")
FILES = (FILE,)
AVX2 = {"TRUENORM_INSTRUCTIONS": "avx2", "ATEN_CPU_CAPABILITY": "avx2"}
"""Variables that limit truenorm and PyTorch to AVX2; other packages have none in common."""
README = Path(__file__).with_name("README.md")
Figure = Mapping[str, Any]
"""The times of one contestant at one shape in one direction, in seconds."""


class Turns:
    """Peers that take turns, and how much of the cores other processes used meanwhile."""

    def __init__(self, processes: list[PeerProcess], rounds: int, seconds: float) -> None:
        self.processes, self.rounds, self.seconds = processes, rounds, seconds
        self.elapsed = self.by_peers = self.by_others = 0.0

    def figures(self, shape: tuple[int, ...], dtype: str, operation: str) -> Iterator[Figure]:
        """Time every contestant of every peer at one shape."""
        entrants, checksums = [], set()
        for process in self.processes:
            status_line(f"{label(shape)}: {process.peer.name} prepares")
            prepared = process.ask("prepare", shape=shape, dtype=dtype, operation=operation)
            checksums.add(prepared["checksum"])
            entrants += [(process, k, each) for k, each in enumerate(prepared["contestants"])]
        if len(checksums) > 1:
            raise RuntimeError(f"the peers drew different numbers at {label(shape)}")
        turns: list[list[dict[str, float]]] = [[] for _ in entrants]
        is_small = math.prod(shape) < SMALL
        blocks = BLOCKS if is_small else 1
        rounds = self.rounds * blocks
        for number in range(rounds):
            status_line(f"{label(shape)}: round {number + 1} of {rounds}")
            # Each round starts with another one, so that predecessors differ.
            first = number * len(entrants) // rounds
            for k in [*range(first, len(entrants)), *range(first)]:
                process, which, _ = entrants[k]
                turns[k].append(self._turn(process, which, blocks))
        status_line()
        for (process, _, (name, direction, writes_to)), times in zip(entrants, turns, strict=True):
            yield {
                "shape": shape,
                "megabytes": math.prod(shape) * ITEMSIZE[dtype] / 1e6,
                "direction": direction,
                "peer": process.peer.name,
                "contestant": name,
                "writes_to": writes_to,
                "time": _time(times, is_small=is_small),
                "p50": statistics.median(turn["p50"] for turn in times),
                "mean": statistics.fmean(turn["mean"] for turn in times),
                "min": min(turn["min"] for turn in times),
                "samples": int(sum(turn["samples"] for turn in times)),
            }

    def _turn(self, process: PeerProcess, which: int, blocks: int) -> dict[str, float]:
        """Run one contestant, and add up the processor time of all other processes."""
        time.sleep(PAUSE / blocks)

        def spent() -> tuple[float, float, float]:
            asleep = sum(each.cpu_seconds() for each in self.processes if each is not process)
            return process.cpu_seconds(), asleep, all_cpu_seconds()

        before, start = spent(), time.perf_counter()
        answer: dict[str, float] = process.ask("time", which=which, seconds=self.seconds / blocks)
        self.elapsed += time.perf_counter() - start
        own, asleep, everyone = (b - a for a, b in zip(before, spent(), strict=True))
        self.by_peers += asleep
        self.by_others += everyone - own - asleep
        return answer


def _time(turns: Sequence[Mapping[str, float]], *, is_small: bool) -> float:
    """Return the time of a contestant: of small calls a low quantile, else the median."""
    if not is_small:
        return statistics.median(turn["p50"] for turn in turns)
    lows = sorted(turn["p10"] for turn in turns)
    return lows[round(OF_TURNS * (len(lows) - 1))]


def measure(
    peers: Sequence[str],
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    *,
    rounds: int,
    seconds: float,
    dtype: str = "float32",
    operation: str = "layer_norm",
    instructions: str | None = None,
) -> dict[str, Any]:
    """Start the peers, let them take turns, and return the report."""
    variables = AVX2 if instructions else {}
    able = set(PEERS) if dtype == "float32" else OTHER_TYPES
    able = able & RMS_NORM if operation == "rms_norm" else able
    able = able & {"torch", "truenorm"} if instructions else able
    # All environments are installed before the first process starts.
    ready = [(PEERS[name], python_for(PEERS[name])) for name in peers if name in able]
    versions = {peer.name: peer_versions(peer, python) for peer, python in ready}
    with ExitStack() as stack:
        processes = []
        for peer, python in ready:
            processes.append(PeerProcess(peer, python, usable_cores(), variables))
            stack.callback(processes[-1].close)
        turns = Turns(processes, rounds, seconds)
        figures = [each for shape in shapes for each in turns.figures(shape, dtype, operation)]
    taken = {
        "by_other_peers": turns.by_peers / turns.elapsed,
        "by_other_programs": turns.by_others / turns.elapsed,
    }
    return {
        "machine": machine(usable_cores(), packages=()),
        "versions": versions,
        "operation": operation,
        "dtype": dtype,
        "instructions": instructions or "all",
        "rounds": rounds,
        "seconds_per_turn": seconds,
        "cores_taken": taken,
        "quiet": sum(taken.values()) <= QUIET,
        "unit": "second",
        "figures": figures,
        "goals": list(goals(figures)),
    }


def goals(figures: Sequence[Figure]) -> Iterator[dict[str, Any]]:
    """Yield every goal for which there are figures."""
    groups: dict[tuple[tuple[int, ...], str], list[Figure]] = {}
    for figure in figures:
        groups.setdefault((figure["shape"], figure["direction"]), []).append(figure)
    for (shape, direction), group in groups.items():
        if math.prod(shape) >= MIDDLE:
            everyone = {figure["peer"] for figure in group} - {"truenorm"}
            yield from _compare(group, "fast", everyone, 1.0, "ahead of the best peer")
        else:
            yield from _compare(group, "fast", {"torch"}, 2.0, "within 2x of PyTorch")
        times = 2.0 if direction == "forward" else 3.0
        yield from _compare(group, "correct", {"torch"}, times, f"within {times:.0f}x of PyTorch")
        for mode in ("fast", "correct"):
            yield from _compare(group, mode, {"textbook"}, 1.0, "ahead of the textbook")


def _compare(
    group: list[Figure], mode: str, rivals: set[str], allowed: float, goal: str
) -> Iterator[dict[str, Any]]:
    """Compare a mode with the fastest rival that writes to the same kind of array.

    A goal is reached if neither the ratio of times nor that of means exceeds `allowed`. Where the
    ratio of the fastest calls is very different, the machine was busy.
    """
    for ours in group:
        theirs = [
            each
            for each in group
            if each["peer"] in rivals and each["writes_to"] == ours["writes_to"]
        ]
        if theirs and ours["contestant"].startswith(f"truenorm {mode}"):
            best = min(theirs, key=lambda figure: figure["time"])
            ratios = {name: ours[name] / best[name] for name in ("time", "mean", "min")}
            yield {
                "goal": f"{mode} {goal}",
                **{name: ours[name] for name in ("shape", "direction", "contestant")},
                "rival": best["contestant"],
                "ratio": ratios["time"],
                "ratio_of_mean": ratios["mean"],
                "ratio_of_min": ratios["min"],
                "allowed": allowed,
                "reached": max(ratios["time"], ratios["mean"]) <= allowed,
            }


Times = dict[str, dict[str, float]]
"""Times in seconds, by shape and contestant."""
PACKAGES = {  # display name: the peer whose versions have it, and its package
    "NumPy": ("textbook", "numpy"),
    "PyTorch": ("torch", "torch"),
    "JAX": ("jax", "jax"),
    "ONNX Runtime": ("onnxruntime", "onnxruntime"),
    "thinc": ("thinc", "thinc"),
}


def times_of(report: Mapping[str, Any], direction: str) -> Times:
    """Return the times of one direction."""
    times: Times = {}
    for figure in report["figures"]:
        if figure["direction"] == direction:
            times.setdefault(label(figure["shape"]), {})[figure["contestant"]] = figure["time"]
    return times


def tables(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the blocks of docs/inside/speed.md."""
    blocks = {"where": _where(report), "fastest": _fastest(report)}
    if FILE_AVX2.exists():
        limited = read_results(FILE_AVX2)
        blocks["avx2"] = f"{_beside_torch(report, limited)}\n\n{_where(limited)}"
    return blocks


def _beside_torch(*reports: Mapping[str, Any]) -> str:
    """Return truenorm's times divided by PyTorch's, forward / backward: all sets, and AVX2."""
    head = ["shape", "fast", "correct", "fast, AVX2", "correct, AVX2"]
    rows: dict[str, list[str]] = {}
    for report in reports:
        forward, backward = (times_of(report, direction) for direction in DIRECTIONS)
        for shape in forward:
            for name in ("truenorm fast, out=", "truenorm correct, out="):
                ratios = [
                    taken[shape][name] / taken[shape]["PyTorch"] for taken in (forward, backward)
                ]
                rows.setdefault(shape, [shape]).append(
                    " / ".join(f"{each:.2f}" for each in ratios)
                )
    return markdown_table(head, list(rows.values()))


def goals_table(report: Mapping[str, Any]) -> str:
    """Return how often each goal was reached."""
    counts: dict[str, list[bool]] = {}
    for goal in report["goals"]:
        counts.setdefault(goal["goal"], []).append(goal["reached"])
    counts["all"] = [goal["reached"] for goal in report["goals"]]
    rows = [[name, str(sum(reached)), str(len(reached))] for name, reached in counts.items()]
    return markdown_table(["goal", "reached", "of"], rows)


def page(report: Mapping[str, Any]) -> str:
    """Return collapsed tables of all times, below 1 MB and from there on."""
    megabytes = {label(each["shape"]): each["megabytes"] for each in report["figures"]}
    parts = []
    for direction in DIRECTIONS:
        times = times_of(report, direction)
        for title, is_small in (("below 1 MB", True), ("from 1 MB on", False)):
            shapes = [shape for shape in times if (megabytes[shape] < 1) == is_small]
            names = dict.fromkeys(name for shape in shapes for name in times[shape])
            rows = [[n, *(three_digits(times[shape][n] * 1e3) for shape in shapes)] for n in names]
            table = markdown_table([f"{direction}, ms", *shapes], rows)
            summary = f"<details><summary>{direction.capitalize()}, {title}</summary>"
            parts += [summary, table, "</details>"]
    return "\n\n".join(parts)


def _fastest(report: Mapping[str, Any]) -> str:
    """Return, for each shape, the fastest other package, and truenorm's times over its time."""
    ours = ("truenorm fast, out=", "truenorm correct, out=")
    head, rows = ["shape"], dict[str, list[str]]()
    for direction in DIRECTIONS:
        head += [f"fastest other, {direction}", "fast", "correct"]
        for shape, taken in times_of(report, direction).items():
            others = {name: t for name, t in taken.items() if not name.startswith("truenorm")}
            best = min(others, key=others.__getitem__, default="none")
            ratios = [
                f"{taken[name] / others[best]:.2f}" if others and name in taken else "none"
                for name in ours
            ]
            rows.setdefault(shape, [shape]).extend([best, *ratios])
    return markdown_table(head, list(rows.values()))


def _where(report: Mapping[str, Any]) -> str:
    facts, taken, versions = report["machine"], report["cores_taken"], report["versions"]
    packages = ", ".join(
        f"{name} {versions[p][k]}" for name, (p, k) in PACKAGES.items() if p in versions
    )
    quiet = "The machine was quiet" if report["quiet"] else "**The machine was not quiet**"
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['threads']} threads; Python "
        f"{facts['python']}, {packages}; {facts['date']}. {report['rounds']} rounds, turns "
        f"of {report['seconds_per_turn']} s. {quiet}: other programs took "
        f"{taken['by_other_programs']:.2f} cores during the turns, peers that were to sleep "
        f"{taken['by_other_peers']:.2f}."
    )


def main(argv: list[str] | None = None) -> int:
    """Measure, save and print; or fill the page."""
    parser = options(
        "peers", "Time the norms of several packages, each in its own process.",
        output=FILE, page="fill docs/inside/speed.md and README.md from --output",
    )  # fmt: skip
    add, names = parser.add_argument, list(PEERS)
    add("--rounds", type=int, default=7, help="turns of each contestant")
    add("--seconds", type=float, default=0.1, help="length of a turn")
    add("--shapes", type=parse_shape, nargs="+", default=SHAPES, metavar="2x128x1024")
    only = "PyTorch, truenorm and the textbook take part"
    add("--operation", choices=["layer_norm", "rms_norm"], default="layer_norm",
        help=f"for RMSNorm, {only}")  # fmt: skip
    add("--instructions", choices=["avx2"], help="limit PyTorch and truenorm to AVX2")
    add("--dtype", choices=list(ITEMSIZE), default="float32", help=f"except for float32, {only}")
    add("--peers", choices=names, nargs="+", default=names, metavar="NAME", help=", ".join(names))
    arguments = vars(parser.parse_args(argv))
    output: Path = arguments.pop("output")
    if arguments.pop("page"):
        report = read_results(output)
        fill_page(PAGE, tables(report))
        fill_page(README, {"goals": goals_table(report)})
        return 0
    if arguments["instructions"] and output == FILE:
        output = FILE_AVX2
    strict_json.write(measure(**arguments), output)
    report = read_results(output)
    print(heading(report["machine"]), *tables(report).values(), goals_table(report), page(report),
          sep="\n\n")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
