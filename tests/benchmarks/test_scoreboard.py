"""The scoreboard: its summary and tables, and the pages that show them; no peer is needed."""

import json
import math
import re
from typing import Any

import pytest

import truenorm.verify as tv
from benchmarks import scoreboard
from benchmarks.common import RESULTS, fill, read_results
from benchmarks.scoreboard import BOARDS, FOLDER
from truenorm import textbook
from truenorm.tools import strict_json
from truenorm.verify.operations import OPERATIONS

FILES = {name: read_results(board.results) for name, board in BOARDS.items()}
PUBLISHED = FILES["layer_norm"]
OUTPUTS = ["y", "dx", "dgamma", "dbeta"]


@pytest.fixture(scope="module")
def textbook_entry() -> Any:
    """Return the entry of the textbook form in float32."""
    subject = tv.Subject(textbook.forward, textbook.backward, name="textbook")
    reports = (tv.verify(subject, strict=strict) for strict in (True, False))
    entry = {"versions": {"python": "3"}, **scoreboard.summary(*reports)}
    return json.loads(strict_json.dumps(entry))


@pytest.mark.parametrize("operation", BOARDS)
def test_page_matches_results(operation: str) -> None:
    page = scoreboard.PAGE.read_text(encoding="utf-8")
    assert fill(page, scoreboard.tables(FILES[operation])) == page


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
    for entry in (each for board in BOARDS.values() for each in board.subjects.values()):
        file, _, name = entry.target.partition(":")
        text = (FOLDER / file).read_text(encoding="utf-8")
        assert "tv.Subject(" in text
        assert re.search(rf"^(.*, )?{name}(,.*)? = ", text, flags=re.MULTILINE), entry


def test_summary_counts_named_cases(textbook_entry: Any) -> None:
    assert "float32-four-consecutive-numbers" not in textbook_entry["failing"]["dbeta"]
    assert "float32-inputs-near-1e30" in textbook_entry["failing"]["y"]
    assert len(textbook_entry["failing"]["y"]) < textbook_entry["named"] < textbook_entry["cases"]


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


def test_tables_of_one_subject(textbook_entry: Any) -> None:
    about = {"operation": "layer_norm", "machine": {"python": "3"}, "level": "quick"}
    report = {**about, "subjects": {"textbook": textbook_entry}}
    made = scoreboard.tables(report)
    assert "| textbook | float32 | unstable (0.9) |" in made["grades"]
    assert "| textbook | yes | yes |" in made["verdicts"]
    assert "| y | NumPy |" in made["y per family"]
    assert all("nan" not in table for table in made.values())


def test_an_output_that_is_missing_is_a_dash(textbook_entry: Any) -> None:
    grades = [grade for grade in textbook_entry["grades"] if grade["output"] == "y"]
    forward_only = {**textbook_entry, "grades": grades, "failing": {"y": []}}
    subjects = {"onnx": forward_only}
    assert "| - | - | - |" in scoreboard.grades(subjects, OUTPUTS)
    assert "| 0 | - | - | - |" in scoreboard.named_cases(subjects, OUTPUTS)


def test_numbers_are_shortened() -> None:
    assert scoreboard.rounded({"ulp": 0.123456789, "case": "x", "slope": None}) == {
        "ulp": 0.123457,
        "case": "x",
        "slope": None,
    }
    assert scoreboard.short(math.inf) == math.inf


def test_readme_matches_results() -> None:
    """If this fails: `python -m benchmarks.scoreboard --page`."""
    page = scoreboard.README.read_text(encoding="utf-8")
    table = scoreboard.front_table(read_results(RESULTS / "peers.json"), PUBLISHED)
    assert fill(page, {"front": table}) == page


def test_times_of_the_readme_are_divided_by_those_of_pytorch() -> None:
    figures = [
        {
            "shape": scoreboard.FRONT_SHAPE,
            "direction": direction,
            "contestant": name,
            "p50": 2.0 if name.startswith("truenorm fast") else 4.0,
        }
        for direction in ("forward", "backward")
        for name in scoreboard.FRONT.values()
        if name != "thinc"
    ]
    machine = {"date": "today", "cpu": "one", "cores": "2"}
    grades = [{"dtype": "float32", "output": "y", "grade": "stable"}]
    table = scoreboard.front_table(
        {"figures": figures, "machine": machine, "quiet": True},
        {"subjects": {key: {"grades": grades} for key in scoreboard.FRONT}, "machine": machine},
    )
    assert "| truenorm fast | stable | none | none | 0.50 | 0.50 |" in table
    assert "| thinc | stable | none | none | none | none |" in table
    assert "not quiet" not in table
