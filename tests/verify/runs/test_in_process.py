"""Functions that are called where they are, and what they may return."""

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.runs.calls import Call, calls_of
from truenorm.verify.runs.in_process import InProcess
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
    assert kinds == {"plain", "again", "interleaved", "later", "twice", "rows"}


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (np.longdouble, "it should be float32"),
        (str, "which are no numbers"),
        (object, "which are no numbers"),
    ],
)
def test_results_of_other_types_are_named(result: type, said: str) -> None:
    subject = tv.Subject(lambda *given: in_float64(*given).astype(result))
    with pytest.raises(AssertionError, match=said):
        tv.check(subject, CASE)
    in_another_order = tv.Subject(lambda *given: in_float64(*given).astype(">f4"))
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
