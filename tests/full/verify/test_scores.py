"""The score without PyTorch: its value, the cases that are drawn, and the shared memory."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from full.verify.report.test_json import schema_errors
from truenorm.verify.grading.report import CaseResult, Finding, Grade, Report
from truenorm.verify.operation import Case
from truenorm.verify.operations import as_operation
from truenorm.verify.oracle import expected, forget
from truenorm.verify.report.json_report import to_json
from truenorm.verify.running.records import CannotRunError
from truenorm.verify.running.scored import Area, FailedCallError, Server
from truenorm.verify.scores import Score, ordinary_share, points
from truenorm.verify.submission import Submission, draw_suite, generator, hidden, is_scored

OUTPUTS = ("y", "dx", "dgamma", "dbeta")


def report(*grades: str, failing: int = 0, guard: str = "") -> Report:
    """Return a report with these grades, with ten checks of which some fail."""
    verdicts = {f"check {k}": "fail" if k < failing else "pass" for k in range(10)}
    finding = Finding(guard, "runs", "float32", "y", "a case", "why", "a symptom")
    of_outputs = (
        Grade("float32", output, grade, 0.0, 0.0, "", None)
        for output, grade in zip(OUTPUTS, grades, strict=False)
    )
    verdicts["another"] = "not judged"
    findings = (finding,) if guard else ()
    fields = ("a kernel", "quick", "stable", tuple(of_outputs), verdicts, findings, ())
    return Report(*fields, operation=tv.LAYER_NORM)


class TestValue:
    @pytest.mark.parametrize(("of_report", "ordinary", "value"), [
        (report("correct", "correct"), 1.0, 1.0),
        (report("faithful"), 1.0, 0.97),
        (report("stable", "stable", "stable", "stable"), 1.0, 0.94),
        (report("conditional"), 1.0, 0.82),
        (report("unstable"), 1.0, 0.58),
        (report("conditional", "conditional", "conditional", "stable"), 1.0, 0.85),
        (report("correct", failing=3), 1.0, 0.97),
        (report("stable", guard="growth"), 1.0, 0.94),
        (report("wrong"), 0.5, 0.025),
        (report("correct"), 0.9, 0.081),
        (report("wrong"), 0.0, 0.0),
        (report("correct", guard="inputs"), 1.0, 0.1),
        (report("correct", guard="overwritten"), 1.0, 0.1),
        (report("correct", guard="type"), 0.8, 0.064),
    ])  # fmt: skip
    def test_of_a_report(self, of_report: Report, ordinary: float, value: float) -> None:
        assert points(of_report, ordinary) == pytest.approx(value, abs=1e-9)

    def test_of_a_kernel_that_removes_nan(self) -> None:
        lost = {**report("correct").verdicts, "special values": "fail"}
        assert points(replace(report("correct"), verdicts=lost), 1.0) == 0.5

    def test_results_that_are_missing_are_not_right(self) -> None:
        suite = [tv.case(name) for name in ("float32-normal-4x3", "float32-normal-4x5")]
        hard = tv.case("float32-zeros")
        right = CaseResult("a", "float32", "normal", "ordinary", "y", 0, 0, 1, 2, False, 1.0)
        of_report = replace(report("wrong", "wrong"), results=(right, replace(right, needs=3)))
        assert ordinary_share([*suite, hard], of_report) == 1 / 4


@pytest.fixture(scope="module")
def suite() -> list[Case]:
    return draw_suite(submission(seed=1))


def submission(operation: str = "layer_norm", **options: Any) -> Submission:
    return Submission("file.py:name", as_operation(operation), **options)


def rows_of(suite: list[Case]) -> set[bytes]:
    """Return the rows that are not constant, which no permutation changes."""
    rows = [row for case in suite for row in case.x if case.shape[1] > 4]
    return {row.tobytes() for row in rows if (row != row[0]).any()}


class TestCases:
    def test_are_drawn_by_the_seed(self, suite: list[Case]) -> None:
        again, other = draw_suite(submission(seed=1)), draw_suite(submission(seed=2))
        assert [each.name for each in suite] == [f"float32-{k}" for k in range(len(suite))]
        for one, same in zip(suite, again, strict=True):
            for name in ("x", "gamma", "beta", "dy"):
                assert getattr(one, name).tobytes() == getattr(same, name).tobytes()
        assert rows_of(suite).isdisjoint(rows_of(other))
        widths, others = ({case.shape[1] for case in some} for some in (suite, other))
        assert len(widths - others) >= 4

    def test_are_no_cases_that_everybody_can_see(self, suite: list[Case]) -> None:
        public = [case for case in tv.cases("float32") if is_scored(case, 1e4)]
        assert rows_of(suite).isdisjoint(rows_of(public))

    def test_some_have_a_twin(self, suite: list[Case]) -> None:
        """A cache by shape, or by a few elements, gives a wrong result for one of them."""
        twins = [case for case in suite if case.why.endswith("another element of x")]
        assert len(twins) == 4
        for twin in twins:
            same = [case.x for case in suite if case.shape == twin.shape and case is not twin]
            assert 1 in [(x != twin.x).sum() for x in same]

    def test_decide_the_grades(self, suite: list[Case]) -> None:
        kinds = Counter(case.kind for case in suite)
        assert kinds["sweep"] >= 8
        assert kinds["ordinary"] >= 20
        assert kinds["special"] >= 3
        assert kinds["subnormal"] >= 1
        assert max(case.shape[1] for case in suite) >= 2048
        assert "next-to-midpoints" in {case.family for case in suite}

    def test_number_and_types(self) -> None:
        few = draw_suite(submission(seed=1, cases=40, dtypes=("float16", "bfloat16")))
        assert Counter(case.dtype for case in few).keys() == {"float16", "bfloat16"}
        assert len(few) < 2 * len(draw_suite(submission(seed=1)))

    def test_largest(self) -> None:
        for case in draw_suite(submission(seed=1, largest=100.0)):
            assert not np.nanmax(np.abs(case.x[np.isfinite(case.x)])) > 100


class TestHidden:
    def test_answers_are_permuted(self) -> None:
        case = tv.case("float32-dy-with-a-mean")
        other = hidden(case, generator(5))
        known, answers = expected(case), expected(other)
        for name in ("y", "dx"):
            before, after = (
                sorted(np.sort(np.abs(each.wide[name]), axis=1).tolist())
                for each in (known, answers)
            )
            assert before == after
        for name in ("dgamma", "dbeta"):
            sums, permuted = (np.sort(np.abs(each.wide[name])) for each in (known, answers))
            assert np.array_equal(sums, permuted)
        assert not np.array_equal(known.wide["y"], answers.wide["y"])
        forget([case, other])

    def test_rows_are_contiguous(self) -> None:
        assert hidden(tv.case("float32-mean-1449"), generator(1)).x.flags.c_contiguous

    def test_many_seeds(self) -> None:
        case = tv.case("float32-mean-1449")
        rows = {hidden(case, generator(seed)).x.tobytes() for seed in range(50)}
        assert len(rows) == 50
        assert case.x.tobytes() not in rows

    def test_repeated_rows(self) -> None:
        case = tv.case("float32-1027-rows")
        other = hidden(case, generator(1))
        assert (other.shape, other.repeats) == (case.shape, case.repeats)
        once = case.shape[0] // case.repeats
        assert np.array_equal(other.x[:once], other.x[once : 2 * once])

    def test_settings_stay(self) -> None:
        norm = tv.norm("rms_norm", quant=tv.Quant("int8", scale="static"))
        case = next(each for each in tv.cases("float32", operation=norm) if not each.needs)
        (name,) = norm.inputs_of("setting")
        assert hidden(case, generator(1)).inputs[name] is case.inputs[name]


class TestArea:
    """The shared memory: nothing is believed but the bytes of results."""

    @pytest.fixture
    def area(self) -> Iterator[Area]:
        area = Area()
        yield area
        area.close()

    def test_changed_inputs_are_seen(self, area: Area) -> None:
        """A byte of an input, and one between its elements."""
        x = np.arange(12, dtype=np.float32).reshape(3, 4)[:, :3]
        kind, shape, strides, start, at, count = area.add(x)
        assert (kind, shape, strides, start, count) == ("float32", [3, 3], [4, 1], 0, 11)
        (given,) = area.given
        assert np.array_equal(given.view, x)
        assert not area.is_changed(given)
        for place in (at, at + 3 * 4):  # the fourth element is in a gap
            os.pwrite(area.descriptor, b"\xff", place)
            assert area.is_changed(given)
            area.clear()
            area.add(x)
            (given,) = area.given

    def test_size_is_sealed(self, area: Area) -> None:
        for size in (0, 2**30):
            with pytest.raises(OSError, match="not permitted"):
                os.ftruncate(area.descriptor, size)

    def test_result(self, area: Area) -> None:
        os.pwrite(area.descriptor, np.array([1, 2], np.float32).tobytes(), 128)
        result = area.result(["float32", [2], 128], 8)
        assert result is not None
        assert result.tolist() == [1, 2]
        assert area.result(None, 8) is None

    @pytest.mark.parametrize("entry", [
        ["float32", [2], 2**28 - 4],
        ["float32", [3], 0],  # above the limit
        ["float32", [-2], 0],
        ["float32", [2.0], 0],
        ["float32", [True], 0],
        ["float32", [2], "0"],
        ["object", [1], 0],
        ["float32", [1] * 9, 0],
        ["float32", 2, 0],
        [[], [1], 0],
        "float32",
        7,
        {},
    ])  # fmt: skip
    def test_results_that_are_none(self, area: Area, entry: Any) -> None:
        with pytest.raises(FailedCallError, match="sent a result that is none"):
            area.result(entry, 8)


def test_json() -> None:
    grades = {"float32": {"y": "stable"}}
    reasons, verdicts = ("The grade of y in float32 is stable.",), {"runs": "pass"}
    fields = (0.94, reasons, "file.py:name", ("float32",), 40, 1.0, grades, verdicts)
    result = Score(*fields, operation=tv.RMS_NORM)
    content = json.loads(to_json(result))
    assert schema_errors("score-1", content) == []
    assert (content["value"], content["operation"]) == (0.94, "rms_norm")
    assert schema_errors("score-1", {**content, "value": 1.5}) != []


@pytest.mark.parametrize(("options", "message"), [
    ({"norms": "some"}, "norms must be forbidden or allowed, got 'some'"),
    ({"cases": 3}, "cases must be 40 or above, got 3"),
    ({"seed": -1}, "seed must be 0 or above, got -1"),
    ({"dtypes": ["int8"]}, "dtypes must be of float16, .*; got"),
])  # fmt: skip
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tv.score("file.py:name", **{"seed": 1, **options})


def test_shapes_that_a_score_does_not_have() -> None:
    with pytest.raises(ValueError, match="without channels=last"):
        tv.score("file.py:name", "group_norm,groups=2,channels=last", seed=1)


def test_without_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    with pytest.raises(CannotRunError, match="a score needs Linux"):
        Server("python")


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_without_pytorch(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text("def norm(x, gamma, beta, eps): ...\n")
    with pytest.raises(CannotRunError, match="PyTorch cannot be imported there"):
        tv.score(f"{file}:norm", seed=1)
