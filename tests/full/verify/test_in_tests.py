"""Verdicts in a test suite: one test a type and check, messages, crashes, and baselines."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import truenorm.verify as tv
from truenorm.verify import judge
from truenorm.verify.grading.report import VERDICTS

SLOW = pytest.mark.slow(reason="each session of pytest in a process takes seconds")
SOURCES = Path(tv.__file__).parents[1]

pytest_plugins = ["pytester"]

KERNELS = """
import ctypes, os
import numpy as np
import truenorm.verify as tv

def forward(x, gamma, beta, eps, ddof=0):
    c = x - x.mean(axis=-1, keepdims=True)
    var = x.var(axis=-1, ddof=ddof, keepdims=True)
    return gamma * c / np.sqrt(var + x.dtype.type(eps)) + beta

def divides_by_less(*arguments):
    return forward(*arguments, ddof=1)

def raises(*_):
    raise ValueError("the kernel's own words")

def backward(dy, saved):
    xhat, rstd, gamma = saved
    g = gamma * dy
    inner = g.mean(axis=-1, keepdims=True) + xhat * (g * xhat).mean(axis=-1, keepdims=True)
    return rstd * (g - inner), (dy * xhat).sum(axis=0), dy.sum(axis=0)

def saves(x, gamma, beta, eps):
    var = x.var(axis=-1, ddof=1, keepdims=True)
    rstd = 1 / np.sqrt(var + x.dtype.type(eps))
    xhat = (x - x.mean(axis=-1, keepdims=True)) * rstd
    return gamma * xhat + beta, (xhat, rstd, gamma)

def depends_on_the_batch(x, *others):
    y = forward(x, *others)
    return y if len(x) < 128 else np.nextafter(y, np.float32(np.inf))

def crashes_at_17(x, *others):
    if x.shape[-1] == 17:
        ctypes.string_at(0)
    return forward(x, *others)

right = tv.Subject(forward, name="a right kernel")
wrong = tv.Subject(divides_by_less, name="a wrong kernel")
both_wrong = tv.Subject(saves, backward, name="two wrong passes")
by_rows = tv.Subject(depends_on_the_batch)
broken = tv.Subject(raises, name="a broken kernel")
segfault = tv.Subject(lambda *_: ctypes.string_at(0), name="reads address 0")
late_segfault = tv.Subject(crashes_at_17, name="reads address 0 at D = 17")
leaves = tv.Subject(lambda *_: os._exit(0), name="leaves the process")
in_recipe = tv.Subject(forward, dtypes=["float32", "bfloat16"], recipe="late")
"""
TESTS = """
import pytest
from judged_kernels import *

subject = {subject}

@pytest.mark.parametrize("verdict", tv.verdicts(subject{options}))
def test_kernel(verdict):
    verdict.assert_passed()
"""
CHECKS = """
import pytest
import truenorm.verify as tv

def raises(*_):
    raise ValueError("the kernel's own words")

SUBJECTS = {
    "zeros": tv.Subject(lambda x, *_: 0 * x),
    "raises": tv.Subject(raises),
}

@pytest.mark.parametrize("name", SUBJECTS)
def test_kernel(name):
    tv.check(SUBJECTS[name], tv.case("float32-normal-4x5"))
"""
NAMES = ("normal-4x17", "offset-1e4-4x67")
WITHOUT = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")


class Session:
    """Runs pytest in a folder with the kernels, on few cases."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester, self.monkeypatch = pytester, monkeypatch
        pytester.makepyfile(judged_kernels=KERNELS)
        self.judge_on(*NAMES)

    def judge_on(self, *names: str) -> None:
        """Judge on the cases of these names."""

        def scope(subject: tv.Subject, *_: object) -> list[tv.Case]:
            return [tv.case(f"{dtype}-{name}") for dtype in subject.dtypes for name in names]

        self.monkeypatch.setattr(judge, "scope", scope)

    def run(self, subject: str, *options: str, **arguments: Any) -> pytest.RunResult:
        """Run the tests of a subject in this process."""
        text = "".join(f", {name}={value!r}" for name, value in arguments.items())
        self.pytester.makepyfile(test_it=TESTS.format(subject=subject, options=text))
        return self.pytester.runpytest_inprocess(*WITHOUT, *options)


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.delenv("CI", raising=False)
    return Session(pytester, monkeypatch)


def assert_shows_no_source(text: str) -> None:
    """Assert that no line of the package is in the output."""
    assert str(SOURCES) not in text
    source = {
        line.strip()
        for file in SOURCES.rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if len(line.strip()) > 20 and not line.strip().startswith("import truenorm")
    }
    assert {line.lstrip("> ").strip() for line in text.splitlines()}.isdisjoint(source)


def test_each_check_is_a_test(session: Session) -> None:
    done = session.run("right", "-v")
    assert "failed" not in done.parseoutcomes()
    done.stdout.fnmatch_lines(["test_it.py::test_kernel[[]float32-accuracy-y[]] PASSED*"])
    done.stdout.fnmatch_lines(["test_it.py::test_kernel[[]float32-batch-invariant[]] SKIPPED*"])


def test_names_are_known_without_a_call(session: Session) -> None:
    """Collecting, or selecting tests of another file, runs nothing."""
    session.monkeypatch.setattr("truenorm.verify.in_tests.SubjectProcess", None)
    done = session.run("in_recipe", "--collect-only", "-q")
    names = re.findall(r"^test_it.py::test_kernel\[(.*)\]$", done.stdout.str(), re.MULTILINE)
    assert len(names) == len(set(names)) == 2 * (len(VERDICTS) + 2)
    for dtype in ("float32", "bfloat16"):
        assert {f"{dtype}-runs", f"{dtype}-accuracy-y", f"{dtype}-recipe"} <= set(names)
    done = session.run("broken", "-k", "nothing")
    assert done.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_one_judgement_for_all_tests_of_a_type(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []
    judge_runner = judge.judge_runner

    def counted(runner: Any, *others: Any) -> tv.Report:
        judged.extend(runner.subject.dtypes)
        return judge_runner(runner, *others)

    monkeypatch.setattr("truenorm.verify.in_tests.judge_runner", counted)
    done = session.run("tv.Subject(forward, dtypes=['float32', 'float64'])", "-k", "not sums")
    assert "failed" not in done.parseoutcomes()
    assert judged == ["float32", "float64"]


def test_message_of_a_failure(session: Session) -> None:
    session.judge_on(*(f"normal-4x{size}" for size in (2, 3, 5, 8)))
    done = session.run("wrong")
    assert done.parseoutcomes()["failed"] == 1
    text = re.sub("^E? +", "", done.stdout.str(), flags=re.MULTILINE)
    for line in (
        r"AssertionError: y\[.*\] is .*, the exact answer .*: off by .* ulp",
        r"in  a wrong kernel",
        r"case  float32-normal-4x3: ordinary input, D = 3 \(and \d other cases\)",
        r"likely cause  the variance is divided by D - 1 \(matches y within .* ulp;.*",
        r"subject = tv\.load\('.*\.py:(wrong|subject)'\)",
        r"case = tv\.case\('float32-normal-4x3'\)",
    ):
        assert re.search(f"^{line}", text, re.MULTILINE), (line, text)
    done.stdout.fnmatch_lines(["FAILED test_it.py::test_kernel[[]float32-accuracy-y[]] - *"])
    assert_shows_no_source(done.stdout.str())


@pytest.mark.parametrize(
    "style", ["auto", *(pytest.param(each, marks=SLOW) for each in ("long", "short"))]
)
def test_check_shows_no_source(pytester: pytest.Pytester, style: str) -> None:
    """The traceback of `tv.check` ends in the test."""
    pytester.makepyfile(test_it=CHECKS)
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", f"--tb={style}")
    done.assert_outcomes(failed=2)
    text = done.stdout.str()
    assert "AssertionError: float32-normal-4x5 (ordinary input, D = 5): y[" in text
    assert "raised ValueError: the kernel's own words" in text
    assert "tv.check(SUBJECTS[name], " in text
    assert_shows_no_source(text)


def test_finding_that_follows(session: Session) -> None:
    """The message names the output whose bug explains it, not the number of a finding."""
    session.judge_on(*(f"normal-4x{size}" for size in (3, 5, 8, 17)))
    done = session.run("both_wrong", "-k", "accuracy")
    assert done.parseoutcomes()["failed"] >= 2
    done.stdout.fnmatch_lines(
        ["*likely cause  the variance is divided*", "*likely cause  as y, float32, acc*"]
    )


@pytest.mark.usefixtures("session")
def test_reproducer_runs() -> None:
    subject = tv.load("judged_kernels.py:wrong")
    (verdict,) = (each for each in tv.verdicts(subject) if str(each) == "float32-accuracy-y")
    with pytest.raises(AssertionError) as raised:
        verdict.assert_passed()
    script = str(raised.value).split("-" * 80)[1]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert re.search(r"AssertionError: got .*, exact ", done.stderr), done.stderr


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ("segfault", "*the process crashed: SIGSEGV*"),
        ("late_segfault", "*the process crashed: SIGSEGV*"),
        ("leaves", "*ended with exit code 0*"),
    ],
)
def test_a_crash_is_a_failed_test(session: Session, subject: str, message: str) -> None:
    """And pytest goes on: another file of the session passes."""
    session.pytester.makepyfile(test_last="def test_last(): pass")
    done = session.run(subject)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    outcomes = done.parseoutcomes()
    assert outcomes["failed"] == 1
    assert outcomes["passed"] >= 1
    done.stdout.fnmatch_lines([message.replace("the process ", "*")])
    done.stdout.fnmatch_lines(["FAILED test_it.py::test_kernel[[]float32-runs[]]*"])


def test_a_kernel_that_cannot_be_run(session: Session) -> None:
    """Every test fails: a selection of some must not be green."""
    done = session.run("broken", "-k", "accuracy or inputs")
    done.assert_outcomes(failed=2, deselected=len(VERDICTS) - 1)
    done.stdout.fnmatch_lines(["*the subject could not be run: *raised ValueError: the kernel's*"])
    assert str(SOURCES) not in done.stdout.str()


def test_a_subject_without_a_name(session: Session) -> None:
    session.pytester.makepyfile(
        test_it="""
        import pytest
        from judged_kernels import *

        @pytest.mark.parametrize("verdict", tv.verdicts(tv.Subject(forward)))
        def test_kernel(verdict):
            verdict.assert_passed()
        """
    )
    done = session.pytester.runpytest_inprocess(*WITHOUT, "-k", "runs")
    done.assert_outcomes(failed=1, deselected=len(VERDICTS))
    done.stdout.fnmatch_lines(["*put it at the top level of a file*"])


def test_required_grade(session: Session) -> None:
    for arguments, failed in (
        ({}, 0),  # models do not produce the second case
        ({"strict": True}, 1),
        ({"strict": True, "require": "conditional"}, 0),
        ({"require": "correct"}, 1),
    ):
        done = session.run("right", "-k", "accuracy", **arguments)
        assert done.parseoutcomes().get("failed", 0) == failed


def test_own_cases(session: Session) -> None:
    session.judge_on()
    text = TESTS.format(subject="right", options=", own=[tv.case_of_shape((4, 5), 'float32')]")
    session.pytester.makepyfile(test_it=text)
    done = session.pytester.runpytest_inprocess(*WITHOUT, "-k", "accuracy")
    done.assert_outcomes(passed=1, deselected=len(VERDICTS))


def test_batch_dependence(session: Session) -> None:
    """It fails, or the test passes with a warning of Python."""
    session.judge_on("batch-300x67")
    assert session.run("by_rows").parseoutcomes()["failed"] == 1
    done = session.run("by_rows", "-Wdefault", batch="warn")
    outcomes = done.parseoutcomes()
    assert ("failed" in outcomes, outcomes["warnings"]) == (False, 1)
    done.stdout.fnmatch_lines(["*UserWarning: y *bits*", "*likely cause*"])
    assert session.run("by_rows", "-Werror", batch="warn").parseoutcomes()["failed"] == 1


@SLOW
def test_xdist_workers(session: Session) -> None:
    """With --dist loadfile, one worker judges the subject."""
    session.pytester.makepyfile(test_it=TESTS.format(subject="wrong", options=""))
    done = session.pytester.runpytest_subprocess(
        *WITHOUT, "-n", "2", "-v", "--dist", "loadfile", "-k", "accuracy or runs"
    )
    assert done.parseoutcomes()["failed"] == 1
    assert len(set(re.findall(r"^\[(gw\d)\]", done.stdout.str(), re.MULTILINE))) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"require": "best"}, "require must be one of wrong, unstable"),
        ({"level": "medium"}, "level must be one of quick, full"),
        ({"batch": "never"}, "batch must be one of require, warn"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tv.verdicts(tv.Subject(lambda x, *_: x), **arguments)


KNOWN = {
    "subject": "a right kernel",
    "operation": "layer_norm",
    "dtype": "float32",
    "output": "y",
    "check": "accuracy",
    "families": ["offset"],
    "grade": "conditional",
    "reason": "issue 12",
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, ""),
        ({"families": ["constant"]}, "  new  the baseline does not have it in offset"),
        ({"output": "dx"}, "  new  it is not in the baseline"),
        ({"subject": "another"}, "  new  it is not in the baseline"),
    ],
)
def test_baseline(session: Session, changed: dict[str, Any], message: str) -> None:
    """The kernel fails in the second of two cases."""
    text = json.dumps({"schema": "truenorm/baseline-1", "findings": [KNOWN | changed]})
    (session.pytester.path / "known.json").write_text(text, encoding="utf-8")
    done = session.run("right", "-k", "accuracy", strict=True, baseline="known.json")
    assert done.parseoutcomes().get("failed", 0) == bool(message)
    assert message in done.stdout.str()


def test_a_baseline_that_is_missing(session: Session) -> None:
    done = session.run("right", "-k", "accuracy", baseline="nowhere.json")
    assert done.parseoutcomes()["failed"] == 1
    done.stdout.fnmatch_lines(["*there is no baseline *nowhere.json*"])
