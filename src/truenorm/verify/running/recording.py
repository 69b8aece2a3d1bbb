"""Write cases and calls to a folder, for a kernel on a machine without truenorm.

The folder has ``cases.bin``, the numbers; ``manifest.json``, how each call is made of them; and
``runner.py``, which makes the calls where the kernel is. `truenorm.verify.running.recorded` reads
the results.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from truenorm.verify.calls import Call, case_of_call, own_inputs, plan_of
from truenorm.verify.norms.norm import Norm, require_norm
from truenorm.verify.operation import AS_SHAPE, Case
from truenorm.verify.oracle import output_types
from truenorm.verify.running.array_functions import (
    OPTIONAL,
    arguments_of_norm,
    constants_of,
    names_of,
    trial_arrays,
)
from truenorm.verify.running.pytorch import FILLS, TORCH_TYPES
from truenorm.verify.running.runners import copies_of
from truenorm.verify.suite import usual_cases
from truenorm.verify.types import FORMATS, Array, dtype_of

SCHEMA = "truenorm/recording-1"
MANIFEST, CASES, RUNNER = "manifest.json", "cases.bin", "runner.py"
OUT, SUM, TRIAL = "out", "sum", "trial"
"""Roles of memory for the first result and for the sum; when the first call is made."""
SHORT_ROW = 16
"""Rows of at most so many bytes are not stored one by one: each has an index of 8 bytes."""
NAN_BYTE = 0xFF
"""A float of these bytes is NaN: memory for results holds it before a call."""
Entry = list[Any]
"""An array: its type, shape, strides and offset in elements; then the length in bytes of its rows,
where the places of the rows are, and how many. Rows are repeated until there are enough."""


class PlannedCall(NamedTuple):
    """A call, and when it is made.

    `ratio` is that of a sample: how many times longer the large call takes. A call `when` ``fast``
    is made after a sample that predicts a short time, and one when ``trial`` if the trials before
    it raised exceptions.
    """

    call: Call
    ratio: int = 0
    when: str = ""


class Recording(NamedTuple):
    """A manifest and the numbers it refers to."""

    manifest: dict[str, Any]
    content: bytes


class Content(Protocol):
    """Where the arrays of calls are."""

    def add(
        self, array: Array, *, rows: int | None = None, repeats: int = 1, unaligned: bool = False
    ) -> Entry:
        """Add an array, whose first rows are all of it if they are repeated; return the entry.

        If `rows` is given, the array that is described has so many rows.
        """

    def add_bytes(self, kind: str, shape: Sequence[int], byte: int) -> Entry:
        """Add an array of which all bytes are equal."""


class _Content:
    """Collects the rows of arrays, each one once."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._places: dict[bytes, int] = {}

    def _place(self, data: bytes) -> int:
        """Return where some bytes are."""
        if data not in self._places:
            self._places[data] = len(self.content)
            self.content += data
        return self._places[data]

    def add(
        self, array: Array, *, rows: int | None = None, repeats: int = 1, unaligned: bool = False
    ) -> Entry:
        """Add an array."""
        distinct = array if array.ndim < 2 else array[: len(array) // repeats]
        data = distinct.tobytes()
        width = len(data) // len(distinct) if array.ndim > 1 and len(distinct) else 0
        width = width if width > SHORT_ROW else max(len(data), 1)
        places = [self._place(data[k : k + width]) for k in range(0, len(data), width)]
        index = np.array(places, "<i8").tobytes()
        shape = list(array.shape) if rows is None else [rows, *array.shape[1:]]
        layout = layout_of(array, unaligned=unaligned)
        return [array.dtype.name, shape, *layout, width, self._place(index), len(places)]

    def add_bytes(self, kind: str, shape: Sequence[int], byte: int) -> Entry:
        """Add an array of which all bytes are equal."""
        strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        index = np.array([self._place(bytes([byte]))], "<i8").tobytes()
        return [kind, list(shape), strides, 0, 1, self._place(index), 1]


def make_recording(
    suite: Sequence[Case],
    planned_calls: Callable[[Case], Sequence[PlannedCall]],
    *,
    patience: float,
    scope: Mapping[str, Any],
) -> Recording:
    """Return the recording of cases and their calls.

    `patience` is the time limit of a large call, and `scope` says how the cases are made.
    """
    operation = require_norm(suite[0].operation, "a recording", "recording")
    content = _Content()
    usual = [usual_cases(suite, dtype) for dtype in scope["dtypes"]]
    trials = [case for some in usual for case in some]
    planned = [
        *((case, PlannedCall(Call(), when=TRIAL)) for case in trials),
        *((case, each) for case in suite for each in planned_calls(case)),
    ]
    groups = {case.name: number for number, case in enumerate(suite)}
    calls = []
    for number, (case, each) in enumerate(planned):
        group = groups[case.name] if number >= len(trials) else len(suite) + number
        calls.append({"group": group, **describe_call(case, each, content)})
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "operation": operation.spec,
        **scope,
        **roles_of(operation),
        "patience": patience,
        "cases": len(suite),
        "ones": [trial_of(some[0], content) for some in usual if some],
        "calls": calls,
    }
    manifest = json.loads(json.dumps(manifest, allow_nan=False))  # tuples become lists
    manifest["question"] = _hash(manifest, content.content)
    return Recording(manifest, bytes(content.content))


def roles_of(operation: Norm) -> dict[str, Any]:
    """Return the parts of inputs and outputs in a call, and how arguments of kernels are named.

    ``wanted`` are the roles that a kernel of each form has arguments for, in the usual order. Each
    input is also known by its own name.
    """
    names = names_of(operation)
    roles = {name: role for role, known in names.items() for name in known}
    own = {each.name: each.name for each in operation.inputs if each.name not in names}
    arguments, outputs = arguments_of_norm(operation), operation.outputs_of(backward=False)
    written = [OUT, *(name for name in outputs[1:] if name != SUM)]
    return {
        "inputs": operation.inputs_of("data", "parameter"),
        "data": operation.inputs_of("data"),
        "parameters": operation.inputs_of("parameter"),
        "incoming": operation.inputs_of("gradient"),
        "outputs": outputs,
        "gradients": operation.outputs_of(backward=True),
        "roles": own | roles,
        "wanted": {
            "functional": arguments,
            "out": [*written, *arguments],
            "inplace": arguments,
            "module": ["size", "eps"],
        },
        "optional": [*OPTIONAL, SUM],
    }


def _hash(manifest: Mapping[str, Any], content: bytes | bytearray) -> str:
    """Return the hash of a recording, by which results name it."""
    text = json.dumps(manifest, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode() + content).hexdigest()


def trial_of(case: Case, content: Content) -> dict[str, Any]:
    """Return the arguments of a call that shows whether a kernel can be differentiated."""
    return _arguments(_ones(case), content)


def _ones(case: Case) -> Case:
    """Return a case of ones, of `trial_arrays` or of the shapes of a case in a shape."""
    if case.layout.startswith(AS_SHAPE):
        arrays = case.inputs
        return case.with_inputs(**{k: a if a is None else a * 0 + 1 for k, a in arrays.items()})
    ones = trial_arrays(require_norm(case.operation, "a recording"), case.dtype)
    gradients = dict.fromkeys(case.operation.inputs_of("gradient"))
    return replace(case, inputs={**gradients, **ones}, eps=1e-5, layout="rows", repeats=1)


def describe_call(case: Case, planned: PlannedCall, content: Content) -> dict[str, Any]:
    """Return the arguments of a call, those of other calls around it, and the passes to make."""
    call, how = planned.call, planned.call.how
    called = case if how.repeats_rows else case_of_call(case, call)
    rows = call.stop if how.repeats_rows else None
    return {
        "case": case.name,
        "call": list(call),
        **_arguments(called, content, rows=rows, forward_only=not how.has_backward),
        "others": [_other_arguments(called, other, content) for other in how.others(called)],
        **plan_of(call),
        "ratio": planned.ratio,
        "when": planned.when,
    }


def _arguments(
    case: Case, content: Content, *, rows: int | None = None, forward_only: bool = False
) -> dict[str, Any]:
    """Return the arguments of a call: tensors and values by role, and memory for results.

    If `rows` is given, those of the case are repeated until there are so many.
    """
    unused = case.operation.inputs_of("gradient") if forward_only else []
    inputs = {**case.inputs, **dict.fromkeys(unused)}
    tensors = _tensors(case, inputs, content, rows)
    return {"tensors": tensors, "values": _values(case, tensors, content)}


def _other_arguments(case: Case, other: Case, content: Content) -> dict[str, Any]:
    """Return the arguments of another call that are not those of the call of a case."""
    tensors = _tensors(other, own_inputs(case, other), content)
    values = {} if other.shape == case.shape else _values(other, tensors, content)
    return {"tensors": tensors, "values": values}


def _tensors(
    case: Case, inputs: Mapping[str, Array | None], content: Content, rows: int | None = None
) -> dict[str, Entry | None]:
    tensors: dict[str, Entry | None] = {}
    for name, array in copies_of(case, inputs).items():
        if array is None:
            tensors[name] = None
        elif name not in case.rows:
            tensors[name] = content.add(array)
        else:
            repeats = case.repeats if len(array) == case.shape[0] else 1
            unaligned = case.layout == "unaligned"
            tensors[name] = content.add(array, rows=rows, repeats=repeats, unaligned=unaligned)
    return tensors


def _values(case: Case, tensors: Mapping[str, Entry | None], content: Content) -> dict[str, Any]:
    """Return the numbers of a call, and memory for results."""
    operation, x = require_norm(case.operation, "a recording"), tensors["x"]
    assert x is not None
    shape = tuple(x[1])
    outputs = operation.outputs_of(backward=False)
    memory = {name: _memory(case, name, shape, content) for name in outputs}
    return {
        "eps": case.eps,
        **constants_of(operation, shape),
        "sizes": [each.size for each in memory.values()],
        "written": _written(tensors, {name: each.contents for name, each in memory.items()}),
    }


_Pair = list[Entry | None]


class _Memory(NamedTuple):
    """Memory for a result: its size in bytes, and two contents."""

    size: int
    contents: _Pair


def _memory(case: Case, output: str, shape: tuple[int, ...], content: Content) -> _Memory:
    """Return memory for a result, whose contents are used by turns.

    Floats are NaN, and so are codes where they can be. An amax is zero: kernels take the maximum
    of what is there and their own.
    """
    kind = output_types(case)[output]
    wanted = case.operation.result_shapes(output, shape)[0]
    wide = dtype_of(kind).itemsize if kind in FORMATS else 1
    fills = (0, 0) if output == "amax" else FILLS if wide == 1 else (NAN_BYTE, NAN_BYTE)
    kind = TORCH_TYPES.get(kind, kind)
    return _Memory(prod(wanted) * wide, [content.add_bytes(kind, wanted, fill) for fill in fills])


def _written(
    tensors: Mapping[str, Entry | None], memory: Mapping[str, _Pair]
) -> dict[str, dict[str, _Pair]]:
    """Return the memory that a kernel writes to: by form, and by the role of the argument.

    A kernel of the form ``out`` without an argument for the sum writes it over the residual.
    """
    copies = {name: [tensors[name]] * 2 for name in ("x", "residual") if name in tensors}
    first, *others = memory
    out = {OUT: memory[first], **{name: memory[name] for name in others}}
    over = {name if name != SUM else "residual": pair for name, pair in out.items()}
    if SUM in out:
        over["residual"] = copies["residual"]
    return {"out": out, "out over residual": over, "inplace": copies}


def layout_of(array: Array, *, unaligned: bool) -> tuple[list[int], int]:
    """Return strides and offset in elements."""
    if unaligned or array.flags.c_contiguous:  # one element beyond where PyTorch allocates
        shape = array.shape
        return [prod(shape[axis + 1 :]) for axis in range(len(shape))], int(unaligned)
    memory = array
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    offset = (array.ctypes.data - memory.ctypes.data) // array.itemsize
    return [step // array.itemsize for step in array.strides], offset


def write_recording(folder: Path, recording: Recording) -> dict[str, Any]:
    """Write a recording to a new or empty folder, and return what was written.

    Raise FileExistsError if the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is not empty: name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CASES).write_bytes(recording.content)
    (folder / RUNNER).write_bytes(source_of(RUNNER))
    # Written last: a folder with a manifest is complete.
    text = json.dumps(recording.manifest, allow_nan=False)
    (folder / MANIFEST).write_text(f"{text}\n", encoding="utf-8")
    return {
        "cases": recording.manifest["cases"],
        "calls": sum(call["when"] != TRIAL for call in recording.manifest["calls"]),
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
        "seed": recording.manifest["seed"],
        "folder": str(folder),
    }


def source_of(name: str) -> bytes:
    """Return a file of this folder that runs where the kernel is."""
    return (files("truenorm.verify.running") / name).read_bytes()
