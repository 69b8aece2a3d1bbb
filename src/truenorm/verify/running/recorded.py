"""Replay the results of a recorded run: `Recorded` is a runner that reads them from files.

Results are believed: a recording is for authors, not for contests. Damaged files are refused: the
last line of the log has the hashes of all lines before it and of the arrays.
"""

import hashlib
import json
import zlib
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from truenorm.tools.user_files import open_regular
from truenorm.verify.calls import Call, case_of_call
from truenorm.verify.operation import Case
from truenorm.verify.running.process import (
    MAX_DEATHS,
    describe_exit,
    describe_hang,
    largest_result,
)
from truenorm.verify.running.pytorch import Unpacking
from truenorm.verify.running.recording import CASES, MANIFEST, SCHEMA, Recording
from truenorm.verify.running.records import (
    CannotRunError,
    GaveUpError,
    Record,
    triton_advice,
)
from truenorm.verify.running.runners import ResultError, copied_results
from truenorm.verify.running.schema import (
    END,
    SCOPE,
    DamagedResultsError,
    LogSchema,
    check_fields,
    dtype_of_result,
    is_unknown,
)
from truenorm.verify.running.tiled import finished_record
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array

LOG, ARRAYS = "results/log.jsonl", "results/arrays.bin"
SCALE = "scale"
NO_MEMORY = ("MemoryError", "OutOfMemoryError", "can't allocate memory")
"""In exceptions of Python and of PyTorch if memory is short."""


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a recording, of which the scope is checked."""
    if not (folder / MANIFEST).exists():
        raise CannotRunError(
            f"{folder} has no {MANIFEST}: give a folder that truenorm record wrote"
        )
    manifest = parse_json(read_file(folder / MANIFEST))
    if manifest is None:
        raise DamagedResultsError(f"{folder / MANIFEST} is no JSON")
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise DamagedResultsError(f"{folder / MANIFEST} has not the schema {SCHEMA}")
    check_fields(manifest, SCOPE, folder / MANIFEST)
    return manifest


def check_recording(folder: Path, manifest: Mapping[str, Any], recording: Recording) -> None:
    """Raise an error if the folder, whose manifest this is, does not hold this recording."""
    content = read_file(folder / CASES)
    if manifest != recording.manifest or content != recording.content:
        raise DamagedResultsError(
            f"{folder} is not what this version of truenorm records: it was changed, or written "
            "by another version; record and run again"
        )


def read_log(folder: Path, recording: Recording) -> list[dict[str, Any]]:
    """Return the lines of a log; raise an error if results are damaged or of another recording."""
    if not (folder / LOG).exists():
        raise CannotRunError(
            f"there are no results: run python {folder / 'runner.py'} FILE.py:NAME {folder}, on "
            "the machine of the kernel, and copy the folder back"
        )
    log, _, last = read_file(folder / LOG).rpartition(b"\n")
    end = parse_json(last)
    if not isinstance(end, dict) or "end" not in end:
        raise CannotRunError(
            f"{folder / LOG} ends early: run the same command again, and it continues"
        )
    lines = log.split(b"\n")
    check_fields(end, END, f"{folder / LOG}, line {len(lines) + 1}")
    arrays = read_file(folder / ARRAYS)
    for name, content, expected in zip((LOG, ARRAYS), (log, arrays), end["end"], strict=True):
        if hashlib.sha256(content).hexdigest() != expected:
            raise DamagedResultsError(f"{folder / name} was changed: it has another hash")
    schema, entries = LogSchema(recording.manifest, len(arrays)), list[dict[str, Any]]()
    for number, line in enumerate(lines, 1):
        if (entry := parse_json(line)) is not None:
            schema.check(entry, f"{folder / LOG}, line {number}", first=not entries)
            entries.append(entry)
    if not entries or entries[0]["question"] != recording.manifest["question"]:
        raise DamagedResultsError(f"{folder / LOG} has results of another recording")
    return entries


def read_file(file: Path) -> bytes:
    """Return the content of a regular file."""
    try:
        with open_regular(file) as stream:
            return stream.read()
    except OSError as missing:
        raise DamagedResultsError(f"{file} cannot be read: {missing.strerror}") from missing


def parse_json(line: bytes) -> Any:
    """Return the value of JSON; of a line that was cut off when the runner was killed, None."""
    try:
        return json.loads(line)
    except ValueError:
        return None
    except RecursionError as nested:
        raise DamagedResultsError("JSON of a recording must not be nested so deeply") from nested


class Recorded:
    """A runner whose calls were made before, on another machine."""

    def __init__(
        self,
        folder: Path,
        subject: Subject,
        recording: Recording,
        log: Sequence[Mapping[str, Any]],
        unpack: Unpacking | None = None,
    ) -> None:
        self.subject, self._deaths, self._unpack = subject, 0, unpack
        self._content = np.frombuffer(read_file(folder / ARRAYS), np.uint8)
        self._entries = {entry["step"]: entry for entry in log if "step" in entry}
        self._waiting: defaultdict[tuple[str, Call], deque[int]] = defaultdict(deque)
        calls = recording.manifest["calls"]
        for number in self._entries:
            self._waiting[calls[number]["case"], Call(*calls[number]["call"])].append(number)

    def run(self, case: Case, call: Call) -> Record:
        """Return the record of a call; each one is returned once, in the order they were made."""
        if self._deaths >= MAX_DEATHS:
            raise GaveUpError
        waiting = self._waiting[case.name, call]
        if not waiting:
            raise DamagedResultsError(f"the results of {case.name} have no call '{call}'")
        entry = self._entries[waiting.popleft()]
        if "deaths" in entry:
            self._deaths += 1
            code, seconds = entry["exit_code"], self.subject.seconds
            failure = describe_hang(seconds) if entry["hung"] else describe_exit(code)
            return Record(case.name, call, failure=failure, deaths=1)
        if "failure" not in entry:  # a trial that is made only after another one has failed
            raise DamagedResultsError(f"the results of {case.name} have no call '{call}'")
        failure, left_out = entry["failure"], entry["left_out"]
        if call.how.large and any(each in failure for each in NO_MEMORY):
            rows = f"{call.stop:,} rows of {case.shape[1]}"
            left_out = f"there was not enough memory for {rows}: {failure.partition(': ')[2]}"
            failure = ""
        record = Record(
            case.name,
            call,
            failure=f"{failure}{triton_advice(failure)}",
            seconds=entry["seconds"],
            left_out=f"{left_out}{triton_advice(left_out)}",
        )
        arrays, limit = dict[str, Array | None](), largest_result(case, call)
        for name, array in entry["arrays"].items():
            try:
                arrays[name] = self._array(name, array, limit)
            except ResultError as error:
                record = replace(record, failure=record.failure or str(error))
        scales = arrays.get(SCALE)
        if self._unpack is not None and scales is not None:
            shape = case_of_call(case, call).given_shape
            *leading, groups = case.operation.result_shapes(SCALE, shape)[0]
            arrays[SCALE] = self._unpack(scales, prod(leading), groups)
        return completed_record(case, record, arrays, entry["holds"])

    def _array(self, name: str, entry: Sequence[Any] | None, limit: int) -> Array | None:
        """Return a result as the kernel returned it; raise ResultError if it cannot be judged."""
        if entry is None:
            return None
        kind, shape, width, at, size = entry
        if is_unknown(kind):
            raise ResultError(f"returned {name} as an array of {kind}; convert it")
        dtype = dtype_of_result(kind)
        total = prod(shape) * dtype.itemsize
        if total > limit:
            raise ResultError(f"returned {name} of shape {shape}, above {limit} bytes")
        places = self._places(at, size, total // width, len(self._content) - width)
        rows = sliding_window_view(self._content, width)[places]
        numbers: Array = rows.reshape(-1).view(dtype)
        return numbers.reshape(shape)

    def _places(self, at: int, size: int, count: int, last: int) -> Array:
        """Return where the rows of an array are: so many places, none beyond the last."""
        stream = zlib.decompressobj()
        try:  # one byte more than expected shows that there are more
            data = stream.decompress(self._content[at : at + size].tobytes(), 8 * count + 1)
        except zlib.error:
            data = b""
        places = np.frombuffer(data[: len(data) // 8 * 8], "<i8")
        if len(data) != 8 * count or not stream.eof or stream.unused_data:
            places = np.array([-1])
        if places.size and not 0 <= places.min() <= places.max() <= last:
            raise DamagedResultsError(
                f"{ARRAYS} must have the places of {count} rows in {size} bytes at {at}, each at "
                f"most {last}: it was changed"
            )
        return places


def completed_record(
    case: Case, record: Record, arrays: Mapping[str, Array | None], holds: Mapping[str, Any]
) -> Record:
    """Return a record with its results, as `truenorm.verify.running.runners` makes it."""
    operation = case.operation
    results: dict[str, Array | None] = {}
    failure = record.failure
    for backward in (False, True):
        names = [name for name in operation.outputs_of(backward=backward) if name in arrays]
        try:
            results |= copied_results(case, {name: arrays[name] for name in names})
        except ResultError as error:
            failure = failure or str(error)
    found = {name: tuple(texts) for name, texts in holds.items()}
    record = replace(record, results=results, failure=failure, holds=found)
    later, damaged = _with_prefix("later ", arrays), _with_prefix("given ", arrays)
    return finished_record(case, record, later, damaged)


def _with_prefix(prefix: str, arrays: Mapping[str, Array | None]) -> dict[str, Array | None]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
