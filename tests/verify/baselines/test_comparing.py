"""Known findings pass, new ones fail, vanished ones are told: of kernels, and made by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify import judge
from truenorm.verify.baseline import against, read, updated, write
from truenorm.verify.grading.report import Known, Report
from truenorm.verify.types import Array
from verify.baselines.known import (
    FEW,
    KERNEL,
    finding,
    forgets_nan,
    judged,
    made,
    wide,
    with_verdict,
)


def numbers(report: Report) -> tuple[int, int, int]:
    assert report.baseline is not None
    return report.baseline.known, report.baseline.new, len(report.baseline.vanished)


def test_a_kernel_passes_with_what_is_known_and_fails_with_what_is_new(tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    first = judged(KERNEL)
    assert not first.passed
    assert [each.families for each in first.findings] == [("offset",)]
    assert tv.update_baseline(first, file).passed
    again = against(judged(KERNEL), read(file))
    assert (again.passed, *numbers(again)) == (True, 1, 0, 0)
    # Another case of another family, in which it fails as well.
    more = against(judged(KERNEL, [*FEW, "float32-mean-2000"]), read(file))
    assert (more.passed, *numbers(more)) == (False, 0, 1, 0)
    assert more.findings[0].new == "the baseline does not have it in mean-2000"
    # A bug that was not there before.
    planted = against(judged(tv.Subject(forgets_nan, name="kernel")), read(file))
    assert (planted.passed, *numbers(planted)) == (False, 1, 1, 0)
    assert [(each.guard, each.known) for each in planted.findings] == [
        ("special", False),
        ("growth", True),
    ]
    mended = against(judged(tv.Subject(wide, name="kernel")), read(file))
    assert (mended.passed, *numbers(mended)) == (True, 0, 0, 1)


def test_verify_takes_a_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "scope", lambda *_: [tv.case(name) for name in FEW])
    file = tmp_path / "known.json"
    with pytest.raises(ValueError, match=r"there is no baseline .*known\.json; --update"):
        tv.verify(KERNEL, baseline=file)
    assert tv.update_baseline(tv.verify(KERNEL), file).passed
    assert tv.verify(KERNEL, baseline=str(file)).passed
    assert not tv.verify(replace(KERNEL, name="another"), baseline=file).passed


def known(report: Report) -> list[Known]:
    return updated(report, ())


def test_the_case_that_is_shown_does_not_matter() -> None:
    """Which is the worst, and by how much, depends on the machine."""
    before = known(made(finding()))
    other = replace(finding(), case="float32-offset-1e7-4x67", symptom="y is NaN", guard="finite")
    assert against(made(other), before).passed


def test_a_grade_that_falls_is_new_and_one_that_rises_is_told() -> None:
    before = known(made(finding(), of_y="conditional"))
    worse = against(made(finding(), of_y="unstable"), before)
    assert (worse.passed, *numbers(worse)) == (False, 0, 1, 0)
    assert worse.findings[0].new == "the grade is unstable, in the baseline conditional"
    before = known(made(finding(), of_y="unstable"))
    better = against(made(finding(), of_y="conditional"), before)
    assert better.passed
    assert better.baseline is not None
    assert [each.grade for each in better.baseline.better] == ["unstable"]
    assert [each.grade for each in updated(better, before)] == ["conditional"]


def test_to_mend_what_hid_others_does_not_fail() -> None:
    """What is wrong on ordinary input is the one finding of an output until it is mended."""
    before = known(made(finding("ordinary", ["normal"]), of_y="wrong"))
    mended = made(finding(families=["offset", "constant"]), of_y="unstable")
    after = against(mended, before)
    assert (after.passed, *numbers(after)) == (True, 1, 0, 1)
    # From the next update on, it may not become worse again.
    again = against(made(finding("ordinary", ["normal"]), of_y="wrong"), updated(mended, before))
    assert not again.passed


def test_a_low_grade_that_no_finding_explains_is_known_by_itself() -> None:
    """Where another finding explains an output, nothing is said about its rounding."""
    report = made(finding("repeat"), of_y="faithful", require="correct")
    before = known(report)
    assert {each.check: each.grade for each in before} == {"repeat": "", "accuracy": "faithful"}
    assert (against(report, before).passed, *numbers(against(report, before))) == (True, 1, 0, 0)
    assert not against(report, [each for each in before if not each.grade]).passed
    assert not against(made(finding("repeat"), of_y="stable", require="correct"), before).passed


def test_sums_in_a_random_order_are_known_wherever_they_show() -> None:
    """As with atomics: which calls happen to differ is another matter each time."""
    calls = 0

    def flickering(rows: int) -> tv.Subject:
        def forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
            nonlocal calls
            calls += 1
            y = wide(x, gamma, beta, eps)
            up = calls % 2 and len(x) == rows
            return np.nextafter(y, np.float32(np.inf)) if up else y

        return tv.Subject(forward, name="kernel")

    cases = ["float32-normal-4x17", "float32-rows-7x5"]
    first, second = (judged(flickering(rows), cases) for rows in (4, 7))
    assert [(each.guard, each.families) for each in first.findings] == [("repeat", ("normal",))]
    assert [(each.guard, each.families) for each in second.findings] == [("repeat", ("rows",))]
    later = against(second, known(first))
    assert (later.passed, *numbers(later)) == (True, 1, 0, 0)


def test_what_depends_on_chance_is_known_in_all_families() -> None:
    """Sums in a random order happen to agree in some cases, in others next time."""
    before = known(made(finding("repeat", ["normal"]), of_y="stable"))
    later = against(made(finding("repeat", ["offset", "constant"]), of_y="stable"), before)
    assert (later.passed, *numbers(later)) == (True, 1, 0, 0)
    assert numbers(against(made(of_y="stable"), before)) == (0, 0, 1)


GOOD = made(of_y="stable")
BOTH = made(finding(families=("offset", "constant")), finding("special", ("nan-in-x",)))


@pytest.mark.parametrize(
    "report",
    [
        made(finding(), finding("special", ("nan-in-x",)), run=("normal", "offset", "nan-in-x")),
        made(finding("ordinary", ("normal",)), finding("special", ("nan-in-x",)), of_y="wrong"),
        replace(GOOD, grades=(replace(GOOD.grades[0], dtype="float64"),)),
        replace(GOOD, grades=(replace(GOOD.grades[0], output="dx"),)),
        with_verdict(
            made(finding(families=("offset", "constant"))), "special values", "not judged"
        ),
        replace(
            made(finding("special", ("nan-in-x",)), of_y="conditional"), require="conditional"
        ),
    ],
    ids=["family", "hidden", "type", "output", "verdict", "requirement"],
)
def test_what_was_not_looked_for_has_not_vanished(report: Report) -> None:
    before = known(replace(BOTH, grades=(replace(BOTH.grades[0], grade="conditional"),)))
    compared = against(report, before)
    assert numbers(compared)[2] == 0
    # And an update keeps it.
    after = {each.check: each for each in updated(report, before)}
    assert set(after["accuracy"].families) >= {"offset", "constant"}
    assert "special" in after


def test_a_recipe_that_is_not_asked_for_has_not_vanished() -> None:
    before = known(replace(made(finding("recipe"), of_y="stable"), recipe="late"))
    assert numbers(against(made(of_y="stable"), before)) == (0, 0, 0)
    assert numbers(against(replace(made(of_y="stable"), recipe="late"), before)) == (0, 0, 1)


def test_families_vanish_one_by_one() -> None:
    before = known(BOTH)
    report = made(finding(families=("offset",)), finding("special", ("nan-in-x",)))
    compared = against(report, before)
    assert compared.passed
    assert compared.baseline is not None
    assert [(each.check, each.families) for each in compared.baseline.vanished] == [
        ("accuracy", ("constant",))
    ]
    assert {each.check: each.families for each in updated(report, before)}["accuracy"] == (
        "offset",
    )


def test_a_lower_level_does_not_raise_the_grade_of_a_higher_one() -> None:
    before = known(made(finding(families=("offset", "long-rows")), of_y="unstable"))
    quick = made(finding(), of_y="conditional")
    assert [each.grade for each in updated(quick, before)] == ["unstable"]


def test_updates_keep_reasons_and_other_subjects(tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    others = [replace(each, subject="another") for each in known(BOTH)]
    mine = [replace(each, reason=f"µ-kernels: {each.check}") for each in known(BOTH)]
    write([*mine, *others], file)
    tv.update_baseline(made(finding(families=("offset", "normal"))), file)
    after = read(file)
    assert [each for each in after if each.subject == "another"] == sorted(
        others, key=lambda each: each.check
    )
    assert [each for each in after if each.subject == "kernel"] == [
        replace(mine[0], families=("normal", "offset"))
    ]
    assert "µ-kernels" in file.read_text(encoding="utf-8")


def test_the_same_findings_are_the_same_bytes(tmp_path: Path) -> None:
    texts = set()
    for turned in (False, True):
        findings = list(BOTH.findings)[:: -1 if turned else 1]
        findings = [
            replace(each, families=each.families[:: -1 if turned else 1]) for each in findings
        ]
        file = tmp_path / f"{turned}.json"
        tv.update_baseline(
            replace(BOTH, findings=tuple(findings), machine={"date": str(turned)}), file
        )
        texts.add(file.read_bytes())
        before = file.read_bytes()
        tv.update_baseline(BOTH, file)
        assert file.read_bytes() == before
    assert len(texts) == 1
