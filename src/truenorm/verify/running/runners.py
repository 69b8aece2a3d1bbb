"""Call a subject with a case in this process, and choose the runner of a subject."""

import ctypes
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from typing import Any

import numpy as np

from truenorm.verify.calls import Call, case_of_call, own_inputs, plan_of
from truenorm.verify.operation import Case
from truenorm.verify.oracle import output_types
from truenorm.verify.running.command import CommandRunner
from truenorm.verify.running.records import (
    Record,
    Runner,
    describe_error,
    error_message,
    triton_advice,
)
from truenorm.verify.running.runner import ENDS, Caller
from truenorm.verify.running.tiled import finished_record, repeated, tiled_damage
from truenorm.verify.subject import Subject
from truenorm.verify.types import (
    CODE_TYPES,
    FORMATS,
    NUMERIC_TYPES,
    Array,
    same_bits,
)

ALIGNMENT = 16
"""Bytes: the start of an input that is not made unaligned is a multiple of it."""
Arrays = Mapping[str, Array | None]


def runner_for(subject: Subject, *, in_worker: bool = False) -> Runner:
    """Return the runner that calls a subject from this process; see `InProcess`."""
    if subject.command is not None:
        return CommandRunner(subject)
    return InProcess(subject, in_worker=in_worker)


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
            if not call.how.large:
                raise
            rows = f"{call.stop:,} rows of {case.shape[1]}"
            reason = f"there was not enough memory for {rows}: {error_message(error)}"
            return Record(case.name, call, left_out=reason)

    def _run(self, case: Case, call: Call) -> Record:
        passed = case if call.how.repeats_rows else case_of_call(case, call)
        inputs, failure = CallInputs(passed, call, self._memory), ""
        caller = ArrayCaller(self.subject, passed, call, inputs)
        start = time.perf_counter()
        exits = nullcontext() if self._in_worker else _exits_raise()
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"), exits:
                warnings.simplefilter("ignore")
                caller.repeat(caller.step())
        except (ResultError, ProcessExitError) as error:
            failure = str(error)
        except BaseException as error:  # any exception is the subject's
            if call.how.large and isinstance(error, MemoryError):
                raise  # unless the machine is too small
            if isinstance(error, KeyboardInterrupt) and not self._in_worker:
                raise
            failure = f"raised {describe_error(error)}"
            if not isinstance(error, Exception):
                failure += ENDS
        seconds = time.perf_counter() - start - caller.waited - inputs.seconds
        left_out = caller.note["left_out"]
        record = Record(
            case.name,
            call,
            caller.kept[0],
            failure=failure,
            seconds=seconds,
            left_out=f"{left_out}{triton_advice(left_out)}",
            holds=caller.note["holds"],
        )
        return finished_record(case, record, caller.kept[1], inputs.damaged(caller.given))


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


class CallInputs:
    """The inputs of a call, which the subject may damage, and the seconds that copies took."""

    def __init__(self, case: Case, call: Call, memory: "InputMemory") -> None:
        self._case, self._call, self._memory = case, call, memory
        self.seconds = 0.0

    def load(self, entry: Mapping[str, Any], *, reuse: bool = True) -> dict[str, Array | None]:
        """Return copies of inputs; with `reuse`, in the memory of earlier calls."""
        start, how = time.perf_counter(), self._call.how
        inputs: Arrays = entry["tensors"]
        if how.repeats_rows:
            arrays = laid_out(
                self._case, {n: self._repeated(n, each) for n, each in inputs.items()}
            )
        else:
            arrays = copies_of(self._case, inputs)
            arrays = self._memory.place(arrays) if reuse else arrays
        self.seconds += time.perf_counter() - start
        return arrays

    def _repeated(self, name: str, array: Array | None) -> Array | None:
        if array is None or name not in self._case.rows:
            return copy(array)
        return repeated(array, self._call.stop)

    def damaged(self, given: Arrays) -> dict[str, Array | None]:
        """Return the given inputs whose bits have changed."""
        find = tiled_damage if self._call.how.repeats_rows else _damaged
        return {name: given[name] for name in find(self._case, given)}


class ArrayCaller(Caller):
    """Makes one call of the functions of a subject, with arguments and results by name."""

    def __init__(self, subject: Subject, case: Case, call: Call, inputs: CallInputs) -> None:
        self._subject, self._case, self._call, self.load = subject, case, call, inputs.load
        self._eps = [case.eps] if subject.operation.takes_eps else []
        self.given, self.note = {}, {"left_out": "", "holds": {}}
        self.waited = 0.0
        self.kept: tuple[dict[str, Array | None], ...] = {}, {}

    def step(self) -> dict[str, Any]:
        """Return the passes of the call, with the inputs of each."""
        case, how = self._case, self._call.how
        unused = [] if how.has_backward else case.operation.inputs_of("gradient")
        others = [{"tensors": own_inputs(case, other)} for other in how.others(case)]
        tensors = {**case.inputs, **dict.fromkeys(unused)}
        return {**plan_of(self._call), "tensors": tensors, "others": others}

    def pause(self, seconds: float) -> None:
        """Wait for a thread of the subject, which is no time of the call."""
        super().pause(seconds)
        self.waited += seconds

    def keep(self, results: dict[str, Any], k: int, number: int) -> None:
        """Keep copies of results, but not of repeated rows, which would need much memory."""
        if number:  # copies of thousands of equal results would take most of the time
            kept = self.kept[k]
            results = {n: each for n, each in results.items() if _bits(each) != _bits(kept[n])}
            self.note["holds"] = {name: (str(number),) for name in results}
        if results:
            copy = not self._call.how.repeats_rows
            self.kept[k].update(copied_results(self._case, results, copy=copy))

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


def laid_out(case: Case, inputs: Arrays) -> dict[str, Array | None]:
    """Return inputs in the memory layout of the case."""
    rows = case.rows
    return {
        name: case.in_layout(array, name) if array is not None and name in rows else array
        for name, array in inputs.items()
    }


def copies_of(case: Case, inputs: Arrays) -> dict[str, Array | None]:
    """Return copies of inputs in the memory layout of the case; the subject may damage them."""
    return laid_out(case, {name: copy(array) for name, array in inputs.items()})


class InputMemory:
    """Memory of inputs: those of one name, size and type are at one address in all calls.

    So does an allocator that returns memory which was freed. A subject that takes an address for
    the numbers that were there then has wrong results in each run of the judge.
    """

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, int, np.dtype[Any]], tuple[Array, int]] = {}

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
            block = np.empty(high - low + 2 * ALIGNMENT, np.uint8)
            self._blocks[key] = block, block.ctypes.data
        block, address = self._blocks[key]
        # An unaligned input stays unaligned.
        start = -address % ALIGNMENT + low % ALIGNMENT
        ctypes.memmove(address + start, low, high - low)
        offset = start + array.ctypes.data - low
        placed: Array = np.ndarray(array.shape, array.dtype, block, offset, array.strides)
        placed.flags.writeable = array.flags.writeable
        return placed


def _damaged(case: Case, arrays: Arrays) -> list[str]:
    """Return the names of the inputs whose bits have changed."""
    return [
        name
        for name, before in laid_out(case, case.inputs).items()
        if before is not None
        and (now := arrays.get(name)) is not None
        and not same_bits(now, before)
    ]


def _bits(result: Any) -> bytes | None:
    return None if result is None else np.asarray(result).tobytes()


def copied_results(
    case: Case, results: Mapping[str, Any], *, copy: bool = True
) -> dict[str, Array | None]:
    """Return copies in native byte order, which a later call cannot overwrite.

    Without `copy`, copy only results that are not arrays. Raise ResultError for a result
    that is no array of real numbers.
    """
    copies: dict[str, Array | None] = {}
    types = output_types(case)
    for output, result in results.items():
        if result is None:
            copies[output] = None
            continue
        kind = types.get(output, case.dtype)
        expected = f"expected an array of {kind}"
        if not any(hasattr(result, name) for name in ("__array__", "__array_interface__")):
            raise ResultError(
                f"returned {output} as {type(result).__name__}; {expected}: return one array for "
                "each result, without a list or a tuple around it"
            )
        array: Array = np.array(result, copy=copy or None)
        known = NUMERIC_TYPES if kind in FORMATS else (*NUMERIC_TYPES, *CODE_TYPES)
        if array.dtype.name not in known or array.dtype.kind == "c":
            advice = f"return {output}.real" if array.dtype.kind == "c" else "convert it"
            raise ResultError(
                f"returned {output} as an array of {array.dtype.name}; {expected}: {advice}"
            )
        copies[output] = array.astype(array.dtype.newbyteorder("="), copy=False)
    return copies
