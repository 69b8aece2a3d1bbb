"""From records to a report: what is graded, what is not judged, and what is left out."""

import io

import numpy as np
import pytest
from rich.console import Console

import truenorm as tn
import truenorm.verify as tv
from truenorm.verify.grading.grades import grade
from truenorm.verify.judge import collect
from truenorm.verify.oracle import expected
from truenorm.verify.report.html import to_html
from truenorm.verify.report.terminal import show
from truenorm.verify.running.records import Call, Record
from truenorm.verify.running.runners import InProcess
from verify.recorded import RIGHT_FORWARD, in_float64

STEPS = np.array([1, 1 + 2.0**-23], np.float32)


def test_grading_needs_nothing_but_records() -> None:
    """In any order; and of what was not run, nothing is said to pass."""
    suite = tv.cases("float32")[:4]
    records = collect(InProcess(RIGHT_FORWARD), suite)
    forwards = grade("one", suite, records, outputs=["y"])
    backwards = grade("one", suite, records[::-1], outputs=["y"])
    assert forwards.grades == backwards.grades
    verdicts = grade("one", [*suite, *tv.cases("float32")], records, outputs=["y"]).verdicts
    assert verdicts["special values"] == verdicts["subnormals kept"] == "not judged"
    assert verdicts["repeatable"] == "pass"
    empty = grade("none", suite, [], outputs=["y"])
    assert not empty.passed
    assert set(empty.verdicts.values()) == {"not judged"}


def test_a_tie_rounded_to_the_odd_neighbour_is_not_correct() -> None:
    """It is half an ulp away, as the right one is; but only one of the two is the promise."""
    case = tv.case("float32-exact-tie")
    right = expected(case).values["y"]
    assert right is not None
    ties = np.abs(expected(case).remainders["y"]) == 0.5
    assert ties.any()
    away = np.where(expected(case).remainders["y"] > 0, np.inf, -np.inf).astype(np.float32)
    odd = np.where(ties, np.nextafter(right, away), right)
    for y, passes in ((right, True), (odd, False)):
        records = [Record(case.name, Call(), {"y": y})]
        report = grade("one", [case], records, outputs=["y"], require="correct")
        assert report.passed == passes
        assert report.grades[0].max_ulp == 0.5


def test_what_leaks_from_a_special_row_fails_the_check_of_it() -> None:
    """Nothing of the case is near, so there is no error to take the largest of."""
    leaking = tv.Subject(lambda x, *_: x + 0 * x.sum())
    with pytest.raises(AssertionError, match="float32-nan-in-x"):
        tv.check(leaking, tv.case("float32-nan-in-x"))


@pytest.mark.parametrize("name", ["no-gamma-6x67", "no-beta-6x67", "gamma-without-beta"])
def test_what_is_absent_is_not_graded(name: str) -> None:
    subject = tv.Subject(
        lambda x, gamma, beta, eps: tn.layer_norm_forward(x, gamma, beta, eps=eps),
        tn.layer_norm_backward,
        also=["no-gamma", "no-beta"],
    )
    tv.check(subject, tv.case(f"float32-{name}"))


def test_a_call_that_failed_shows_nothing() -> None:
    def refuse(*_: object) -> None:
        raise ValueError("no")

    suite = tv.cases("float32")
    report = grade("none", suite, collect(InProcess(tv.Subject(refuse)), suite))
    assert report.verdicts.pop("runs") == "fail"
    assert set(report.verdicts.values()) == {"not judged"}


def test_a_backward_that_refuses_a_second_call_is_not_blamed() -> None:
    """As autograd does, which frees what it saved; it is said, and nothing is found."""
    subject = tv.Subject(
        lambda x, gamma, beta, eps: (in_float64(x, gamma, beta, eps), [beta]),
        lambda dy, saved: (dy, dy.sum(0), dy.sum(0) + 0 * saved.pop()),
    )
    case = tv.case("float32-batch-300x67")
    records = collect(InProcess(subject), [case])
    assert not any(record.failure for record in records)
    report = grade("one", [case], records)
    assert report.verdicts["runs"] == "pass"
    assert report.verdicts["saved kept"] == "not judged"
    said = "a second backward pass is refused: IndexError: pop from empty list"
    assert report.notes == {"saved kept": said}
    stream = io.StringIO()
    show(report, Console(file=stream, width=200))
    assert said in stream.getvalue()
    assert said in to_html(report)


def test_what_follows_from_something_else_is_not_judged() -> None:
    """Bits that change each time say nothing about batches; nor wrong ones about subnormals."""
    random = np.random.default_rng(0)
    unsteady = tv.Subject(lambda x, *rest: in_float64(x, *rest) * random.choice(STEPS, 1))
    assert tv.verify(unsteady).verdicts["batch-invariant"] == "not judged"
    wrong = tv.Subject(lambda x, *_: 0 * x)
    assert tv.verify(wrong).verdicts["subnormals kept"] == "not judged"
