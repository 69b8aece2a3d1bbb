"""Put a case to a subject and note what comes back; whatever it does, grading comes later."""

import time
import warnings
from typing import Any, Protocol

import numpy as np

from truenorm.verify.inputs import Case
from truenorm.verify.record import AGAIN, INTERLEAVED, PLAIN, ROWS, Call, Record
from truenorm.verify.subject import Subject
from truenorm.verify.types import NUMBERS, Array

__all__ = ["GaveUpError", "InProcess", "Runner", "calls_of", "execute"]

MESSAGE = 2000  # characters that are kept of an exception
BATCH_SIZES = (1, 7, 128, 255, 256, 257)
"""A kernel may choose its block size by the number of rows; powers of two are where."""


class GaveUpError(Exception):
    """The subject has crashed or hung too often for the rest to be worth the time."""


class Runner(Protocol):
    """Whatever can put a case to a subject."""

    def run(self, case: Case, call: Call) -> Record:
        """Return what came back."""


def calls_of(case: Case) -> list[Call]:
    """Return the ways in which a case is put to a subject.

    Everything is called once, ordinary input twice; the family `batch` is also cut into batches,
    and has another forward pass between its own two.
    """
    calls = [Call(PLAIN)]
    if case.kind == "ordinary":
        calls.append(Call(AGAIN))
    if case.family == "batch":
        rows = len(case.x)
        calls.append(Call(INTERLEAVED))
        calls += [Call(ROWS, 0, size) for size in BATCH_SIZES if size < rows]
        calls += [Call(ROWS, rows - 1, rows), Call(ROWS, 3, rows)]
    return calls


class InProcess:
    """Runs Python functions where they are: a crash of theirs is a crash of ours."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def run(self, case: Case, call: Call) -> Record:
        """Call the subject."""
        return execute(self.subject, case, call)


class _Inputs:
    """Copies of a case's arrays, which a subject may damage, and the means to see that."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.arrays: dict[str, Array | None] = self._fresh()

    def _fresh(self) -> dict[str, Array | None]:
        case = self._case
        return {
            "x": case.laid_out(case.x.copy()),
            "gamma": None if case.gamma is None else case.gamma.copy(),
            "beta": None if case.beta is None else case.beta.copy(),
            "dy": case.laid_out(case.dy.copy()),
        }

    def damaged(self) -> tuple[str, ...]:
        """Return the names of those whose bits have changed."""
        pairs = zip(self.arrays.items(), self._fresh().values(), strict=True)
        return tuple(
            name
            for (name, now), before in pairs
            if now is not None and before is not None and now.tobytes() != before.tobytes()
        )


def execute(subject: Subject, case: Case, call: Call) -> Record:
    """Call the functions of a subject; an exception becomes a failure of the record."""
    given = case.part(slice(call.start, call.stop)) if call.kind == ROWS else case
    inputs = _Inputs(given)
    results: dict[str, Array | None] = {}
    failure = ""
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            _passes(subject, given, inputs.arrays, call, results)
    except Exception as raised:  # whatever it is, it is the subject's
        failure = f"raised {type(raised).__name__}: {_said(raised)}"
    seconds = time.perf_counter() - start
    return Record(case.name, call, results, inputs.damaged(), failure, seconds)


def _passes(
    subject: Subject,
    case: Case,
    arrays: dict[str, Array | None],
    call: Call,
    results: dict[str, Array | None],
) -> None:
    """Do one forward and one backward pass, and fill in the results as they come."""
    if subject.forward is None:
        raise TypeError("a command is not run in this process")
    x, gamma, beta, dy = (arrays[name] for name in ("x", "gamma", "beta", "dy"))
    returned = subject.forward(x, gamma, beta, case.eps)
    if subject.backward is None:
        results["y"] = _kept(returned)
        return
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise TypeError(f"forward returned {type(returned).__name__}, not the pair (y, saved)")
    results["y"] = _kept(returned[0])
    if call.kind == INTERLEAVED:
        other = case.laid_out((case.x[::-1] * case.x.dtype.type(-2)).copy())
        subject.forward(other, gamma, beta, case.eps)
    gradients = tuple(subject.backward(dy, returned[1]))
    if len(gradients) != 3:
        raise TypeError(f"backward returned {len(gradients)} results, not dx, dgamma and dbeta")
    results |= dict(zip(("dx", "dgamma", "dbeta"), map(_kept, gradients), strict=True))


def _said(raised: Exception) -> str:
    """Return what an exception says, which may be a dump of megabytes, or fail itself."""
    try:
        return str(raised)[:MESSAGE]
    except Exception:
        return "(it cannot be printed)"


def _kept(result: Any) -> Array | None:
    """Return a copy, which a later call cannot overwrite, in the byte order of this machine."""
    if result is None:
        return None
    copy: Array = np.array(result)
    if copy.dtype.name not in NUMBERS:
        raise TypeError(f"the result is an array of {copy.dtype.name}, which are no numbers")
    return copy.astype(copy.dtype.newbyteorder("="), copy=False)
