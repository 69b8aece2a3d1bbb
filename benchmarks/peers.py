"""``python -m benchmarks.peers``: truenorm beside other packages, process by process.

It needs the standard library alone; each peer runs in an environment of its own.
"""
# ruff: noqa: T201
# A command prints its result.

import argparse
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.peer.environments import PEERS, ROOT
from benchmarks.peer.goals import Figure, Verdict, verdicts
from benchmarks.peer.process import PeerProcess, python_for
from benchmarks.peer.turns import Turns, label
from benchmarks.timing import heading, machine
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores
from truenorm.tools.text import table

SHAPES = (
    (1, 1, 64),
    (1, 1, 1024),
    (1, 1, 4096),
    (2, 128, 64),
    (2, 128, 1024),
    (2, 128, 4096),
    (4, 512, 1024),
    (4, 512, 4096),
    (8, 1024, 4096),
)
OTHER_TYPES = {"textbook", "torch", "truenorm"}
RMS_NORM = {"textbook", "textbook64", "torch", "truenorm"}
ROUNDS, SECONDS = 7, 0.1
STATISTICS = {
    "p50": "p50",
    "mean": "mean",
    "min": "min",
    "first_mean": "mean of the first 100 calls after the first",
    "first_max": "slowest of the first 100 calls after the first",
}
"""Fields of a figure, and how they are named in a table."""
QUIET = 0.05  # cores that others may take on average
RESULTS = ROOT / "benchmarks" / "results" / "peers.json"


def shape_of(text: str) -> tuple[int, ...]:
    """Read a shape such as 2x128x1024."""
    shape = tuple(int(length) for length in text.split("x"))
    if min(shape) < 1:
        raise argparse.ArgumentTypeError(f"{text}: every length must be at least 1")
    return shape


def given_python(text: str) -> tuple[str, Path]:
    """Read NAME=PATH, where PATH is an interpreter or the folder of an environment."""
    name, _, path = text.partition("=")
    known = sorted({peer.environment for peer in PEERS.values()})
    if name not in known:
        raise argparse.ArgumentTypeError(f"{text}: NAME is one of {', '.join(known)}")
    # Not resolved: behind the link there is the interpreter without its environment.
    python = Path(path).absolute()
    if python.is_dir():
        python /= "Scripts/python.exe" if sys.platform == "win32" else "bin/python"
    if not path or not python.exists():
        raise argparse.ArgumentTypeError(f"{text}: there is no {python}")
    return name, python


def arguments_of(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description="Time the norms of several packages, each in a process of its own.",
    )
    described.add_argument("--json", action="store_true", help="print what --output gets")
    described.add_argument("--output", type=Path, default=RESULTS, help="the JSON file to write")
    described.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each contestant")
    described.add_argument("--seconds", type=float, default=SECONDS, help="length of a turn")
    described.add_argument(
        "--shapes", type=shape_of, nargs="+", default=SHAPES, metavar="2x128x1024"
    )
    described.add_argument(
        "--operation", choices=["layer_norm", "rms_norm"], default="layer_norm",
        help="which norm; of RMSNorm, PyTorch, truenorm and the textbook take part",
    )  # fmt: skip
    described.add_argument(
        "--dtype", choices=["float32", "float16", "bfloat16", "float64"], default="float32",
        help="the type of all arrays; of others than float32, PyTorch, truenorm and the textbook "
        "take part",
    )  # fmt: skip
    described.add_argument(
        "--peers", choices=list(PEERS), nargs="+", default=list(PEERS), metavar="NAME",
        help="who takes part: " + ", ".join(PEERS),
    )  # fmt: skip
    described.add_argument(
        "--python", type=given_python, action="append", default=[], metavar="NAME=PATH",
        help="a ready-made environment, such as torch=/path/to/venv; may be repeated",
    )  # fmt: skip
    return described.parse_args(argv)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Start the peers, let them take turns, and return the report."""
    threads, ready = usable_cores(), dict(arguments.python)
    able = set(PEERS) if arguments.dtype == "float32" else OTHER_TYPES
    if arguments.operation == "rms_norm":
        able = able & RMS_NORM
    peers = [PEERS[name] for name in PEERS if name in arguments.peers and name in able]
    # Every environment is there before the first process starts: an installation is no turn.
    pythons = [ready.get(peer.environment) or python_for(peer) for peer in peers]
    turns = Turns(arguments.rounds, arguments.seconds, arguments.dtype, arguments.operation)
    figures: list[Figure] = []
    with ExitStack() as stack:
        processes = []
        for peer, python in zip(peers, pythons, strict=True):
            processes.append(PeerProcess(peer, python, threads))
            stack.callback(processes[-1].close)
        versions = {each.peer.name: each.ask("versions") for each in processes}
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


def times(figures: list[Figure], direction: str, statistic: str) -> str:
    """Return the table of one direction, in ms: a line for each contestant."""
    chosen = [figure for figure in figures if figure.direction == direction]
    shapes = list(dict.fromkeys(figure.shape for figure in chosen))
    by_place = {(figure.contestant, figure.shape): figure for figure in chosen}
    writes_to = {figure.contestant: figure.writes_to for figure in chosen}
    return table(
        [f"{direction}, {STATISTICS[statistic]} in ms", "result in", *map(label, shapes)],
        [
            [
                name,
                place,
                *(f"{getattr(by_place[name, shape], statistic) * 1e3:.4g}" for shape in shapes),
            ]
            for name, place in writes_to.items()
        ],
    )


def goals(judged: list[Verdict]) -> str:
    """Return wins and losses alike."""
    if not judged:
        return "no goal can be judged without truenorm and its rivals"
    reached = sum(verdict.reached for verdict in judged)
    return f"goals reached: {reached} of {len(judged)}\n" + table(
        ["goal", "shape", "", "contestant", "rival", "x p50", "x mean", "x min", "allowed", ""],
        [
            [
                verdict.goal,
                label(verdict.shape),
                verdict.direction,
                verdict.contestant,
                verdict.rival,
                f"{verdict.ratio:.2f}",
                f"{verdict.ratio_of_mean:.2f}",
                f"{verdict.ratio_of_min:.2f}",
                f"{verdict.allowed:.2f}",
                "reached" if verdict.reached else "missed",
            ]
            for verdict in judged
        ],
    )


def main(argv: list[str] | None = None) -> int:
    """Measure, save and print."""
    arguments = arguments_of(argv)
    report = measure(arguments)
    text = strict_json.write(report, arguments.output)
    if arguments.json:
        print(text)
        return 0
    figures = [Figure(**figure) for figure in report["figures"]]
    print(heading(report["machine"]))
    for peer, versions in report["versions"].items():
        print(f"{peer + ':':13s}{', '.join(' '.join(item) for item in versions.items())}")
    taken = report["cores_taken"]
    print(
        f"cores taken during a turn by peers that were to sleep: {taken['by_other_peers']:.3f}, "
        f"by other programs: {taken['by_other_programs']:.3f}"
    )
    if not report["quiet"]:
        print(
            "NOT QUIET: do not publish this; whoever waits for a thread by spinning suffers most"
        )
    print()
    for direction in ("forward", "backward"):
        for statistic in STATISTICS:
            print(times(figures, direction, statistic), end="\n\n")
    print(goals([Verdict(**verdict) for verdict in report["goals"]]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
