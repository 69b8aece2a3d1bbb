"""Every planted bug is reported, correct subjects have no findings, and each guard is needed."""

from pathlib import Path

import pytest

from shared.choosing import few, slow_unless
from shared.programs import python
from shared.verify import only_by
from shared.verify.causes import assert_true
from shared.verify.planted.registry import CAUSES, FATAL, FIRST_OF_KIND, MORE_RIGHT, PLANTED
from shared.verify.planted.right import RIGHT
from shared.verify.recorded import GETS_LARGE_CALLS, graded, subject_named
from truenorm.verify.causes import depends_on_calls
from truenorm.verify.diagnosis.repeats import KEPT_STATE
from truenorm.verify.grading.report import VERDICTS
from truenorm.verify.grading.symptoms import GUARDS
from truenorm.verify.judge import verify_target
from truenorm.verify.subject import SubjectSpec

SECONDS = "each verdict takes seconds"
SLOW = pytest.mark.slow(reason=SECONDS)


@pytest.mark.parametrize(
    "name", slow_unless(lambda name: name in FIRST_OF_KIND, PLANTED, reason=SECONDS)
)
def test_a_planted_bug_is_caught_and_its_case_named(name: str) -> None:
    bug, report = PLANTED[name], graded(name)
    assert not report.passed
    assert report.findings
    for finding in report.findings:
        assert finding.symptom
        assert finding.case.startswith(tuple(bug.subject.dtypes))
    grades = {each.output: each.grade for each in report.grades}
    for output, grade in bug.grades.items():
        assert grades[output] == grade, (output, grades)
    if bug.verdict:
        assert report.verdicts[bug.verdict] == "fail"
    assert any(bug.symptom in finding.symptom for finding in report.findings)
    assert_true(report, CAUSES[name])


def test_four_of_five_bugs_have_a_cause() -> None:
    """By the table, with which each of them is compared above."""
    assert CAUSES.keys() == PLANTED.keys()
    assert sum(map(bool, CAUSES.values())) >= 0.8 * len(PLANTED)


@pytest.mark.parametrize("name", few(RIGHT | MORE_RIGHT, reason=SECONDS, count=6))
def test_a_correct_subject_has_no_findings(name: str) -> None:
    report = graded(name)
    assert report.passed, report.findings
    assert not report.findings
    claims = {
        "large calls": name in GETS_LARGE_CALLS,
        "layouts of gradients": "layouts-of-gradients" in subject_named(name).also,
        "idle rows": "idle-rows" in subject_named(name).also or "idle rows" not in report.notes,
    }
    left_out = {verdict: "not judged" for verdict, claimed in claims.items() if not claimed}
    assert report.verdicts == dict.fromkeys(VERDICTS, "pass") | left_out
    grades = {each.grade for each in report.grades}
    _, _, of_norm = name.rpartition("RMSNorm: ")
    if of_norm.startswith("truenorm, correct"):
        assert grades == {"correct"}
    if of_norm.startswith("truenorm, fast"):
        assert grades <= {"stable", "faithful", "correct"}
    if recipe := subject_named(name).recipe:
        (measured,) = report.recipes
        assert recipe in measured.names


@SLOW
@pytest.mark.parametrize("name", RIGHT)
def test_a_correct_subject_has_no_findings_at_the_full_level(name: str) -> None:
    report = graded(name, "full")
    assert not report.findings


@SLOW
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_caught_at_the_full_level(name: str) -> None:
    assert graded(name, "full", causes=False).findings


@pytest.mark.parametrize("guard", GUARDS)
def test_a_bug_that_one_guard_alone_sees(guard: str) -> None:
    """Without the guard, it slips through."""
    name = only_by.ONLY_BY[guard]
    assert {finding.guard for finding in graded(name, causes=False).findings} == {guard}


@pytest.mark.parametrize("damaged", ["x", "dy", "gamma", "beta"])
def test_damage_is_found_once(damaged: str) -> None:
    """A second call with what was damaged differs, which says nothing new."""
    report = graded(f"in-place damage to {damaged}", causes=False)
    assert {finding.guard for finding in report.findings} == {"inputs"}


@pytest.mark.parametrize(("name", "low", "high"), [
    ("one-pass variance", 1.7, 2.3),
    ("float32 mean only", 0.7, 1.3),
])  # fmt: skip
def test_the_slope_tells_the_algorithm(name: str, low: float, high: float) -> None:
    slope = graded(name, causes=False).grades[0].slope
    assert slope is not None
    assert low < slope < high


def test_stable_fails_if_correct_is_required() -> None:
    """Of one type: what is required is the same for all."""
    report = graded("truenorm, fast", require="correct", dtype="float32", causes=False)
    assert not report.passed
    assert {finding.guard for finding in report.findings} == {"rounding"}
    assert graded("truenorm, correct", require="correct", dtype="float32").passed


@pytest.mark.parametrize("name", slow_unless(lambda name: "aborts" in name, FATAL, reason=SECONDS))
@pytest.mark.usefixtures("without_long_calls")
def test_a_crash_or_a_hang_is_a_finding(name: str) -> None:
    report = verify_target(FATAL[name])
    assert not report.passed
    assert report.verdicts["runs"] == "fail"
    symptoms = " ".join(finding.symptom for finding in report.findings)
    expected = {"aborts": "crashed: SIGABRT", "leaves": "ended with exit code 0"}
    assert expected.get(name.split()[0], "no answer within 3 s") in symptoms


@pytest.mark.parametrize("guard", few(GUARDS, reason=SECONDS))
def test_a_reproducer_reproduces(guard: str, tmp_path: Path) -> None:
    """In a process of its own, in ten lines, and it says what it saw."""
    spec = SubjectSpec(str(Path(only_by.__file__).resolve()), guard)
    (finding, *_) = graded(only_by.ONLY_BY[guard], spec=spec).findings
    assert finding.guard == guard
    assert len(finding.reproducer.splitlines()) <= 11
    own_words = finding.symptom.partition("raised ")[2].partition(";")[0]
    printed = _errors_of(finding.reproducer, tmp_path)
    assert (own_words if guard in ("raised", "unsupported") else "AssertionError") in printed


def _errors_of(reproducer: str, folder: Path) -> str:
    """Run a script in a new process; return what it prints to stderr if it ends with 1."""
    script = folder / "again.py"
    script.write_text(reproducer, encoding="utf-8")
    run = python("-W", "ignore", script)
    assert run.returncode == 1, run.stdout
    return run.stderr


@pytest.mark.parametrize(
    "key", few(("workspace", "statistics", "address", "accumulator"), reason=SECONDS, count=2)
)
def test_state_between_calls_is_the_cause(key: str, tmp_path: Path) -> None:
    """Of all findings on the output: and their reproducers make the other calls first."""
    spec = SubjectSpec(str(Path(only_by.__file__).resolve()), key)
    findings = graded(only_by.OF_STATE[key], spec=spec).findings
    first = findings[0]
    assert depends_on_calls(first.causes)
    assert "buffers and caches kept between calls" in first.to_try
    related = [each for each in findings if each.output == first.output]
    assert [each.follows for each in related] == [0, *[1] * (len(related) - 1)]
    for each in related:
        assert "AssertionError" in _errors_of(each.reproducer, tmp_path)


@SLOW
def test_an_error_that_vanishes_in_a_new_process(tmp_path: Path) -> None:
    """Weights that are packed once have the same wrong bits in every later call."""
    report = verify_target(f"{Path(only_by.__file__).resolve()}:packed")
    by_guard = {each.guard: each for each in report.findings if each.output == "y"}
    assert by_guard.keys() == {"ordinary", "history", "special"}
    assert {each.causes for each in by_guard.values()} == {(KEPT_STATE,)}
    assert report.verdicts["repeatable"] == "fail"
    for each in by_guard.values():
        assert "AssertionError" in _errors_of(each.reproducer, tmp_path)
