"""Functions that are called where they are, and what they may return."""

from itertools import pairwise

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.running.records import (
    GRADIENT_LAYOUTS,
    IDLE_ROWS,
    PADDING_ROWS,
    SAME_ROWS,
    Call,
    calls_of,
    case_of_call,
    matching_rows,
)
from truenorm.verify.running.runners import InProcess
from truenorm.verify.types import Array
from verify.recorded import in_float64

CASE = tv.case("float32-normal-4x5")


def test_a_wrong_pair_is_a_finding() -> None:
    for forward, backward, said in (
        (in_float64, lambda dy, _: dy, "forward returned ndarray, not the tuple (y, saved)"),
        (lambda *a: (a[0], 0), lambda dy, _: (dy,), "backward returned 1 results"),
    ):
        subject = tv.Subject(forward, backward)
        record = InProcess(subject).run(CASE, Call())
        assert said in record.failure


def test_every_way_of_calling_is_used() -> None:
    kinds = {call.kind for each in tv.cases("float32") for call in calls_of(each)}
    usual = {"plain", "again", "interleaved", "later", "twice", *SAME_ROWS, *IDLE_ROWS}
    assert kinds == usual
    also = ["layouts-of-gradients", "idle-rows"]
    asked = tv.cases("float32", also=also)
    assert {call.kind for each in asked for call in calls_of(each)} == usual | {*GRADIENT_LAYOUTS}


@pytest.mark.parametrize("family", ["batch-300x67", "batch-sizes-4136x33", "block-size-by-batch"])
def test_rows_are_put_where_they_are_looked_for(family: str) -> None:
    """In every call that must not change them; the chunks among these are the whole batch."""
    case = tv.case(f"float32-{family}")
    calls = [call for call in calls_of(case) if call.kind in SAME_ROWS]
    for call in calls:
        mine, theirs = matching_rows(case, call)
        asked = case_of_call(case, call)
        for name, rows in case.rows.items():
            np.testing.assert_array_equal(asked.rows[name][theirs], rows[mine], strict=True)
    if "sizes" not in family:
        ends = (0, 128, 256, case.shape[0])
        chunks = [Call("rows", start, stop) for start, stop in pairwise(ends)]
        assert {*chunks} <= {*calls}


def test_padding_is_below_and_idle_rows_have_no_gradients() -> None:
    for kind, numbers in PADDING_ROWS.items():
        more = case_of_call(CASE, Call(kind))
        for rows in more.rows.values():
            np.testing.assert_array_equal(rows[4:], np.tile(np.c_[list(numbers)], 5))
    below, among = (case_of_call(CASE, Call(kind)) for kind in IDLE_ROWS)
    np.testing.assert_array_equal(below.dy, np.concatenate([CASE.dy, 0 * CASE.dy]))
    np.testing.assert_array_equal(among.dy[::2], CASE.dy)
    assert not among.dy[1::2].any()
    np.testing.assert_array_equal(among.x[1::2], CASE.x)


@pytest.mark.parametrize("kind", GRADIENT_LAYOUTS)
def test_gradients_alone_are_laid_out_otherwise(kind: str) -> None:
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
    told = {
        "strided": seen["dy"].strides[1] == 2 * CASE.dy.itemsize,
        "padded": seen["dy"].strides[0] == 3 * 5 * CASE.dy.itemsize,
        "transposed": flags.f_contiguous and not flags.c_contiguous,
        "read-only": flags.c_contiguous and not flags.writeable,
    }
    assert [layout for layout, here in told.items() if here] == [GRADIENT_LAYOUTS[kind]]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (np.longdouble, "it should be float32"),
        (str, "which are no numbers"),
        (object, "which are no numbers"),
    ],
)
def test_results_of_other_types_are_named(result: type, said: str) -> None:
    subject = tv.Subject(lambda *inputs: in_float64(*inputs).astype(result))
    with pytest.raises(AssertionError, match=said):
        tv.check(subject, CASE)
    in_another_order = tv.Subject(lambda *inputs: in_float64(*inputs).astype(">f4"))
    tv.check(in_another_order, CASE)


def test_an_exception_is_told_in_brief() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise ValueError

    for raised, said in ((ValueError("x" * 10**6), "x" * 100), (UnprintableError(), "cannot be")):

        def refuse(*_: object, raised: Exception = raised) -> None:
            raise raised

        failure = InProcess(tv.Subject(refuse)).run(CASE, Call()).failure
        assert said in failure
        assert len(failure) < 3000
