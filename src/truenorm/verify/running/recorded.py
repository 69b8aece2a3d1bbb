"""Replay the results of a recorded run: `Recorded` is a runner that reads them from files.

Results are believed: a recording is for authors, not for contests. Damaged files are refused:
each line of the log has a hash of all lines before it, and of the bytes of its arrays.
"""

import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.running.process import MAX_DEATHS
from truenorm.verify.running.recording import CASES, MANIFEST, SCHEMA, Recording
from truenorm.verify.running.records import (
    LATER,
    REPEATED_ROWS,
    Call,
    CannotRunError,
    GaveUpError,
    Record,
    triton_advice,
)
from truenorm.verify.running.runners import ResultError, copied_results, equal_results
from truenorm.verify.running.tiled import reduced_record
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array, numeric_dtype

LOG, ARRAYS = "results/log.jsonl", "results/arrays.bin"
HASH_LENGTH = 16


class DamagedResultsError(CannotRunError):
    """The files of a recording or of its results are not as they were written."""


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a recording."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError as missing:
        raise CannotRunError(
            f"{folder} has no {MANIFEST}: give a folder that truenorm record wrote"
        ) from missing
    except ValueError as unreadable:
        raise DamagedResultsError(f"{folder / MANIFEST} is no JSON: {unreadable}") from unreadable
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise DamagedResultsError(f"{folder / MANIFEST} has not the schema {SCHEMA}")
    return manifest


def read_log(folder: Path, recording: Recording) -> list[dict[str, Any]]:
    """Return the entries of a log; raise an error if it is damaged, or of another recording."""
    try:
        lines = (folder / LOG).read_text(encoding="utf-8").splitlines()
    except OSError as missing:
        raise CannotRunError(
            f"there are no results: run python {folder / 'runner.py'} FILE.py:NAME {folder}, on "
            "the machine of the kernel, and copy the folder back"
        ) from missing
    except UnicodeDecodeError as unreadable:
        raise DamagedResultsError(f"{folder / LOG} is no text") from unreadable
    entries, before = [], ""
    for number, line in enumerate(lines, start=1):
        text = line[HASH_LENGTH + 1 :]
        expected = hashlib.sha256((before + text).encode()).hexdigest()[:HASH_LENGTH]
        if line != f"{expected} {text}":
            raise DamagedResultsError(
                f"{folder / LOG}, line {number}: it was changed, or lines before it are missing"
            )
        before = expected
        entries.append(json.loads(text))
    if not entries or entries[0]["question"] != recording.manifest["question"]:
        raise DamagedResultsError(f"{folder / LOG} has results of another recording")
    if "end" not in entries[-1]:
        raise CannotRunError(
            f"{folder / LOG} ends early: run the same command again, and it continues"
        )
    return entries


def target_of(folder: Path) -> str:
    """Return the target that was run, or nothing if there are no readable results."""
    try:
        header = (folder / LOG).read_text(encoding="utf-8").splitlines()[0]
        return str(json.loads(header[HASH_LENGTH + 1 :])["target"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def check_recording(folder: Path, recording: Recording) -> None:
    """Raise an error if the folder does not hold this recording."""
    try:
        content = (folder / CASES).read_bytes()
    except OSError as missing:
        raise DamagedResultsError(
            f"{folder / CASES} cannot be read: {missing.strerror}"
        ) from missing
    if read_manifest(folder) != recording.manifest or content != recording.content:
        raise DamagedResultsError(
            f"{folder} is not what this version of truenorm records: it was changed, or written "
            "by another version; record and run again"
        )


class Recorded:
    """A runner whose calls were made before, on another machine."""

    def __init__(
        self, folder: Path, subject: Subject, recording: Recording, log: list[Any]
    ) -> None:
        self.subject = subject
        self._file, self._deaths = folder / ARRAYS, 0
        self._manifest = recording.manifest
        self._steps: dict[int, Mapping[str, Any]] = {}
        self._cases: dict[int, Mapping[str, Any]] = {}
        self._number(recording.manifest)
        self._entries = {entry["step"]: entry for entry in log if "step" in entry}
        self._waiting: defaultdict[tuple[str, Call], deque[int]] = defaultdict(deque)
        for number in self._entries:
            key = self._cases[number]["name"], Call(*self._steps[number]["call"])
            self._waiting[key].append(number)

    def _number(self, manifest: Mapping[str, Any]) -> None:
        """Give the calls the numbers that the runner gives them: trials first."""
        cases = manifest["cases"]
        trials = [(cases[index], cases[index]["steps"][0]) for index in manifest["trials"]]
        steps = [(case, step) for case in cases for step in case["steps"]]
        for number, (case, step) in enumerate([*trials, *steps]):
            self._cases[number], self._steps[number] = case, step

    def run(self, case: Case, call: Call) -> Record:
        """Return the record of a call; each one is returned once, in the order they were made."""
        if self._deaths >= MAX_DEATHS:
            raise GaveUpError
        waiting = self._waiting[case.name, call]
        if not waiting:
            raise DamagedResultsError(f"the results of {case.name} have no call '{call}'")
        number = waiting.popleft()
        entry = self._entries[number]
        deaths = entry.get("deaths", 0)
        self._deaths += deaths
        arrays = {name: self._array(number, name) for name in entry.get("arrays", {})}
        failure, left_out = entry["failure"], entry.get("left_out", "")
        record = Record(
            case.name,
            call,
            {},
            tuple(entry.get("damaged", ())),
            f"{failure}{triton_advice(failure)}",
            entry.get("seconds", 0.0),
            f"{left_out}{triton_advice(left_out)}",
            deaths=deaths,
        )
        return _completed(case, record, arrays, entry.get("holds", {}))

    def _array(self, number: int, name: str) -> Array | None:
        """Return an array of a call, as the kernel returned it."""
        entry = self._entries[number]["arrays"][name]
        if entry is None:
            return None
        if not prod(entry["shape"]):
            return np.zeros(entry["shape"], _dtype_of(entry["type"]))
        own, places, changed = self._parts(entry)
        rows, base = entry["rows"] or 1, own
        if entry["base"] not in (None, number):
            base, _, _ = self._parts(self._entries[entry["base"]]["arrays"][name])
        table = np.empty((rows, changed.shape[1]), np.uint8)
        unchanged = np.ones(rows, np.bool_)
        unchanged[places] = False
        table[places] = changed
        order = self._order(number) if entry["rows"] else np.zeros(1, np.int64)
        if unchanged.any():  # else the base may have rows of another width
            table[unchanged] = base[order[np.flatnonzero(unchanged)]]
        numbers: Array = table.reshape(-1).view(_dtype_of(entry["type"]))
        return numbers.reshape(entry["shape"])

    def _order(self, number: int) -> Array:
        """Return, for each row of a call, the row of the case."""
        start, stop, step, each = self._steps[number]["rows"]
        distinct = max(self._cases[number]["distinct"], 1)
        order: Array = np.arange(start, stop, step) // each % distinct
        return order

    def _parts(self, entry: Mapping[str, Any]) -> tuple[Array, Array, Array]:
        """Return the first rows of a plain call, the places of changed rows, and these rows."""
        size = prod(entry["shape"]) * _dtype_of(entry["type"]).itemsize // max(entry["rows"], 1)
        own, changed = entry["own"], entry["changed"]
        try:
            with self._file.open("rb") as file:
                file.seek(entry["at"])
                content = file.read(entry["bytes"])
        except OSError as missing:
            raise DamagedResultsError(
                f"{self._file} cannot be read: {missing.strerror}"
            ) from missing
        complete = len(content) == 8 * changed + (own + changed) * size
        if not complete or hashlib.sha256(content).hexdigest() != entry["sha256"]:
            raise DamagedResultsError(f"{self._file} was changed: an array has other bytes")
        data = np.frombuffer(content, np.uint8)
        first, places, rest = np.split(data, [own * size, own * size + 8 * changed])
        return (
            first.reshape(own, size),
            np.frombuffer(places.tobytes(), np.int64),
            rest.reshape(changed, size),
        )


def _dtype_of(name: str) -> np.dtype[Any]:
    """Return the NumPy type of a type of PyTorch; pairs of codes are bytes."""
    try:
        return numeric_dtype(name)
    except (AttributeError, ImportError, TypeError):
        return np.dtype(np.uint8)


def _completed(
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
    later = _with_prefix("later ", arrays)
    found = {name: tuple(texts) for name, texts in holds.items()}
    if record.call.kind == LATER:
        found |= equal_results(results, later)
    found |= equal_results(_with_prefix("given ", arrays), results)
    record = replace(record, results=results, failure=failure, holds=found)
    return reduced_record(case, record) if record.call.kind in REPEATED_ROWS else record


def _with_prefix(prefix: str, arrays: Mapping[str, Array | None]) -> dict[str, Array | None]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
