"""From records to a report: grades, verdicts, domains and reproducers."""

import ast
import io

import numpy as np
import pytest
from rich.console import Console

import truenorm as tn
import truenorm.verify as tv
from truenorm.verify import EXTENSIONS
from truenorm.verify.grading.checks import Symptom
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.reproducer import reproducer
from truenorm.verify.judge import SubjectOptions, collect, with_options
from truenorm.verify.oracle import expected
from truenorm.verify.report.html import to_html
from truenorm.verify.report.terminal import show
from truenorm.verify.report.wording import conclusion, grade_notes
from truenorm.verify.running.records import Call, Record
from truenorm.verify.running.runners import InProcess
from truenorm.verify.subject import SubjectSpec
from truenorm.verify.suite import cases
from truenorm.verify.types import Array
from verify.recorded import RIGHT_FORWARD, in_float64

STEPS = np.array([1, 1 + 2.0**-23], np.float32)


def test_grading_needs_only_records() -> None:
    """They may come in any order, and verdicts without records are not judged."""
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


def test_tie_rounded_to_odd_is_not_correct() -> None:
    """Both neighbours are half an ulp away, and only the even one is correct."""
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


def test_leak_from_a_special_row() -> None:
    """No element has a finite answer, so there is no largest error."""
    leaking = tv.Subject(lambda x, *_: x + 0 * x.sum())
    with pytest.raises(AssertionError, match="float32-nan-in-x"):
        tv.check(leaking, tv.case("float32-nan-in-x"))


@pytest.mark.parametrize("name", ["no-gamma-6x67", "no-beta-6x67", "gamma-without-beta"])
def test_absent_output_is_not_graded(name: str) -> None:
    subject = tv.Subject(
        lambda x, gamma, beta, eps: tn.layer_norm_forward(x, gamma, beta, eps=eps),
        tn.layer_norm_backward,
        also=["no-gamma", "no-beta"],
    )
    tv.check(subject, tv.case(f"float32-{name}"))


def test_failed_call_judges_no_verdict() -> None:
    def refuse(*_: object) -> None:
        raise ValueError("no")

    suite = tv.cases("float32")
    report = grade("none", suite, collect(InProcess(tv.Subject(refuse)), suite))
    assert report.verdicts.pop("runs") == "fail"
    assert set(report.verdicts.values()) == {"not judged"}


def test_backward_that_cannot_be_repeated_is_no_finding() -> None:
    """Autograd frees its saved state: the note says so."""
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
    note = "a second backward pass is refused: IndexError: pop from empty list"
    assert report.notes == {"saved kept": note}
    stream = io.StringIO()
    show(report, Console(file=stream, width=200))
    assert note in stream.getvalue()
    assert note in to_html(report)


def test_consequences_are_not_judged() -> None:
    """Random bits say nothing about batches, and wrong results nothing about subnormals."""
    random = np.random.default_rng(0)
    unsteady = tv.Subject(lambda x, *rest: in_float64(x, *rest) * random.choice(STEPS, 1))
    assert tv.verify(unsteady).verdicts["batch-invariant"] == "not judged"
    wrong = tv.Subject(lambda x, *_: 0 * x)
    assert tv.verify(wrong).verdicts["subnormals kept"] == "not judged"


def two_passes(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Squares overflow beyond 1e19, and the mean is rounded once."""
    centred = x - x.mean(axis=-1, keepdims=True)
    w = (centred * centred).mean(axis=-1, keepdims=True) + np.float32(eps)
    return np.asarray(gamma * centred / np.sqrt(w) + beta)


def report_of(domain: tv.Domain, require: str = "stable") -> tv.Report:
    return tv.verify(tv.Subject(two_passes, domain=domain), require=require)


def test_without_a_domain_it_is_unstable() -> None:
    report = report_of(tv.Domain())
    assert report.grades[0].grade == "unstable"
    assert "range" not in report.verdicts
    assert grade_notes(report) == []


def test_domain_of_small_numbers() -> None:
    report = report_of(tv.Domain(largest=1e4), "conditional")
    assert report.passed
    assert report.grades[0].grade == "conditional"
    assert report.verdicts["range"] == "fail"
    assert 0 < report.left_out < len(tv.cases("float32"))
    assert report.left_out + report.cases == len(tv.cases("float32"))
    assert not report_of(tv.Domain(largest=1e4), "stable").passed


def test_domain_of_small_means() -> None:
    report = report_of(tv.Domain(largest=1e4, kappa=10))
    assert report.passed
    assert report.grades[0].reaches("stable")
    assert "|x| up to 10000 and kappa up to 10" in grade_notes(report)[0]
    assert conclusion(report).endswith("stable for |x| up to 10000 and kappa up to 10.")


def test_bug_within_the_domain_is_found() -> None:
    def wrong(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        return two_passes(x, gamma, beta, eps) * np.float32(1.01)

    subject = tv.Subject(wrong, domain=tv.Domain(largest=1e4, kappa=10))
    assert tv.verify(subject).grades[0].grade == "wrong"


def test_right_kernel_passes_outside_its_domain() -> None:
    def right(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        wide = x.astype(np.longdouble)
        centred = wide - wide.mean(axis=-1, keepdims=True)
        w = (centred * centred).mean(axis=-1, keepdims=True) + eps
        y: Array = (gamma * (centred / np.sqrt(w)) + beta).astype(x.dtype)
        return y

    report = tv.verify(tv.Subject(right, domain=tv.Domain(kappa=10)))
    assert report.passed
    assert report.verdicts["range"] == "pass"


@pytest.mark.parametrize("name", ["largest", "kappa"])
def test_domain_without_rows(name: str) -> None:
    for value in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=f"{name} must be above zero; got"):
            tv.Domain(**{name: value})


@pytest.mark.parametrize("options", [SubjectOptions(largest=0.0), SubjectOptions(kappa=0.0)])
def test_limit_of_zero_is_refused(options: SubjectOptions) -> None:
    subject = tv.Subject(two_passes, domain=tv.Domain(1e4, 10.0))
    with pytest.raises(ValueError, match=r"must be above zero; got 0\.0"):
        with_options(subject, options)
    assert with_options(subject, SubjectOptions(kappa=None)).domain == subject.domain


LONGEST = max(cases("float32", "full", EXTENSIONS), key=lambda case: len(case.name))
ROWS = Call("rows", 0, 1)


def lines_of(guard: str, text: str, call: Call) -> list[str]:
    record = Record(LONGEST.name, call)
    symptom = Symptom(guard, LONGEST, record, "dx", text, (1, 2))
    return reproducer(symptom, SubjectSpec("kernel.py")).splitlines()


@pytest.mark.parametrize("call", [Call(), ROWS], ids=str)
@pytest.mark.parametrize(
    "text", ["dx is off", "dx is off " * 50, "x" * 500, "two\nlines \x1b[31m"], ids=len
)
@pytest.mark.parametrize("guard", ["ordinary", "batch", "raised", "type"])
def test_the_comment_fits_80_columns(guard: str, text: str, call: Call) -> None:
    lines = lines_of(guard, text, call)
    ast.parse("\n".join(lines))
    comment = [line for line in lines if line.startswith("#")]
    assert 1 <= len(comment) <= 2
    assert lines[: len(comment)] == comment
    assert max(map(len, comment)) <= 80
    assert comment[0].startswith(f"# {LONGEST.name}:")
    assert all(line.isprintable() for line in comment)
    assert len(lines) <= 10


def test_truncated_comment_is_marked_and_numbers_fit() -> None:
    assert lines_of("type", "dx is off " * 50, Call())[1].endswith(" …")
    lines = lines_of("ordinary", "dx is off", Call())
    assert "…" not in "".join(lines)
    # The comment behind a number has the same number, to the bit.
    (behind,) = (line for line in lines if "  # " in line)
    assert behind.startswith("exact = ")
    assert len(behind) <= 80
