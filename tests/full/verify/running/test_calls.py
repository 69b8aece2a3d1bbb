"""Each kind of call, asked of each runner: the passes that the kernel notes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify.running.asked import ASKED, KERNEL, asked, call_of, four_rows
from truenorm.verify.calls import KINDS, case_of_call
from truenorm.verify.running.command import CommandRunner
from truenorm.verify.running.process import SubjectProcess
from truenorm.verify.running.records import Runner
from truenorm.verify.running.runners import InProcess

PROGRAM = """
import pathlib, sys
with open({log!r}, "a") as log:
    folder = pathlib.Path(sys.argv[1])
    name, dtype, rows, size, eps = (folder / "manifest.txt").read_text().split()[2:]
    log.write(f"forward {{rows}} {{name}}\\n")
(folder / f"{{name}}.out").write_bytes(
    (folder / f"{{name}}.in").read_bytes()[:4 * int(rows) * int(size)]
)
"""


def test_a_kind_without_expected_passes() -> None:
    assert ASKED.keys() == KINDS.keys()


@pytest.fixture(scope="module", params=["in this process", "in another process"])
def runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Runner, Path]]:
    folder = tmp_path_factory.mktemp("asked")
    log, file = folder / "log.txt", folder / "kernel.py"
    source = KERNEL.format(log=str(log))
    file.write_text(
        f"{source}\nimport truenorm.verify as tv\nsubject = tv.Subject(forward, backward)\n",
        encoding="utf-8",
    )
    if request.param == "in this process":
        yield InProcess(tv.load(str(file))), log
    else:
        with SubjectProcess(str(file)) as process:
            yield process, log


@pytest.mark.parametrize("kind", ASKED)
def test_passes_of_a_kind(kind: str, runner: tuple[Runner, Path]) -> None:
    each, log = runner
    call = call_of(kind)
    record = each.run(four_rows(), call)
    assert not record.failure
    assert not record.left_out
    assert asked(log) == ASKED[kind]
    expected, y = case_of_call(four_rows(), call), record.results["y"]
    assert y is not None
    right = expected.gamma * expected.x + expected.beta
    np.testing.assert_array_equal(y, right[: len(y)])  # one copy of repeated rows
    gradients = {"dx", "dgamma", "dbeta"} if "backward" in ASKED[kind] else set()
    assert record.results.keys() == {"y"} | gradients


@pytest.mark.parametrize("kind", ASKED)
def test_a_command_is_called_once(kind: str, tmp_path: Path) -> None:
    """A new process has no state: other passes would show nothing."""
    log = tmp_path / "log.txt"
    log.touch()
    program = [sys.executable, "-c", PROGRAM.format(log=str(log))]
    call = call_of(kind)
    record = CommandRunner(tv.Subject(command=program)).run(four_rows(), call)
    if KINDS[kind].gradient_layout:
        assert record.failure.startswith("the files of a command hold")
        return
    assert not record.failure
    rows = case_of_call(four_rows(), call).shape[0]
    assert asked(log) == f"forward A{rows}"
