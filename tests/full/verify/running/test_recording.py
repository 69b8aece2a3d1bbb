"""Recordings: the inputs of each call can be made from the files, and other files are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.calls import Call, case_of_call
from truenorm.verify.judge import scope
from truenorm.verify.operation import Case
from truenorm.verify.recordings import RecordedScope
from truenorm.verify.running.recording import Recording
from truenorm.verify.running.records import CannotRunError
from truenorm.verify.running.runners import laid_out
from truenorm.verify.types import Array, numeric_dtype

LAYOUTS = ("ranks", "strides", "padded-rows", "layouts-of-gradients", "idle-rows", "empty")
SCOPES = {
    "layer_norm": RecordedScope(
        "layer_norm", ("float32",), "quick", (*LAYOUTS, "no-gamma", "float32-parameters"), 0
    ),
    "add_rms_norm": RecordedScope("add_rms_norm", ("bfloat16",), "quick", (), 7),
    "group_norm": RecordedScope("group_norm,groups=4", ("float32",), "quick", (), 0),
    "quantized": RecordedScope("rms_norm,quant=e4m3fn", ("bfloat16",), "quick", (), 0),
}
MOST_ELEMENTS = 2**18
"""Of x: larger calls are made in the same way."""


def stored(recording: Recording, entry: list[Any]) -> Array:
    """Return an array as the description of the format says."""
    dtype, shape, strides, offset, width, at, count = entry
    places = np.frombuffer(recording.content, "<i8", count, at)
    data = b"".join(recording.content[place : place + width] for place in places)
    kind = numeric_dtype(dtype)
    numbers = np.resize(np.frombuffer(data, kind), shape)
    memory = np.empty(offset + numbers.size * 100, kind)[offset:]
    steps = [stride * kind.itemsize for stride in strides]
    array = np.lib.stride_tricks.as_strided(memory, shape, steps)
    array[...] = numbers
    return array


def check_inputs(recording: Recording, entries: dict[str, Any], case: Case) -> None:
    """Compare the inputs of a call with those of a case: type, shape, strides and bits."""
    copies = {key: each if each is None else each.copy() for key, each in case.inputs.items()}
    expected = laid_out(case, copies)
    assert entries.keys() == expected.keys()
    for key, array in expected.items():
        if array is None:
            assert entries[key] is None
            continue
        made = stored(recording, entries[key])
        assert made.dtype == array.dtype
        assert made.shape == array.shape
        assert made.tobytes() == array.tobytes()
        if array.size and case.layout != "unaligned":
            used = [axis for axis, length in enumerate(array.shape) if length > 1]
            assert [made.strides[axis] for axis in used] == [array.strides[axis] for axis in used]


@pytest.mark.parametrize("name", SCOPES)
def test_inputs_of_each_call_are_those_of_verify(name: str) -> None:
    recording = SCOPES[name].recording()
    subject = SCOPES[name].subject(print)
    suite = {case.name: case for case in scope(subject, "quick", SCOPES[name].seed)}
    calls = recording.manifest["calls"]
    assert list(dict.fromkeys(each["case"] for each in calls if not each["when"])) == list(suite)
    kinds, layouts = set(), set()
    for described in calls:
        case, call = suite[described["case"]], Call(*described["call"])
        assert described["values"]["eps"] == case.eps
        if max(case.shape[0], call.stop) * case.shape[1] > MOST_ELEMENTS:
            continue
        called = case_of_call(case, call)
        check_inputs(recording, described["tensors"], called)
        kinds.add(call.kind)
        layouts.add(case.layout)
        for arguments, other in zip(described["others"], call.how.others(called), strict=True):
            check_inputs(recording, {**described["tensors"], **arguments["tensors"]}, other)
    assert {"plain", "again", "rows", "reversed", "zeros below", "later"} <= kinds
    if name == "layer_norm":
        assert {"strided", "padded", "three-axes", "one-axis", "unaligned"} <= layouts


@pytest.mark.parametrize("name", SCOPES)
def test_a_recording_is_small(name: str) -> None:
    """At most 10 MB for the quick level of one type."""
    recording = SCOPES[name].recording()
    assert len(recording.content) + len(json.dumps(recording.manifest)) < 10e6


def test_folders_without_results_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cases"
    scope_of_quant = SCOPES["quantized"]
    tv.record_cases(folder, operation=scope_of_quant.operation, dtypes=scope_of_quant.dtypes)
    with pytest.raises(CannotRunError, match="there are no results"):
        tv.judge_recording(folder)
    with pytest.raises(FileExistsError, match="is not empty"):
        tv.record_cases(folder, operation="rms_norm")
