"""Recordings: the inputs of each call can be made from the files, and other files are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.judge import RecordedScope, scope
from truenorm.verify.operation import other_cases
from truenorm.verify.running.recording import Recording
from truenorm.verify.running.records import AFTER_OTHERS, Call, CannotRunError, case_of_call
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
    at, dtype, shape = entry[:3]
    count = int(np.prod(shape))
    return np.frombuffer(recording.content, numeric_dtype(dtype), count, at).reshape(shape)


def inputs_of(recording: Recording, case: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    """Make the inputs of a call as the description of the format says."""
    manifest = recording.manifest
    inputs: dict[str, Any] = {}
    start, stop, stride, divisor = step["rows"]
    order = [k // divisor % max(case["distinct"], 1) for k in range(start, stop, stride)]
    for name, entry in case["arrays"].items():
        if entry is None:
            inputs[name] = None
            continue
        array = stored(recording, entry)
        if name in manifest["rows"]:
            array = array[np.array(order, int)]
            if name in manifest["incoming"] and "idle" in step:
                array[slice(*step["idle"])] = 0
            below = [np.full_like(array[:1], float(number)) for number in step.get("below", ())]
            array = np.concatenate([array, *below])
        layout = step.get("layouts", {}).get(name)
        inputs[name] = array.reshape(layout[0]) if layout else array
    return inputs


@pytest.mark.parametrize("name", SCOPES)
def test_inputs_of_each_call_are_those_of_verify(name: str) -> None:
    recording = SCOPES[name].recording()
    subject = SCOPES[name].subject(print)
    suite = {case.name: case for case in scope(subject, "quick", SCOPES[name].seed)}
    assert [case["name"] for case in recording.manifest["cases"]] == list(suite)
    kinds, layouts = set(), set()
    for described in recording.manifest["cases"]:
        case = suite[described["name"]]
        assert float.fromhex(described["eps"]) == case.eps
        for step in described["steps"]:
            call = Call(*step["call"])
            if max(case.shape[0], call.stop) * case.shape[1] > MOST_ELEMENTS:
                continue
            called = case_of_call(case, call)
            copies = {
                key: each if each is None else each.copy() for key, each in called.inputs.items()
            }
            expected = laid_out(called, copies)
            made = inputs_of(recording, described, step)
            assert made.keys() == expected.keys()
            for key, array in expected.items():
                if array is None:
                    assert made[key] is None
                    continue
                assert made[key].dtype == array.dtype
                assert made[key].shape == array.shape
                assert made[key].tobytes() == array.tobytes()
                layout = step.get("layouts", {}).get(key)
                if layout and array.size:
                    strides = [stride * array.itemsize for stride in layout[1]]
                    assert strides == list(array.strides)
            kinds.add(call.kind)
            layouts.add(case.layout)
            if call.kind == AFTER_OTHERS:
                for entries, other in zip(step["others"], other_cases(case), strict=True):
                    for key, entry in entries.items():
                        array = other.inputs[key]
                        assert (entry is None) == (array is None)
                        if array is not None:
                            assert stored(recording, entry).tobytes() == array.tobytes()
    assert {"plain", "again", "rows", "reversed", "zeros below", "later"} <= kinds
    if name == "layer_norm":
        assert {"strided", "padded", "three-axes", "one-axis", "unaligned"} <= layouts


@pytest.mark.parametrize("name", SCOPES)
def test_a_recording_is_small(name: str) -> None:
    """At most 10 MB for the quick level of one type."""
    recording = SCOPES[name].recording()
    assert len(recording.content) + len(json.dumps(recording.manifest)) < 10e6


def test_folders_without_results_or_with_changes_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cases"
    scope_of_quant = SCOPES["quantized"]
    tv.record_cases(folder, operation=scope_of_quant.operation, dtypes=scope_of_quant.dtypes)
    with pytest.raises(CannotRunError, match="there are no results"):
        tv.judge_recording(folder)
    with pytest.raises(FileExistsError, match="is not empty"):
        tv.record_cases(folder, operation="rms_norm")
    content = bytearray((folder / "cases.bin").read_bytes())
    content[100] ^= 1
    (folder / "cases.bin").write_bytes(content)
    with pytest.raises(CannotRunError, match="it was changed"):
        tv.judge_recording(folder)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(CannotRunError, match="has not the schema"):
        tv.judge_recording(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(CannotRunError, match="is no JSON"):
        tv.judge_recording(folder)
