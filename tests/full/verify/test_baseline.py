"""Baselines: known findings pass, new ones fail, vanished ones are listed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify.fake_report import (
    FEW,
    KERNEL,
    finding,
    forgets_nan,
    judged,
    made,
    wide,
    with_verdict,
)
from truenorm.verify import judge
from truenorm.verify.baseline import (
    SCHEMA,
    entries_of,
    read_baseline,
    updated_entries,
    write_baseline,
)
from truenorm.verify.baseline import compare_with_baseline as compare
from truenorm.verify.grading.report import Known, Report
from truenorm.verify.types import Array

pytestmark = pytest.mark.usefixtures("without_long_calls")


def numbers(report: Report) -> tuple[int, int, int]:
    assert report.baseline is not None
    return report.baseline.known, report.baseline.new, len(report.baseline.vanished)


def test_known_findings_pass_and_new_ones_fail(tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    first = judged(KERNEL)
    assert not first.passed
    assert [each.families for each in first.findings] == [("offset",)]
    assert tv.update_baseline(first, file).passed
    again = compare(judged(KERNEL), read_baseline(file))
    assert (again.passed, *numbers(again)) == (True, 1, 0, 0)
    # Another case of another family, in which it fails as well.
    more = compare(judged(KERNEL, [*FEW, "float32-mean-2000"]), read_baseline(file))
    assert (more.passed, *numbers(more)) == (False, 0, 1, 0)
    assert more.findings[0].new == "the baseline does not have it in mean-2000"
    # A bug that was not there before.
    planted = compare(judged(tv.Subject(forgets_nan, name="kernel")), read_baseline(file))
    assert (planted.passed, *numbers(planted)) == (False, 1, 1, 0)
    assert {each.guard: each.known for each in planted.findings} == {"special": 0, "growth": 1}
    mended = compare(judged(tv.Subject(wide, name="kernel")), read_baseline(file))
    assert (mended.passed, *numbers(mended)) == (True, 0, 0, 1)


def test_a_finding_follows_from_the_same_one_in_another_order() -> None:
    """New findings come first; one that follows names the place of its leader there."""
    leader, new = finding(), finding("repeat")
    follower = replace(finding(output="dx"), follows=1)
    compared = compare(made(leader, new, follower), entries_of(made(leader)))
    assert [(each.output, each.known, each.follows) for each in compared.findings] == [
        ("y", False, 0),
        ("dx", False, 3),
        ("y", True, 0),
    ]


def test_verify_takes_a_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "scope", lambda *_: [tv.case(name) for name in FEW])
    file = tmp_path / "known.json"
    with pytest.raises(ValueError, match=r"no baseline .*known\.json; write it with --update"):
        tv.verify(KERNEL, strict=True, baseline=file)
    assert tv.update_baseline(tv.verify(KERNEL, strict=True), file).passed
    assert tv.verify(KERNEL, strict=True, baseline=str(file)).passed
    assert not tv.verify(replace(KERNEL, name="another"), strict=True, baseline=file).passed


def known(report: Report) -> list[Known]:
    return updated_entries(report, ())


def test_example_of_a_finding_does_not_matter() -> None:
    """The worst case and its error depend on the machine."""
    before = known(made(finding()))
    other = replace(finding(), case="float32-offset-1e7-4x67", symptom="y is NaN", guard="finite")
    assert compare(made(other), before).passed


def test_lower_grade_is_new_and_higher_grade_is_listed() -> None:
    before = known(made(finding(), of_y="conditional"))
    worse = compare(made(finding(), of_y="unstable"), before)
    assert (worse.passed, *numbers(worse)) == (False, 0, 1, 0)
    assert worse.findings[0].new == "the grade is unstable, in the baseline conditional"
    before = known(made(finding(), of_y="unstable"))
    better = compare(made(finding(), of_y="conditional"), before)
    assert better.passed
    assert better.baseline is not None
    assert [each.grade for each in better.baseline.better] == ["unstable"]
    assert [each.grade for each in updated_entries(better, before)] == ["conditional"]


def test_fix_that_uncovers_others_passes() -> None:
    """An output that is wrong on ordinary input has no other finding until it is fixed."""
    before = known(made(finding("ordinary", ["normal"]), of_y="wrong"))
    mended = made(finding(families=["offset", "constant"]), of_y="unstable")
    after = compare(mended, before)
    assert (after.passed, *numbers(after)) == (True, 1, 0, 1)
    # From the next update on, it may not become worse again.
    again = compare(
        made(finding("ordinary", ["normal"]), of_y="wrong"), updated_entries(mended, before)
    )
    assert not again.passed


def test_low_grade_without_a_finding() -> None:
    """An output with another finding has no finding about its rounding."""
    report = made(finding("repeat"), of_y="faithful", require="correct")
    before = known(report)
    assert {each.check: each.grade for each in before} == {"repeat": "", "accuracy": "faithful"}
    assert (compare(report, before).passed, *numbers(compare(report, before))) == (True, 1, 0, 0)
    assert not compare(report, [each for each in before if not each.grade]).passed
    assert not compare(made(finding("repeat"), of_y="stable", require="correct"), before).passed


def test_a_known_shape_passes_beside_results_of_the_right_shape() -> None:
    def flat(x: Array, *rest: Any) -> Array:
        y = wide(x, *rest).astype(x.dtype)
        return y.reshape(1, -1) if x.shape[1] == 17 else y

    report = judged(tv.Subject(flat, name="flat"))
    assert [each.grade for each in report.grades] == ["wrong"]
    assert [each.guard for each in report.findings] == ["shape"]
    before = known(report)
    assert [(each.check, each.grade) for each in before] == [("shape", "")]
    assert compare(report, before).passed


def test_random_sums_are_known_in_all_families() -> None:
    """With atomics, different calls differ in each run."""
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
    later = compare(second, known(first))
    assert (later.passed, *numbers(later)) == (True, 1, 0, 0)
    right = judged(tv.Subject(wide, name="kernel"), cases)
    assert numbers(compare(right, known(first))) == (0, 0, 1)


GOOD = made(of_y="stable")
BOTH = made(finding(families=("offset", "constant")), finding("special", ("nan-in-x",)))


@pytest.mark.parametrize("report", [
    made(finding(), finding("special", ("nan-in-x",)), run=("normal", "offset", "nan-in-x")),
    made(finding("ordinary", ("normal",)), finding("special", ("nan-in-x",)), of_y="wrong"),
    replace(GOOD, grades=(replace(GOOD.grades[0], dtype="float64"),)),
    replace(GOOD, grades=(replace(GOOD.grades[0], output="dx"),)),
    with_verdict(made(finding(families=("offset", "constant"))), "special values", "not judged"),
    replace(made(finding("special", ("nan-in-x",)), of_y="conditional"), require="conditional"),
], ids=["family", "hidden", "type", "output", "verdict", "requirement"])  # fmt: skip
def test_unchecked_findings_have_not_vanished(report: Report) -> None:
    before = known(replace(BOTH, grades=(replace(BOTH.grades[0], grade="conditional"),)))
    compared = compare(report, before)
    assert numbers(compared)[2] == 0
    # And an update keeps it.
    after = {each.check: each for each in updated_entries(report, before)}
    assert set(after["accuracy"].families) >= {"offset", "constant"}
    assert "special" in after


def test_recipe_that_is_not_required_has_not_vanished() -> None:
    before = known(replace(made(finding("recipe"), of_y="stable"), recipe="late"))
    assert numbers(compare(made(of_y="stable"), before)) == (0, 0, 0)
    assert numbers(compare(replace(made(of_y="stable"), recipe="late"), before)) == (0, 0, 1)


def test_families_vanish_one_by_one() -> None:
    before = known(BOTH)
    report = made(finding(families=("offset",)), finding("special", ("nan-in-x",)))
    compared = compare(report, before)
    assert compared.passed
    assert compared.baseline is not None
    assert [(each.check, each.families) for each in compared.baseline.vanished] == [
        ("accuracy", ("constant",))
    ]
    assert {each.check: each.families for each in updated_entries(report, before)}["accuracy"] == (
        "offset",
    )


def test_lower_level_does_not_raise_a_grade() -> None:
    before = known(made(finding(families=("offset", "long-rows")), of_y="unstable"))
    quick = made(finding(), of_y="conditional")
    assert [each.grade for each in updated_entries(quick, before)] == ["unstable"]


def test_update_preserves_reasons_and_other_subjects(tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    others = [replace(each, subject="another") for each in known(BOTH)]
    mine = [replace(each, reason=f"µ-kernels: {each.check}") for each in known(BOTH)]
    write_baseline([*mine, *others], file)
    tv.update_baseline(made(finding(families=("offset", "normal"))), file)
    after = read_baseline(file)
    assert [each for each in after if each.subject == "another"] == sorted(
        others, key=lambda each: each.check
    )
    assert [each for each in after if each.subject == "kernel"] == [
        replace(mine[0], families=("normal", "offset"))
    ]
    assert "µ-kernels" in file.read_text(encoding="utf-8")


def test_equal_findings_give_equal_bytes(tmp_path: Path) -> None:
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


ENTRY = {
    "subject": "kernel",
    "operation": "layer_norm",
    "dtype": "float32",
    "output": "y",
    "check": "accuracy",
    "families": ["offset"],
    "grade": "unstable",
    "reason": "one pass: issue 12",
}


def of(*entries: Any) -> dict[str, Any]:
    return {"schema": SCHEMA, "findings": list(entries)}


def write_content(folder: Path, content: Any) -> Path:
    file = folder / "known.json"
    file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return file


def test_round_trip(tmp_path: Path) -> None:
    file = write_content(tmp_path, of(ENTRY))
    assert read_baseline(file) == (Known(**{**ENTRY, "families": ("offset",)}),)  # type: ignore[arg-type]
    write_baseline(read_baseline(file), file)
    assert json.loads(file.read_text(encoding="utf-8"))["findings"] == [ENTRY]
    assert file.read_text(encoding="utf-8").endswith("}\n")


@pytest.mark.parametrize(("content", "message"), [
    (b"{", "cannot be read"),
    (b"\xff\xfe\x00", "cannot be read"),
    ([], "is not a baseline that this version can read"),
    ({"schema": "truenorm/baseline-2", "findings": []}, "is not a baseline that this version"),
    ({"schema": SCHEMA}, 'and a list "findings"'),
    (of(7), r"findings\[0\] must be an object"),
    (of(ENTRY | {"raeson": "typo"}), r"findings\[0\] has the unknown key 'raeson'; known"),
    (of({"subject": "kernel"}), r"findings\[0\] has no 'operation'"),
    (of(ENTRY | {"families": "offset"}), "must have a list of strings as 'families'"),
    (of(ENTRY | {"reason": None}), "must have a string as 'reason'"),
    (of(ENTRY | {"grade": "good"}), "has the check 'accuracy' and the grade 'good'"),
    (of(ENTRY | {"check": "repeat"}), "has the check 'repeat' and the grade 'unstable'"),
    (of(ENTRY, ENTRY | {"reason": "other"}), r"findings\[1\] duplicates findings\[0\]"),
])  # fmt: skip
def test_malformed_file(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_baseline(write_content(tmp_path, content))
    with pytest.raises(ValueError, match="cannot be read"):
        read_baseline(tmp_path)
