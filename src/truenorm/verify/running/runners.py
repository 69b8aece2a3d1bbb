"""Call a subject with a case in this process, and choose the runner of a subject."""

import ctypes
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from copy import copy
from typing import Any, Literal

import numpy as np

from truenorm.verify.operation import Case, other_cases
from truenorm.verify.oracle import output_types
from truenorm.verify.running.command import CommandRunner
from truenorm.verify.running.records import (
    AFTER_OTHERS,
    FEW_CALLS,
    INTERLEAVED,
    LARGE,
    LARGE_FORWARD,
    LATER,
    MANY,
    MANY_SECONDS,
    MOST_SECONDS,
    PAUSE_SECONDS,
    PAUSED,
    REPEATED_ROWS,
    TWICE,
    Call,
    CannotRunError,
    Record,
    Runner,
    case_of_call,
    describe_error,
    error_message,
    other_rows,
)
from truenorm.verify.running.tiled import reduced_record, tiled_damage, tiled_inputs
from truenorm.verify.subject import Subject, require_subject
from truenorm.verify.types import (
    CODE_TYPES,
    FORMATS,
    JUDGED_TYPES,
    NUMERIC_TYPES,
    Array,
    same_bits,
)

ALIGNMENT = 16
"""Bytes: the start of an input that is not made unaligned is a multiple of it."""
USUAL_WIDTH = 64
"""A row length that every kernel supports."""
Arrays = Mapping[str, Array | None]


def runner_for(subject: Subject, *, in_worker: bool = False) -> Runner:
    """Return the runner that calls a subject from this process; see `InProcess`."""
    require_subject(subject)
    if subject.command is not None:
        return CommandRunner(subject)
    return InProcess(subject, in_worker=in_worker)


def try_a_call(runner: Runner, suite: Sequence[Case]) -> list[Record]:
    """Call a subject with ordinary rows; raise CannotRunError if it rejects all of its types.

    A crash or a hang may depend on the rows and is a finding: its record is returned.
    """
    subject, failure = runner.subject, ""
    for dtype in subject.dtypes:
        case = usual_case(suite, dtype)
        if case is None:
            return []
        record = runner.run(case, Call())
        if not record.failure.startswith("raised "):
            return [record] if record.failure else []
        rows, size = case.shape
        failure = failure or f"{record.failure}, with {rows} rows of {size} in {dtype}"
    raise CannotRunError(
        f"{subject.name} cannot be called: it {failure}.\n"
        f"The judge calls {signature(subject)}; give another operation with --operation, or with "
        "operation= of the subject."
    )


def usual_case(suite: Sequence[Case], dtype: str) -> Case | None:
    """Return ordinary rows of a type, of a usual width; None if there are none."""
    ordinary = [case for case in suite if case.dtype == dtype and case.family == "normal"]
    return min(ordinary, key=lambda case: abs(case.shape[1] - USUAL_WIDTH), default=None)


def signature(subject: Subject) -> str:
    """Return how the functions of a subject are called, and what they return.

    Examples
    --------
    >>> signature(Subject(lambda x, gamma, beta, eps: x))
    'forward(x, gamma, beta, eps) -> y'
    """
    operation = subject.operation
    inputs = operation.inputs_of("data", "parameter")
    results = operation.outputs_of(backward=False)
    arguments = ", ".join([*inputs, *["eps"][: operation.takes_eps]])
    if subject.backward is None:
        names = ", ".join(results)
        return f"forward({arguments}) -> {names if len(results) == 1 else f'({names})'}"
    dy = ", ".join([*operation.inputs_of("gradient"), "saved"])
    gradients = ", ".join(operation.outputs_of(backward=True))
    return (
        f"forward({arguments}) -> ({', '.join([*results, 'saved'])}) "
        f"and backward({dy}) -> ({gradients})"
    )


class InProcess:
    """Calls the Python functions of a subject in this process: if they crash, it crashes.

    An interrupt ends the run, and ``os._exit`` is a failure of the call; in the worker of a
    subject, which no user interrupts, it is the other way round.
    """

    def __init__(self, subject: Subject, *, in_worker: bool = False) -> None:
        self.subject, self._in_worker, self._memory = subject, in_worker, InputMemory()

    def run(self, case: Case, call: Call) -> Record:
        """Call the functions; an exception becomes the failure of the record."""
        try:
            return self._run(case, call)
        except MemoryError as error:
            if call.kind not in (LARGE, LARGE_FORWARD):
                raise
            rows = f"{call.stop:,} rows of {case.shape[1]}"
            reason = f"there was not enough memory for {rows}: {error_message(error)}"
            return Record(case.name, call, left_out=reason)

    def _run(self, case: Case, call: Call) -> Record:
        name, tiled = case.name, call.kind in REPEATED_ROWS
        case = case if tiled else case_of_call(case, call)
        arrays = tiled_inputs(case, call) if tiled else self._memory.place(copies_of(case))
        results: dict[str, Array | None] = {}
        holds: dict[str, tuple[str, ...]] = {}
        failure = left_out = ""
        start = time.perf_counter()
        exits = nullcontext() if self._in_worker else _exits_raise()
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"), exits:
                warnings.simplefilter("ignore")
                functions = _Functions(self.subject, case.eps)
                if call.kind == AFTER_OTHERS:
                    self._call_with_others(functions, case)
                holds |= _passes(functions, case, arrays, call, results)
        except SecondBackwardError as error:
            left_out = str(error)
        except (ResultError, ProcessExitError) as error:
            failure = str(error)
        except BaseException as error:  # any exception is the subject's
            if call.kind in (LARGE, LARGE_FORWARD) and isinstance(error, MemoryError):
                raise  # unless the machine is too small
            if isinstance(error, KeyboardInterrupt) and not self._in_worker:
                raise
            failure = f"raised {describe_error(error)}"
            if not isinstance(error, Exception):
                failure += "; this ends the program that calls it: raise an Exception instead"
        pause = PAUSE_SECONDS if call.kind == PAUSED and results else 0.0
        seconds = time.perf_counter() - start - pause
        damaged = tiled_damage(case, arrays) if tiled else _damaged(case, arrays)
        holds |= equal_results({name: arrays[name] for name in damaged}, results)
        record = Record(name, call, results, damaged, failure, seconds, left_out, holds)
        return reduced_record(case, record) if tiled else record

    def _call_with_others(self, functions: "_Functions", case: Case) -> None:
        """Call the functions with other inputs, of which some were where those of the case are."""
        for other in other_cases(case):
            with suppress(Exception):  # the kernel may not support this width
                inputs = self._memory.place(copies_of(other))
                _, saved = functions.forward(inputs)
                functions.backward(inputs, saved)
        self._memory.place(copies_of(case))


class SecondBackwardError(Exception):
    """Backward raised an exception when it was called a second time."""


class ResultError(Exception):
    """A result is not an array of numbers that can be graded."""


class ProcessExitError(BaseException):
    """The subject called ``os._exit``; a kernel that catches Exception must not catch this."""


@contextmanager
def _exits_raise() -> Iterator[None]:
    """Let ``os._exit`` raise: else a kernel could end a test session with exit code 0."""
    process, leave = os.getpid(), os._exit

    def refuse(code: int) -> None:
        if os.getpid() != process:  # a child that the kernel forked
            leave(code)
        raise ProcessExitError(f"called os._exit({code}); a kernel must return or raise")

    os._exit = refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = leave


class _Functions:
    """Forward and backward of a subject, with arguments and results by name."""

    def __init__(self, subject: Subject, eps: float) -> None:
        self._subject = subject
        self._eps = [eps] if subject.operation.takes_eps else []

    def forward(self, arrays: Arrays) -> tuple[dict[str, Any], Any]:
        """Return the results of forward, and `saved` if there is a backward pass."""
        if self._subject.forward is None:
            raise TypeError("a command is not run in this process")
        operation = self._subject.operation
        before, after = operation.inputs_of("data", "parameter"), operation.inputs_of("setting")
        returned = self._subject.forward(
            *self._given(before, arrays), *self._eps, *self._given(after, arrays)
        )
        outputs = operation.outputs_of(backward=False)
        expected = [*outputs, *(["saved"] if self._subject.backward is not None else [])]
        if len(expected) == 1:
            return self._taken({expected[0]: returned}, arrays), None
        if not isinstance(returned, tuple) or len(returned) != len(expected):
            kind = type(returned).__name__
            raise TypeError(f"forward returned {kind}, not the tuple ({', '.join(expected)})")
        results = dict(zip(expected, returned, strict=True))
        saved = results.pop("saved", None)
        return self._taken(results, arrays), saved

    def _given(self, names: Sequence[str], arrays: Arrays) -> list[Array | None]:
        """Return inputs as the subject expects them."""
        operation = self._subject.operation
        given = {name: arrays[name] for name in names}
        if not operation.reshapes:
            return list(given.values())
        shape = self._shape(arrays)
        return [
            each if each is None else operation.give(name, each, shape)
            for name, each in given.items()
        ]

    def _taken(self, results: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
        """Return results as the judge expects them; others than arrays stay."""
        operation = self._subject.operation
        if not operation.reshapes:
            return results
        shape = self._shape(arrays)
        return {
            name: operation.take(name, each, shape) if isinstance(each, np.ndarray) else each
            for name, each in results.items()
        }

    def _shape(self, arrays: Arrays) -> tuple[int, ...]:
        first = arrays[self._subject.operation.inputs[0].name]
        assert first is not None
        return first.shape

    def backward(self, arrays: Arrays, saved: Any) -> dict[str, Any]:
        """Return the results of backward, or nothing if the subject has none."""
        if self._subject.backward is None:
            return {}
        names = self._subject.operation.inputs_of("gradient")
        returned = self._subject.backward(*self._given(names, arrays), saved)
        outputs = self._subject.operation.outputs_of(backward=True)
        gradients = (returned,) if len(outputs) == 1 else tuple(returned)
        if len(gradients) != len(outputs):
            expected = f"{', '.join(outputs[:-1])} and {outputs[-1]}"
            raise TypeError(f"backward returned {len(gradients)} results, not {expected}")
        return self._taken(dict(zip(outputs, gradients, strict=True)), arrays)

    def second_backward(self, arrays: Arrays, saved: Any) -> dict[str, Any]:
        """Call backward again. An exception is allowed here and is not a finding."""
        try:
            return self.backward(arrays, saved)
        except Exception as error:
            reason = f"a second backward pass is refused: {describe_error(error)}"
            raise SecondBackwardError(reason) from error


def _passes(
    functions: _Functions, case: Case, arrays: Arrays, call: Call, results: dict[str, Array | None]
) -> dict[str, tuple[str, ...]]:
    """Run one forward and one backward pass, and fill in the results as they are returned.

    For a ``later`` call, return by result the results of the later passes whose bits it has; for
    ``many`` calls, by result the number of the first call that changes its bits.
    """
    if call.kind == MANY:
        return _many_passes(functions, case, call, results)
    forward, saved = functions.forward(arrays)
    if call.kind in REPEATED_ROWS:  # copies of such results would need much memory
        results |= copied_results(case, forward, copy=None)
        if call.kind != LARGE_FORWARD:
            results |= copied_results(case, functions.backward(arrays, saved), copy=None)
        return {}
    if call.kind not in (LATER, PAUSED):
        results |= copied_results(case, forward)
    if call.kind == INTERLEAVED:
        functions.forward({**arrays, **_other_rows(case)})
    gradients = functions.backward(arrays, saved)
    if call.kind == TWICE and gradients:
        gradients = functions.second_backward(copies_of(case), saved)
    if call.kind == PAUSED:
        time.sleep(PAUSE_SECONDS)
        results |= copied_results(case, forward)
    if call.kind != LATER:
        results |= copied_results(case, gradients)
        return {}
    other_arrays = {**arrays, **_other_rows(case)}
    later, saved = functions.forward(other_arrays)
    later |= functions.backward(other_arrays, saved)
    results |= copied_results(case, {**forward, **gradients})
    return equal_results(results, copied_results(case, later))


def _many_passes(
    functions: _Functions, case: Case, call: Call, results: dict[str, Array | None]
) -> dict[str, tuple[str, ...]]:
    """Run equal passes until bits differ, or until there were enough of them."""
    first: dict[str, bytes] = {}
    start = time.process_time()
    for number in range(call.stop):
        arrays = copies_of(case)
        forward, saved = functions.forward(arrays)
        returned = {**forward, **functions.backward(arrays, saved)}
        bits = {name: np.asarray(each).tobytes() for name, each in returned.items()}
        first = first or bits
        if bits != first or number == 0:
            results |= copied_results(case, returned)
        if bits != first:
            return {name: (str(number),) for name in bits if bits[name] != first[name]}
        if time.process_time() - start > (MANY_SECONDS if number > FEW_CALLS else MOST_SECONDS):
            break
    return {}


def laid_out(case: Case, inputs: Arrays) -> dict[str, Array | None]:
    """Return inputs in the memory layout of the case."""
    return {
        name: case.in_layout(array, name) if array is not None and name in case.rows else array
        for name, array in inputs.items()
    }


def copies_of(case: Case) -> dict[str, Array | None]:
    """Return copies of the inputs, which the subject may damage."""
    return laid_out(case, {name: copy(array) for name, array in case.inputs.items()})


class InputMemory:
    """Memory of inputs: those of one name, size and type are at one address in all calls.

    So does an allocator that returns memory which was freed. A subject that takes an address for
    the numbers that were there then has wrong results in each run of the judge.
    """

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, int, np.dtype[Any]], Array] = {}

    def place(self, inputs: Arrays) -> dict[str, Array | None]:
        """Return copies of inputs, in their layout; copies of earlier inputs are overwritten."""
        return {
            name: array if array is None or not array.size else self._placed(name, array)
            for name, array in inputs.items()
        }

    def hold(self, case: Case) -> Case:
        """Return a case with its inputs placed, for the script of a finding."""
        return case.with_inputs(**self.place({n: copy(each) for n, each in case.inputs.items()}))

    def _placed(self, name: str, array: Array) -> Array:
        low, high = np.lib.array_utils.byte_bounds(array)
        key = name, high - low, array.dtype
        if key not in self._blocks:
            self._blocks[key] = np.empty(high - low + 2 * ALIGNMENT, np.uint8)
        block = self._blocks[key]
        # An unaligned input stays unaligned.
        start = -block.ctypes.data % ALIGNMENT + low % ALIGNMENT
        ctypes.memmove(block.ctypes.data + start, low, high - low)
        offset = start + array.ctypes.data - low
        placed: Array = np.ndarray(array.shape, array.dtype, block, offset, array.strides)
        placed.flags.writeable = array.flags.writeable
        return placed


def _other_rows(case: Case) -> dict[str, Array]:
    return {name: case.in_layout(rows, name) for name, rows in other_rows(case).items()}


def _damaged(case: Case, arrays: Arrays) -> tuple[str, ...]:
    """Return the names of the inputs whose bits have changed."""
    return tuple(
        name
        for name, before in laid_out(case, case.inputs).items()
        if before is not None and (now := arrays[name]) is not None and not same_bits(now, before)
    )


def equal_results(arrays: Arrays, results: Arrays) -> dict[str, tuple[str, ...]]:
    """Return, by array, the results that have the same bits, where there are any."""
    equal = {
        name: tuple(output for output, result in results.items() if _equal(array, result))
        for name, array in arrays.items()
    }
    return {name: outputs for name, outputs in equal.items() if outputs}


def _equal(one: Array | None, other: Array | None) -> bool:
    if one is None or other is None or one.dtype.name not in JUDGED_TYPES:
        return False
    return one.shape == other.shape and one.dtype == other.dtype and same_bits(one, other)


def copied_results(
    case: Case, results: Mapping[str, Any], *, copy: Literal[True] | None = True
) -> dict[str, Array | None]:
    """Return copies in native byte order, which a later call cannot overwrite.

    If `copy` is None, copy only results that are not arrays. Raise ResultError for a result
    that is no array of real numbers.
    """
    copies: dict[str, Array | None] = {}
    for output, result in results.items():
        if result is None:
            copies[output] = None
            continue
        kind = output_types(case).get(output, case.dtype)
        expected = f"expected an array of {kind}"
        if not any(hasattr(result, name) for name in ("__array__", "__array_interface__")):
            raise ResultError(
                f"returned {output} as {type(result).__name__}; {expected}: return one array for "
                "each result, without a list or a tuple around it"
            )
        array: Array = np.array(result, copy=copy)
        known = NUMERIC_TYPES if kind in FORMATS else (*NUMERIC_TYPES, *CODE_TYPES)
        if array.dtype.name not in known or array.dtype.kind == "c":
            advice = f"return {output}.real" if array.dtype.kind == "c" else "convert it"
            raise ResultError(
                f"returned {output} as an array of {array.dtype.name}; {expected}: {advice}"
            )
        copies[output] = array.astype(array.dtype.newbyteorder("="), copy=False)
    return copies
