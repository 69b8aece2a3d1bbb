"""Subjects on arrays as kernels on tensors, run by the file that recordings are run with."""

import json
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]

from truenorm.verify.collecting import collect
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.large_calls import PATIENCE, planned_calls
from truenorm.verify.grading.report import Report
from truenorm.verify.judge import try_a_call
from truenorm.verify.norms.norm import Norm
from truenorm.verify.operation import Case
from truenorm.verify.report.json_report import to_json
from truenorm.verify.running import runner
from truenorm.verify.running.array_functions import arguments_of_norm
from truenorm.verify.running.pytorch import Tensors
from truenorm.verify.running.recorded import Recorded, read_log
from truenorm.verify.running.recording import make_recording, write_recording
from truenorm.verify.running.records import Runner
from truenorm.verify.running.runners import InProcess
from truenorm.verify.subject import Subject

TENSORS = Tensors("cpu")
MODULE = "replayed_kernel"
"""The runner imports the kernel from a module of this name."""


def tensor_of(result: Any) -> Any:
    if not isinstance(result, np.ndarray):
        return result
    array = result.astype(result.dtype.newbyteorder("="), copy=False)
    array = array if min(array.strides, default=0) >= 0 else array.copy()
    name = array.dtype.name
    if name == "bfloat16" or name.startswith("float8"):
        bits = torch.from_numpy(array.view(np.uint16 if name == "bfloat16" else np.uint8))
        return bits.view(getattr(torch, name))
    return torch.from_numpy(array)


def on_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of tensors that share memory with the arrays of the other one."""

    def call(*arguments: Any) -> Any:
        arrays = [TENSORS.array(a) if isinstance(a, torch.Tensor) else a for a in arguments]
        with np.errstate(all="ignore"):
            returned = function(*arrays)
        return (
            tuple(map(tensor_of, returned)) if isinstance(returned, tuple) else tensor_of(returned)
        )

    return call


def replay(subject: Subject, suite: Sequence[Case], folder: Path) -> Recorded:
    """Replay a subject on arrays: see `replay_tensors`."""
    assert subject.forward is not None
    backward = None if subject.backward is None else on_tensors(subject.backward)
    on_their_own = replace(subject, forward=on_tensors(subject.forward), backward=backward)
    return replay_tensors(on_their_own, suite, folder)


def replay_tensors(
    subject: Subject, suite: Sequence[Case], folder: Path, *, waits: bool = False
) -> Recorded:
    """Record cases, make the calls in this process, and return a runner of the results.

    The functions of the subject are on tensors. With `waits`, results are read a second time.
    """
    scope = {"dtypes": subject.dtypes, "level": "quick", "also": subject.also, "seed": 0}
    recording = make_recording(
        suite, planned_calls, patience=min(PATIENCE, subject.seconds), scope=scope
    )
    write_recording(folder, recording)
    assert isinstance(subject.operation, Norm)
    module: Any = ModuleType(MODULE)
    module.forward, module.backward = subject.forward, subject.backward
    sys.modules[MODULE] = module
    arguments = {
        "target": f"{MODULE}:forward",
        "folder": folder,
        "device": "cpu",
        "form": "functional",
        "signature": ", ".join(arguments_of_norm(subject.operation)),
        "backward": "backward" if module.backward else "",
        "forward_only": not module.backward,
        "seconds": subject.seconds,
    }
    log = folder / "results" / "log.jsonl"
    log.parent.mkdir()
    runner.torch = torch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args = Namespace(**arguments)
        calls = runner.Runner(args, recording.manifest)
        calls.open(args, runner.Log(log))
        calls.waits = waits
        calls.work()
    return Recorded(folder, subject, recording, read_log(folder, recording))


def report_by(each: Runner, suite: Sequence[Case]) -> Report:
    """Collect and grade the records of a runner."""
    subject = each.subject
    records = [*try_a_call(each, suite), *collect(each, suite)]
    return grade(subject.name, suite, records, outputs=subject.outputs, recipe=subject.recipe)


def comparable(report: Report) -> dict[str, Any]:
    """Return a report without date, machine, seconds and reproducers."""
    content: dict[str, Any] = json.loads(to_json(report))
    for name in ("machine", "seconds"):
        del content[name]
    for finding in content["findings"]:
        del finding["reproducer"]
    return content


def both_ways(make: Callable[[], Subject], suite: Sequence[Case], folder: Path) -> Any:
    """Return what the judge reports of a subject in this process, and of its recorded results."""
    called = report_by(InProcess(make()), suite)
    replayed = report_by(replay(make(), suite, folder), suite)
    return comparable(called), comparable(replayed)
