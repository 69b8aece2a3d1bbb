"""The scoreboard's tables, and the page that shows them; no peer is needed."""

import json
import math
from typing import Any

import pytest

import truenorm.verify as tv
from benchmarks import scoreboard, scoreboard_page
from benchmarks.pages import filled
from benchmarks.scoreboard_subjects import BOARDS, FOLDER
from truenorm import textbook
from truenorm.tools import strict_json
from truenorm.verify.operations import OPERATIONS

FILES = {
    name: json.loads(board.results.read_text(encoding="utf-8")) for name, board in BOARDS.items()
}
PUBLISHED = FILES["layer_norm"]
OUTPUTS = ["y", "dx", "dgamma", "dbeta"]


@pytest.fixture(scope="module")
def found() -> Any:
    """Return what the file says of the textbook form in float32."""
    subject = tv.Subject(textbook.forward, textbook.backward, name="textbook")
    told = {"versions": {"python": "3"}, **scoreboard.summary(tv.verify(subject))}
    return json.loads(strict_json.dumps(told))


@pytest.mark.parametrize("operation", BOARDS)
def test_the_page_holds_what_the_file_says(operation: str) -> None:
    page = scoreboard_page.PAGE.read_text(encoding="utf-8")
    assert filled(page, scoreboard_page.tables(FILES[operation])) == page


@pytest.mark.parametrize("operation", BOARDS)
def test_everybody_is_in_the_file(operation: str) -> None:
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


@pytest.mark.parametrize("key", ["textbook", "torch", "onnxruntime"])
def test_float32_is_unstable_only_where_squares_overflow(key: str) -> None:
    overflow = {
        "float32-large-scale-4x67",
        "float32-root-of-large-4x67",
        "float32-largest-numbers",
        "float32-inputs-near-1e30",
        "float32-one-outlier",
    }  # as the page says
    for grade in PUBLISHED["subjects"][key]["grades"]:
        if grade["dtype"] == "float32" and grade["output"] != "dbeta":
            assert grade["grade"] == "unstable"
            assert set(grade["beyond_kappa"]) == overflow


def test_each_subject_has_its_file() -> None:
    for judged in (judged for board in BOARDS.values() for judged in board.subjects.values()):
        file, _, name = judged.target.partition(":")
        text = (FOLDER / file).read_text(encoding="utf-8")
        assert "tv.Subject(" in text
        assert name in text


def test_summary_counts_named_cases(found: Any) -> None:
    assert "float32-four-consecutive-numbers" not in found["failing"]["dbeta"]
    assert "float32-inputs-near-1e30" in found["failing"]["y"]
    assert len(found["failing"]["y"]) < found["named"] < found["cases"]


def test_a_case_without_a_result_fails() -> None:
    assert scoreboard.failing([], "y", ["float32-mean-2000"]) == ["float32-mean-2000"]


def test_summary_groups_by_family_and_orders_by_kappa(found: Any) -> None:
    families = {each["family"]: each for each in found["families"]}
    assert families["offset"]["kind"] == "sweep"
    assert set(families["offset"]["max_ulp"]) == {"y", "dx", "dgamma", "dbeta"}
    assert "four-consecutive-numbers" not in families  # a named case
    curve = found["against_kappa"]["y"]
    assert curve["kappa"] == sorted(curve["kappa"])
    assert len(curve["kappa"]) == len(curve["natural"]) > 10
    assert float(curve["natural"][-1]) > 1e4


def test_tables_of_one_subject(found: Any) -> None:
    about = {"operation": "layer_norm", "machine": {"python": "3"}, "level": "quick"}
    report = {**about, "subjects": {"textbook": found}}
    made = scoreboard_page.tables(report)
    assert "| textbook | float32 | unstable (0.9) |" in made["grades"]
    assert "| textbook | yes | yes |" in made["verdicts"]
    assert "| y | NumPy |" in made["y per family"]
    assert all("nan" not in table for table in made.values())


def test_an_output_that_is_missing_is_a_dash(found: Any) -> None:
    grades = [grade for grade in found["grades"] if grade["output"] == "y"]
    forward_only = {**found, "grades": grades, "failing": {"y": []}}
    subjects = {"onnx": forward_only}
    assert "| - | - | - |" in scoreboard_page.grades(subjects, OUTPUTS)
    assert "| 0 | - | - | - |" in scoreboard_page.named_cases(subjects, OUTPUTS)


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for 'where'"):
        filled("# Scoreboard", scoreboard_page.tables(PUBLISHED))


def test_numbers_are_shortened() -> None:
    assert scoreboard.rounded({"ulp": 0.123456789, "case": "x", "slope": None}) == {
        "ulp": 0.123457,
        "case": "x",
        "slope": None,
    }
    assert scoreboard.short(math.inf) == math.inf
