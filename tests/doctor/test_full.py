"""The long checks."""

from typing import Any

import pytest

import truenorm as tn
from truenorm.doctor import examination, full
from truenorm.doctor.report import Line, Section
from truenorm.doctor.self_test import REPORT
from truenorm.verify.types import FORMATS
from verify.fake_report import failing_report, passing_report


def test_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that asks for fewer digits is not obeyed."""
    monkeypatch.setenv("TRUENORM_ROUNDING", "fast")
    section = full.gradients()
    assert section.problems == []
    assert [line.name for line in section.lines] == ["textbook", "truenorm"]
    assert all(line.value.startswith("PASS, by jet: error ") for line in section.lines)


def test_a_wrong_gradient_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def backward(*given: Any) -> Any:
        found: Any = tn.layer_norm_backward(*given)
        return found._replace(dgamma=found.dgamma * (1 + 1e-9))

    monkeypatch.setattr(full, "layer_norm_backward", backward)
    (problem,) = full.gradients().problems
    assert problem.name == "truenorm"
    assert problem.value.startswith("FAIL")
    assert problem.remedy == REPORT


def test_a_crash_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise OSError("no")

    monkeypatch.setattr(full, "layer_norm_forward", broken)
    (problem,) = full.gradients().problems
    assert problem.value == "FAILED: OSError: no"


def test_the_judge_is_asked_for_correct_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, dict[str, Any]]] = []

    def verify(subject: Any, **options: Any) -> Any:
        asked.append((subject, options))
        return passing_report() if len(asked) > 1 else failing_report()

    monkeypatch.setattr(full, "verify", verify)
    section = full.judgement()
    assert [line.name for line in section.lines] == list(FORMATS)
    assert [(list(subject.dtypes), options) for subject, options in asked] == [
        ([dtype], {"require": "correct", "progress": None}) for dtype in FORMATS
    ]
    assert asked[0][0].outputs == ("y", "dx", "dgamma", "dbeta")
    (problem,) = section.problems
    assert problem.name == "float16"
    assert problem.value.startswith("WRONG: ")
    assert failing_report().findings[0].case in problem.value


def test_full_adds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Section("Made up", (Line("a", "b"),))
    monkeypatch.setattr(examination, "self_test", lambda _: made)
    monkeypatch.setattr(examination, "gradients", lambda: made)
    monkeypatch.setattr(examination, "judgement", lambda _: made)
    short, long = examination.examine(), examination.examine(full=True)
    assert len(long.sections) == len(short.sections) + 2
    assert (short.full, long.full) == (False, True)


@pytest.mark.slow
def test_truenorm_is_judged_correct() -> None:
    section = full.judgement()
    assert section.problems == []
    assert all(line.value.startswith("correct: y, dx, dgamma and dbeta") for line in section.lines)
