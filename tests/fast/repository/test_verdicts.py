"""The fingerprint of verdicts: what it keeps of a report, and what a comparison prints."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools.verdicts import __main__ as command
from tools.verdicts.compare import changes, compare
from tools.verdicts.files import RECORD, read, write
from tools.verdicts.kernels import NEED_TORCH, PARTS, formulas
from tools.verdicts.projection import Fingerprint, fingerprint
from truenorm.verify.causes import Cause
from truenorm.verify.grading.report import Report
from truenorm.verify.running.records import Record

NAME = "swiglu: a tanh"
ID, WORDS = "tanh(sigma(x))", "y: sigma(x) is a tanh"


def judged() -> tuple[Report, Sequence[Record]]:
    (kernel,) = (each for each in formulas() if each.name == NAME)
    with np.errstate(all="ignore"):
        return kernel.judge()


@pytest.fixture(scope="module")
def first() -> tuple[Report, Sequence[Record]]:
    return judged()


def taken(report: Any, records: Sequence[Any]) -> Fingerprint:
    return fingerprint(NAME, report, records)


def with_causes(report: Report, causes: tuple[Cause, ...]) -> Report:
    """Return the report with other causes of its findings."""
    words = " or ".join(each.words for each in causes)
    findings = [replace(each, causes=causes, cause=words) for each in report.findings]
    return replace(report, findings=tuple(findings))


def with_result(records: Sequence[Record], change: Any) -> list[Record]:
    """Return the records with another y in the first of them."""
    record = records[0]
    return [replace(record, results={**record.results, "y": change}), *records[1:]]


def test_a_second_run_is_equal(first: tuple[Report, Sequence[Record]]) -> None:
    one, other = taken(*first), taken(*judged())
    assert one == other
    assert one.verdict.startswith("FAIL")
    assert [each.split(" | ")[:3] for each in one.findings] == [["y", "ordinary", ID]]
    (words,) = one.words
    assert words.startswith(WORDS)
    assert {record.case for record in first[1]} == {*one.cases}


def test_times_addresses_and_order_do_not_count(first: tuple[Report, Sequence[Record]]) -> None:
    report, records = first
    later = [replace(each, seconds=each.seconds + 1) for each in reversed(records)]
    assert taken(report, records) == taken(report, later)
    failed = [
        [replace(each, failure=f"raised ValueError: <f at {address}>") for each in records]
        for address in ("0x7f0f4cb7eb20", "0x7f0f4fdd0c80")
    ]
    assert taken(report, failed[0]) == taken(report, failed[1]) != taken(report, records)


def test_a_dropped_cause_is_a_lost_finding(first: tuple[Report, Sequence[Record]]) -> None:
    report, records = first
    found, _, words = changes(taken(*first), taken(with_causes(report, ()), records))
    (case,) = {each.case for each in report.findings}
    assert found == [
        f"finding lost:  y | ordinary | {ID} | {case}",
        f"finding found: y | ordinary | - | {case}",
    ]
    assert words[0].startswith(f"words lost:  {WORDS}")


def test_words_alone_are_apart(first: tuple[Report, Sequence[Record]]) -> None:
    report, records = first
    other = taken(with_causes(report, (Cause(ID, "sigma is tanh"),)), records)
    text, count = compare({NAME: taken(*first)}, {NAME: other})
    assert count == 0
    assert "Words that changed" in text
    assert "words found: y: sigma is tanh" in text


def test_another_cause_is_seen(first: tuple[Report, Sequence[Record]]) -> None:
    report, records = first
    other = taken(with_causes(report, (Cause("other", "sigma(x) is a tanh"),)), records)
    lost, found = changes(taken(*first), other).verdicts
    assert f"| {ID} |" in lost
    assert "| other |" in found


def test_other_bits_are_other_records(first: tuple[Report, Sequence[Record]]) -> None:
    report, records = first
    y = records[0].results["y"]
    assert y is not None
    other = taken(report, with_result(records, np.nextafter(y, np.float32(np.inf))))
    assert changes(taken(*first), other) == ([f"records of a case: {records[0].case}"], [], [])


def test_other_errors_are_seen(first: tuple[Report, Sequence[Record]]) -> None:
    report, records = first
    worse = replace(report.results[0], ulp=report.results[0].ulp + 1)
    other = taken(replace(report, results=(worse, *report.results[1:])), records)
    assert changes(taken(*first), other) == ([f"errors of a case: {worse.case}"], [], [])


def test_new_cases_are_apart(first: tuple[Report, Sequence[Record]]) -> None:
    report, records = first
    new = taken(report, [*records, replace(records[0], case="float32-new-4x67")])
    text, count = compare({NAME: taken(*first)}, {NAME: new})
    assert count == 0
    assert "new case: float32-new-4x67" in text


def test_grades_and_verdicts_are_seen(first: tuple[Report, Sequence[Record]]) -> None:
    report, records = first
    better = [replace(each, grade="correct") for each in report.grades]
    states = {**report.verdicts, "repeatable": "fail"}
    other = taken(replace(report, grades=tuple(better), verdicts=states), records)
    lines = changes(taken(*first), other).verdicts
    assert lines[0].startswith("verdict: FAIL; not judged")
    assert any(each.startswith("grade lost: ") for each in lines)


def test_bits_of_a_random_kernel_are_not_kept(first: tuple[Report, Sequence[Record]]) -> None:
    report, records = first
    random = replace(report, verdicts={**report.verdicts, "repeatable": "fail"})
    assert {*taken(random, records).cases.values()} == {"****"}


def test_a_kernel_of_one_run_counts(first: tuple[Report, Sequence[Record]]) -> None:
    text, count = compare({NAME: taken(*first)}, {})
    assert count == 1
    assert f"{NAME}: only in the old run" in text


def test_files_keep_all(first: tuple[Report, Sequence[Record]], tmp_path: Path) -> None:
    one = taken(*first)
    other = one._replace(kernel="another", findings=(), words=(), facts=("a", "b"), cases={})
    write(tmp_path / "part.txt", [one, other])
    assert read(tmp_path / "part.txt") == {NAME: one, "another": other}


@pytest.mark.parametrize("part", PARTS)
def test_the_record_has_the_kernels_of_each_part(part: str) -> None:
    """If this fails: ``python -m tools.verdicts --record --parts PART``, if that is meant."""
    recorded = read(RECORD / f"{part}.txt")
    assert recorded
    if part not in NEED_TORCH:
        names = [each.name for each in PARTS[part]()]
        assert sorted(names) == sorted(recorded)


def test_parts_without_pytorch_are_left_out_aloud(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    assert command.parts_here([*PARTS]) == [each for each in PARTS if each not in NEED_TORCH]
    assert capsys.readouterr().err.count("PyTorch is not installed") == len(NEED_TORCH)
