"""What a subject refuses: a type or an eps, beside the grades."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import truenorm.verify as tv
from shared.verify.fake_report import wide
from truenorm.verify.baseline import compare_with_baseline, entries_of
from truenorm.verify.calls import Call
from truenorm.verify.grading.report import Report
from truenorm.verify.judge import grade_records, try_a_call
from truenorm.verify.operation import Case
from truenorm.verify.report.html import to_html
from truenorm.verify.report.wording import conclusion
from truenorm.verify.running.records import CannotRunError, Record
from truenorm.verify.running.runners import InProcess
from truenorm.verify.types import Array

WIDTHS = (2, 3, 5, 8, 64, 67, 96)
Forward = Callable[..., Array]


def refuses_large_eps(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Return y if eps is at most 1e-5."""
    if eps > 1.5e-5:
        raise ValueError(f"eps must be at most 1e-5, got {eps}")
    return wide(x, gamma, beta, eps)


def refuses_float16(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Return y unless x is float16."""
    if x.dtype == "float16":
        raise TypeError("float16 is not implemented")
    return wide(x, gamma, beta, eps)


def suite_of(dtypes: Sequence[str]) -> list[Case]:
    return [tv.case(f"{dtype}-normal-4x{size}") for dtype in dtypes for size in WIDTHS]


def judged(forward: Forward, *dtypes: str, suite: Sequence[Case] = ()) -> Report:
    subject = tv.Subject(forward, name="kernel", dtypes=dtypes)
    suite = suite or suite_of(dtypes)
    runner = InProcess(subject)
    records = [runner.run(case, Call()) for case in suite]
    return grade_records(subject, suite, records, subject.spec())


def test_a_type_is_refused() -> None:
    report = judged(refuses_float16, "float32", "float16")
    (refused,) = report.unsupported
    assert (refused.dtype, refused.eps, refused.cases) == ("float16", (), len(WIDTHS))
    assert refused.message == "TypeError: float16 is not implemented"
    # It has no grade, and the other type has its own.
    assert [(each.dtype, each.grade) for each in report.grades] == [("float32", "correct")]
    (finding,) = report.findings
    assert finding.symptom.startswith("float16 is unsupported: it raised TypeError: float16")
    assert "--dtype TYPE" in finding.to_try
    assert not report.passed
    assert conclusion(report) == "1 finding; unsupported: float16."
    assert "unsupported: float16: TypeError: float16 is not implemented" in to_html(report)


def test_a_known_refusal_passes_and_has_not_vanished() -> None:
    report = judged(refuses_float16, "float32", "float16")
    known = entries_of(report)
    assert [(each.check, each.dtype, each.grade) for each in known] == [
        ("unsupported", "float16", "")
    ]
    assert compare_with_baseline(report, known).passed
    one_type = compare_with_baseline(judged(wide, "float32"), known)
    assert one_type.baseline is not None
    assert one_type.baseline.vanished == ()
    mended = compare_with_baseline(judged(wide, "float32", "float16"), known)
    assert mended.baseline is not None
    assert mended.baseline.vanished == tuple(known)


def test_numbers_of_eps_are_refused() -> None:
    report = judged(refuses_large_eps, "float32")
    (refused,) = report.unsupported
    assert {*refused.eps} == {each.eps for each in suite_of(["float32"]) if each.eps > 1.5e-5}
    (finding,) = report.findings
    assert finding.symptom.startswith("eps = 1e-3, 0.125 is unsupported: it raised ValueError")
    assert "rms_norm,eps=1e-5" in finding.to_try
    assert [each.grade for each in report.grades] == ["correct"]
    assert conclusion(report) == "1 finding; unsupported: eps = 1e-3, 0.125 in float32."


def test_a_crash_at_some_sizes_is_no_refusal() -> None:
    def fails(x: Array, *others: Any) -> Array:
        if x.shape[1] in (3, 64):
            raise ValueError("no such width")
        return wide(x, *others)

    report = judged(fails, "float32")
    assert report.unsupported == ()
    assert {each.guard for each in report.findings} == {"raised"}


def test_an_eps_between_others_is_not_refused() -> None:
    """A limit is above or below; an error at one number in between is a bug."""

    def fails(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        if 1e-4 < eps < 1e-2:
            raise ValueError("division by zero")
        return wide(x, gamma, beta, eps)

    report = judged(fails, "float32")
    assert report.unsupported == ()
    assert {each.guard for each in report.findings} == {"raised"}


def test_all_types_refused_is_an_error_of_the_kernel() -> None:
    def fails(*_: Any) -> Array:
        raise ValueError("never")

    report = judged(fails, "float32", "float16")
    assert report.unsupported == ()
    assert {each.grade for each in report.grades} == {"wrong"}
    with pytest.raises(CannotRunError, match="cannot be called: it raised ValueError: never"):
        try_a_call(InProcess(tv.Subject(fails)), tv.cases("float32"))


def test_a_first_call_with_an_eps_that_is_refused_is_tried_with_others() -> None:
    assert try_a_call(InProcess(tv.Subject(refuses_large_eps)), tv.cases("float32")) == []


def test_a_result_before_the_exception_is_no_refusal() -> None:
    """Backward raised: forward computed."""

    def backward(*_: Any) -> Array:
        raise ValueError("no gradients")

    subject = tv.Subject(
        lambda *values: (wide(*values), ()), backward, dtypes=["float32", "float16"]
    )
    suite = suite_of(subject.dtypes)
    runner = InProcess(subject)
    records: list[Record] = [runner.run(case, Call()) for case in suite]
    report = grade_records(subject, suite, records, subject.spec())
    assert report.unsupported == ()
