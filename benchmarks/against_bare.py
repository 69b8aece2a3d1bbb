"""The kernels beside the bare machine: what is timed, and what a line of the table says."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.bare import Bare
from truenorm.bench import NORMS
from truenorm.tools.machine import Stopwatch
from truenorm.tools.progress import status_line

__all__ = ["MEGABYTES", "Line", "Setting", "measure", "settings"]

TURNS = 3  # of each contestant for each seed
MEGABYTES = 64
WIDTHS, WIDTH_OF_TYPES = (1024, 4096, 8192), 4096
SMALL = ((1, 1, 1024), (2, 128, 1024), (4, 512, 1024))
LONG = ((1, 8, 262144), (1, 1, 4194304))
# What forward and backward are held against, and how many arrays of the size of x each moves.
BARE = {"forward": "copy", "backward": "triad"}
ARRAYS = {"copy": 2, "forward": 2, "triad": 3, "backward": 3}
PASSES = ("fast forward", "fast backward", "correct forward", "correct backward")
# At most so many times the bare machine: for arrays that no cache holds, by type, and for few long
# rows of float32.
GOALS: dict[str, tuple[float | None, ...]] = {
    "float32": (1.4, 1.7, 1.9, 3.0),
    "float64": (1.4, 1.7, None, None),
    "float16": (2.0, 2.5, None, None),
    "bfloat16": (2.0, 2.5, None, None),
}
GOALS_OF_LONG = (2.0, 2.5, 3.0, 5.0)
BEFORE = {"layer_norm": "", "rms_norm": "RMSNorm, "}  # the names of passes, whose goals are shared
# A shorter call is repeated until about so many elements have passed, for the clock's sake.
ELEMENTS_PER_TIME, MOST_CALLS = 2**20, 256


@dataclass(frozen=True)
class Setting:
    """One table: a section, a type and a shape."""

    section: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of elements of x."""
        return int(np.prod(self.shape))

    @property
    def goals(self) -> dict[str, float | None]:
        """What is to be reached here, by pass; nothing where arrays are small."""
        if self.section == "long":
            return dict(zip(PASSES, GOALS_OF_LONG, strict=True))
        size = self.elements * type_named(self.dtype).itemsize
        if self.section == "small" or size < MEGABYTES * 2**20:
            return {}
        return dict(zip(PASSES, GOALS[self.dtype], strict=True))


@dataclass(frozen=True)
class Line:
    """One line of a table. Ratios are to the copy (forward) or the triad (backward)."""

    section: str
    dtype: str
    shape: tuple[int, ...]
    contestant: str
    p50_ms: float
    mean_ms: float
    p99_ms: float
    gigabytes_per_second: float
    bare: str | None
    ratio_of_medians: float | None
    ratio_of_means: float | None
    goal: float | None
    missed: bool | None


class Arrays:
    """The arrays of one setting: allocated once, filled anew for each seed."""

    def __init__(self, setting: Setting) -> None:
        dtype = type_named(setting.dtype)
        self.x, self.dy, self.out = (np.zeros(setting.shape, dtype) for _ in range(3))
        self.gamma, self.beta = (np.zeros(setting.shape[-1], dtype) for _ in range(2))

    def fill(self, seed: int) -> None:
        """Draw normal data."""
        random = np.random.default_rng(seed)
        for array in (self.x, self.dy, self.gamma, self.beta):
            if array.itemsize == 2:
                array[...] = random.standard_normal(array.shape, np.float32)
            else:
                random.standard_normal(dtype=array.dtype, out=array)

    def contestants(self, bare: Bare, threads: int) -> dict[str, Callable[[], object]]:
        """Return all of them over these arrays; they write to one array, so to the same pages."""
        found = bare.contestants(self.x, self.dy, self.out)
        where: dict[str, Any] = {"out": self.out, "threads": threads}
        arrays = (self.x, self.gamma, self.beta)
        for name, norm in NORMS.items():
            before, given = BEFORE[name], arrays[: 1 + norm.parameters]
            for mode in ("fast", "correct"):
                forward = partial(norm.forward, *given, rounding=mode, **where)
                saved = forward()[1]
                found[f"{before}{mode} forward"] = forward
                found[f"{before}{mode} backward"] = partial(norm.backward, self.dy, saved, **where)
        return found


def type_named(name: str) -> np.dtype[Any]:
    """Return a type of NumPy, or bfloat16."""
    return np.dtype(import_module("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def settings(sections: list[str], megabytes: float) -> Iterator[Setting]:
    """Yield what is to be timed."""

    def of_size(section: str, dtype: str, width: int) -> Setting:
        rows = int(megabytes * 2**20 / type_named(dtype).itemsize / width)
        return Setting(section, dtype, (max(1, rows), width))

    if "large" in sections:
        yield from (of_size("large", "float32", width) for width in WIDTHS)
    if "types" in sections:
        for dtype in ("float16", "bfloat16", "float64"):
            yield of_size("types", dtype, WIDTH_OF_TYPES)
    if "small" in sections:
        yield from (Setting("small", "float32", shape) for shape in SMALL)
    if "long" in sections:
        yield from (Setting("long", "float32", shape) for shape in LONG)


def measure(setting: Setting, bare: Bare, threads: int, seeds: int) -> list[Line]:
    """Let the contestants take turns, on new data for each seed."""
    arrays, watch = Arrays(setting), Stopwatch()
    calls = min(MOST_CALLS, max(1, ELEMENTS_PER_TIME // setting.elements))
    for seed in range(seeds):
        status_line(f"{setting.dtype} {setting.shape}: {seed + 1} of {seeds}")
        arrays.fill(seed)
        contestants: dict[str, Callable[[], object]] = arrays.contestants(bare, threads)
        for contestant in contestants.values():
            contestant()  # warm up
        for _ in range(TURNS):
            watch.go_round(contestants, calls)
    status_line()
    return [line_of(setting, watch, name) for name in watch.seconds]


def line_of(setting: Setting, watch: Stopwatch, name: str) -> Line:
    """Put together what is known of one contestant."""
    kind = name.rpartition(" ")[2]
    bare = BARE.get(kind)
    moved = ARRAYS[kind] * setting.elements * type_named(setting.dtype).itemsize
    ratio = None if bare is None else watch.ratio(name, bare)
    of_means = None if bare is None else watch.mean(name) / watch.mean(bare)
    goal = setting.goals.get(name.removeprefix(BEFORE["rms_norm"]))
    return Line(
        setting.section,
        setting.dtype,
        setting.shape,
        name,
        watch.p50(name) * 1e3,
        watch.mean(name) * 1e3,
        watch.p99(name) * 1e3,
        moved / watch.p50(name) / 1e9,
        bare,
        ratio,
        of_means,
        goal,
        None
        if goal is None or ratio is None or of_means is None
        else not max(ratio, of_means) <= goal,
    )
