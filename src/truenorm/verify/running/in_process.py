"""Put a case to a subject and note what comes back; whatever it does, grading comes later."""

import time
import warnings
from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.running.records import (
    INTERLEAVED,
    LARGE,
    LATER,
    TWICE,
    Call,
    Record,
    given,
    others,
)
from truenorm.verify.subject import Subject
from truenorm.verify.types import FORMATS, NUMERIC_TYPES, Array, same_bits

MESSAGE = 2000  # characters that are kept of an exception
Arrays = Mapping[str, Array | None]


class RefusedError(Exception):
    """Backward does not let itself be called a second time, and says so."""


class InProcess:
    """Runs Python functions where they are: a crash of theirs is a crash of ours."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.seconds = subject.seconds

    def run(self, case: Case, call: Call) -> Record:
        """Call the functions of a subject; an exception becomes a failure of the record."""
        try:
            return _executed(self.subject, case, call)
        except MemoryError as lack:
            if call.kind != LARGE:
                raise
            rows = f"{call.stop:,} rows of {case.shape[1]}"
            reason = f"there was not enough memory for {rows}: {_said(lack)}"
            return Record(case.name, call, left_out=reason)


def _laid_out(case: Case, inputs: Arrays) -> dict[str, Array | None]:
    """Return inputs as a subject gets them."""
    return {
        name: case.in_layout(array, name) if array is not None and name in case.rows else array
        for name, array in inputs.items()
    }


def _copies(case: Case) -> dict[str, Array | None]:
    """Return what a subject is given, which it may damage."""
    return _laid_out(case, {name: copy(array) for name, array in case.inputs.items()})


def _damaged(case: Case, arrays: Arrays) -> tuple[str, ...]:
    """Return the names of those whose bits have changed."""
    return tuple(
        name
        for name, before in _laid_out(case, case.inputs).items()
        if before is not None and (now := arrays[name]) is not None and not same_bits(now, before)
    )


def _holding(arrays: Arrays, results: Arrays) -> dict[str, tuple[str, ...]]:
    """Return by array the results whose bits it has, if there are any."""
    found = {
        name: tuple(output for output, result in results.items() if _same(array, result))
        for name, array in arrays.items()
    }
    return {name: outputs for name, outputs in found.items() if outputs}


def _same(one: Array | None, other: Array | None) -> bool:
    if one is None or other is None or one.dtype.name not in FORMATS:
        return False
    return one.shape == other.shape and one.dtype == other.dtype and same_bits(one, other)


def _executed(subject: Subject, case: Case, call: Call) -> Record:
    asked = given(case, call)
    arrays = _copies(asked)
    results: dict[str, Array | None] = {}
    holds: dict[str, tuple[str, ...]] = {}
    failure = left_out = ""
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            holds |= _passes(_Functions(subject, asked.eps), asked, arrays, call, results)
    except RefusedError as refused:
        left_out = str(refused)
    except Exception as raised:  # whatever it is, it is the subject's
        if call.kind == LARGE and isinstance(raised, MemoryError):
            raise  # or the machine's
        failure = f"raised {type(raised).__name__}: {_said(raised)}"
    seconds = time.perf_counter() - start
    damaged = _damaged(asked, arrays)
    holds |= _holding({name: arrays[name] for name in damaged}, results)
    return Record(case.name, call, results, damaged, failure, seconds, left_out, holds)


class _Functions:
    """Forward and backward of a subject, with arguments and results by name."""

    def __init__(self, subject: Subject, eps: float) -> None:
        self._subject = subject
        self._settings = [eps] if subject.operation.takes_eps else []

    def forward(self, arrays: Arrays) -> tuple[dict[str, Any], Any]:
        """Return the results of forward, and what it saved if there is a backward pass."""
        if self._subject.forward is None:
            raise TypeError("a command is not run in this process")
        names = self._subject.operation.inputs_of("data", "parameter")
        returned = self._subject.forward(*(arrays[name] for name in names), *self._settings)
        outputs = self._subject.operation.outputs_of(backward=False)
        wanted = [*outputs, *(["saved"] if self._subject.backward is not None else [])]
        if len(wanted) == 1:
            return {wanted[0]: returned}, None
        if not isinstance(returned, tuple) or len(returned) != len(wanted):
            kind = type(returned).__name__
            raise TypeError(f"forward returned {kind}, not the tuple ({', '.join(wanted)})")
        results = dict(zip(wanted, returned, strict=True))
        saved = results.pop("saved", None)
        return results, saved

    def backward(self, arrays: Arrays, saved: Any) -> dict[str, Any]:
        """Return the results of backward; nothing if there is none."""
        if self._subject.backward is None:
            return {}
        names = self._subject.operation.inputs_of("gradient")
        found = self._subject.backward(*(arrays[name] for name in names), saved)
        outputs = self._subject.operation.outputs_of(backward=True)
        gradients = (found,) if len(outputs) == 1 else tuple(found)
        if len(gradients) != len(outputs):
            wanted = f"{', '.join(outputs[:-1])} and {outputs[-1]}"
            raise TypeError(f"backward returned {len(gradients)} results, not {wanted}")
        return dict(zip(outputs, gradients, strict=True))

    def second_backward(self, arrays: Arrays, saved: Any) -> dict[str, Any]:
        """Call backward again; one that says no is honest, and is not blamed."""
        try:
            return self.backward(arrays, saved)
        except Exception as refused:
            said = f"{type(refused).__name__}: {_said(refused)}"
            raise RefusedError(f"a second backward pass is refused: {said}") from refused


def _passes(
    functions: _Functions,
    case: Case,
    arrays: Arrays,
    call: Call,
    results: dict[str, Array | None],
) -> dict[str, tuple[str, ...]]:
    """Do one forward and one backward pass, and fill in the results as they come.

    Of those that are looked at later, return which results of the later passes they have become.
    """
    found, saved = functions.forward(arrays)
    if call.kind != LATER:
        results |= _kept(found)
    if call.kind == INTERLEAVED:
        functions.forward({**arrays, **_others(case)})
    gradients = functions.backward(arrays, saved)
    if call.kind == TWICE and gradients:
        gradients = functions.second_backward(_copies(case), saved)
    if call.kind != LATER:
        results |= _kept(gradients)
        return {}
    more = {**arrays, **_others(case)}
    later, saved = functions.forward(more)
    later |= functions.backward(more, saved)
    results |= _kept({**found, **gradients})
    return _holding(results, _kept(later))


def _others(case: Case) -> dict[str, Array]:
    """Return other rows as a subject gets them."""
    return {name: case.in_layout(rows, name) for name, rows in others(case).items()}


def _said(raised: Exception) -> str:
    """Return what an exception says, which may be a dump of megabytes, or fail itself."""
    try:
        return str(raised)[:MESSAGE]
    except Exception:
        return "(it cannot be printed)"


def _kept(results: Mapping[str, Any]) -> dict[str, Array | None]:
    """Return copies, which a later call cannot overwrite."""
    return {output: _copied(result) for output, result in results.items()}


def _copied(result: Any) -> Array | None:
    """Return a copy in the byte order of this machine."""
    if result is None:
        return None
    found: Array = np.array(result)
    if found.dtype.name not in NUMERIC_TYPES:
        raise TypeError(f"the result is an array of {found.dtype.name}, which are no numbers")
    return found.astype(found.dtype.newbyteorder("="), copy=False)
