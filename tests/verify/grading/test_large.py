"""One call with more than 2^24 elements: what it sees, and what is said where it is not made."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm as tn
import truenorm.verify as tv
from truenorm.verify.grading import checks
from truenorm.verify.grading.checks import ELEMENTS, copies_of, large_call
from truenorm.verify.grading.grades import grade
from truenorm.verify.judge import collect
from truenorm.verify.running import command
from truenorm.verify.running.command import CommandRunner
from truenorm.verify.running.records import Call, Record
from truenorm.verify.running.runners import InProcess
from truenorm.verify.types import FORMATS, Array

CASE = tv.case("float32-large-2x500")
ROWS = len(CASE.x) * copies_of(CASE)


def ours(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    return tn.layer_norm(x, gamma, beta, eps=eps)


def then(change: Callable[[Array], Array | None]) -> tv.Subject:
    """Return a subject that is right but for what is changed in y."""

    def forward(x: Array, *rest: Any) -> Array:
        y = ours(x, *rest)
        changed = change(y)
        return y if changed is None else changed

    return tv.Subject(forward)


def judged(subject: tv.Subject) -> tv.Report:
    return grade("one", [CASE], collect(InProcess(subject), [CASE]), outputs=["y"])


def raising(error: Exception) -> tv.Subject:
    """Return a subject that raises in the large call alone."""

    def change(y: Array) -> None:
        if len(y) == ROWS:
            raise error

    return then(change)


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_place_that_wraps_around_is_seen(dtype: str) -> None:
    """The row that stands 2^24 elements before is none of the same numbers."""
    case = tv.case(f"{dtype}-large-2x500")
    assert 2**24 < copies_of(case) * case.x.size <= ELEMENTS
    assert 2**24 % case.x.size
    assert 2**24 % case.x.shape[1]


def test_the_rows_that_are_furthest_off_are_kept() -> None:
    def wrong_twice(y: Array) -> None:
        if len(y) == ROWS:
            y[101, 7] *= 1.01
            y[33_333, 499] = np.nan

    report = judged(then(wrong_twice))
    (finding,) = report.findings
    assert report.verdicts["large calls"] == "fail"
    assert finding.symptom.startswith("y[33333, 499] is nan, the exact answer ")
    assert finding.symptom.endswith(f"in one call with {ROWS * 500:,} elements")
    assert f".tiled({copies_of(CASE)})\n" in finding.reproducer
    assert "y[33333, 499]" in finding.reproducer


def test_other_bits_that_rounding_explains_are_none_of_its_business() -> None:
    def unsteady(y: Array) -> None:
        y[len(y) // 2 :] *= np.float32(1 + 2.0**-23)

    records = list(large_call(InProcess(then(unsteady)), CASE, Record(CASE.name, Call())))
    report = grade("one", [CASE], records, outputs=["y"])
    assert report.verdicts["large calls"] == "pass"


def test_a_slow_subject_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "PATIENCE", 1e-9)
    seen: list[int] = []
    report = judged(then(lambda y: seen.append(len(y))))
    assert report.passed
    assert report.verdicts["large calls"] == "not judged"
    assert "at its pace a call with 17,039,360 elements would take" in report.notes["large calls"]
    assert max(seen) <= ROWS // 64


class Paced:
    """A runner whose calls take as long as is said, one after the other."""

    subject = tv.Subject(lambda *_: None)

    def __init__(self, *takes: float) -> None:
        self._takes = iter(takes)
        self.rows: list[int] = []

    def run(self, case: tv.Case, call: Call) -> Record:
        self.rows.append(call.stop)
        return Record(case.name, call, seconds=next(self._takes))


@pytest.mark.parametrize(
    ("alone", "takes"),
    [(5.0, (5.0, 5.0)), (0.0, (5.0, 0.1, 5.0)), (0.0, (5.0, 5.0))],
    ids=["what starts slowly is not slow", "a busy machine gets another chance", "what is slow"],
)
def test_the_pace_is_that_of_the_rows(alone: float, takes: tuple[float, ...]) -> None:
    runner = Paced(*takes)
    (record,) = large_call(runner, CASE, Record(CASE.name, Call(), seconds=alone))
    samples = [ROWS // 64] * (len(takes) - 1)
    if record.left_out:
        assert runner.rows == [*samples, ROWS // 64]
        assert "would take 320 s, and 20 s is the most" in record.left_out
    else:
        assert runner.rows == [*samples, ROWS]
    assert bool(record.left_out) == (alone == 0 and min(takes) == 5.0)


def test_a_lack_of_memory_is_said_and_not_blamed() -> None:
    report = judged(raising(MemoryError("Unable to allocate 65.0 MiB")))
    assert report.passed
    assert report.verdicts["large calls"] == "not judged"
    assert report.notes["large calls"] == (
        "there was not enough memory for 34,078 rows of 500: Unable to allocate 65.0 MiB"
    )

    def hungry(*_: object) -> None:
        raise MemoryError("for 20 numbers")

    with pytest.raises(AssertionError, match="raised MemoryError: for 20 numbers"):
        tv.check(tv.Subject(hungry), tv.case("float32-normal-4x5"))


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        (raising(ValueError("no")), "no, in one call with 17,039,000 elements"),
        (then(lambda y: y[: 2**15]), r"y of 34078 rows of 500 has the shape \(32768, 500"),
    ],
    ids=["an error", "a shape"],
)
def test_what_is_wrong_there_alone_is_said_with_the_size(subject: tv.Subject, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        tv.check(subject, CASE)


PROGRAM = """
import pathlib, sys
import numpy as np
import truenorm as tn
folder = pathlib.Path(sys.argv[1])
name, _, rows, d, eps = (folder / "manifest.txt").read_text().splitlines()[1].split()
x, gamma, beta, _ = np.split(
    np.fromfile(folder / f"{name}.in", "<f4"),
    np.cumsum([int(rows) * int(d), int(d), int(d)]),
)
y = tn.layer_norm(x.reshape(-1, int(d)), gamma, beta, eps=float.fromhex(eps))
y.reshape(-1)[2**24:] = 0
y.tofile(folder / f"{name}.out")
"""


@pytest.fixture
def program(tmp_path: Path) -> tv.Subject:
    file = tmp_path / "kernel.py"
    file.write_text(PROGRAM, encoding="utf-8")
    return tv.Subject(command=[sys.executable, str(file)])


@pytest.mark.slow
def test_a_program_gets_a_large_call_too(program: tv.Subject) -> None:
    with pytest.raises(AssertionError, match=r"is 0\.0, the exact answer .* in one call with"):
        tv.check(program, CASE)


def test_a_disk_that_is_full_is_not_the_programs_fault(
    program: tv.Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "write_input", full)
    runner = CommandRunner(program)
    record = runner.run(CASE, Call("large", 0, ROWS // 64))
    assert not record.failure
    assert "could not be written: [Errno 28] No space left" in record.left_out
    with pytest.raises(OSError, match="No space left"):
        runner.run(replace(CASE, name="small"), Call())
