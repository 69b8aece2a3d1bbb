"""Calls in this process: the calls of each case, results of any type, and the trial call."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.judge import verify_target
from truenorm.verify.running.records import (
    GRADIENT_LAYOUTS,
    IDLE_ROWS,
    PADDING_ROWS,
    SAME_ROWS,
    Call,
    CannotRunError,
    calls_of,
    case_of_call,
    matching_rows,
)
from truenorm.verify.running.runners import InProcess, signature
from truenorm.verify.types import Array
from verify.recorded import in_float64

CASE = tv.case("float32-normal-4x5")


def test_wrong_number_of_results() -> None:
    for forward, backward, message in (
        (in_float64, lambda dy, _: dy, "forward returned ndarray, not the tuple (y, saved)"),
        (lambda *a: (a[0], 0), lambda dy, _: (dy,), "backward returned 1 results"),
    ):
        subject = tv.Subject(forward, backward)
        record = InProcess(subject).run(CASE, Call())
        assert message in record.failure


def test_all_calls_are_used() -> None:
    kinds = {call.kind for each in tv.cases("float32") for call in calls_of(each)}
    usual = {"plain", "again", "interleaved", "later", "twice", "tiled", "many"}
    usual |= {*SAME_ROWS, *IDLE_ROWS}
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
        padded = case_of_call(CASE, Call(kind))
        for rows in padded.rows.values():
            np.testing.assert_array_equal(rows[4:], np.tile(np.c_[list(numbers)], 5))
    below, among = (case_of_call(CASE, Call(kind)) for kind in IDLE_ROWS)
    np.testing.assert_array_equal(below.dy, np.concatenate([CASE.dy, 0 * CASE.dy]))
    np.testing.assert_array_equal(among.dy[::2], CASE.dy)
    assert not among.dy[1::2].any()
    np.testing.assert_array_equal(among.x[1::2], CASE.x)


@pytest.mark.parametrize("kind", GRADIENT_LAYOUTS)
def test_gradient_layouts(kind: str) -> None:
    seen = {}

    def backward(dy: Array, x: Array) -> tuple[Array, Array, Array]:
        seen["x"], seen["dy"] = x, dy
        return dy.copy(), dy.sum(0), dy.sum(0)

    record = InProcess(tv.Subject(lambda x, *_: (x.copy(), x), backward)).run(CASE, Call(kind))
    assert not record.failure
    assert seen["x"].flags.c_contiguous
    assert seen["x"].flags.writeable
    np.testing.assert_array_equal(seen["dy"], CASE.dy, strict=True)
    flags = seen["dy"].flags
    matches = {
        "strided": seen["dy"].strides[1] == 2 * CASE.dy.itemsize,
        "padded": seen["dy"].strides[0] == 3 * 5 * CASE.dy.itemsize,
        "transposed": flags.f_contiguous and not flags.c_contiguous,
        "read-only": flags.c_contiguous and not flags.writeable,
    }
    assert [layout for layout, match in matches.items() if match] == [GRADIENT_LAYOUTS[kind]]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.longdouble, "it should be float32"),
        (str, "which are no numbers"),
        (object, "which are no numbers"),
    ],
)
def test_results_of_other_types(result: type, message: str) -> None:
    subject = tv.Subject(lambda *inputs: in_float64(*inputs).astype(result))
    with pytest.raises(AssertionError, match=message):
        tv.check(subject, CASE)
    other_byte_order = tv.Subject(lambda *inputs: in_float64(*inputs).astype(">f4"))
    tv.check(other_byte_order, CASE)


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

        failure = InProcess(tv.Subject(refuse)).run(CASE, Call()).failure
        assert message in failure
        assert len(failure) < 3000


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


def test_one_trial_call_for_each_type() -> None:
    kernel = Counted()
    subject = tv.Subject(kernel.failing, dtypes=["float16", "float32"])
    with pytest.raises(CannotRunError, match="ZeroDivisionError"):
        tv.verify(subject)
    assert kernel.calls == 2


def test_one_type_that_runs_is_enough() -> None:
    kernel = Counted()
    report = tv.verify(tv.Subject(kernel.refusing, dtypes=["float16", "float32"]))
    assert report.verdicts["runs"] == "fail"
    assert kernel.calls > 100


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (tv.LAYER_NORM, "forward(x, gamma, beta, eps) -> y"),
        (tv.norm("add_rms_norm"), "forward(x, residual, gamma, eps) -> (y, sum)"),
    ],
)
def test_signature(operation: tv.Norm, message: str) -> None:
    assert signature(tv.Subject(np.copy, operation=operation)) == message
    both = signature(tv.Subject(np.copy, np.copy, operation=operation))
    arguments = "dy, dsum, saved" if operation.adds else "dy, saved"
    assert f"and backward({arguments}) -> (dx, " in both


def test_wrong_arguments_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import truenorm.verify as tv\nsubject = tv.Subject(lambda x: x)\n", encoding="utf-8"
    )
    with pytest.raises(CannotRunError, match="takes 1 positional argument but 4 were given"):
        verify_target(str(file))
