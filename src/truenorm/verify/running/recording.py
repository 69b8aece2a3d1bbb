"""Write cases and calls to a folder, for a kernel on a machine without truenorm.

The folder has ``cases.bin``, the numbers; ``manifest.json``, how each call is made of them; and
``runner.py``, which makes the calls where the kernel is. `truenorm.verify.running.recorded` reads
the results.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.operation import AS_SHAPE, Case, Operation, other_cases
from truenorm.verify.operations.norms import Norm
from truenorm.verify.operations.quantized.norm import QuantizedNorm
from truenorm.verify.oracle import output_types
from truenorm.verify.running.pytorch import TORCH_TYPES, names_of
from truenorm.verify.running.records import (
    AFTER_OTHERS,
    FEW_CALLS,
    GRADIENT_LAYOUTS,
    IDLE_ROWS,
    INTERLEAVED,
    LATER,
    MANY,
    MANY_SECONDS,
    MOST_SECONDS,
    PADDING_ROWS,
    REPEATED_ROWS,
    REVERSED,
    ROWS,
    Call,
    case_of_call,
    other_rows,
)
from truenorm.verify.running.runners import laid_out, usual_case
from truenorm.verify.running.torch_subject import trial_arrays
from truenorm.verify.types import Array

SCHEMA = "truenorm/recording-1"
MANIFEST, CASES, RUNNER = "manifest.json", "cases.bin", "runner.py"
IN_MEMORY_ORDER = ("rows", "read-only")
"""Layouts that are contiguous for PyTorch, which has no read-only tensors."""
Entry = list[Any]
"""Where an array is: the first byte, the type and the shape; then its layout or None."""


class PlannedCall(NamedTuple):
    """A call, and when it is made.

    `ratio` is that of a sample: how many times longer the large call takes. `when` is ``slow`` or
    ``fast``: the call is made if the last sample was.
    """

    call: Call
    ratio: int = 0
    when: str = ""


class Recording(NamedTuple):
    """A manifest and the numbers it refers to."""

    manifest: dict[str, Any]
    content: bytes


class _Content:
    """Collects arrays, each one once."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._places: dict[tuple[str, bytes], int] = {}

    def add(self, array: Array) -> Entry:
        """Return where an array is."""
        data = np.ascontiguousarray(array).tobytes()
        key = array.dtype.name, hashlib.sha256(data).digest()
        if key not in self._places:
            # PyTorch reads numbers at multiples of their size only.
            self.content += bytes(-len(self.content) % 16)
            self._places[key] = len(self.content)
            self.content += data
        return [self._places[key], array.dtype.name, list(array.shape)]

    def add_laid_out(self, arrays: Mapping[str, Array | None]) -> dict[str, Entry | None]:
        """Return where arrays are, with their layouts."""
        return {
            name: None if array is None else [*self.add(array), _layout_of(array)]
            for name, array in arrays.items()
        }


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
    operation, content = suite[0].operation, _Content()
    if not isinstance(operation, Norm):
        raise ValueError(
            f"operation must be a result of truenorm.verify.norm, got {operation.name}"
        )
    if operation.reshapes:
        raise ValueError(f"a recording is not for axes= and channels=last; got {operation.spec}")
    usual = (usual_case(suite, dtype) for dtype in scope["dtypes"])
    trials = [case for case in usual if case is not None]
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "operation": operation.spec,
        **scope,
        **_roles_of(operation),
        "names": _names_of(operation),
        "group": operation.quant.group if isinstance(operation, QuantizedNorm) else 0,
        "patience": patience,
        "ones": [[content.add_laid_out(_ones(case)), _written(case)] for case in trials],
        "trials": [suite.index(case) for case in trials],
        "cases": [_describe_case(case, planned_calls(case), content) for case in suite],
    }
    manifest = json.loads(json.dumps(manifest, allow_nan=False))  # tuples become lists
    manifest["question"] = _hash(manifest, content.content)
    return Recording(manifest, bytes(content.content))


def _roles_of(operation: Operation) -> dict[str, list[str]]:
    """Return the names of inputs and outputs, by the part they have in a call."""
    return {
        "inputs": operation.inputs_of("data", "parameter"),
        "data": operation.inputs_of("data"),
        "parameters": operation.inputs_of("parameter"),
        "settings": operation.inputs_of("setting"),
        "incoming": operation.inputs_of("gradient"),
        "rows": operation.inputs_of("data", "gradient"),
        "outputs": operation.outputs_of(backward=False),
        "gradients": operation.outputs_of(backward=True),
    }


def _names_of(operation: Norm) -> dict[str, list[str]]:
    """Return the names of arguments by role; each input is also known by its own name."""
    names = {role: list(known) for role, known in names_of(operation).items()}
    own = {each.name: [each.name] for each in operation.inputs if each.name not in names}
    return names | own


def _hash(manifest: Mapping[str, Any], content: bytes | bytearray) -> str:
    """Return the hash of a recording, by which results name it."""
    text = json.dumps(manifest, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode() + content).hexdigest()


def _ones(case: Case) -> dict[str, Array | None]:
    """Return ones: those of `trial_arrays`, or of the shapes of a case whose rows have one."""
    inputs = laid_out(case, case.inputs)
    if case.layout.startswith(AS_SHAPE):
        return {name: array if array is None else array * 0 + 1 for name, array in inputs.items()}
    assert isinstance(case.operation, Norm)
    return dict(trial_arrays(case.operation, case.dtype))


def _written(case: Case) -> dict[str, Entry]:
    """Return how memory for each result of forward is allocated, for a kernel that writes to it.

    An entry has the type; the last axis, or 0 for that of x; True if the other axes are those of
    x; and True if it is zero at first, since kernels take a maximum with what is there.
    """
    written, types = {}, output_types(case)
    shape_of_x = case.given_shape
    for output in case.operation.outputs_of(backward=False):
        *leading, last = case.operation.result_shapes(output, shape_of_x)[0]
        kind = TORCH_TYPES.get(types[output], types[output])
        last = 0 if last == shape_of_x[-1] else last
        written[output] = [kind, last, leading == [*shape_of_x[:-1]], output == "amax"]
    return written


def _describe_case(case: Case, calls: Sequence[PlannedCall], content: _Content) -> dict[str, Any]:
    distinct = case.shape[0] // case.repeats
    arrays = {
        name: None
        if array is None
        else content.add(array[:distinct] if name in case.rows else array)
        for name, array in case.inputs.items()
    }
    return {
        "name": case.name,
        "eps": case.eps.hex(),
        "size": case.shape[1],
        "distinct": distinct,
        "written": _written(case),
        "arrays": arrays,
        "steps": [_describe_call(case, each, content) for each in calls],
    }


def _describe_call(case: Case, planned: PlannedCall, content: _Content) -> dict[str, Any]:
    """Return how the inputs of a call are made, and which passes it has.

    ``rows`` are start, stop and step of a range of numbers, and a divisor: divided by that, modulo
    the number of distinct rows, they are the rows of the case.
    """
    call, rows = planned.call, case.shape[0]
    kind = call.kind
    step: dict[str, Any] = {"call": list(call), "rows": [0, rows, 1, 1]}
    if kind == ROWS:
        step["rows"] = [call.start, call.stop, 1, 1]
    elif kind == REVERSED:
        step["rows"] = [rows - 1, -1, -1, 1]
    elif kind in REPEATED_ROWS:
        step["rows"] = [0, call.stop, 1, 1]
    elif kind in IDLE_ROWS:
        among = IDLE_ROWS[kind]
        step["rows"] = [0, 2 * rows, 1, 2 if among else 1]
        step["idle"] = [1 if among else rows, 2 * rows, 2 if among else 1]
    elif kind in PADDING_ROWS:
        step["below"] = [repr(number) for number in PADDING_ROWS[kind]]
    elif kind == MANY:
        step["many"] = [call.stop, FEW_CALLS, MANY_SECONDS, MOST_SECONDS]
    if kind in (INTERLEAVED, LATER):
        others = {name: case.in_layout(array, name) for name, array in other_rows(case).items()}
        step["others"] = [content.add_laid_out(others)]
    elif kind == AFTER_OTHERS:
        step["others"] = [
            content.add_laid_out(laid_out(other, other.inputs)) for other in other_cases(case)
        ]
    count = len(range(*step["rows"][:3])) + len(step.get("below", ()))
    if layouts := _layouts(case, call, count):
        step["layouts"] = layouts
    if planned.ratio:
        step["ratio"] = planned.ratio
    if planned.when:
        step["when"] = planned.when
    return step


def _layouts(case: Case, call: Call, count: int) -> dict[str, Entry]:
    """Return the layout of each input whose rows are not simply one after the other."""
    if call.kind not in GRADIENT_LAYOUTS:
        if case.layout in IN_MEMORY_ORDER:
            return {}
        if case.layout.startswith(AS_SHAPE):  # without an array of so many rows
            rows = {name: case.in_layout(array[:1], name) for name, array in case.rows.items()}
            shapes = {name: (count, *row.shape[1:]) for name, row in rows.items()}
            return {name: _contiguous(shape) for name, shape in shapes.items() if len(shape) > 2}
    called = case_of_call(case, call)
    layouts = {
        name: _layout_of(called.in_layout(rows, name), unaligned=case.layout == "unaligned")
        for name, rows in called.rows.items()
    }
    return {name: layout for name, layout in layouts.items() if layout is not None}


def _contiguous(shape: tuple[int, ...]) -> Entry:
    return [list(shape), [prod(shape[axis + 1 :]) for axis in range(len(shape))], 0]


def _layout_of(array: Array, *, unaligned: bool = False) -> Entry | None:
    """Return shape, strides and offset in elements, or None for rows one after the other."""
    if unaligned:  # one element beyond the address where PyTorch allocates
        return [*_contiguous(array.shape)[:2], 1]
    if array.flags.c_contiguous:
        return _contiguous(array.shape) if array.ndim != 2 else None
    memory = array
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    offset = (array.ctypes.data - memory.ctypes.data) // array.itemsize
    return [list(array.shape), [step // array.itemsize for step in array.strides], offset]


def write_recording(folder: Path, recording: Recording) -> dict[str, Any]:
    """Write a recording to a new or empty folder, and return what was written.

    Raise FileExistsError if the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is not empty: name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CASES).write_bytes(recording.content)
    (folder / RUNNER).write_bytes(runner_source())
    # Written last: a folder with a manifest is complete.
    text = json.dumps(recording.manifest, allow_nan=False)
    (folder / MANIFEST).write_text(f"{text}\n", encoding="utf-8")
    cases = recording.manifest["cases"]
    return {
        "cases": len(cases),
        "calls": sum(len(case["steps"]) for case in cases),
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
        "seed": recording.manifest["seed"],
        "folder": str(folder),
    }


def runner_source() -> bytes:
    """Return the file that makes the calls."""
    return (files("truenorm.verify.running") / RUNNER).read_bytes()
