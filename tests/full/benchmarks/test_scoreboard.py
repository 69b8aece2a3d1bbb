"""The scoreboard: its summary, its tables and that of the README; no peer is needed."""

import json
import re
from typing import Any

import pytest

import truenorm.verify as tv
from benchmarks import scoreboard
from benchmarks.common import RESULTS, fill, read_results
from benchmarks.scoreboard import BOARDS, FOLDER
from shared.verify.recorded import leave_out_long_calls
from truenorm import textbook
from truenorm.tools import strict_json
from truenorm.verify.grading.report import GRADES
from truenorm.verify.operations import OPERATIONS

FILES = {name: read_results(board.results) for name, board in BOARDS.items()}
PUBLISHED = FILES["layer_norm"]


@pytest.fixture(scope="module")
def textbook_entry() -> Any:
    """Return the entry of the textbook form in float32."""
    subject = tv.Subject(textbook.forward, textbook.backward, name="textbook")
    with pytest.MonkeyPatch.context() as monkeypatch:
        leave_out_long_calls(monkeypatch)
        reports = [tv.verify(subject, strict=strict) for strict in (True, False)]
    entry = {"versions": {"python": "3"}, **scoreboard.summary(*reports)}
    return json.loads(strict_json.dumps(entry))


@pytest.mark.parametrize("operation", BOARDS)
def test_all_subjects_are_in_the_file(operation: str) -> None:
    published = FILES[operation]
    assert published["operation"] == operation
    assert list(published["subjects"]) == list(BOARDS[operation].subjects)
    assert published["level"] == "quick"


@pytest.mark.parametrize("operation", BOARDS)
def test_truenorm_is_correct_and_fast_mode_stable(operation: str) -> None:
    subjects = FILES[operation]["subjects"]
    correct = [grade["grade"] for grade in subjects["truenorm"]["grades"]]
    assert correct == ["correct"] * 4 * len(OPERATIONS[operation].outputs)
    fast = {grade["grade"] for grade in subjects["truenorm-fast"]["grades"]}
    assert fast <= {"stable", "faithful", "correct"}
    assert not subjects["truenorm"]["findings"]
    assert not subjects["truenorm-fast"]["findings"]


@pytest.mark.parametrize("operation", BOARDS)
def test_no_grade_is_worse_within_the_domain(operation: str) -> None:
    for key, subject in FILES[operation]["subjects"].items():
        assert 0 < subject["cases_within"] < subject["cases"]
        for within, everywhere in zip(subject["grades_within"], subject["grades"], strict=True):
            place = within["dtype"], within["output"]
            assert place == (everywhere["dtype"], everywhere["output"])
            assert GRADES.index(within["grade"]) >= GRADES.index(everywhere["grade"]), (key, place)


def test_each_subject_has_its_file() -> None:
    for entry in (each for board in BOARDS.values() for each in board.subjects.values()):
        file, _, name = entry.target.partition(":")
        text = (FOLDER / file).read_text(encoding="utf-8")
        assert "tv.Subject(" in text
        assert re.search(rf"^(.*, )?{name}(,.*)? = ", text, flags=re.MULTILINE), entry


def test_summary_counts_named_cases(textbook_entry: Any) -> None:
    assert "float32-four-consecutive-numbers" not in textbook_entry["failing"]["dbeta"]
    assert "float32-inputs-near-1e30" in textbook_entry["failing"]["y"]
    failing, named = textbook_entry["failing"]["y"], textbook_entry["named"]
    assert set(failing) < set(named)
    assert len(named) < textbook_entry["cases"]


def test_a_case_without_a_result_fails() -> None:
    assert scoreboard.failing([], "y", ["float32-mean-2000"]) == ["float32-mean-2000"]


def test_summary_groups_by_family_and_orders_by_kappa(textbook_entry: Any) -> None:
    families = {each["family"]: each for each in textbook_entry["families"]}
    assert families["offset"]["kind"] == "sweep"
    assert set(families["offset"]["max_ulp"]) == {"y", "dx", "dgamma", "dbeta"}
    assert "four-consecutive-numbers" not in families  # a named case
    curve = textbook_entry["against_kappa"]["y"]
    assert curve["kappa"] == sorted(curve["kappa"])
    assert len(curve["kappa"]) == len(curve["natural"]) > 10
    assert float(curve["natural"][-1]) > 1e4


def test_readme_matches_results() -> None:
    """If this fails: `python -m benchmarks.scoreboard --page`."""
    page = scoreboard.README.read_text(encoding="utf-8")
    table = scoreboard.front_table(read_results(RESULTS / "peers.json"), PUBLISHED)
    assert fill(page, {"front": table}) == page
