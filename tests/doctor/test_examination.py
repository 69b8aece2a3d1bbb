"""The tests of an installation pass where all is well, and see what is not."""

import os
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from cli.recording import record
from truenorm import doctor
from truenorm.doctor import CASES, REPORT, Line, Section, examine, gradients, judgement, self_test
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.types import FORMATS
from verify.fake_report import failing_report, passing_report

USABLE = [each.name for each in tn.backends() if each.usable and each.name != "gpu"]


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "usable_backends", lambda: ["reference"])


def values(section: Section) -> dict[str, str]:
    return {line.name: line.value for line in section.lines}


class TestSelfTest:
    @pytest.mark.parametrize("backend", USABLE)
    def test_healthy(self, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
        monkeypatch.setattr(doctor, "usable_backends", lambda: [backend])
        told: list[tuple[int, int, str]] = []
        section = self_test(lambda *step: told.append(step))
        assert values(section) == {
            f"{backend}, {dtype}": f"correct to the bit ({len(CASES)} cases, forward and backward)"
            for dtype in FORMATS
        }
        assert section.problems == []
        assert section.seconds
        assert [done for done, _, _ in told] == list(range(len(FORMATS)))
        assert told[0][2] == f"{backend}, float16"

    @pytest.mark.usefixtures("reference")
    @pytest.mark.parametrize("output", ["y", "dx", "dgamma", "dbeta"])
    def test_one_wrong_bit_is_seen(self, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
        def spoilt(case: Case) -> Any:
            right: dict[str, Any] = {**expected(case).values}
            right[output] = right[output].copy()
            right[output].reshape(-1).view(np.uint8)[0] ^= 1
            return SimpleNamespace(values=right)

        monkeypatch.setattr(doctor, "expected", spoilt)
        section = self_test()
        assert [line.remedy for line in section.problems] == [REPORT] * len(FORMATS)
        wrong = "; ".join(f"{output} of float32-{name}" for name in CASES)
        assert values(section)["reference, float32"] == f"WRONG: {wrong}"

    @pytest.mark.usefixtures("reference")
    def test_no_result_is_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        record(monkeypatch, "truenorm.doctor.layer_norm_backward", (None, None, None))
        first = self_test().lines[0]
        assert first.value.startswith("WRONG: dx of float16-normal-4x67; dgamma of ")
        assert first.remedy == REPORT

    @pytest.mark.usefixtures("reference")
    def test_a_crash_is_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        record(monkeypatch, "truenorm.doctor.layer_norm_forward", OSError("cannot load libm"))
        section = self_test()
        assert [line.remedy for line in section.problems] == [REPORT] * len(FORMATS)
        assert section.lines[0].value == "FAILED: OSError: cannot load libm"

    @pytest.mark.usefixtures("reference")
    @pytest.mark.parametrize("interrupted", [False, True])
    def test_variables_do_not_decide_what_is_tested(
        self, monkeypatch: pytest.MonkeyPatch, interrupted: bool
    ) -> None:
        """Each of these would make it fail, or test something else; all come back."""
        variables = {"BACKEND": "abacus", "ROUNDING": "up", "THREADS": "some"}
        for name, value in variables.items():
            monkeypatch.setenv(f"TRUENORM_{name}", value)
        if interrupted:
            monkeypatch.delattr(doctor, "_compared")
        with pytest.raises(NameError) if interrupted else nullcontext():
            assert self_test().problems == []
        assert {name: os.environ[f"TRUENORM_{name}"] for name in variables} == variables


class TestGradients:
    def test_healthy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A variable that asks for fewer digits is not obeyed."""
        monkeypatch.setenv("TRUENORM_ROUNDING", "fast")
        section = gradients()
        assert section.problems == []
        assert [line.name for line in section.lines] == ["textbook", "truenorm"]
        assert all(line.value.startswith("PASS, by jet: error ") for line in section.lines)

    @pytest.mark.parametrize("crash", [False, True])
    def test_what_is_wrong_is_seen(self, monkeypatch: pytest.MonkeyPatch, crash: bool) -> None:
        def backward(*given: Any) -> Any:
            if crash:
                raise OSError("no")
            found: Any = tn.layer_norm_backward(*given)
            return found._replace(dgamma=found.dgamma * (1 + 1e-9))

        monkeypatch.setattr(doctor, "layer_norm_backward", backward)
        (problem,) = gradients().problems
        assert (problem.name, problem.remedy) == ("truenorm", REPORT)
        assert problem.value.startswith("FAILED: OSError: no" if crash else "FAIL, by ")


class TestJudgement:
    def test_it_is_asked_for_correct_rounding(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = record(monkeypatch, "truenorm.doctor.verify", failing_report(), passing_report())
        section = judgement()
        assert [line.name for line in section.lines] == list(FORMATS)
        assert [(list(subject.dtypes), options) for (subject,), options in asked] == [
            ([dtype], {"require": "correct", "progress": None}) for dtype in FORMATS
        ]
        assert asked[0][0][0].outputs == ("y", "dx", "dgamma", "dbeta")
        (problem,) = section.problems
        assert problem.name == "float16"
        assert problem.value.startswith("WRONG: ")
        assert failing_report().findings[0].case in problem.value

    @pytest.mark.slow
    def test_truenorm_is_judged_correct(self) -> None:
        section = judgement()
        assert section.problems == []
        right = "correct: y, dx, dgamma and dbeta"
        assert all(line.value.startswith(right) for line in section.lines)


def test_full_adds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Section("Made up", (Line("a", "b"),))
    for name in ("self_test", "gradients", "judgement"):
        monkeypatch.setattr(doctor, name, lambda *_: made)
    short, long = examine(), examine(full=True)
    assert len(long.sections) == len(short.sections) + 2
    assert (short.full, long.full) == (False, True)
