"""The call with more than 2^24 elements: the errors it shows, and when it is left out."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import truenorm as tn
import truenorm.verify as tv
from truenorm.verify.calls import LARGE, LARGE_FORWARD, Call
from truenorm.verify.collecting import collect
from truenorm.verify.grading import large_calls
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.large_calls import LARGE_ELEMENTS, large_call, large_call_rows
from truenorm.verify.operation import Case
from truenorm.verify.running import command
from truenorm.verify.running.command import CommandRunner
from truenorm.verify.running.records import Record
from truenorm.verify.running.runners import InProcess
from truenorm.verify.types import FORMATS, Array

FORWARD_TAKES = 7.0


@cache
def example() -> Case:
    return tv.case("float32-large-2x500")


def large_rows() -> int:
    return large_call_rows(example())


def forward_rows() -> int:
    return large_call_rows(example(), LARGE_FORWARD)


def right(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    return tn.layer_norm(x, gamma, beta, eps=eps)


def with_change(change: Callable[[Array], Array | None]) -> tv.Subject:
    """Return a right subject with a change of y."""

    def forward(x: Array, *rest: Any) -> Array:
        y = right(x, *rest)
        changed = change(y)
        return y if changed is None else changed

    return tv.Subject(forward)


def judged(subject: tv.Subject) -> tv.Report:
    return grade("one", [example()], collect(InProcess(subject), [example()]), outputs=["y"])


def raising(error: Exception) -> tv.Subject:
    """Return a subject that raises only in the large call."""

    def change(y: Array) -> None:
        if len(y) == large_rows():
            raise error

    return with_change(change)


@pytest.mark.parametrize("dtype", FORMATS)
def test_an_index_that_wraps_around_is_found(dtype: str) -> None:
    """The row 2^24 elements earlier has different values."""
    case = tv.case(f"{dtype}-large-2x500")
    assert 2**24 < large_call_rows(case) * case.shape[1] <= LARGE_ELEMENTS
    assert 2**24 % case.x.size
    assert 2**24 % case.x.shape[1]


def test_the_worst_rows_are_kept() -> None:
    def wrong_twice(y: Array) -> None:
        if len(y) == large_rows():
            y[101, 7] *= 1.01
            y[33_333, 499] = np.nan

    report = judged(with_change(wrong_twice))
    (finding,) = report.findings
    assert report.verdicts["large calls"] == "fail"
    assert finding.symptom.startswith("y[33333, 499] is nan, the exact answer ")
    assert finding.symptom.endswith(f"in one call with {large_rows() * 500:,} elements")
    assert f".tiled({large_rows() // len(example().x)})\n" in finding.reproducer
    assert "y[33333, 499]" in finding.reproducer


def test_the_largest_call_has_no_backward_pass() -> None:
    """It starts beyond element 2^25; the results of rows have known answers."""
    calls: list[tuple[str, int]] = []

    def forward(x: Array, *_: object) -> tuple[Array, None]:
        calls.append(("forward", len(x)))
        y = right(x, *_)  # type: ignore[arg-type]
        y.reshape(-1)[2**25 :] = 0
        return y, None

    def backward(dy: Array, _: object) -> tuple[Array, Array, Array]:
        calls.append(("backward", len(dy)))
        return np.zeros_like(dy), dy[0], dy[0]

    subject = tv.Subject(forward, backward)
    records = list(large_call(InProcess(subject), example(), Record(example().name, Call())))
    assert calls[-3:] == [
        ("forward", large_rows()),
        ("backward", large_rows()),
        ("forward", forward_rows()),
    ]
    (worst,) = [each for each in records if each.call.kind == LARGE_FORWARD and each.results]
    assert worst.call.start * 500 >= 2**25 - 1000
    assert worst.holds == {"y": ("0 from element 2^25 on: these are not written",)}
    assert not any(each.holds for each in records if each.call.kind == LARGE)
    report = grade("one", [example()], records, outputs=["y"])
    (finding,) = report.findings
    assert finding.symptom.endswith(f"in one call with {forward_rows() * 500:,} elements")


def test_rounding_differences_pass() -> None:
    def unsteady(y: Array) -> None:
        y[len(y) // 2 :] *= np.float32(1 + 2.0**-23)

    records = list(
        large_call(InProcess(with_change(unsteady)), example(), Record(example().name, Call()))
    )
    report = grade("one", [example()], records, outputs=["y"])
    assert report.verdicts["large calls"] == "pass"


def test_a_slow_subject_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_calls, "PATIENCE", 1e-9)
    rows: list[int] = []
    report = judged(with_change(lambda y: rows.append(len(y))))
    assert report.passed
    assert report.verdicts["large calls"] == "not judged"
    assert "a call with 17,039,360 elements would take about" in report.notes["large calls"]
    assert max(rows) <= large_rows() // 64


class Paced:
    """A runner whose calls take the given times."""

    subject = tv.Subject(lambda *_: None)

    def __init__(self, *takes: float) -> None:
        self._takes = iter(takes)
        self.rows: list[int] = []

    def run(self, case: tv.Case, call: Call) -> Record:
        self.rows.append(call.stop)
        return Record(case.name, call, seconds=next(self._takes))


@pytest.mark.parametrize(("alone", "takes"), [
    (5.0, (5.0, 5.0, FORWARD_TAKES)),
    (0.0, (5.0, 0.1, 5.0, FORWARD_TAKES)),
    (0.0, (5.0, 5.0)),
], ids=["slow start", "busy machine", "slow subject"])  # fmt: skip
def test_the_time_is_estimated_by_the_rows(alone: float, takes: tuple[float, ...]) -> None:
    runner = Paced(*takes)
    record, *_ = large_call(runner, example(), Record(example().name, Call(), seconds=alone))
    samples = [large_rows() // 64] * (len(takes) - 1 - (takes[-1] == FORWARD_TAKES))
    if record.left_out:
        assert runner.rows == [*samples, large_rows() // 64]
        assert "would take about 320 s; the limit is 20 s" in record.left_out
    else:
        assert runner.rows == [*samples, large_rows(), forward_rows()]
    assert bool(record.left_out) == (alone == 0 and min(takes) == 5.0)


def test_lack_of_memory_is_noted_but_no_finding() -> None:
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


@pytest.mark.parametrize(("subject", "message"), [
    (raising(ValueError("no")), "no, in one call with 17,039,000 elements"),
    (with_change(lambda y: y[: 2**15]), r"\(32768, 500\); .* shape \(34078, 500\), in one"),
], ids=["an error", "a shape"])  # fmt: skip
def test_a_failure_of_the_large_call_names_its_size(subject: tv.Subject, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        tv.check(subject, example())


def test_a_full_disk_is_noted_but_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "write_input", full)
    runner = CommandRunner(tv.Subject(command=["true"]))
    record = runner.run(example(), Call("large", 0, large_rows() // 64))
    assert not record.failure
    assert "could not be written: [Errno 28] No space left" in record.left_out
    with pytest.raises(OSError, match="No space left"):
        runner.run(replace(example(), name="small"), Call())
