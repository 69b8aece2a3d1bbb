"""From records to a report: grades, verdicts, domains and reproducers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import truenorm as tn
import truenorm.verify as tv
from shared.verify.fake_report import finding, one_pass
from shared.verify.recorded import RIGHT_FORWARD, in_float64
from truenorm.verify.calls import Call
from truenorm.verify.causes import Cause
from truenorm.verify.collecting import collect
from truenorm.verify.diagnosis.accuracy import Diagnosis
from truenorm.verify.grading.findings import make_findings, order_findings
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.report import Finding
from truenorm.verify.grading.symptoms import Symptom
from truenorm.verify.oracle import expected
from truenorm.verify.report.html import to_html
from truenorm.verify.report.wording import beyond_heading, beyond_text, conclusion, grade_notes
from truenorm.verify.running.records import Record
from truenorm.verify.running.runners import InProcess
from truenorm.verify.subject import SubjectOptions, SubjectSpec
from truenorm.verify.types import Array

pytestmark = pytest.mark.usefixtures("without_long_calls")

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


def test_findings_without_causes() -> None:
    def without_beta(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        return in_float64(x, gamma, 0 * beta, eps)

    suite = tv.cases("float32")[:8]
    records = collect(InProcess(tv.Subject(without_beta)), suite)
    report, plain = (
        grade("one", suite, records, outputs=["y"], causes=causes) for causes in (True, False)
    )
    assert any(each.cause for each in report.findings)
    assert not any(each.cause for each in plain.findings)
    assert [each.symptom for each in plain.findings] == [each.symptom for each in report.findings]
    assert (plain.grades, plain.verdicts) == (report.grades, report.verdicts)


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
    assert report.notes["saved kept"] == note
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


def test_all_rows_are_required_if_strict() -> None:
    report = tv.verify(tv.Subject(two_passes), strict=True)
    assert report.grades[0].grade == "unstable"
    assert (report.beyond, report.left_out, grade_notes(report)) == ((), 0, [])
    assert beyond_heading(report) == ""
    assert report.grades == report_of(tv.Domain()).grades


def test_domain_of_small_means() -> None:
    """A subject that declares no domain has this one."""
    report = tv.verify(tv.Subject(two_passes))
    assert report.passed
    assert report.grades[0].reaches("stable")
    assert report == replace(
        report_of(tv.Domain(largest=1e4, kappa=10)), seconds=report.seconds, machine=report.machine
    )
    assert "the grades are for |x| <= 1e4 and kappa <= 10: " in grade_notes(report)[0]
    assert conclusion(report).startswith("stable within |x| <= 1e4 and kappa <= 10; beyond that ")
    by_kappa, by_size = report.beyond
    assert (by_kappa.outcome, by_kappa.limit, by_kappa.values) == ("conditional", "kappa", "")
    assert 10 < by_kappa.least < 100
    assert (by_size.outcome, by_size.limit) == ("unstable", "|x|")
    assert 1e19 < by_size.least < 1e20
    assert by_size.values == "NaN"
    assert beyond_heading(report).endswith(f"{report.left_out} cases, required by --strict")
    assert "hollow: beyond |x| &lt;= 1e4 and kappa &lt;= 10, without a grade" in to_html(report)
    assert {each.case for each in report.results_beyond}.isdisjoint(
        each.case for each in report.results
    )


def test_outcome_beyond_the_domain_begins_with_the_first_row_that_has_it() -> None:
    """Means above 1e4 make a two-pass kernel conditional; it is unstable from 1e19 on."""
    (beyond,) = tv.verify(tv.Subject(two_passes, domain=tv.Domain(largest=1e4))).beyond
    assert (beyond.outcome, beyond.limit) == ("unstable", "|x|")
    assert 1e19 < beyond.least < 1e20


def test_right_kernel_passes_outside_its_domain() -> None:
    report = tv.verify(replace(RIGHT_FORWARD, domain=tv.Domain(kappa=10)))
    assert report.passed
    assert report.beyond == ()
    assert beyond_heading(report).endswith("cases, all at least stable")


def test_errors_beyond_the_domain_show_the_slope() -> None:
    report = tv.verify(tv.Subject(one_pass))
    assert report.grades[0].grade == "conditional"
    slope = report.findings[0].slope
    assert slope is not None
    assert 1.5 < slope < 2.5
    assert "kappa squared" in report.findings[0].matters


def test_failed_call_beyond_the_domain() -> None:
    def refuses(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
        if np.abs(np.nan_to_num(x, posinf=0, neginf=0)).max() > 1e30:
            raise ValueError("too large")
        return in_float64(x, gamma, beta, eps)

    report = tv.verify(tv.Subject(refuses))
    assert report.passed
    (check,) = (each for each in report.beyond if not each.limit)
    assert (check.outcome, check.outputs, check.dtype) == ("runs", (), "float32")
    assert "too large" in beyond_text(check)
    assert not tv.verify(tv.Subject(refuses), strict=True).passed


LONG = "float32-long-columns"


@pytest.mark.parametrize(("blocks", "passes"), [(1, False), (32, True)])
def test_sums_may_grow_with_the_logarithm_of_rows(blocks: int, passes: bool) -> None:
    """A sum row by row fails in any case; one in blocks fails only if it is strict."""

    def backward(dy: Array, saved: Array) -> tuple[Array, Array, Array]:
        parts = np.array_split(dy, blocks)
        sums = np.stack([np.cumsum(part, axis=0)[-1] for part in parts])
        return dy, saved, np.asarray(sums.sum(axis=0))

    subject = tv.Subject(lambda x, gamma, *_: (x, gamma), backward)
    suite = [tv.case(LONG)]
    records = collect(InProcess(subject), suite)
    for strict in (True, False):
        report = grade("sums", suite, records, outputs=["dbeta"], strict=strict)
        assert report.passed == (passes and not strict), report.grades


def test_plain_errors_belong_to_accuracy() -> None:
    """An unstable result is inaccurate on rows with NaN and subnormals as well."""
    report = tv.verify(tv.Subject(one_pass), strict=True)
    assert {each.verdict for each in report.findings} == {"accuracy"}


def finding_of(guard: str, output: str, **more: Any) -> Finding:
    return replace(finding(guard, output=output), **more)


def test_each_cause_is_named_once() -> None:
    no_eps, another = (Cause("no-term(eps)", "eps is left out"),), (Cause("another", "another"),)
    for other, follows in (
        (finding_of("ordinary", "dx", causes=no_eps), 1),
        (finding_of("ordinary", "dx", causes=another), 0),
        (finding_of("growth", "dx"), 1),
        (finding_of("growth", "dx", families=("constant",)), 0),
        (finding_of("growth", "dx", families=("constant",), slope=1.9), 1),
        (finding_of("growth", "dx", families=("constant",), slope=1.0), 0),
        (finding_of("growth", "dx", dtype="float16"), 0),
        (finding_of("growth", "sum"), 0),
        (finding_of("repeat", "dx"), 0),
    ):
        first = finding_of("growth", "y", causes=no_eps, slope=2.0)
        ordered = order_findings([other, first], ["y", "sum"])
        assert {each.output: each.follows for each in ordered} == {
            "y": 0,
            other.output: follows and 1,
        }
        if follows:
            assert ordered[0].output == "y"


def test_a_finding_may_follow_from_one_that_follows() -> None:
    """Of a bug in forward, special rows of a gradient are no finding of their own."""
    causes = (Cause("along", "the mean is over places, not channels"),)
    first, second = (finding_of("ordinary", name, causes=causes) for name in ("y", "dgamma"))
    special = finding_of("finite", "dgamma")
    ordered = order_findings([special, second, first], ["y"])
    assert [each.output for each in ordered] == ["y", "dgamma", "dgamma"]
    assert [each.follows for each in ordered] == [0, 1, 1]


def test_a_cause_is_named_beside_a_case_that_it_explains() -> None:
    """A larger error elsewhere is no example of it; without an example, there is no cause."""
    explained, worse = (tv.case(f"float32-normal-4x{size}") for size in (3, 67))
    found = [
        Symptom("ordinary", case, Record(case.name, Call()), "y", case.name, (0, 0), severity)
        for case, severity in ((explained, 1.0), (worse, 2.0))
    ]
    cause, match = Cause("no-term(eps)", "eps is left out"), "matches y within 1 ulp"
    most = "eps is left out (matches y within 1 ulp; explains {} % of the error of this case)"
    for shares, shown, named in (
        ({explained.name: 0.95}, explained, most.format(95)),
        ({explained.name: 0.996, worse.name: 0.994}, worse, most.format(99)),
        ({explained.name: 0.96, worse.name: 0.94}, explained, most.format(96)),
        ({explained.name: 0.89, worse.name: 0.7}, worse, ""),
        ({"float32-normal-4x5": 1.0}, worse, ""),
        ({}, worse, f"{cause.words} ({match})"),  # a cause without errors to compare
    ):
        diagnosis = Diagnosis((cause,), 9, shares, match)
        diagnoses = {("ordinary", "float32", "y"): diagnosis}
        (one,) = make_findings(found, [], SubjectSpec("kernel.py"), 0, diagnoses)
        assert (one.case, one.cause) == (shown.name, named)
        assert one.also_in == 1


def test_special_rows_may_follow_from_plain_ones() -> None:
    plain = finding_of("ordinary", "y", causes=(Cause("no-term(beta)", "beta is left out"),))
    for other, follows in (
        (finding_of("special", "y"), 1),
        (finding_of("finite", "y"), 1),
        (finding_of("special", "y", causes=(Cause("nan-to-0(x)", "NaN is replaced by 0"),)), 0),
        (finding_of("special", "dx"), 0),
        (finding_of("special", "y", dtype="float16"), 0),
        (finding_of("repeat", "y"), 0),
    ):
        assert order_findings([plain, other], ["y"])[-1].follows == follows, other
        unknown = replace(plain, causes=())
        assert order_findings([unknown, other], ["y"])[-1].follows == 0


@pytest.mark.parametrize("name", ["largest", "kappa"])
def test_domain_without_rows(name: str) -> None:
    for value in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=f"{name} must be above zero; got"):
            tv.Domain(**{name: value})


@pytest.mark.parametrize("options", [SubjectOptions(largest=0.0), SubjectOptions(kappa=0.0)])
def test_limit_of_zero_is_refused(options: SubjectOptions) -> None:
    subject = tv.Subject(two_passes, domain=tv.Domain(1e4, 10.0))
    with pytest.raises(ValueError, match=r"must be above zero; got 0\.0"):
        subject.with_options(options)
    assert subject.with_options(SubjectOptions(kappa=None)).domain == subject.domain
