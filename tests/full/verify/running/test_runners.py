"""Calls in this process: the calls of each case, results of any type, and the trial call.

At the end, calls that repeat rows, and many equal calls.
"""

import os
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify.recorded import in_float64
from truenorm.verify.calls import (
    GRADIENT_LAYOUTS,
    IDLE_ROWS,
    MANY,
    PADDING_ROWS,
    PAUSE_SECONDS,
    SAME_ROWS,
    TILED,
    Call,
    calls_of,
    case_of_call,
    matching_rows,
)
from truenorm.verify.collecting import collect
from truenorm.verify.judge import grade_records, verify_target
from truenorm.verify.operation import Case
from truenorm.verify.running.records import CannotRunError, Record
from truenorm.verify.running.runners import InProcess
from truenorm.verify.running.tiled import first_change, repeated
from truenorm.verify.types import Array

pytestmark = pytest.mark.usefixtures("without_long_calls")


@cache
def example() -> Case:
    return tv.case("float32-normal-4x5")


class UserExit(BaseException):
    """An exception that ends a program, as those of Python."""


def test_wrong_number_of_results() -> None:
    for forward, backward, message in (
        (in_float64, lambda dy, _: dy, "forward returned ndarray, not the tuple (y, saved)"),
        (lambda *a: (a[0], 0), lambda dy, _: (dy,), "backward returned 1 results"),
    ):
        subject = tv.Subject(forward, backward)
        record = InProcess(subject).run(example(), Call())
        assert message in record.failure


def test_all_calls_are_used() -> None:
    kinds = {call.kind for each in tv.cases("float32") for call in calls_of(each)}
    usual = {"plain", "again", "interleaved", "later", "paused", "twice", "tiled", "many"}
    usual |= {"after others", *SAME_ROWS, *IDLE_ROWS}
    assert kinds == usual
    also = ["layouts-of-gradients", "idle-rows"]
    suite = tv.cases("float32", also=also)
    assert {call.kind for each in suite for call in calls_of(each)} == usual | {*GRADIENT_LAYOUTS}


@pytest.mark.parametrize("family", ["batch-300x67", "batch-sizes-4136x33", "block-size-by-batch"])
def test_rows_of_calls(family: str) -> None:
    """Calls with the same rows have them where they are compared; chunks cover the batch."""
    case = tv.case(f"float32-{family}")
    calls = [call for call in calls_of(case) if call.kind in SAME_ROWS]
    for call in calls:
        of_case, of_call = matching_rows(case, call)
        passed = case_of_call(case, call)
        for name, rows in case.rows.items():
            np.testing.assert_array_equal(passed.rows[name][of_call], rows[of_case], strict=True)
    if "sizes" not in family:
        ends = (0, 128, 256, case.shape[0])
        chunks = [Call("rows", start, stop) for start, stop in pairwise(ends)]
        assert {*chunks} <= {*calls}


def test_padding_and_idle_rows() -> None:
    for kind, numbers in PADDING_ROWS.items():
        padded = case_of_call(example(), Call(kind))
        for rows in padded.rows.values():
            np.testing.assert_array_equal(rows[4:], np.tile(np.c_[list(numbers)], 5))
    below, among = (case_of_call(example(), Call(kind)) for kind in IDLE_ROWS)
    np.testing.assert_array_equal(below.dy, np.concatenate([example().dy, 0 * example().dy]))
    np.testing.assert_array_equal(among.dy[::2], example().dy)
    assert not among.dy[1::2].any()
    np.testing.assert_array_equal(among.x[1::2], example().x)


@pytest.mark.parametrize("kind", GRADIENT_LAYOUTS)
def test_gradient_layouts(kind: str) -> None:
    seen = {}

    def backward(dy: Array, x: Array) -> tuple[Array, Array, Array]:
        seen["x"], seen["dy"] = x, dy
        return dy.copy(), dy.sum(0), dy.sum(0)

    record = InProcess(tv.Subject(lambda x, *_: (x.copy(), x), backward)).run(
        example(), Call(kind)
    )
    assert not record.failure
    assert seen["x"].flags.c_contiguous
    assert seen["x"].flags.writeable
    np.testing.assert_array_equal(seen["dy"], example().dy, strict=True)
    flags = seen["dy"].flags
    matches = {
        "strided": seen["dy"].strides[1] == 2 * example().dy.itemsize,
        "padded": seen["dy"].strides[0] == 3 * 5 * example().dy.itemsize,
        "transposed": flags.f_contiguous and not flags.c_contiguous,
        "read-only": flags.c_contiguous and not flags.writeable,
    }
    assert [layout for layout, match in matches.items() if match] == [GRADIENT_LAYOUTS[kind]]


@pytest.mark.parametrize(("result", "message"), [
    (lambda y: y.astype(np.longdouble), "it should be float32"),
    (lambda y: y.astype(str), "returned y as an array of str1024; expected an array of float"),
    (lambda y: y.astype(object), "returned y as an array of object; expected .*: convert it"),
    (lambda y: y + 0j, "as an array of complex64; expected .* of float32: return y.real"),
    (lambda y: y.astype(ml_dtypes.float8_e4m3fn), "an array of float8_e4m3fn; .*: convert it"),
    (Array.tolist, "returned y as list; expected an array of float32: return one array for"),
    (lambda y: (y, None), "returned y as tuple; expected an array of float32"),
    (lambda y: {"y": y}, "returned y as dict; expected an array of float32"),
    (lambda _: 1.0, "returned y as float; expected an array of float32"),
])  # fmt: skip
def test_results_of_other_types(result: Callable[[Array], Any], message: str) -> None:
    subject = tv.Subject(lambda *inputs: result(in_float64(*inputs)))
    with pytest.raises(AssertionError, match=message):
        tv.check(subject, example())


def test_results_in_another_byte_order() -> None:
    other_byte_order = tv.Subject(lambda *inputs: in_float64(*inputs).astype(">f4"))
    tv.check(other_byte_order, example())


def test_long_and_unprintable_exceptions() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise ValueError

    for raised, message in (
        (ValueError("x" * 10**6), "x" * 100),
        (UnprintableError(), "cannot be"),
    ):

        def refuse(*_: object, raised: Exception = raised) -> None:
            raise raised

        failure = InProcess(tv.Subject(refuse)).run(example(), Call()).failure
        assert message in failure
        assert len(failure) < 3000


@pytest.mark.parametrize("raised", [SystemExit(0), GeneratorExit("done"), UserExit()])
def test_exceptions_that_end_a_program(raised: BaseException) -> None:
    """They would end a test session; an interrupt is the user's and does."""

    def forward(*_: object) -> None:
        raise raised

    failure = InProcess(tv.Subject(forward)).run(example(), Call()).failure
    assert failure.startswith(f"raised {type(raised).__name__}")
    assert "this ends the program that calls it: raise an Exception instead" in failure


def test_interrupts() -> None:
    def forward(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        InProcess(tv.Subject(forward)).run(example(), Call())
    failure = InProcess(tv.Subject(forward), in_worker=True).run(example(), Call()).failure
    assert failure.startswith("raised KeyboardInterrupt; ")


def test_exits_of_the_process() -> None:
    """A kernel cannot end this process; a child that it forks can end itself."""

    def forward(*_: object) -> None:
        if child := os.fork():
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        os._exit(0 if child else 7)

    leave = os._exit
    failure = InProcess(tv.Subject(forward)).run(example(), Call()).failure
    assert failure == "called os._exit(0); a kernel must return or raise"
    assert os._exit is leave


def test_result_that_changes_after_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of the kernel is imitated: it writes while the runner waits."""
    results: list[Array] = []

    def forward(*inputs: Any) -> Array:
        results.append(in_float64(*inputs))
        return results[-1]

    def pause(seconds: float) -> None:
        assert seconds == PAUSE_SECONDS
        results[-1][...] = 0

    monkeypatch.setattr("truenorm.verify.running.runners.time.sleep", pause)
    batch, subject = tv.case("float32-batch-300x67"), tv.Subject(forward)
    records = collect(InProcess(subject), [batch])
    report = grade_records(subject, [batch], records, subject.spec())
    (finding,) = report.findings
    assert (finding.guard, finding.verdict) == ("overwritten", "results kept")
    assert finding.symptom == "y changes within 0.1 s after it was returned"
    assert [each.id for each in finding.causes] == ["written-after-return"]
    assert "time.sleep(0.1)" in finding.reproducer


def rms_norm(x: Array, gamma: Array, eps: float) -> Array:
    return x * gamma * eps


class Counted:
    """A kernel that counts its calls."""

    calls = 0

    def failing(self, *_: object) -> Array:
        self.calls += 1
        raise ZeroDivisionError

    def refusing(self, x: Array, *_: object) -> Array:
        self.calls += 1
        if x.dtype == np.float16:
            raise ValueError("no half")
        return x


def test_wrong_arguments() -> None:
    subject = tv.Subject(rms_norm, name="mine")
    with pytest.raises(CannotRunError) as error:
        tv.verify(subject)
    text = str(error.value)
    assert "mine cannot be called: it raised TypeError" in text
    assert "The judge calls forward(x, gamma, beta, eps) -> y; give another operation" in text


def test_two_trial_calls_for_each_type() -> None:
    """The kernel may refuse the eps of the first one."""
    kernel = Counted()
    subject = tv.Subject(kernel.failing, dtypes=["float16", "float32"])
    with pytest.raises(CannotRunError, match="ZeroDivisionError"):
        tv.verify(subject)
    assert kernel.calls == 4


def test_one_type_that_runs_is_enough() -> None:
    kernel = Counted()
    report = tv.verify(tv.Subject(kernel.refusing, dtypes=["float16", "float32"]))
    assert report.verdicts["runs"] == "fail"
    assert kernel.calls > 100


def test_signature_with_a_backward_pass() -> None:
    assert tv.Subject(np.copy, np.copy, operation="add_rms_norm").signature == (
        "forward(x, residual, gamma, eps) -> (y, sum, saved) "
        "and backward(dy, dsum, saved) -> (dx, dresidual, dgamma)"
    )


def test_wrong_arguments_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import truenorm.verify as tv\nsubject = tv.Subject(lambda x: x)\n", encoding="utf-8"
    )
    with pytest.raises(CannotRunError, match="takes 1 positional argument but 4 were given"):
        verify_target(str(file))


@cache
def five_rows() -> Case:
    return tv.case("float32-row-counts-5x8")


def record_of(change: Callable[[Array], Any], call: Call) -> Record:
    """Return the record of a right subject whose y is changed in place."""

    def forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        y = in_float64(x, gamma, beta, eps)
        change(y)
        return y

    return InProcess(tv.Subject(forward)).run(five_rows(), call)


@pytest.mark.parametrize("count", [1, 4, 5, 6, 13, 100_001])
def test_equal_copies_are_one(count: int) -> None:
    record = record_of(lambda _: None, Call(TILED, 0, count))
    y = record.results["y"]
    assert y is not None
    np.testing.assert_array_equal(
        y, in_float64(five_rows().x, five_rows().gamma, five_rows().beta, five_rows().eps)[:count]
    )
    assert not record.holds
    assert not record.damaged


@pytest.mark.parametrize("row", [5, 9, 99_999, 100_000])
def test_a_copy_that_differs_is_recorded(row: int) -> None:
    """The farthest of them, also in the last copy, which is cut off; NaN is farthest."""

    def change(y: Array) -> None:
        y[7, 3] += 0.5
        y[row, 7] = np.nan

    record = record_of(change, Call(TILED, 0, 100_001))
    assert record.holds["y"][0] == str(row - row % 5)
    assert record.results["y"] is not None
    assert np.isnan(record.results["y"][row % 5, 7])


def test_a_sign_of_zero_is_a_difference() -> None:
    rows = np.zeros((3, 4), np.float32)
    array = repeated(rows, 9)
    assert first_change(rows, array) == -1
    array[5, 2] = -0.0
    assert first_change(rows, array) == 5


def test_another_shape_is_a_failure() -> None:
    subject = tv.Subject(lambda x, *_: x[:4])
    record = InProcess(subject).run(five_rows(), Call(TILED, 0, 7))
    assert record.failure == "y is shape (4, 8); it should have the shape (7, 8)"


def test_types_that_are_not_judged_are_compared() -> None:
    subject = tv.Subject(
        lambda x, *_: (x + np.arange(len(x))[:, np.newaxis]).astype(np.longdouble)
    )
    assert InProcess(subject).run(five_rows(), Call(TILED, 0, 7)).holds["y"] == ("5",)


@pytest.mark.parametrize("name", ["x", "gamma"])
def test_damage_to_any_copy_is_seen(name: str) -> None:
    def forward(x: Array, gamma: Array, *_: object) -> Array:
        (x if name == "x" else gamma)[-1] = 7
        return x.copy()

    assert InProcess(tv.Subject(forward)).run(five_rows(), Call(TILED, 0, 13)).damaged == (name,)


def test_the_first_of_many_calls_that_differs_is_recorded() -> None:
    calls: list[None] = []

    def change(y: Array) -> None:
        calls.append(None)
        y[0, 0] += len(calls) == 321

    record = record_of(change, Call(MANY, 0, 3000))
    assert len(calls) == 321
    assert record.holds == {"y": ("320",)}
