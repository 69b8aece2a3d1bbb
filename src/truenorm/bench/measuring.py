"""The run: every shape, forward and backward, contestants taking turns."""

import math
import os
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from truenorm.bench.contestants import DIRECTIONS, NORMS, TEXTBOOK, Contest
from truenorm.bench.report import Figure, Report, Timing, figures_of, label
from truenorm.ops.arguments import threads_of
from truenorm.ops.environment import variables
from truenorm.threads import thread_count
from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress, announced
from truenorm.tools.stopwatch import Contestants, Stopwatch, seconds_of
from truenorm.verify.types import dtype_of

__all__ = ["DEFAULT_ROUNDS", "DEFAULT_SHAPES", "measure", "shape_of", "take_turns"]

DEFAULT_SHAPES = (
    *((1, 1, 64), (1, 1, 1024), (1, 1, 4096)),
    *((2, 128, 64), (2, 128, 1024), (2, 128, 4096)),
    *((4, 512, 1024), (4, 512, 4096)),
)
DEFAULT_ROUNDS = 15
LARGEST = 2**27
"""Elements of x. The textbook in float64 holds some ten times as many bytes as float32 data."""
TURN = 0.005
"""Seconds that a turn lasts at least: the clock and the scheduler are coarser than short calls."""
MOST_CALLS = 1000
MACHINE = ("date", "cpu", "cores", "load", "system", "python", "numpy", "truenorm")


def shape_of(text: str) -> tuple[int, ...]:
    """Read a shape: lengths with an x between them, of which the last one is D.

    Examples
    --------
    >>> shape_of("2x128x1024")
    (2, 128, 1024)
    """
    lengths = text.lower().split("x")
    if not all(length.isdecimal() and int(length) > 0 for length in lengths):
        raise ValueError(f"{text!r} is no shape: give whole numbers above 0, such as 2x128x1024")
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
        Of x, at least one; the last axis is normalized.
    operation : str
        layer_norm or rms_norm.
    dtype : str
        float16, bfloat16, float32 or float64.
    threads : int, optional
        The most threads truenorm may use. The other contestants are NumPy on one.
    rounds : int
        Turns of each contestant, at least one.
    progress : callable, optional
        Called with the number of rounds done, the number of all, and the shape.

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
    turns = announced([name for name in names for _ in range(rounds)], progress, str)
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
    """Time every contestant once a turn; of short calls, as many in a row as fill `TURN`."""
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
    """Refuse what cannot be measured, or would not be what it is called."""
    for shape in shapes:
        if math.prod(shape) > LARGEST:
            raise ValueError(
                f"{label(shape)} has {math.prod(shape):,} elements, which may need more memory "
                f"than there is: give shapes of at most {LARGEST:,}"
            )
    if os.environ.get("TRUENORM_ROUNDING"):
        raise ValueError(
            "TRUENORM_ROUNDING is set, so that both modes would be the same: unset it"
        )
    if threads is not None and threads_of(threads, variables().threads) != threads:
        raise ValueError("TRUENORM_THREADS is set and overrides the number of threads: unset it")


def _notes(kind: np.dtype[Any]) -> tuple[str, ...]:
    """Return what a reader would otherwise take for something else."""
    if kind == np.float64:
        return (f"The {TEXTBOOK} in float64, then cast, is the {TEXTBOOK} itself for this type.",)
    if kind.name == "bfloat16":
        return (f"The {TEXTBOOK} computes in float32: NumPy widens bfloat16 when it adds eps.",)
    return ()
