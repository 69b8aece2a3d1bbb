"""The run: every shape, forward and backward, contestants taking turns."""

import os
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from truenorm.bench.contestants import DIRECTIONS, TEXTBOOK, Contest
from truenorm.bench.machine import where
from truenorm.bench.report import Figure, Report, figures_of
from truenorm.bench.stopwatch import take_turns
from truenorm.ops.arguments import threads_of
from truenorm.threads import thread_count
from truenorm.tools.progress import Progress
from truenorm.verify.types import dtype_of

__all__ = ["DEFAULT_ROUNDS", "DEFAULT_SHAPES", "label", "measure", "shape_of"]

DEFAULT_SHAPES = (
    (1, 1, 64),
    (1, 1, 1024),
    (1, 1, 4096),
    (2, 128, 64),
    (2, 128, 1024),
    (2, 128, 4096),
    (4, 512, 1024),
    (4, 512, 4096),
)
DEFAULT_ROUNDS = 15
LARGEST = 2**27
"""Elements of x. The textbook in float64 holds some ten times as many bytes as float32 data."""


def shape_of(text: str) -> tuple[int, ...]:
    """Read a shape.

    Parameters
    ----------
    text : str
        Lengths with an x between them; the last one is D.

    Returns
    -------
    tuple of int

    Examples
    --------
    >>> from truenorm.bench import shape_of
    >>> shape_of("2x128x1024")
    (2, 128, 1024)
    """
    lengths = text.lower().split("x")
    if not all(length.isdecimal() and int(length) > 0 for length in lengths):
        raise ValueError(f"{text!r} is no shape: give whole numbers above 0, such as 2x128x1024")
    return tuple(map(int, lengths))


def label(shape: tuple[int, ...]) -> str:
    """Return a shape as `shape_of` reads it."""
    return "x".join(map(str, shape))


def measure(
    shapes: Sequence[tuple[int, ...]] = DEFAULT_SHAPES,
    *,
    dtype: str = "float32",
    threads: int | None = None,
    rounds: int = DEFAULT_ROUNDS,
    progress: Progress | None = None,
) -> Report:
    """Time truenorm, the textbook forms and a copy on normal data.

    Parameters
    ----------
    shapes : sequence of tuple of int
        Of x; the last axis is normalized.
    dtype : str
        float16, bfloat16, float32 or float64.
    threads : int, optional
        The most threads truenorm may use. The other contestants are NumPy on one.
    rounds : int
        Turns of each contestant.
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
    _check(shapes, threads, rounds)
    machine = where()
    steps = _Steps(len(shapes) * len(DIRECTIONS) * rounds, progress)
    figures: list[Figure] = []
    for shape in shapes:
        contest = Contest(shape, kind, threads)
        for direction in DIRECTIONS:
            steps.name = f"{label(shape)} {direction}"
            steps.show()
            timings = take_turns(contest.of(direction), rounds, steps.advance)
            figures += figures_of(shape, kind.itemsize, direction, timings)
    backend = contest.saved["correct"].settings.backend
    used = thread_count(threads_of(threads)) if backend == "fused" else 1
    return Report(machine, backend, used, dtype, rounds, tuple(figures), _notes(kind))


def _check(shapes: Sequence[tuple[int, ...]], threads: int | None, rounds: int) -> None:
    """Refuse what cannot be measured, or would not be what it is called."""
    if not shapes:
        raise ValueError("there is no shape to measure")
    for shape in shapes:
        if prod(shape) > LARGEST:
            raise ValueError(
                f"{label(shape)} has {prod(shape):,} elements, which may need more memory than "
                f"there is: give shapes of at most {LARGEST:,}"
            )
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}: at least one is needed")
    if os.environ.get("TRUENORM_ROUNDING"):
        raise ValueError(
            "TRUENORM_ROUNDING is set, so that both modes would be the same: unset it"
        )
    if threads is not None and threads_of(threads) != threads:
        raise ValueError("TRUENORM_THREADS is set and overrides the number of threads: unset it")


class _Steps:
    """Counts rounds, and passes them on."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done, self.total, self.name = 0, total, ""
        self._progress = progress

    def show(self) -> None:
        if self._progress is not None:
            self._progress(self.done, self.total, self.name)

    def advance(self) -> None:
        self.done += 1
        self.show()


def _notes(kind: np.dtype[Any]) -> tuple[str, ...]:
    """Return what a reader would otherwise take for something else."""
    if kind == np.float64:
        return (
            f"The {TEXTBOOK} in float64, then cast, is the {TEXTBOOK} itself for this type.",
            "For this type truenorm's fast mode does what its correct mode does.",
        )
    if kind.name == "bfloat16":
        return (f"The {TEXTBOOK} computes in float32: NumPy widens bfloat16 when it adds eps.",)
    return ()
