"""Results of a recording: those of a kernel are judged, and damaged ones are refused."""

import copy
import hashlib
import json
import math
import os
import shutil
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from shared.cli.recording import run as run_command
from truenorm.verify import judge
from truenorm.verify.operation import Case
from truenorm.verify.recordings import RecordedScope
from truenorm.verify.running.process import describe_exit
from truenorm.verify.running.recorded import read_log
from truenorm.verify.running.records import CannotRunError
from truenorm.verify.running.runner import Log
from truenorm.verify.types import Array

FAMILIES = {"normal", "zeros"}
Line = dict[str, Any]


@pytest.fixture(autouse=True, scope="module")
def few_cases() -> Iterator[None]:
    scope: Callable[..., list[Case]] = judge.scope

    def fewer(*arguments: Any) -> list[Case]:
        return [case for case in scope(*arguments) if case.family in FAMILIES]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "scope", fewer)
        yield


def array_of(content: bytes, entry: list[Any]) -> Array:
    """Return an input as the format says: rows by their places, repeated until it is full."""
    dtype, shape, _, _, width, at, count = entry
    places = np.frombuffer(content, "<i8", count, at)
    data = b"".join(content[place : place + width] for place in places)
    array: Array = np.resize(np.frombuffer(data, dtype), shape)
    return array


def rms_norm(x: Array, gamma: Array, eps: float) -> Array:
    wide = x.astype(np.float64)
    y: Array = gamma * wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + eps)
    return y.astype(x.dtype)


HEADER = {
    "target": "kernels.py:norm",
    "form": "functional",
    "backward": False,
    "seconds": 60.0,
    "torch": "2.0",
    "python": "3.12",
}
NOTES = {"failure": "", "left_out": "", "holds": {}, "types": {}, "shared": {}, "seconds": 0.25}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a recording with the results of a right kernel, as runner.py writes."""
    folder = tmp_path_factory.mktemp("made") / "cases"
    tv.record_cases(folder, operation="rms_norm", dtypes=["float32"])
    manifest = json.loads((folder / "manifest.json").read_text())
    content = (folder / "cases.bin").read_bytes()
    (folder / "results").mkdir()
    log = Log(folder / "results" / "log.jsonl")
    log.write(**HEADER, question=manifest["question"])
    for number, call in enumerate(manifest["calls"]):
        if call["when"] == "trial" and number:
            continue
        log.write(begin=number)
        x, gamma = (array_of(content, call["tensors"][name]) for name in ("x", "gamma"))
        y = rms_norm(x, gamma, call["values"]["eps"])
        arrays = {"y": log.store("float32", list(y.shape), y.tobytes())}
        log.write(step=number, arrays=arrays, **NOTES)
    log.end()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "cases")
    return tmp_path / "cases"


def lines_of(folder: Path) -> list[Any]:
    return [
        json.loads(line) for line in (folder / "results/log.jsonl").read_text().split("\n")[1:]
    ]


def write(folder: Path, lines: list[Any], arrays: bytes | None = None) -> None:
    """Write a log with the right hashes: nothing else shows that it was changed."""
    text = "".join(f"\n{each if isinstance(each, str) else json.dumps(each)}" for each in lines)
    file = folder / "results" / "log.jsonl"
    arrays_file = file.with_name("arrays.bin")
    if arrays is not None:
        arrays_file.write_bytes(arrays)
    hashes = [
        hashlib.sha256(each).hexdigest() for each in (text.encode(), arrays_file.read_bytes())
    ]
    file.write_text(f"{text}\n{json.dumps({'end': hashes})}")


def test_a_right_kernel_passes(folder: Path) -> None:
    report = tv.judge_recording(folder)
    assert report.passed
    assert report.subject == "norm on PyTorch tensors"
    write(folder, lines_of(folder)[:-1])
    assert tv.judge_recording(folder).passed


LOG, ARRAYS, CASES, MANIFEST = (
    "results/log.jsonl", "results/arrays.bin", "cases.bin", "manifest.json"
)  # fmt: skip
Damage = Callable[[bytes], bytes | None]


def flipped(place: int) -> Damage:
    return lambda old: old[:place] + bytes([old[place] ^ 1]) + old[place + 1 :]


def by_lines(change: Callable[[list[bytes]], list[bytes]]) -> Damage:
    return lambda old: b"".join(change(old.splitlines(keepends=True)))


def swapped(lines: list[bytes]) -> list[bytes]:
    first, second = [n for n, line in enumerate(lines) if b'"arrays"' in line][2:4]
    lines[first], lines[second] = lines[second], lines[first]
    return lines


DAMAGES: dict[str, tuple[str, Damage, str]] = {
    "no log": (LOG, lambda _: None, "there are no results"),
    "no arrays": (ARRAYS, lambda _: None, "cannot be read"),
    "no inputs": (CASES, lambda _: None, "cannot be read"),
    "arrays cut off": (ARRAYS, lambda old: old[:-9], "arrays.bin was changed"),
    "another bit": (ARRAYS, flipped(99), "arrays.bin was changed"),
    "a line removed": (LOG, by_lines(lambda each: each[:7] + each[8:]), "log.jsonl was changed"),
    "a line twice": (LOG, by_lines(lambda each: each[:7] + each[6:]), "log.jsonl was changed"),
    "results swapped": (LOG, by_lines(swapped), "log.jsonl was changed"),
    "a line edited": (LOG, lambda old: old.replace(b"[4, ", b"[5, "), "log.jsonl was changed"),
    "not text": (LOG, lambda old: b"\xff" + old, "log.jsonl was changed"),
    "the end missing": (LOG, by_lines(lambda each: each[:-1]), "ends early"),
    "half a line": (LOG, lambda old: old[:-50], "ends early"),
    "an empty log": (LOG, lambda _: b"", "ends early"),
    "inputs changed": (CASES, flipped(50), "it was changed"),
    "calls removed": (
        MANIFEST, lambda old: old.replace(b'"again"', b'"plain"', 1), "it was changed"
    ),
    "an empty manifest": (MANIFEST, lambda _: b"{}", "has not the schema"),
    "half a manifest": (MANIFEST, lambda _: b"{", "is no JSON"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_are_refused(name: str, folder: Path) -> None:
    file, damage, words = DAMAGES[name]
    before = (folder / file).read_bytes()
    after = damage(before)
    assert after != before
    if after is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(after)
    with pytest.raises(CannotRunError, match=words):
        tv.judge_recording(folder)


WRONG: tuple[Any, ...] = (
    None, True, False, -1, 2**70, -(2**70), 10**400, 0.5, math.nan, math.inf, "", "x", "\ud800",
    "\0", [], [1], [[]], {}, {"y": 1}, {"z": []}, {"y": ["x"]}, {"y": None, "given q": None},
    "y" * 10_000,
)  # fmt: skip


def paths(value: Any, depth: int = 0) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside a value, to four levels."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in items:
        yield (key,)
        if isinstance(each, dict | list) and depth < 4:
            yield from ((key, *rest) for rest in paths(each, depth + 1))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def damages(line: Line) -> Iterator[Any]:
    """Yield a line without each of its values, with other values, and with a value nested."""
    for path in paths(line):
        *before, last = path
        for wrong in (*WRONG, [at(line, path)], {"y": at(line, path)}):
            changed = copy.deepcopy(line)
            at(changed, tuple(before))[last] = wrong
            yield changed
        for act in (lambda parent, key: parent.pop(key), lambda parent, key: _add(parent, key)):
            changed = copy.deepcopy(line)
            act(at(changed, tuple(before)), last)
            yield changed
    yield from ({}, [], 3, None, "text", [line], {"step": 1, **line}, "[" * 100_000)
    yield "{" + '"a":[' * 900 + "1" + "]" * 900 + "}"


def _add(parent: Any, key: Any) -> None:
    if isinstance(parent, list):
        parent.insert(key, parent[key])
    else:
        parent[f"{key} "] = parent[key]


KINDS = {"header": 0, "begin": 1, "results": 2, "more results": 2, "death": 2}
"""The kinds of lines, and where they are."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_line_is_refused_or_harmless(kind: str, folder: Path) -> None:
    """Every damage is an error with a line, or a result that is judged: never an exception."""
    lines = lines_of(folder)[:-1]
    number = KINDS[kind]
    if kind == "more results":
        y = lines[number]["arrays"]["y"]
        lines[number]["arrays"] = {"y": y, "given x": y, "later y": None}
        lines[number] |= {"holds": {"y": ["3"]}, "types": {"y": "T"}, "shared": {"y": "x"}}
    if kind == "death":
        lines[number] = {
            "step": 0,
            "failure": "died",
            "exit_code": -11,
            "hung": False,
            "deaths": 1,
        }
    manifest = json.loads((folder / "manifest.json").read_text())
    recording = RecordedScope.of(manifest).recording()
    messages = []
    texts = [json.dumps(each) for each in lines]
    for changed in damages(lines[number]):
        write(folder, [*texts[:number], changed, *texts[number + 1 :]])
        try:
            read_log(folder, recording)
            tv.judge_recording(folder)
        except CannotRunError as error:
            messages.append(str(error))
    assert len(messages) > 15
    for message in messages:
        assert any(
            each in message for each in ("log.jsonl", "arrays.bin", "nested", "have no call")
        )
        assert len(message) < 1000


def test_messages_have_the_line_what_is_expected_and_what_is_there(folder: Path) -> None:
    lines = lines_of(folder)[:-1]
    for number, key, value, message in (
        (0, "seconds", -1, "line 2: seconds must be seconds above zero, got -1"),
        (1, "begin", 10**6, r"line 3: begin must be a number below \d+, got 1000000"),
        (2, "failure", None, "line 4: failure must be text, got None"),
        (2, "arrays", {"z": None}, "line 4: arrays must be an object of names"),
    ):
        changed = copy.deepcopy(lines)
        changed[number][key] = value
        write(folder, changed)
        with pytest.raises(CannotRunError, match=message):
            tv.judge_recording(folder)
    write(folder, [*lines, lines[2]])
    with pytest.raises(CannotRunError, match="step 0 must be there once"):
        tv.judge_recording(folder)
    write(folder, [])
    with pytest.raises(CannotRunError, match="results of another recording"):
        tv.judge_recording(folder)


@pytest.mark.parametrize(
    "end", [None, [], ["a"], ["a", "b", "c"], [1, 2], {"a": 1}, "ab", [[], []]]
)
def test_the_last_line_has_two_hashes(end: Any, folder: Path) -> None:
    text = "".join(f"\n{json.dumps(each)}" for each in lines_of(folder)[:-1])
    (folder / "results/log.jsonl").write_text(f"{text}\n{json.dumps({'end': end})}")
    with pytest.raises(CannotRunError, match="end must be two hashes"):
        tv.judge_recording(folder)


def index(folder: Path) -> tuple[list[Any], list[Any], bytes]:
    lines = lines_of(folder)[:-1]
    arrays = (folder / "results/arrays.bin").read_bytes()
    return lines, lines[2]["arrays"]["y"], arrays


PACKED: dict[str, Callable[[int, int], bytes]] = {
    "a bomb": lambda *_: zlib.compress(bytes(2 * 10**8), 1),
    "one more": lambda count, _: zlib.compress(np.zeros(count + 1, "<i8").tobytes()),
    "one fewer": lambda count, _: zlib.compress(np.zeros(count - 1, "<i8").tobytes()),
    "no whole number": lambda count, _: zlib.compress(bytes(8 * count - 1)),
    "negative": lambda count, _: zlib.compress(np.full(count, -1, "<i8").tobytes()),
    "beyond the file": lambda count, size: zlib.compress(np.full(count, size, "<i8").tobytes()),
    "huge": lambda count, _: zlib.compress(np.full(count, 2**63 - 1, "<i8").tobytes()),
    "cut": lambda count, _: zlib.compress(bytes(8 * count))[:-1],
    "more bytes": lambda count, _: zlib.compress(bytes(8 * count)) + b"\0",
    "no stream": lambda *_: b"hello",
    "nothing": lambda *_: b"",
}


@pytest.mark.parametrize("name", PACKED)
def test_the_places_of_rows_are_checked(name: str, folder: Path) -> None:
    lines, entry, arrays = index(folder)
    packed = PACKED[name](entry[1][0], len(arrays))
    entry[3:] = [len(arrays), len(packed)]
    write(folder, lines, arrays + packed)
    tracemalloc.start()
    with pytest.raises(CannotRunError, match=r"must have the places of \d+ rows"):
        tv.judge_recording(folder)
    assert tracemalloc.get_traced_memory()[1] < 100_000_000
    tracemalloc.stop()


def test_a_result_that_is_far_too_large_is_a_finding(folder: Path) -> None:
    """It has rows of one byte, so that few bytes of the file would become terabytes."""
    lines, entry, _ = index(folder)
    entry[1:3] = [[2**20, 2**20], entry[2]]
    write(folder, lines)
    report = tv.judge_recording(folder)
    assert not report.passed
    assert any("above" in each.symptom for each in report.findings)


def test_a_type_without_numbers_is_a_finding(folder: Path) -> None:
    lines, entry, _ = index(folder)
    entry[0] = "complex32"
    write(folder, lines)
    report = tv.judge_recording(folder)
    assert any("y as an array of complex32" in each.symptom for each in report.findings)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("kind", ["a link", "a device", "a pipe", "a folder"])
@pytest.mark.parametrize("name", [MANIFEST, CASES, LOG, ARRAYS])
def test_only_regular_files_are_read(name: str, kind: str, folder: Path) -> None:
    file = folder / name
    file.rename(folder.parent / "moved")
    if kind == "a pipe":
        os.mkfifo(file)
    elif kind == "a folder":
        file.mkdir()
    else:
        file.symlink_to("/dev/zero" if kind == "a device" else folder.parent / "moved")
    with pytest.raises(CannotRunError, match=f"{name} cannot be read: it is "):
        tv.judge_recording(folder)
    result = run_command("judge", folder)
    assert (result.exit_code, "cannot be read" in result.output) == (2, True)


def manifest_damages(manifest: Line) -> Iterator[Line]:
    names = ("schema", "operation", "dtypes", "level", "also", "seed", "calls", "question")
    for name in names:
        yield {key: each for key, each in manifest.items() if key != name}
        for wrong in (*WRONG, ["float32", 3], ["float31"], "quick", "norm", "rms_norm,a=b"):
            if wrong != manifest[name]:
                yield {**manifest, name: wrong}


def test_a_damaged_manifest_is_refused(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    for changed in manifest_damages(manifest):
        (folder / "manifest.json").write_text(json.dumps(changed))
        with pytest.raises(CannotRunError):
            tv.judge_recording(folder)
    for text in ("", "{", "[]", "null", "[" * 100_000, "\0"):
        (folder / "manifest.json").write_text(text)
        with pytest.raises(CannotRunError):
            tv.judge_recording(folder)


def test_signals_without_a_name() -> None:
    assert describe_exit(-40) == "crashed: signal 40"


@pytest.mark.parametrize("key", ["failure", "left_out", "target", "torch", "gpu"])
def test_any_text_can_be_reported(key: str, folder: Path) -> None:
    """Lone surrogates cannot be written to a file; a kernel's exception may have them."""
    lines = lines_of(folder)[:-1]
    line = lines[0 if key in ("target", "torch", "gpu") else 2]
    line[key] = "raised \ud800\u2028 ::error::x\n##[error]y <b> \x1b[1m"
    write(folder, lines)
    files = ("--html", folder.parent / "report.html")
    for options in (files, ("--json",)):
        result = run_command("judge", folder, *options)
        assert result.exit_code in (0, 1, 2), result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert "is a bug" not in result.output
