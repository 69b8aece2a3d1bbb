"""Audits of a package's tests: each run is a process of its own."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import truenorm.pytest_plugin
from truenorm.tools import strict_json
from truenorm.verify.audit import running
from truenorm.verify.audit.planted import planted_kernels
from truenorm.verify.audit.replacing import Seen, Task
from truenorm.verify.audit.running import audit_tests
from truenorm.verify.running.records import CannotRunError
from verify.audit.packages import ELSEWHERE, FAILING, LOOSE, STRICT, package_in
from verify.report.test_json import refusals

KERNEL = "some_package.kernels:rms_norm"
Some = Callable[..., None]


@pytest.fixture
def some(monkeypatch: pytest.MonkeyPatch) -> Some:
    """Let only some kernels be planted."""

    def only(*names: str) -> None:
        def chosen(*given: Any) -> list[Any]:
            return [each for each in planted_kernels(*given) if each.name in names]

        monkeypatch.setattr(running, "planted_kernels", chosen)

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
def test_what_a_loose_test_lets_pass(tests: list[str], some: Some) -> None:
    """By the name that the kernel has where it is defined: the tests have another one."""
    some("zeros", "ddof = 1", "zeros for dx")
    told: list[Any] = []
    audit = audit_tests(tests, Task(KERNEL, "rms_norm"), progress=lambda *each: told.append(each))
    caught, passed = audit.outcomes
    assert (caught.name, caught.caught, passed.name, passed.caught) == (
        "zeros",
        True,
        "ddof = 1",
        False,
    )
    assert caught.by == "test_norm.py::test_loose"
    assert passed.output == "y"
    assert 0 < passed.difference < 0.1 < passed.size
    assert passed.witness is not None
    assert "ulp" in passed.witness.symptom
    assert (audit.calls, audit.gradients, audit.dtypes) == (1, 0, ("float32",))
    assert list(audit.left_out) == ["zeros for dx"]
    assert not audit.passed
    assert told[-1][0] == told[-1][1] == 5
    assert refusals("audit-1", json.loads(strict_json.dumps(audit.as_dict()))) == []


@pytest.mark.parametrize("tests", [FAILING], indirect=True)
def test_tests_that_fail_as_they_are(tests: list[str]) -> None:
    with pytest.raises(CannotRunError, match=r"fail as they are(?s:.*)test_failing"):
        audit_tests(tests, Task(KERNEL, "rms_norm"))


@pytest.mark.slow
@pytest.mark.parametrize("tests", [LOOSE], indirect=True)
def test_another_operation_than_the_kernel_s(tests: list[str]) -> None:
    with pytest.raises(CannotRunError, match=r"a right layer norm(?s:.*)is --operation what it"):
        audit_tests(tests, Task(KERNEL, "layer_norm,beta=false"))


@pytest.mark.slow
@pytest.mark.parametrize("tests", [LOOSE], indirect=True)
def test_a_call_that_cannot_be_matched(tests: list[str]) -> None:
    task = Task(KERNEL, "rms_norm", signature="weight, x, eps")
    with pytest.raises(CannotRunError, match="cannot be replaced"):
        audit_tests(tests, task)


@pytest.mark.slow
@pytest.mark.parametrize("tests", [ELSEWHERE], indirect=True)
def test_a_kernel_that_is_never_called(tests: list[str]) -> None:
    with pytest.raises(
        CannotRunError, match=r"never call some_package\.kernels:rms_norm: .* was i"
    ):
        audit_tests(tests, Task(KERNEL, "rms_norm"))
    with pytest.raises(CannotRunError, match="never call other:rms_norm: other was not even i"):
        audit_tests(tests, Task("other:rms_norm", "rms_norm"))


@pytest.mark.slow
@pytest.mark.parametrize("tests", [STRICT], indirect=True)
def test_no_false_alarm_for_a_strict_test(tests: list[str]) -> None:
    """The judge's cases within a domain, as pytest's plugin has them; by two workers."""
    audit = audit_tests(tests, Task("some_package:rms_norm", "rms_norm"), jobs=2)
    assert [each.name for each in audit.let_pass] == []
    assert len(audit.outcomes) > 10


@pytest.mark.slow
@pytest.mark.parametrize("tests", [LOOSE], indirect=True)
def test_the_time_limit(tests: list[str]) -> None:
    with pytest.raises(CannotRunError, match=r"no answer within 0\.1 s"):
        audit_tests(tests, Task(KERNEL, "rms_norm"), seconds=0.1)


@dataclass(eq=False)
class Ended:
    """A program that has ended with a code, at once."""

    exit_code: int
    printed: str = "what pytest printed"

    def failure(self, seconds: float) -> str:
        return f"no answer within {seconds:g} s" if self.exit_code < 0 else "exit code"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (1, "the tests fail as they are (exit code):\nwhat pytest printed"),
        (4, "pytest finds no such tests, or has no such option:\nwhat pytest printed"),
        (5, "pytest has no tests to run: none were found, or selected:\nwhat pytest printed"),
        (-9, "the tests give no answer within 0 s; --seconds says how long one run may take:\nw"),
    ],
)
def test_why_tests_were_not_run(code: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "Program", lambda *_: Ended(code))
    with pytest.raises(CannotRunError) as refused:
        audit_tests([], Task(KERNEL, "rms_norm"), seconds=0.0 if code < 0 else 9.0)
    assert str(refused.value).startswith(said)


class Waiting(Ended):
    """A program that is at its end when it is stopped, and not before."""

    def __init__(self) -> None:
        super().__init__(0)
        self.over = Event()

    def failure(self, seconds: float) -> str:
        assert self.over.wait(seconds)
        return ""

    def stop(self) -> None:
        self.over.set()


def test_what_runs_is_stopped_when_somebody_loses_patience(
    monkeypatch: pytest.MonkeyPatch, some: Some
) -> None:
    """The tests as they are and the right kernel have ended, and the first of two wrong ones."""
    some("zeros", "no eps")
    programs = [Waiting() for _ in range(4)]
    left = iter(programs)

    def started(*_: object) -> Waiting:
        program = next(left)
        place = programs.index(program)
        if place != 2:  # which ends when the last is there
            programs[min(place, 2)].stop()
        return program

    seen = Seen(True, 1, dtypes=["float32"], arguments=["x"], results=["y"])
    monkeypatch.setattr(running, "Program", started)
    monkeypatch.setattr(running, "read", lambda _: seen)

    def interrupted(done: int, *_: object) -> None:
        if done > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit_tests([], Task(KERNEL, "rms_norm"), jobs=2, seconds=60.0, progress=interrupted)
    assert programs[3].over.is_set()


def test_refused_before_anything_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for task, said in (
        (Task("kernels.py", "rms_norm"), "no place such as mypackage.kernels:rms_norm"),
        (Task(KERNEL, "rms_norm", backward="a b:c"), "no place such as"),
        (Task(KERNEL, "rms_norm", recipe="apex"), "an audit knows late"),
        (Task(KERNEL, "rms_norm", signature="x, rows"), "signature has 'rows', of which nothing"),
        (Task(KERNEL, "batch_norm"), "operation is"),
    ):
        with pytest.raises(ValueError, match=said):
            audit_tests(["nothing.py"], task)
    monkeypatch.setattr(running, "find_spec", lambda _: None)
    with pytest.raises(CannotRunError, match="pip install pytest"):
        audit_tests(["nothing.py"], Task(KERNEL, "rms_norm"))
