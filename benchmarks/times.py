"""``python -m benchmarks.times SECTION``: time truenorm beside other forms of the same work.

reference
    The reference backend beside the textbook forms, one thread, new data each round; and
    `import truenorm` beside `import numpy`.
native
    The native backend beside a copy and a triad in C, RMSNorm beside layer norm, and the slowest
    of 64 seeds beside the median seed.
partials
    Backward that returns a partial beside plain backward; merging and rounding of partials.
model
    Times that `truenorm.cost` predicts beside measured ones, written to results/cost_model.json.
"""

import ctypes
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import truenorm as tn
from benchmarks.common import RESULTS, heading, machine, options, thread_variables
from benchmarks.environments import all_cpu_seconds
from truenorm.bench import DIRECTIONS, FLOORS, MODES, NORMS, TEXTBOOK, WIDENED, Contest, take_turns
from truenorm.cost import Form, layer_norm_cost
from truenorm.tools import strict_json
from truenorm.tools.machine import Stopwatch, usable_cores
from truenorm.tools.progress import status_line
from truenorm.tools.text import table, three_digits

Array = NDArray[Any]
Call = Callable[[], object]
Record = dict[str, Any]
FLOAT32 = np.dtype(np.float32)
LARGE = ((4, 512, 4096), (8, 1024, 4096), (8, 4096, 1024))
LONG = ((1, 8, 262144), (1, 1, 4194304))
MIDDLE = ((2, 128, 64), (2, 128, 1024), (4, 512, 1024))
PARTIALS = ((256, 1024), (256, 4096), (2048, 1024), (2048, 4096), (1024, 8192))
SEEDS = 64

BARE_SOURCE = Path(__file__).with_name("bare.c")
BARE_COMPILE = ("cc", "-O3", "-march=native", "-shared", "-fPIC")
FEWEST_ELEMENTS = 2**15
"""Elements that are moved in less time than a thread takes to wake."""


@cache
def _bare_library() -> ctypes.CDLL:
    """Compile bare.c; its functions release the GIL."""
    if shutil.which(BARE_COMPILE[0]) is None:
        raise RuntimeError("copy and triad need a C compiler named cc: apt-get install gcc")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bare.so"
        subprocess.run([*BARE_COMPILE, str(BARE_SOURCE), "-o", str(file)], check=True)
        library = ctypes.CDLL(str(file))
    for name, arrays in {"copy_bytes": 2, "triad_16": 3, "triad_32": 3, "triad_64": 3}.items():
        pointers = (ctypes.c_void_p,) * arrays
        getattr(library, name).argtypes = (*pointers, ctypes.c_size_t, ctypes.c_size_t)
    return library


class Bare:
    """A copy and a triad in C on ranges of elements, one range for each thread."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(max(1, threads - 1))  # the caller is a thread, too

    def contestants(self, x: Array, dy: Array, out: Array) -> dict[str, Call]:
        """Return both over C-contiguous arrays."""
        library, width = _bare_library(), x.itemsize
        return {
            "copy": partial(self._run, library.copy_bytes, (x, out), width),
            "triad": partial(self._run, getattr(library, f"triad_{8 * width}"), (x, dy, out), 1),
        }

    def _run(self, kernel: Callable[..., object], arrays: tuple[Array, ...], unit: int) -> None:
        addresses, size = [each.ctypes.data for each in arrays], arrays[0].size
        parts = max(1, min(self._threads, size // FEWEST_ELEMENTS))
        (start, stop), *rest = pairwise(unit * (size * k // parts) for k in range(parts + 1))
        others = [self._pool.submit(kernel, *addresses, *part) for part in rest]
        kernel(*addresses, start, stop)
        for other in others:
            other.result()


def contest(shape: tuple[int, ...], norm: str = "layer_norm", **how: Any) -> Contest:
    """Return the contestants of a shape, float32 unless `dtype` is given."""
    dtype, threads = how.pop("dtype", FLOAT32), how.pop("threads", usable_cores())
    return Contest(NORMS[norm], shape, dtype, threads, **how)


def label(shape: tuple[int, ...]) -> str:
    """Return a shape as 2x128x1024."""
    return "x".join(map(str, shape))


def of_truenorm(calls: dict[str, Call]) -> dict[str, Call]:
    """Return truenorm's contestants by mode."""
    return {mode: calls[f"truenorm {mode}"] for mode in MODES}


def native(rounds: int) -> dict[str, list[Record]]:
    """Return ratios to a copy and a triad, of RMSNorm to layer norm, and of seeds."""
    bare = Bare(usable_cores())
    beside_bare: list[Record] = []
    for shape in LARGE + LONG:
        status_line(f"{shape} beside copy and triad")
        one = contest(shape, backend="native")
        record: Record = {"times copy, triad": label(shape)}
        for direction, floor in FLOORS.items():
            calls = of_truenorm(one.of(direction))
            calls[floor] = bare.contestants(one.x, one.dy, one.out)[floor]
            times = take_turns(calls, range(rounds))
            record |= {f"{m} {direction}": times[m].median / times[floor].median for m in MODES}
        beside_bare.append(record)
    rms_norm: list[Record] = []
    for shape in (*MIDDLE, LARGE[0]):
        status_line(f"{shape}, RMSNorm")
        norms = {name: contest(shape, name, backend="native") for name in NORMS}
        record = {"RMSNorm, times layer norm": label(shape)}
        for direction in DIRECTIONS:
            calls = {
                f"{name} {mode}": call
                for name, each in norms.items()
                for mode, call in of_truenorm(each.of(direction)).items()
            }
            times = take_turns(calls, range(rounds))
            for mode in MODES:
                ratio = times[f"rms_norm {mode}"].median / times[f"layer_norm {mode}"].median
                record[f"{mode} {direction}"] = ratio
        rms_norm.append(record)
    return {"bare": beside_bare, "rms_norm": rms_norm, "seeds": [seeds(rounds)]}


def seeds(rounds: int) -> Record:
    """Return the time of the slowest seed divided by that of the median seed."""
    contests = [contest(MIDDLE[1], backend="native", seed=seed) for seed in range(SEEDS)]
    record: Record = {f"{label(MIDDLE[1])}, times the median seed": f"slowest of {SEEDS} seeds"}
    for direction in DIRECTIONS:
        calls = [of_truenorm(each.of(direction)) for each in contests]
        for mode in MODES:
            status_line(f"seeds, {mode} {direction}")
            by_seed = {str(seed): each[mode] for seed, each in enumerate(calls)}
            medians = [each.median for each in take_turns(by_seed, range(rounds)).values()]
            record[f"{mode} {direction}"] = max(medians) / median(medians)
    return record


def reference(rounds: int) -> dict[str, Any]:
    """Return times of the reference backend, in milliseconds and beside the textbook form."""
    os.environ.update(thread_variables(1))
    tables: dict[str, Any] = {}
    for shape, name, calls in (
        ((1, 1, 1024), "float32", 20),  # one row costs what a call costs: several in a row
        ((4, 512, 1024), "float32", 1),
        ((1, 128, 1024), "float64", 1),
    ):
        watch = Stopwatch()
        for seed in range(rounds):
            status_line(f"{name} {shape}: {seed + 1} of {rounds}")
            one = contest(shape, dtype=np.dtype(name), threads=1, seed=seed, backend="reference")
            contestants = {
                f"{direction} {name}": call
                for direction in DIRECTIONS
                for name, call in one.of(direction).items()
                if name not in FLOORS.values()
            }
            watch.go_round(contestants, calls)
        tables[f"{name} {label(shape)}"] = [
            {
                "": name,
                "p50 ms": watch.p50(name) * 1e3,
                "mean ms": watch.mean(name) * 1e3,
                "p99 ms": watch.p99(name) * 1e3,
                "ns/element": watch.p50(name) / math.prod(shape) * 1e9,
                "x textbook": watch.ratio(name, f"{name.split()[0]} {TEXTBOOK}"),
                "of means": watch.mean(name) / watch.mean(f"{name.split()[0]} {TEXTBOOK}"),
            }
            for name in watch.seconds
        ]
    return tables | {"import": import_times()}


def import_times(processes: int = 10) -> list[Record]:
    """Return median import times in fresh processes, without the interpreter's start."""
    watch = Stopwatch()
    program = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    for module in ("numpy", "truenorm") * processes:
        command = [sys.executable, "-c", program.format(module)]
        watch.add(module, float(subprocess.check_output(command, text=True)))
    return [
        {"import": module, "ms": watch.p50(module) * 1e3, "x numpy": watch.ratio(module, "numpy")}
        for module in watch.seconds
    ]


def partials(rounds: int) -> dict[str, list[Record]]:
    """Return what a partial costs: times plain backward, and nanoseconds a column."""
    records = []
    for norm in NORMS:
        for shape in PARTIALS:
            status_line(f"{norm} {shape}, partials")
            one = contest(shape, norm)
            one.of("backward")
            saved = one.saved["correct"]
            plain, partly = (getattr(tn, f"{norm}_backward{end}") for end in ("", "_partial"))
            _, other = partly(one.dy, saved, out=one.out)
            times = take_turns(
                {
                    "plain": partial(plain, one.dy, saved, out=one.out),
                    "partial": partial(partly, one.dy, saved, out=one.out),
                    "merge": lambda other=other: other + other,  # type: ignore[misc]
                    "round": other.rounded,
                },
                range(rounds),
            )
            records.append(
                {
                    "norm": norm,
                    "rows": label(shape),
                    "plain, ns an element": times["plain"].median / one.x.size * 1e9,
                    "with a partial": times["partial"].median / times["plain"].median,
                    "merge, ns a column": times["merge"].median / shape[-1] * 1e9,
                    "round, ns a column": times["round"].median / shape[-1] * 1e9,
                }
            )
    return {"partials": records}


class Predicted(NamedTuple):
    """A contestant of the cost model: the form it is compared with, and its copy."""

    name: str
    form: Form
    copy: str
    passes: dict[str, Call]
    casts: bool = False

    def bytes_moved(self, shape: tuple[int, ...], direction: str) -> int:
        """Return the bytes of the model; each of two casts a pass reads one type, writes one."""
        dtype = "float64" if self.casts else "float32"
        keep = "xhat" if self.form == "textbook" else "x"
        counted = layer_norm_cost(shape, dtype, self.form, keep).passes[direction]  # type: ignore[arg-type]
        return counted.bytes_moved + (2 * (4 + 8) * math.prod(shape) if self.casts else 0)


MODEL_SHAPES = ((4096, 4096), (8, 1024, 4096))
"""x of 67 and 134 MB in float32: larger than any cache."""
GOAL = 1.5
"""The ratio, either way, that fast mode of the native backend should stay within."""
ONE, ALL = "copy, one thread", "copy, all threads"


def predicted(shape: tuple[int, ...]) -> tuple[Contest, list[Predicted]]:
    """Return the contestants of the cost model; NumPy and its copy have one thread."""
    core, numpy = (contest(shape, backend=name) for name in ("native", "reference"))
    by_core, by_numpy = ({d: each.of(d) for d in DIRECTIONS} for each in (core, numpy))

    def of(calls: dict[str, dict[str, Call]], name: str) -> dict[str, Call]:
        return {direction: calls[direction][name] for direction in DIRECTIONS}

    return core, [
        Predicted("native, fast", "fused", ALL, of(by_core, "truenorm fast")),
        Predicted("native, correct", "fused", ALL, of(by_core, "truenorm correct")),
        Predicted("reference, fast", "blocked", ONE, of(by_numpy, "truenorm fast")),
        Predicted("textbook", "textbook", ONE, of(by_core, TEXTBOOK)),
        Predicted(
            "textbook in float64, then cast", "textbook", ONE, of(by_core, WIDENED), casts=True
        ),
    ]


def model(rounds: int) -> dict[str, Any]:
    """Return predicted and measured times; write them to results/cost_model.json."""
    started, busy, own = time.perf_counter(), all_cpu_seconds(), time.process_time()
    lines = [line for shape in MODEL_SHAPES for line in model_lines(shape, rounds)]
    others = all_cpu_seconds() - busy - (time.process_time() - own)
    taken = max(0.0, others / (time.perf_counter() - started))
    report = {
        "machine": machine(usable_cores()),
        "rounds": rounds,
        "cores_taken_by_others": taken,
        "goal": GOAL,
        "lines": lines,
    }
    strict_json.write(report, RESULTS / "cost_model.json")
    return {"model": lines, "others": [{"": "cores taken by other programs", "cores": taken}]}


def model_lines(shape: tuple[int, ...], rounds: int) -> Iterator[Record]:
    """Yield a record for each contestant and direction."""
    core, everyone = predicted(shape)
    pool = ThreadPoolExecutor(usable_cores())
    parts = [np.array_split(each.reshape(-1), usable_cores()) for each in (core.out, core.x)]
    calls: dict[str, Call] = {
        ONE: partial(np.copyto, core.out, core.x),
        ALL: lambda: list(pool.map(np.copyto, *parts)),
    }
    calls |= {f"{each.name} {d}": call for each in everyone for d, call in each.passes.items()}
    for call in calls.values():
        call()  # warm up
    watch, shuffle = Stopwatch(), random.Random(0)
    for turn in range(rounds):
        status_line(f"{shape}: {turn + 1} of {rounds}")
        # A new order each round: the cache is not always left by the same predecessor.
        watch.go_round(dict(shuffle.sample(list(calls.items()), len(calls))))
    for each in everyone:
        bandwidth = 2 * core.x.nbytes / watch.p50(each.copy)
        for direction in DIRECTIONS:
            moved = each.bytes_moved(shape, direction)
            seconds = watch.p50(f"{each.name} {direction}")
            ratio = seconds / (moved / bandwidth)
            yield {
                "shape": shape,
                "contestant": each.name,
                "direction": direction,
                "megabytes_moved": moved / 1e6,
                "predicted_ms": moved / bandwidth * 1e3,
                "measured_ms": seconds * 1e3,
                "ratio": ratio,
                "within_goal": 1 / GOAL <= ratio <= GOAL if each.name == "native, fast" else None,
            }


SECTIONS: dict[str, Callable[[int], dict[str, Any]]] = {
    each.__name__: each for each in (reference, native, partials, model)
}


def text_of(records: list[Record]) -> str:
    """Return records of one kind as a table."""

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return three_digits(value)
        return "" if value is None else str(value)

    return table(list(records[0]), [list(map(cell, each.values())) for each in records])


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = options("times", "Time truenorm beside other forms of the same work.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--rounds", type=int, default=15, help="turns of each contestant")
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.sections if name not in SECTIONS]:
        parser.error(f"unknown section {unknown[0]!r}: choose from {', '.join(SECTIONS)}")
    report: dict[str, Any] = {"machine": machine(usable_cores()), "rounds": arguments.rounds}
    if not arguments.json:
        print(heading(report["machine"]), flush=True)
    # The section "reference" limits all later calls to one thread, so it is the last one.
    names = sorted(arguments.sections or SECTIONS, key=lambda name: name == "reference")
    for name in names:
        report[name] = SECTIONS[name](arguments.rounds)
        status_line()
        if not arguments.json:
            for title, records in report[name].items():
                print(f"\n{name}: {title}\n{text_of(records)}", flush=True)
    if arguments.json:
        print(strict_json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
