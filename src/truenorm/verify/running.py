"""Put a case to a subject and note what comes back; whatever it does, grading comes later."""

import time
import warnings
from typing import Any, Protocol

import numpy as np

from truenorm.verify.inputs import Case
from truenorm.verify.record import (
    AGAIN,
    INTERLEAVED,
    LARGE,
    LATER,
    PLAIN,
    ROWS,
    TWICE,
    Call,
    Record,
)
from truenorm.verify.subject import Subject
from truenorm.verify.types import NUMBERS, Array

__all__ = ["GaveUpError", "InProcess", "Runner", "calls_of", "execute", "given"]

MESSAGE = 2000  # characters that are kept of an exception
BATCH_SIZES = (1, 7, 128, 255, 256, 257)
"""A kernel may choose its block size by the number of rows; powers of two are where."""


class GaveUpError(Exception):
    """The subject has crashed or hung too often for the rest to be worth the time."""


class RefusedError(Exception):
    """Backward does not let itself be called a second time, and says so."""


class Runner(Protocol):
    """Whatever can put a case to a subject."""

    @property
    def seconds(self) -> float:
        """How long one call may take."""

    def run(self, case: Case, call: Call) -> Record:
        """Return what came back."""


def calls_of(case: Case) -> list[Call]:
    """Return the ways in which a case is put to a subject.

    Everything is called once, ordinary input twice; the family `batch` is also cut into batches,
    and has other passes between its own two, or after them. The call of the family `large` that
    gave it its name is not among them: `truenorm.verify.large` makes it.
    """
    calls = [Call(PLAIN)]
    if case.kind == "ordinary":
        calls.append(Call(AGAIN))
    if case.family == "batch":
        rows = len(case.x)
        calls += [Call(LATER), Call(INTERLEAVED), Call(TWICE)]
        calls += [Call(ROWS, 0, size) for size in BATCH_SIZES if size < rows]
        calls += [Call(ROWS, rows - 1, rows), Call(ROWS, 3, rows)]
    return calls


def given(case: Case, call: Call) -> Case:
    """Return the case with the rows that a call has."""
    if call.kind == ROWS:
        return case.part(slice(call.start, call.stop))
    return case.tiled(call.stop // len(case.x)) if call.kind == LARGE else case


class InProcess:
    """Runs Python functions where they are: a crash of theirs is a crash of ours."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.seconds = subject.seconds

    def run(self, case: Case, call: Call) -> Record:
        """Call the subject."""
        return execute(self.subject, case, call)


class _Inputs:
    """Copies of a case's arrays, which a subject may damage, and the means to see that."""

    def __init__(self, case: Case) -> None:
        self._given = {
            "x": case.laid_out(case.x),
            "gamma": case.gamma,
            "beta": case.beta,
            "dy": case.laid_out(case.dy),
        }
        self.arrays: dict[str, Array | None] = {
            "x": case.laid_out(case.x.copy()),
            "gamma": None if case.gamma is None else case.gamma.copy(),
            "beta": None if case.beta is None else case.beta.copy(),
            "dy": case.laid_out(case.dy.copy()),
        }

    def damaged(self) -> tuple[str, ...]:
        """Return the names of those whose bits have changed."""
        return tuple(
            name
            for name, before in self._given.items()
            if (now := self.arrays[name]) is not None
            and before is not None
            and now.tobytes() != before.tobytes()
        )


def execute(subject: Subject, case: Case, call: Call) -> Record:
    """Call the functions of a subject; an exception becomes a failure of the record."""
    try:
        return _executed(subject, case, call)
    except MemoryError as lack:
        if call.kind != LARGE:
            raise
        rows = f"{call.stop:,} rows of {case.x.shape[1]}"
        reason = f"there was not enough memory for {rows}: {_said(lack)}"
        return Record(case.name, call, left_out=reason)


def _executed(subject: Subject, case: Case, call: Call) -> Record:
    asked = given(case, call)
    inputs = _Inputs(asked)
    results: dict[str, Array | None] = {}
    failure = left_out = ""
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            _passes(subject, asked, inputs.arrays, call, results)
    except RefusedError as refused:
        left_out = str(refused)
    except Exception as raised:  # whatever it is, it is the subject's
        if call.kind == LARGE and isinstance(raised, MemoryError):
            raise  # or the machine's
        failure = f"raised {type(raised).__name__}: {_said(raised)}"
    seconds = time.perf_counter() - start
    return Record(case.name, call, results, inputs.damaged(), failure, seconds, left_out)


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
    y, saved = _pair(subject, subject.forward(x, gamma, beta, case.eps))
    if call.kind != LATER:
        results["y"] = _kept(y)
    if call.kind == INTERLEAVED:
        subject.forward(_another(case, case.x), gamma, beta, case.eps)
    gradients = _gradients(subject, dy, saved)
    if call.kind == TWICE and gradients:
        gradients = _second_gradients(subject, case.laid_out(case.dy.copy()), saved)
    if call.kind == LATER:
        other = subject.forward(_another(case, case.x), gamma, beta, case.eps)
        _gradients(subject, _another(case, case.dy), _pair(subject, other)[1])
        results["y"] = _kept(y)
    results |= {name: _kept(gradient) for name, gradient in gradients.items()}


def _another(case: Case, rows: Array) -> Array:
    """Return other values of the same shape: no result of theirs has the same bits."""
    return case.laid_out((rows[::-1] * rows.dtype.type(-2)).copy())


def _pair(subject: Subject, returned: Any) -> tuple[Any, Any]:
    """Return y, and what forward saved if there is a backward pass."""
    if subject.backward is None:
        return returned, None
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise TypeError(f"forward returned {type(returned).__name__}, not the pair (y, saved)")
    return returned


def _gradients(subject: Subject, dy: Array | None, saved: Any) -> dict[str, Any]:
    """Return what backward returns, by name; nothing if there is none."""
    if subject.backward is None:
        return {}
    gradients = tuple(subject.backward(dy, saved))
    if len(gradients) != 3:
        raise TypeError(f"backward returned {len(gradients)} results, not dx, dgamma and dbeta")
    return dict(zip(("dx", "dgamma", "dbeta"), gradients, strict=True))


def _second_gradients(subject: Subject, dy: Array, saved: Any) -> dict[str, Any]:
    """Call backward again; one that says no is honest, and is not blamed."""
    try:
        return _gradients(subject, dy, saved)
    except Exception as refused:
        said = f"{type(refused).__name__}: {_said(refused)}"
        raise RefusedError(f"a second backward pass is refused: {said}") from refused


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
