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
    Times that `truenorm.cost` predicts beside measured ones, written to results/cost_model.json
    and docs/learn/time-and-memory.md.
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
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm as tn
from benchmarks.common import (
    DOCS,
    RESULTS,
    fill_page,
    heading,
    machine,
    markdown_table,
    options,
    thread_variables,
)
from benchmarks.contestants import (
    DIRECTIONS,
    FLOORS,
    MODES,
    NORMS,
    TEXTBOOK,
    WIDENED,
    Contest,
    label,
    take_turns,
)
from benchmarks.environments import all_cpu_seconds
from benchmarks.stopwatch import Stopwatch
from truenorm.cost import Form, Keep, layer_norm_cost
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line
from truenorm.tools.text import three_digits

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


def of_modes(calls: dict[str, Call], prefix: str = "") -> dict[str, Call]:
    """Return truenorm's contestants by mode."""
    return {f"{prefix}{mode}": calls[f"truenorm {mode}"] for mode in MODES}


def native(rounds: int) -> dict[str, list[Record]]:
    """Return ratios to a copy and a triad, of RMSNorm to layer norm, and of seeds."""
    bare = Bare(usable_cores())
    beside_bare: list[Record] = []
    for shape in LARGE + LONG:
        status_line(f"{shape} beside copy and triad")
        one = contest(shape, backend="native")
        record: Record = {"times copy, triad": label(shape)}
        for direction, floor in FLOORS.items():
            calls = of_modes(one.of(direction))
            calls[floor] = bare.contestants(one.x, one.dy, one.out)[floor]
            times = take_turns(calls, range(rounds))
            record |= {f"{m} {direction}": times[m].median / times[floor].median for m in MODES}
        beside_bare.append(record)
    rms_norm: list[Record] = []
    for shape in (*MIDDLE, LARGE[0]):
        status_line(f"{shape}, RMSNorm")
        layer, rms = (contest(shape, name, backend="native") for name in NORMS)
        record = {"RMSNorm, times layer norm": label(shape)}
        for direction in DIRECTIONS:
            calls = of_modes(layer.of(direction), "layer ") | of_modes(rms.of(direction))
            times = take_turns(calls, range(rounds))
            record |= {
                f"{m} {direction}": times[m].median / times[f"layer {m}"].median for m in MODES
            }
        rms_norm.append(record)
    return {"bare": beside_bare, "rms_norm": rms_norm, "seeds": [seeds(rounds)]}


def seeds(rounds: int) -> Record:
    """Return the time of the slowest seed divided by that of the median seed."""
    contests = [contest(MIDDLE[1], backend="native", seed=seed) for seed in range(SEEDS)]
    record: Record = {f"{label(MIDDLE[1])}, times the median seed": f"slowest of {SEEDS} seeds"}
    for direction in DIRECTIONS:
        calls = [of_modes(each.of(direction)) for each in contests]
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
    for shape, dtype, calls in (
        ((1, 1, 1024), "float32", 20),  # one row costs what a call costs: several in a row
        ((4, 512, 1024), "float32", 1),
        ((1, 128, 1024), "float64", 1),
    ):
        watch = Stopwatch()
        for seed in range(rounds):
            status_line(f"{dtype} {shape}: {seed + 1} of {rounds}")
            one = contest(shape, dtype=np.dtype(dtype), threads=1, seed=seed, backend="reference")
            contestants = {
                f"{direction} {name}": call
                for direction, floor in FLOORS.items()
                for name, call in one.of(direction).items()
                if name != floor
            }
            watch.go_round(contestants, calls)
        records = []
        for name in watch.seconds:
            textbook = f"{name.split()[0]} {TEXTBOOK}"
            records.append(
                {
                    "": name,
                    "p50 ms": watch.p50(name) * 1e3,
                    "mean ms": watch.mean(name) * 1e3,
                    "p99 ms": watch.p99(name) * 1e3,
                    "ns/element": watch.p50(name) / math.prod(shape) * 1e9,
                    "x textbook": watch.ratio(name, textbook),
                    "of means": watch.mean(name) / watch.mean(textbook),
                }
            )
        tables[f"{dtype} {label(shape)}"] = records
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


PAGE = DOCS / "learn" / "time-and-memory.md"
MODEL_SHAPES = ((4096, 4096), (8, 1024, 4096))
"""x of 67 and 134 MB in float32: larger than any cache."""
GOAL = 1.5
"""The ratio, either way, that fast mode of the native backend should stay within."""
ONE, ALL = "copy, one thread", "copy, all threads"
FORMS: dict[str, tuple[str, str, Form, Keep]] = {
    "native, fast": ("native", "truenorm fast", "fused", "x"),
    "native, correct": ("native", "truenorm correct", "fused", "x"),
    "reference, fast": ("reference", "truenorm fast", "blocked", "x"),
    "textbook": ("reference", TEXTBOOK, "textbook", "xhat"),
    "textbook in float64, then cast": ("reference", WIDENED, "textbook", "xhat"),
}
"""Contestants of the cost model: a backend, a call of it, and the form of the model.

NumPy, and the copy with which it is compared, have one thread.
"""


def bytes_moved(name: str, shape: tuple[int, ...], direction: str) -> int:
    """Return the bytes of the model; each of two casts a pass reads one type, writes one."""
    _, call, form, keep = FORMS[name]
    dtype = "float64" if call == WIDENED else "float32"
    moved = layer_norm_cost(shape, dtype, form, keep).passes[direction].bytes_moved
    return moved + (2 * (4 + 8) * math.prod(shape) if call == WIDENED else 0)


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
    fill_page(PAGE, {"model": model_table(report)})
    return {"model": lines, "others": [{"": "cores taken by other programs", "cores": taken}]}


def model_table(report: dict[str, Any]) -> str:
    """Return the machine and the lines of the largest shape, as the page shows them."""
    facts = report["machine"]
    head = ["form and pass", "MB moved", "predicted ms", "measured ms", "ratio"]
    rows = [
        [
            f"{line['contestant']}, {line['direction']}",
            f"{line['megabytes_moved']:,.0f}",
            *(f"{line[key]:.1f}" for key in ("predicted_ms", "measured_ms", "ratio")),
        ]
        for line in report["lines"]
        if tuple(line["shape"]) == MODEL_SHAPES[-1]
    ]
    place = f"{MODEL_SHAPES[-1]}, float32, {facts['cpu']}, {facts['threads']} threads"
    return f"{place}, NumPy {facts['numpy']}, {facts['date']}:\n\n{markdown_table(head, rows)}"


def model_lines(shape: tuple[int, ...], rounds: int) -> Iterator[Record]:
    """Yield a record for each contestant and direction."""
    contests = {name: contest(shape, backend=name) for name in ("native", "reference")}
    core, pool = contests["native"], ThreadPoolExecutor(usable_cores())
    parts = [np.array_split(each.reshape(-1), usable_cores()) for each in (core.out, core.x)]
    calls: dict[str, Call] = {
        ONE: partial(np.copyto, core.out, core.x),
        ALL: lambda: list(pool.map(np.copyto, *parts)),
    }
    for direction in DIRECTIONS:
        by_backend = {name: each.of(direction) for name, each in contests.items()}
        for name, (backend, call, *_) in FORMS.items():
            calls[f"{name} {direction}"] = by_backend[backend][call]
    for each in calls.values():
        each()  # warm up
    watch, shuffle = Stopwatch(), random.Random(0)
    for turn in range(rounds):
        status_line(f"{shape}: {turn + 1} of {rounds}")
        # A new order each round: the cache is not always left by the same predecessor.
        watch.go_round(dict(shuffle.sample(list(calls.items()), len(calls))))
    for name, (backend, *_) in FORMS.items():
        bandwidth = 2 * core.x.nbytes / watch.p50(ALL if backend == "native" else ONE)
        for direction in DIRECTIONS:
            moved = bytes_moved(name, shape, direction)
            seconds = watch.p50(f"{name} {direction}")
            ratio = seconds / (moved / bandwidth)
            yield {
                "shape": shape,
                "contestant": name,
                "direction": direction,
                "megabytes_moved": moved / 1e6,
                "predicted_ms": moved / bandwidth * 1e3,
                "measured_ms": seconds * 1e3,
                "ratio": ratio,
                "within_goal": 1 / GOAL <= ratio <= GOAL if name == "native, fast" else None,
            }


SECTIONS: dict[str, Callable[[int], dict[str, Any]]] = {
    each.__name__: each for each in (reference, native, partials, model)
}


def cell(value: Any) -> str:
    """Return a value as text."""
    if isinstance(value, float):
        return three_digits(value)
    return "" if value is None else str(value)


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = options("times", "Time truenorm beside other forms of the same work.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--rounds", type=int, default=15, help="turns of each contestant")
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.sections if name not in SECTIONS]:
        parser.error(f"unknown section {unknown[0]!r}: choose from {', '.join(SECTIONS)}")
    print(heading(machine(usable_cores())))
    # The section "reference" limits all later calls to one thread, so it is the last one.
    for name in sorted(arguments.sections or SECTIONS, key=lambda name: name == "reference"):
        for title, records in SECTIONS[name](arguments.rounds).items():
            status_line()
            rows = [list(map(cell, each.values())) for each in records]
            print(f"\n{name}: {title}\n\n{markdown_table(list(records[0]), rows)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
