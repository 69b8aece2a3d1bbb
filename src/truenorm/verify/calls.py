"""Every kind of call, as data: the rows that are passed, and the passes that are made.

`KINDS` is the one table that every runner follows: in this process, in another process, a command,
kernels on tensors, recordings and scores.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from truenorm.verify.operation import Case, other_cases, padded, with_idle_rows
from truenorm.verify.types import Array

PLAIN, AGAIN, INTERLEAVED, ROWS = "plain", "again", "interleaved", "rows"
LATER, TWICE, REVERSED, MANY = "later", "twice", "reversed", "many"
TILED, LARGE, LARGE_FORWARD = "tiled", "large", "large forward"
PAUSED, AFTER_OTHERS, ALONE = "paused", "after others", "alone"
PAUSE_SECONDS = 0.1
"""How long a paused call waits for a thread of the subject that writes to its results."""
Passes = tuple[tuple[str, int], ...]
"""What is done in a call, with the inputs of the call, 0, or with the others of that number.

``keep`` reads the results of the passes before it. ``try`` is forward and backward, which may
fail. ``again`` is a second backward pass. ``pause`` waits.
"""
USUAL: Passes = (("forward", 0), ("keep", 0), ("backward", 0), ("keep", 0))
BOTH: Passes = (("forward", 0), ("backward", 0))


def no_others(_: Case) -> list[Case]:
    """Return no other inputs."""
    return []


def other_rows(case: Case) -> list[Case]:
    """Return other rows of the same shape, whose results have different bits."""
    indices = case.operation.indices
    rows = {
        name: (rows[::-1] * rows.dtype.type(1 if name in indices else -2)).copy()
        for name, rows in case.rows.items()
    }
    return [case.with_inputs(**rows)]


def equal_rows(case: Case) -> list[Case]:
    """Return the rows in other memory."""
    return [case.with_inputs(**{name: rows.copy() for name, rows in case.rows.items()})]


@dataclass(frozen=True)
class Kind:
    """How the calls of one kind are made.

    Attributes
    ----------
    passes : Passes
    others : callable
        Returns the other inputs of the passes. Inputs that are not replaced are shared with the
        call.
    part : callable, optional
        Returns which rows of the case are passed, given the call. Each has the same bits as in
        the plain call.
    padding : tuple of float
        The numbers of constant rows below the rows of the case, which keep their bits.
    idle : str
        Where rows are added whose incoming gradients are zero: ``below`` or ``among`` the others.
    gradient_layout : str
        The layout of the incoming gradients, if it is not the layout of x.
    repeats_rows : bool
        Whether rows are repeated up to the stop of the call: see `truenorm.verify.running.tiled`.
    large : bool
        Whether memory may not suffice, which is no failure of the subject.
    until_different : bool
        Whether the passes are repeated until bits differ, or until there were enough of them.
    """

    passes: Passes = USUAL
    others: Callable[[Case], list[Case]] = no_others
    part: Callable[["Call"], slice] | None = None
    padding: tuple[float, ...] = ()
    idle: str = ""
    gradient_layout: str = ""
    repeats_rows: bool = False
    large: bool = False
    until_different: bool = False

    @property
    def has_backward(self) -> bool:
        """True if there is a backward pass."""
        return ("backward", 0) in self.passes

    @property
    def pairs(self) -> float:
        """The number of forward and backward passes, in pairs."""
        names = [name for name, _ in self.passes]
        return names.count("try") + sum(map(names.count, ("forward", "backward", "again"))) / 2


KINDS: Mapping[str, Kind] = {
    PLAIN: Kind(),
    AGAIN: Kind(),
    ALONE: Kind(),  # the first call of a new process
    INTERLEAVED: Kind(
        (("forward", 0), ("keep", 0), ("forward", 1), ("backward", 0), ("keep", 0)), other_rows
    ),
    LATER: Kind((*BOTH, ("forward", 1), ("backward", 1), ("keep", 0), ("keep", 1)), other_rows),
    PAUSED: Kind((*BOTH, ("pause", 0), ("keep", 0))),
    TWICE: Kind((*USUAL[:3], ("again", 1), ("keep", 0)), equal_rows),
    AFTER_OTHERS: Kind((("try", 1), ("try", 2), *USUAL), other_cases),
    MANY: Kind((*BOTH, ("keep", 0)), until_different=True),
    ROWS: Kind(part=lambda call: slice(call.start, call.stop)),
    REVERSED: Kind(part=lambda _: slice(None, None, -1)),
    "zeros below": Kind(padding=(0.0,) * 5),
    "not finite below": Kind(padding=(math.nan, math.inf, -math.inf)),
    "idle below": Kind(idle="below"),
    "idle among": Kind(idle="among"),
    **{
        f"{layout} gradients": Kind(gradient_layout=layout)
        for layout in ("strided", "padded", "transposed", "read-only")
    },
    TILED: Kind(repeats_rows=True),
    LARGE: Kind(repeats_rows=True, large=True),
    LARGE_FORWARD: Kind(USUAL[:2], repeats_rows=True, large=True),
}
PADDING_ROWS = {name: kind.padding for name, kind in KINDS.items() if kind.padding}
IDLE_ROWS = {name: kind.idle == "among" for name, kind in KINDS.items() if kind.idle}
GRADIENT_LAYOUTS = {name: k.gradient_layout for name, k in KINDS.items() if k.gradient_layout}
SAME_ROWS = [name for name, kind in KINDS.items() if kind.part or kind.padding]
"""Calls with rows of the case, each of which must have the same bits as in the plain call."""

BATCH_SIZES = {
    "batch": (1, 7, 128, 255, 256, 257),
    "batch-sizes": (300, *(2**k + more for k in (9, 10, 11, 12) for more in (-1, 0, 1))),
}
"""Numbers of rows, by family. Kernels choose block sizes by the number of rows, often at powers
of two, so each power is tried with one row less and one row more."""
TILED_SIZES = {
    "served": (1, 2, 7, 8, 9, 255, 256, 257, 512),
    "row-counts": (8191, 8192, 8193, 2**14, 2**15, 2**16),
}
"""Numbers of rows, by family: each of the rows must have the same bits as in the plain call."""
MANY_CALLS = 3000
"""How often the family `repeated` is called: so a race in one of 500 calls shows."""
MANY_SECONDS, MOST_SECONDS, FEW_CALLS = 0.2, 1.5, 1000
"""Processor time after which no other of these calls is made; the longer one until there were
`FEW_CALLS`."""
FEW_ELEMENTS = 2**9
"""Elements of x in a case that is also called after other cases."""
CHUNK = 128
RUNS = 8
"""Number of calls with many rows: sums in random order may have equal bits by chance."""


class Call(NamedTuple):
    """One way to call a subject with a case: a kind of `KINDS`, and its rows.

    ``rows`` passes only the rows from start to stop. ``many`` calls are at most `stop`. Calls that
    repeat rows have `stop` rows; the final records of large calls have the rows from start to
    stop.
    """

    kind: str = PLAIN
    start: int = 0
    stop: int = 0

    def __str__(self) -> str:
        """Return the kind, and the rows if the call has only some."""
        return f"{self.kind} {self.start}:{self.stop}" if self.stop else self.kind

    @property
    def how(self) -> Kind:
        """How the call is made."""
        return KINDS[self.kind]


def calls_of(case: Case) -> list[Call]:
    """Return the calls that a case is run with.

    Every case has a plain call, ordinary input a second one, and many rows `RUNS` calls. Small
    cases of an odd width, which kernels pad, also have a call after others. Families of
    `TILED_SIZES` also have calls with more rows, and the family `repeated` has many calls. The
    family `batch` also has batches, chunks, reversed rows, padding, and passes between or after
    its own two. Families of an extension have the calls that the extension is about. The calls of
    the family `large` are not among them: see `truenorm.verify.grading.large_calls`.
    """
    calls = [Call(PLAIN)]
    rows, family = case.shape[0], case.family
    if case.kind == "ordinary":
        calls += [Call(AGAIN)] * (RUNS - 1 if family in ("batch", "many-rows") else 1)
        if family == "normal" and case.shape[1] % 2 and math.prod(case.shape) <= FEW_ELEMENTS:
            calls.append(Call(AFTER_OTHERS))
    calls += [Call(ROWS, 0, size) for size in BATCH_SIZES.get(family, ()) if size < rows]
    calls += [Call(TILED, 0, size) for size in TILED_SIZES.get(family, ())]
    if family == "repeated":
        calls.append(Call(MANY, 0, MANY_CALLS))
    if family == "batch" and case.kind == "ordinary":  # once for each type: it takes its time
        calls.append(Call(PAUSED))
    if family == "batch":
        calls += [Call(LATER), Call(INTERLEAVED), Call(TWICE), Call(REVERSED)]
        calls += [Call(ROWS, rows - 1, rows), Call(ROWS, 3, rows)]
        calls += [
            Call(ROWS, start, min(start + CHUNK, rows)) for start in range(CHUNK, rows, CHUNK)
        ]
        calls += map(Call, PADDING_ROWS)
    if family in ("batch", "idle-rows") and case.operation.outputs_of(backward=True):
        calls += map(Call, IDLE_ROWS)
    if family == "layouts-of-gradients":
        calls += map(Call, GRADIENT_LAYOUTS)
    return calls


def case_of_call(case: Case, call: Call) -> Case:
    """Return the case with the rows and the layout of a call."""
    how = call.how
    if how.part is not None:
        return case.part(how.part(call))
    if how.padding:
        return padded(case, how.padding)
    if how.idle:
        return with_idle_rows(case, among=how.idle == "among")
    if how.gradient_layout:
        return replace(case, gradient_layout=how.gradient_layout)
    if how.repeats_rows:
        return case.tiled(-(-call.stop // case.shape[0])).part(slice(call.stop))
    return case


def own_inputs(case: Case, other: Case) -> dict[str, Array | None]:
    """Return the inputs of another case that are not shared with a case."""
    return {name: array for name, array in other.inputs.items() if array is not case.inputs[name]}


def plan_of(call: Call) -> dict[str, Any]:
    """Return the passes of a call and their repetition, for the caller of `remote_runner`."""
    times = call.stop if call.how.until_different else 1
    return {
        "passes": call.how.passes,
        "times": [times, FEW_CALLS, MOST_SECONDS, MANY_SECONDS],
        "pause": PAUSE_SECONDS,
    }


def matching_rows(case: Case, call: Call) -> tuple[slice, slice]:
    """Return the rows of a case that one of `SAME_ROWS` has, and their rows in its results."""
    if call.how.part is not None:
        return call.how.part(call), slice(None)
    return slice(None), slice(case.shape[0])
