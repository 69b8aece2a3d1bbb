"""The plugin: one test a verdict, messages, options, workers, invalid markers, and baselines."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import truenorm.pytest_plugin
import truenorm.verify as tv
from truenorm.pytest_plugin.verdicts import Judgement, judged_verdicts
from truenorm.verify.grading.report import VERDICTS

SLOW = pytest.mark.slow(reason="each session of pytest in a process takes seconds")

pytest_plugins = ["pytester"]

KERNELS = """
import os
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

right = tv.Subject(forward, name="a right kernel", dtypes=["float32"])
wrong = tv.Subject(divides_by_less, name="a wrong kernel", dtypes=["float32"])
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

both_wrong = tv.Subject(saves, backward, name="two wrong passes", dtypes=["float32"])
def depends_on_the_batch(x, *others):
    y = forward(x, *others)
    return y if len(x) < 128 else np.nextafter(y, np.float32(np.inf))

by_rows = tv.Subject(depends_on_the_batch)
leaves = tv.Subject(lambda *_: os._exit(0), name="leaves the process", dtypes=["float32"])
broken = tv.Subject(raises, name="a broken kernel", dtypes=["float32"])
claims = tv.Subject(forward, dtypes=["float32"], domain=tv.Domain(kappa=10))
CASES = [tv.case(f"float32-{name}") for name in ("normal-4x17", "offset-1e4-4x67")]
SMALL = [case for case in tv.cases("float32") if case.family == "normal" and case.x.size < 300]
"""
TESTS = """
import pytest
from judged_kernels import *

@pytest.mark.truenorm({marker})
def test_kernel(truenorm_case):
    truenorm_case.check()
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
SOURCES = Path(tv.__file__).parents[1]


class Session:
    """Runs pytest with the plugin, which an installed truenorm registers."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        registered = [each.value for each in entry_points(group="pytest11")]
        name = truenorm.pytest_plugin.__name__
        # The plugin of Hypothesis is slow to import when a session fails.
        without = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
        self.options = without if name in registered else [*without, "-p", name]

    def run(self, marker: str, *options: str) -> pytest.RunResult:
        """Run a test with a marker in this process."""
        self.pytester.makepyfile(test_it=TESTS.format(marker=marker))
        return self.pytester.runpytest_inprocess(*self.options, *options)

    def run_apart(self, marker: str, *options: str) -> pytest.RunResult:
        """Run it in a new process."""
        self.pytester.makepyfile(test_it=TESTS.format(marker=marker))
        return self.pytester.runpytest_subprocess(*self.options, *options)


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(SOURCES.parent))  # a relative one fails elsewhere
    pytester.makepyfile(judged_kernels=KERNELS)
    return Session(pytester)


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


def test_each_verdict_is_a_test(session: Session) -> None:
    done = session.run("right, cases=CASES[:1]", "-v")
    assert "failed" not in done.parseoutcomes()
    done.stdout.fnmatch_lines(["test_it.py::test_kernel[[]float32-accuracy-y[]] PASSED*"])
    done.stdout.fnmatch_lines(["test_it.py::test_kernel[[]float32-batch-invariant[]] SKIPPED*"])
    done = session.run("right, dtypes=['float32', 'float16']", "--collect-only", "-q")
    names = re.findall(r"^test_it.py::test_kernel\[(.*)\]$", done.stdout.str(), re.MULTILINE)
    verdicts = [each.replace(" ", "-") for each in ["accuracy-y", *VERDICTS]]
    assert sorted(names) == sorted(
        f"{dtype}-{each}" for dtype in ("float32", "float16") for each in verdicts
    )


def test_a_subject_is_judged_once(session: Session) -> None:
    session.pytester.makepyfile(
        test_it="""
        import pytest
        from judged_kernels import *

        calls = []
        counted = tv.Subject(lambda *inputs: calls.append(1) or forward(*inputs))

        @pytest.mark.truenorm(counted, cases=CASES[:1])
        def test_kernel(truenorm_case):
            truenorm_case.check()

        def test_calls():
            # one more for the same bits, two of other inputs, and one after these
            assert len(calls) == 5
        """
    )
    assert "failed" not in session.pytester.runpytest_inprocess(*session.options).parseoutcomes()


@pytest.mark.parametrize("style", ["auto", "native"])
def test_message_of_a_failure(session: Session, style: str) -> None:
    done = session.run("wrong, cases=SMALL", f"--tb={style}")
    assert done.parseoutcomes()["failed"] == 1
    done.stdout.fnmatch_lines(
        [
            "y[[]*] is *, the exact answer *: off by * ulp",
            "          in  a wrong kernel",
            "        case  float32-normal-4x3: ordinary input, D = 3 (and * other cases)",
            "likely cause  the variance is divided by D - 1 (matches y within * ulp;*",
            "# float32-normal-4x3: y[[]*",
            "subject = tv.load('*kernels.py:wrong')",
            "case = tv.case('float32-normal-4x3')",
            "FAILED test_it.py::test_kernel[[]float32-accuracy-y[]] - Failed: y[[]*",
        ]
    )
    assert_shows_no_source(done.stdout.str())


@pytest.mark.parametrize(
    "style", ["auto", *(pytest.param(each, marks=SLOW) for each in ("long", "short"))]
)
def test_check_shows_no_source(session: Session, style: str) -> None:
    """The traceback of `tv.check` ends in the test, without the plugin as well."""
    session.pytester.makepyfile(test_it=CHECKS)
    done = session.pytester.runpytest_subprocess("-p", "no:cacheprovider", f"--tb={style}")
    done.assert_outcomes(failed=2)
    text = done.stdout.str()
    assert "AssertionError: float32-normal-4x5 (ordinary input, D = 5): y[" in text
    assert "raised ValueError: the kernel's own words" in text
    assert "tv.check(SUBJECTS[name], " in text
    assert_shows_no_source(text)


def test_finding_that_follows(session: Session) -> None:
    """The message names the output whose bug explains it, not the number of a finding."""
    done = session.run("both_wrong, cases=SMALL", "-k", "accuracy")
    assert done.parseoutcomes()["failed"] >= 2
    done.stdout.fnmatch_lines(
        [
            "likely cause  the variance is divided*",
            "likely cause  as y, float32, acc*",
        ]
    )


def test_reproducer_runs(session: Session) -> None:
    text = session.run("wrong, cases=CASES[:1]").stdout.str()
    script = text.split("-" * 80 + "\n")[1]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert re.search(r"AssertionError: got .*, exact ", done.stderr), done.stderr


def test_exception_of_a_kernel(session: Session) -> None:
    done = session.run("broken, cases=CASES[:1]")
    done.assert_outcomes(failed=1, skipped=len(VERDICTS))
    done.stdout.fnmatch_lines(["*raised ValueError: the kernel's own words*"])
    assert str(SOURCES) not in done.stdout.str()


@pytest.mark.parametrize("target", ["leaves", "'judged_kernels.py:leaves'"])
def test_exit_of_a_kernel(session: Session, target: str) -> None:
    """Else the session would end with exit code 0 and without a word."""
    done = session.run_apart(f"{target}, cases=CASES[:1]")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.assert_outcomes(failed=1, skipped=len(VERDICTS))
    message = "ended with exit code 0" if target.endswith("'") else "called os._exit(0); a kernel*"
    done.stdout.fnmatch_lines([message, "          in  leaves the process"])


def test_subject_that_cannot_be_started(session: Session) -> None:
    """It loads where pytest is, and not in a process of its own."""
    file = session.pytester.path / "judged_kernels.py"
    guard = "import sys\nassert 'pytest' in sys.modules, 'no pytest'\n"
    file.write_text(guard + KERNELS, encoding="utf-8")
    done = session.run_apart("'judged_kernels.py:right', cases=CASES[:1]", "-rs")
    done.assert_outcomes(failed=1, skipped=len(VERDICTS))
    done.stdout.fnmatch_lines(
        ["*AssertionError: no pytest", "SKIPPED*the subject could not be run"]
    )


def test_required_grade(session: Session) -> None:
    for marker, failed in (
        ("right, cases=CASES", 0),  # models do not produce the second
        ("right, cases=CASES, strict=True", 1),
        ("right, cases=CASES, strict=True, require='conditional'", 0),
        ("right, cases=CASES[:1], require='correct'", 1),
        ("claims, cases=CASES, strict=True", 0),  # the second is outside its domain
    ):
        assert session.run(marker).parseoutcomes().get("failed", 0) == failed


def test_batch_dependence(session: Session) -> None:
    """It fails, or the test passes with a warning of Python."""
    marker = "by_rows, cases=[tv.case('float32-batch-300x67')]"
    done = session.run(marker)
    assert done.parseoutcomes()["failed"] == 1
    done = session.run(f"{marker}, batch='warn'", "-Wdefault")
    outcomes = done.parseoutcomes()
    assert ("failed" in outcomes, outcomes["warnings"]) == (False, 1)
    done.stdout.fnmatch_lines(["*UserWarning: y *bits*", "*likely cause*"])
    assert session.run(f"{marker}, batch='warn'", "-Werror").parseoutcomes()["failed"] == 1


def test_subject_by_target_string(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path is relative to the test file, not to the current folder."""
    marker = "'judged_kernels.py:wrong', cases=CASES[:1]"
    session.pytester.makepyfile(test_it=TESTS.format(marker=marker))
    monkeypatch.chdir(session.pytester.mkdir("elsewhere"))
    done = session.pytester.runpytest_inprocess(*session.options, "../test_it.py")
    assert done.parseoutcomes()["failed"] == 1
    done.stdout.fnmatch_lines(["subject = tv.load('*kernels.py:wrong')"])


def judgements(*, level: str = "", seed: int = 0, **options: Any) -> list[Judgement]:
    """Return the judgements of a marker with these options."""
    marker = pytest.mark.truenorm(tv.Subject(lambda x, *_: x), **options).mark
    tests = judged_verdicts(marker, Path(__file__), level=level, seed=seed)
    return list(dict.fromkeys(each.judgement for each in tests))


def test_operation_and_types_of_the_marker() -> None:
    (judgement,) = judgements(operation="rms_norm", dtypes=["float16"])
    assert judgement.suite == tv.cases("float16", operation=tv.RMS_NORM)
    assert judgement.subject.dtypes == ("float16",)


def test_recipe_of_the_marker() -> None:
    marker = pytest.mark.truenorm(tv.Subject(lambda x, *_: x), recipe="late").mark
    tests = judged_verdicts(marker, Path(__file__), level=None, seed=None)
    assert "float32-recipe" in map(str, tests)


def test_level_and_seed_of_the_command_line() -> None:
    (judgement,) = judgements(level="full", seed=4)
    assert [each.name for each in judgement.suite] == [
        each.name for each in tv.cases("float32", "full", seed=4)
    ]
    assert (judgement.level, judgement.seed) == ("full", 4)
    (of_cases,) = judgements(cases=[tv.case("float32-normal-4x17")], seed=4)
    assert (len(of_cases.suite), of_cases.seed) == (1, 0)


@SLOW
def test_xdist_workers(session: Session) -> None:
    """With --dist loadfile, one worker judges the subject."""
    done = session.run_apart(
        "right, cases=CASES, strict=True", "-n", "2", "-v", "--dist", "loadfile"
    )
    assert done.parseoutcomes()["failed"] == 1
    done.stdout.fnmatch_lines(["*FAILED*test_it.py::test_kernel[[]float32-accuracy-y[]]*"])
    assert len(set(re.findall(r"^\[(gw\d)\]", done.stdout.str(), re.MULTILINE))) == 1


@SLOW
def test_fresh_seed(session: Session) -> None:
    """It is in the header, in the message of a failure, and the same in all workers."""
    done = session.run_apart("wrong", "-n", "2", "--truenorm-seed", "fresh", "-k", "accuracy")
    done.assert_outcomes(failed=1)
    (seed,) = re.findall(r"^truenorm: seed (\d+) ", done.stdout.str(), re.MULTILINE)
    done.stdout.fnmatch_lines(
        [f"*again  pytest --truenorm-seed {seed}", f"case = tv.case('float32-*-{seed}')"]
    )


def test_nothing_is_imported_without_a_marker(session: Session) -> None:
    session.pytester.makepyfile(
        test_it="""
        import sys

        def test_nothing():
            heavy = {"numpy", "truenorm.verify", "truenorm.pytest_plugin.verdicts"}
            assert "truenorm.pytest_plugin" in sys.modules
            assert not heavy & set(sys.modules)
        """
    )
    done = session.pytester.runpytest_subprocess(*session.options, "--strict-markers")
    done.assert_outcomes(passed=1)
    assert "truenorm:" not in done.stdout.str()


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("", "missing 1 required positional argument: 'subject'"),
        ("forward", "subject must be a Subject or file.py:name, got"),
        ("right, grade='stable'", "unexpected keyword argument 'grade'"),
        ("right, require='best'", "require must be one of wrong, unstable"),
        ("right, dtypes=['float8']", "dtypes must be a list of"),
        ("right, operation='norm'", "operation must be one of layer_norm"),
        ("'nowhere.py:subject'", "there is no file"),
    ],
)
def test_invalid_markers(session: Session, marker: str, message: str) -> None:
    marker = marker.replace("forward", "forward, level='quick'")  # else it is what is marked
    done = session.run(marker)
    assert done.ret == pytest.ExitCode.INTERRUPTED
    assert re.search(rf"@pytest.mark.truenorm: .*{re.escape(message)}", done.stdout.str())
    assert "Traceback" not in done.stdout.str()


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("def test_it(truenorm_case): ...", "test_it has no marker"),
        ("@pytest.mark.truenorm(1)\ndef test_it(): ...", "test_it does not take truenorm_case"),
    ],
)
def test_marker_without_argument(session: Session, test: str, message: str) -> None:
    session.pytester.makepyfile(test_it=f"import pytest\n{test}")
    done = session.pytester.runpytest_inprocess(*session.options)
    done.stdout.fnmatch_lines(
        [f"{message}: write @pytest.mark.truenorm(subject) on a test that *"]
    )


@pytest.mark.parametrize("seed", ["-1", "x", "1.5"])
def test_invalid_seeds(session: Session, seed: str) -> None:
    done = session.run("right, cases=CASES[:1]", f"--truenorm-seed={seed}")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"*--truenorm-seed must be a number or fresh; got '{seed}'"])


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
MARKER = "right, cases=CASES, strict=True, baseline='known.json'"
LISTED = "known     a right kernel: y, float32, accuracy (issue 12)"


@pytest.fixture
def judged(session: Session) -> Session:
    """Return a session with a baseline: the kernel fails in the second of two cases."""
    write(session)
    return session


def write(session: Session, **changed: Any) -> None:
    text = json.dumps({"schema": "truenorm/baseline-1", "findings": [KNOWN | changed]})
    (session.pytester.path / "known.json").write_text(text, encoding="utf-8")


def test_known_findings(judged: Session) -> None:
    done = judged.run(MARKER)
    assert "failed" not in done.parseoutcomes()
    done.stdout.fnmatch_lines(["*truenorm, against the baseline*", LISTED])
    assert "vanished  " not in done.stdout.str()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"families": ["constant"]}, "  new  the baseline does not have it in offset"),
        ({"output": "dx"}, "  new  it is not in the baseline"),
        ({"subject": "another"}, "  new  it is not in the baseline"),
    ],
)
def test_new_findings(judged: Session, changed: dict[str, Any], message: str) -> None:
    write(judged, **changed)
    done = judged.run(MARKER)
    assert done.parseoutcomes()["failed"] == 1
    assert message in done.stdout.str()
    assert LISTED not in done.stdout.str()


def test_low_grade_with_known_findings(judged: Session) -> None:
    write(judged, check="special", families=["nan-in-x"], grade="")
    subject = (
        "tv.Subject(lambda x, *rest: forward(np.nan_to_num(x), *rest), name='a right kernel')"
    )
    case = "cases=[tv.case('float32-nan-in-x')]"
    done = judged.run(f"{subject}, {case}, baseline='known.json', require='correct'")
    assert done.parseoutcomes()["failed"] == 1
    done.stdout.fnmatch_lines(["below correct: y in float32."])


def test_vanished_findings(judged: Session) -> None:
    """A finding vanishes only in families that were run, whichever tests are selected."""
    write(judged, families=["normal", "offset", "constant"])
    vanished = "vanished  a right kernel: y, float32, accuracy, in normal (issue 12)"
    for options in ((), ("-k", "repeatable")):
        done = judged.run(MARKER, *options)
        assert "failed" not in done.parseoutcomes()
        done.stdout.fnmatch_lines([LISTED, vanished])


def test_baseline_with_xdist_workers(judged: Session) -> None:
    """The parent merges the properties of its workers; the JUnit file has them, too."""
    write(judged, families=["normal", "offset"])
    done = judged.run_apart(MARKER, "-n", "2", "--junitxml=report.xml")
    assert "failed" not in done.parseoutcomes()
    text = done.stdout.str()
    assert text.count(LISTED) == 1
    assert text.count("vanished  a right kernel: y, float32, accuracy, in normal") == 1
    written = ET.parse(judged.pytester.path / "report.xml").iter("property")
    assert {each.get("name") for each in written} == {"truenorm-baseline"}


def test_report_method(judged: Session) -> None:
    judged.pytester.makepyfile(
        test_it=f"""
        import pytest
        from judged_kernels import *

        @pytest.mark.truenorm({MARKER})
        def test_kernel(truenorm_case):
            report = truenorm_case.report()
            assert report.subject == truenorm_case.subject.name
            assert (report.baseline.known, report.baseline.new) == (1, 0)
        """
    )
    done = judged.pytester.runpytest_inprocess(*judged.options)
    done.assert_outcomes(passed=1 + len(VERDICTS))
    done.stdout.fnmatch_lines([LISTED])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no baseline *known.json"),
        ("[]", "*is not a baseline that this version can read*"),
    ],
)
def test_invalid_baselines(judged: Session, text: str | None, message: str) -> None:
    file = judged.pytester.path / "known.json"
    file.unlink() if text is None else file.write_text(text)
    done = judged.run(MARKER)
    assert done.ret == pytest.ExitCode.INTERRUPTED
    done.stdout.fnmatch_lines([f"@pytest.mark.truenorm: {message}*"])
