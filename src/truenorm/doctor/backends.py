"""Which backends there are, which one is taken, on how many threads, and why."""

import os

from truenorm import dispatch
from truenorm.doctor.report import Line, Section
from truenorm.ops.arguments import rounding_of, threads_of
from truenorm.threads import thread_count

__all__ = ["backends", "usable_backends"]


def usable_backends() -> list[str]:
    """Return the names of the backends that can be used here."""
    return [status.name for status in dispatch.backends() if status.usable]


def backends() -> Section:
    """Return all backends, and what a call without arguments gets."""
    found = [
        Line(status.name, ("usable: " if status.usable else "not usable: ") + status.reason)
        for status in dispatch.backends()
    ]
    return Section("Backends", (*found, _taken(), _threads(), _rounding()))


def _taken() -> Line:
    wanted, usable = os.environ.get("TRUENORM_BACKEND"), usable_backends()
    if not wanted:
        return Line("taken", f"{usable[0]}, the first that is usable")
    remedy = ""
    if wanted not in usable:
        remedy = f"unset TRUENORM_BACKEND, or set it to {' or '.join(usable)}"
    return Line("taken", f"{wanted}, by TRUENORM_BACKEND", remedy)


def _threads() -> Line:
    asked = os.environ.get("TRUENORM_THREADS")
    try:
        count = thread_count(threads_of(None))
    except ValueError:
        remedy = "unset TRUENORM_THREADS, or set it to a whole number of at least 1"
        return Line("threads", f"TRUENORM_THREADS is {asked!r}", remedy)
    omp = os.environ.get("OMP_NUM_THREADS", "").strip()
    why = "one for each core that this process may use"
    if asked:
        why = "by TRUENORM_THREADS"
    elif omp and omp.partition(",")[0].strip() == str(count):
        why = "by OMP_NUM_THREADS"
    return Line("threads", f"{count}, {why}; of {os.cpu_count()} cores")


def _rounding() -> Line:
    given = os.environ.get("TRUENORM_ROUNDING")
    if not given:
        return Line("rounding", "correct, unless a call asks for fast")
    try:
        return Line("rounding", f"{rounding_of('correct')} in every call, by TRUENORM_ROUNDING")
    except ValueError:
        remedy = "unset TRUENORM_ROUNDING, or set it to correct or fast"
        return Line("rounding", f"TRUENORM_ROUNDING is {given!r}", remedy)
