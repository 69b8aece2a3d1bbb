"""Audits of the tests of a package: loose ones, strict ones, and tests that cannot run."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import truenorm.pytest_plugin
from full.verify.report.test_json import schema_errors
from truenorm.tools import strict_json
from truenorm.verify.audit import running
from truenorm.verify.audit.replacing import AuditTask, Observations
from truenorm.verify.audit.running import audit_tests
from truenorm.verify.running.records import CannotRunError

SLOW = pytest.mark.slow(reason="an audit runs the tests of a package once for each planted kernel")

KERNELS = """
import numpy as np

def rms_norm(x, weight, eps=1e-6):
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(eps))
    return x * r * weight

def layer_norm(x, weight, bias, eps=1e-5):
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt((c * c).mean(-1, keepdims=True) + np.float32(eps)) * weight + bias
"""
HEAD = """
import numpy as np
from some_package import rms_norm
from some_package.kernels import layer_norm

x = np.random.default_rng(0).normal(size=(4, 60)).astype(np.float32)
weight = np.ones(60, np.float32)
"""
LOOSE = """
def test_loose():
    expected = x / np.sqrt((x.astype(float) ** 2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(rms_norm(x, weight), expected, rtol=0.1, atol=0.1)
"""
FAILING = """
def test_failing():
    assert not rms_norm(x, weight).any()
"""
ELSEWHERE = """
def test_elsewhere():
    assert layer_norm(x, weight, weight).shape == x.shape
"""
STRICT = """
import pytest
import truenorm.verify as tv

def with_eps(x, weight, eps):
    return rms_norm(x, weight, eps)

subject = tv.Subject(with_eps, operation=tv.RMS_NORM, domain=tv.Domain(largest=1e10))

@pytest.mark.truenorm(subject)
def test_strict(truenorm_case):
    truenorm_case.check()
"""
KERNEL = "some_package.kernels:rms_norm"
PlantOnly = Callable[..., None]


def package_in(folder: Path, tests: str) -> str:
    """Write the package and a file of tests, and return its name."""
    package = folder / "some_package"
    package.mkdir()
    (package / "kernels.py").write_text(KERNELS)
    (package / "__init__.py").write_text("from some_package.kernels import rms_norm\n")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:hypothesispytest\n")
    (folder / "test_norm.py").write_text(HEAD + tests)
    return "test_norm.py"


@pytest.fixture
def plant_only(monkeypatch: pytest.MonkeyPatch) -> PlantOnly:
    """Plant only the named bugs."""

    def only(*names: str) -> None:
        every = AuditTask.bugs

        def chosen(task: AuditTask) -> list[Any]:
            return [bug for bug in every(task) if bug.name in names]

        monkeypatch.setattr(AuditTask, "bugs", chosen)

    return only


@pytest.fixture
def tests(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    monkeypatch.chdir(tmp_path)
    name = truenorm.pytest_plugin.__name__
    known = name in [each.value for each in entry_points(group="pytest11")]
    return [package_in(tmp_path, request.param), *([] if known else ["-p", name])]


@pytest.mark.parametrize("tests", [LOOSE], indirect=True)
def test_loose_tests(tests: list[str], plant_only: PlantOnly) -> None:
    """The kernel is named where it is defined; the tests import it from elsewhere."""
    plant_only("zeros", "ddof = 1", "zeros for dx")
    steps: list[Any] = []
    audit = audit_tests(
        tests, AuditTask(KERNEL, "rms_norm"), progress=lambda *each: steps.append(each)
    )
    caught, passed = audit.outcomes
    assert (caught.name, caught.caught) == ("zeros", True)
    assert (passed.name, passed.caught) == ("ddof = 1", False)
    assert caught.by == "test_norm.py::test_loose"
    assert passed.output == "y"
    assert 0 < passed.difference < 0.1 < passed.size
    assert passed.witness is not None
    assert "ulp" in passed.witness.symptom
    assert (audit.calls, audit.gradients, audit.dtypes) == (1, 0, ("float32",))
    assert list(audit.left_out) == ["zeros for dx"]
    assert not audit.passed
    assert steps[-1][0] == steps[-1][1] == 5
    assert schema_errors("audit-1", json.loads(strict_json.dumps(audit.as_dict()))) == []


@pytest.mark.parametrize("tests", [FAILING], indirect=True)
def test_tests_that_fail_unchanged(tests: list[str]) -> None:
    with pytest.raises(CannotRunError, match=r"fail as they are(?s:.*)test_failing"):
        audit_tests(tests, AuditTask(KERNEL, "rms_norm"))


@SLOW
@pytest.mark.parametrize("tests", [ELSEWHERE], indirect=True)
def test_kernel_that_is_never_called(tests: list[str]) -> None:
    with pytest.raises(CannotRunError, match=r"never call some_package\.kernels:rms_norm: .*"):
        audit_tests(tests, AuditTask(KERNEL, "rms_norm"))
    with pytest.raises(CannotRunError, match="never call other:rms_norm: other was not i"):
        audit_tests(tests, AuditTask("other:rms_norm", "rms_norm"))


@SLOW
@pytest.mark.parametrize("tests", [STRICT], indirect=True)
def test_strict_tests_catch_everything(tests: list[str]) -> None:
    """All cases of the judge within a domain, by the pytest plugin, in two jobs."""
    audit = audit_tests(tests, AuditTask("some_package:rms_norm", "rms_norm"), jobs=2)
    assert [each.name for each in audit.let_pass] == []
    assert len(audit.outcomes) > 10


@dataclass(eq=False)
class Ended:
    """A program that ends at once with an exit code."""

    exit_code: int
    printed: str = "what pytest printed"

    def failure(self, seconds: float) -> str:
        return f"no answer within {seconds:g} s" if self.exit_code < 0 else "exit code"


@pytest.mark.parametrize(("code", "said"), [
    (1, "the tests fail as they are (exit code):\nwhat pytest printed"),
    (4, "pytest finds no such tests, or has no such option:\nwhat pytest printed"),
    (5, "pytest has no tests to run: none were found, or selected:\nwhat pytest printed"),
    (-9, "the tests give no answer within 0 s; --seconds sets the limit of one run:\nw"),
])  # fmt: skip
def test_reasons_why_tests_did_not_run(
    code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "Program", lambda *_: Ended(code))
    with pytest.raises(CannotRunError) as refused:
        audit_tests([], AuditTask(KERNEL, "rms_norm"), seconds=0.0 if code < 0 else 9.0)
    assert str(refused.value).startswith(said)


class Waiting(Ended):
    """A program that runs until it is stopped."""

    def __init__(self) -> None:
        super().__init__(0)
        self.over = Event()

    def failure(self, seconds: float) -> str:
        assert self.over.wait(seconds)
        return ""

    def stop(self) -> None:
        self.over.set()


def test_interrupt_stops_running_programs(
    monkeypatch: pytest.MonkeyPatch, plant_only: PlantOnly
) -> None:
    """The interrupt comes when the first of two wrong kernels has ended."""
    plant_only("zeros", "no eps")
    programs = [Waiting() for _ in range(4)]
    remaining = iter(programs)

    def started(*_: object) -> Waiting:
        program = next(remaining)
        place = programs.index(program)
        if place != 2:  # which ends when the last is there
            programs[min(place, 2)].stop()
        return program

    observed = Observations(True, 1, dtypes=["float32"], arguments=["x"], results=["y"])
    monkeypatch.setattr(running, "Program", started)
    monkeypatch.setattr(Observations, "read", lambda _: observed)

    def interrupted(done: int, *_: object) -> None:
        if done > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit_tests([], AuditTask(KERNEL, "rms_norm"), jobs=2, seconds=60.0, progress=interrupted)
    assert programs[3].over.is_set()


def test_invalid_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    for task, said in (
        (AuditTask("kernels.py", "rms_norm"), "a path such as mypackage.kernels:rms_norm, got"),
        (AuditTask(KERNEL, "rms_norm", backward="a b:c"), "expected a path such as"),
        (AuditTask(KERNEL, "rms_norm", recipe="apex"), "recipe must be one of late"),
        (
            AuditTask(KERNEL, "rms_norm", signature="x, rows"),
            "signature has the unknown name 'rows'",
        ),
        (AuditTask(KERNEL, "batch_norm"), "operation must be one of"),
    ):
        with pytest.raises(ValueError, match=said):
            audit_tests(["nothing.py"], task)
    monkeypatch.setattr(running, "find_spec", lambda _: None)
    with pytest.raises(CannotRunError, match="pip install pytest"):
        audit_tests(["nothing.py"], AuditTask(KERNEL, "rms_norm"))
