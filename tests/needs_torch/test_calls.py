"""Each kind of call, asked of a kernel on tensors: the passes that the kernel notes."""

import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import truenorm.verify as tv
from shared.verify.running.asked import ASKED, KERNEL, asked, call_of, four_rows
from truenorm.verify.calls import KINDS, MANY, Call
from truenorm.verify.running import runner
from truenorm.verify.running.recording import PlannedCall, make_recording
from truenorm.verify.running.runners import InProcess
from truenorm.verify.running.scored import Kernel, Server

Run = Callable[[Call], Any]
"""Makes a call, and returns its record or its line of a log, with a failure."""


def in_this_process(file: Path, _: Path) -> Iterator[Run]:
    module = runner.load_file(str(file))
    subject = tv.torch_subject(module.forward, operation="layer_norm", backward=module.backward)
    each = InProcess(subject)
    yield lambda call: vars(each.run(four_rows(), call))


def recorded(file: Path, folder: Path) -> Iterator[Run]:
    """Make calls as the file in the folder of a recording does."""
    runner.torch = torch
    planned = [PlannedCall(call_of(kind)) for kind in ASKED]
    scope = {"dtypes": ["float32"], "level": "quick", "also": (), "seed": 0}
    made = make_recording([four_rows()], lambda _: planned, patience=1.0, scope=scope)
    arguments = {"target": f"{file}:forward", "folder": folder, "device": "cpu", "seconds": 9.0}
    arguments |= {"form": "functional", "signature": "", "backward": "backward"}
    (folder / "cases.bin").write_bytes(made.content)
    args = Namespace(**arguments, forward_only=False)
    calls = runner.Runner(args, made.manifest)
    calls.open(args, runner.Log(folder / "log.jsonl"))
    steps = {tuple(each["call"]): each for each in made.manifest["calls"] if not each["when"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as the process of a recording does
        yield lambda call: calls.make(0, steps[tuple(call)])


def scored(file: Path, _: Path) -> Iterator[Run]:
    if not hasattr(os, "memfd_create"):
        pytest.skip("a score needs Linux")
    options = {"target": f"{file}:forward", "form": "functional", "signature": ""}
    options |= {"backward": "backward", "device": "cpu"}
    subject = tv.Subject(print, print, seconds=60)
    with Server(sys.executable) as server:
        kernel = Kernel(server, subject, options, [four_rows()])
        yield lambda call: vars(kernel.run(four_rows(), call))
        kernel.close()


@pytest.fixture(
    scope="module", params=[in_this_process, recorded, scored], ids=lambda f: f.__name__
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("asked")
    file, log = folder / "kernel_that_notes.py", folder / "log.txt"
    file.write_text(KERNEL.format(log=str(log)), encoding="utf-8")
    log.touch()
    for each in request.param(file, folder):
        log.write_text("", encoding="utf-8")
        yield each, log, request.param is scored


@pytest.mark.parametrize("kind", ASKED)
def test_passes_of_a_kind(kind: str, run: tuple[Run, Path, bool]) -> None:
    make, log, is_scored = run
    record = make(call_of(kind))
    assert not record["failure"]
    assert not record["left_out"]
    once = is_scored and kind == MANY
    assert asked(log) == (ASKED["plain"] if once else ASKED[kind])
    assert KINDS[kind].has_backward == ("backward" in ASKED[kind])
