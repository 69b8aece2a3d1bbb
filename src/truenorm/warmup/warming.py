"""The run: both passes of each norm and type in both modes."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, get_args

import numpy as np

from truenorm.dispatch import backend_named
from truenorm.kernels.call import Rounding
from truenorm.ops.arguments import rounding_of
from truenorm.ops.environment import variables
from truenorm.tools.progress import Progress, announced
from truenorm.verify.types import FORMATS, dtype_of
from truenorm.warmup.report import Report

__all__ = ["warm_up"]

DIRECTIONS = ("forward", "backward")


def warm_up(
    dtypes: Sequence[str] = (),
    *,
    operation: str | Sequence[str] = "layer_norm",
    progress: Progress | None = None,
) -> Report:
    """Compile all that calls of these types can need, or load it if it is kept from before.

    Parameters
    ----------
    dtypes : sequence of str
        Of float16, bfloat16, float32 and float64; without any, all that can be used here.
    operation : str or sequence of str
        layer_norm, rms_norm or both: what they share is compiled once.
    progress : callable, optional
        Called with the number of steps done, the number of all, and what comes next.

    Returns
    -------
    Report
        ``report.steps``, one for each operation, type, mode and pass, and ``report.folder``.

    Raises
    ------
    ValueError
        If it would be in vain: without Numba, for instance.

    Examples
    --------
    >>> from truenorm.warmup import warm_up
    >>> [step.direction for step in warm_up(["float64"]).steps]
    ['forward', 'backward', 'forward', 'backward']
    """
    _check_that_it_compiles()
    usable, notes = _usable()
    kinds = {name: dtype_of(name) for name in dtypes} or usable
    # A variable may have made one of the two.
    chosen = variables().rounding
    modes = (rounding_of(chosen),) if chosen else get_args(Rounding)
    from truenorm.warmup.passes import Passes, report_of

    operations = (operation,) if isinstance(operation, str) else operation
    passes = {norm: Passes(norm, list(usable.values())) for norm in operations}
    jobs = list(product(passes, kinds, modes, DIRECTIONS))
    first = len(passes) < 2  # of the names that tell them apart
    with _without_collecting():
        steps = [
            passes[norm].timed(kinds[name], mode, direction)
            for norm, name, mode, direction in announced(
                jobs, progress, lambda job: ", ".join(job[first:])
            )
        ]
    return report_of(tuple(steps), () if dtypes else notes)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Keep Python from looking for garbage, a tenth of compiling: Numba leaves little."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _check_that_it_compiles() -> None:
    """Refuse to run where nothing would be compiled."""
    chosen = backend_named(variables().backend or "fused")
    if chosen.name != "fused":
        raise ValueError(f"TRUENORM_BACKEND is {chosen.name}, which compiles nothing: unset it")
    import numba

    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        raise ValueError("NUMBA_DISABLE_JIT is set, so that nothing is compiled: unset it")


def _usable() -> tuple[dict[str, np.dtype[Any]], tuple[str, ...]]:
    """Return the types that can be used here, by name, and why another cannot."""
    found: dict[str, np.dtype[Any]] = {}
    notes: list[str] = []
    for name in FORMATS:
        try:
            found[name] = dtype_of(name)
        except ValueError as missing:
            notes.append(f"{name} is left out: {missing}")
    return found, tuple(notes)
