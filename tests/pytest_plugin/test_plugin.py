"""The plugin: one test a case, messages of failures, options, workers, and invalid markers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import truenorm.verify as tv
from pytest_plugin.sessions import TESTS, Session

pytest_plugins = ["pytester"]

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
OFFSET = "float32-offset-1e4-4x67"


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


def test_each_case_is_a_test(session: Session) -> None:
    done = session.run("right, cases=CASES[:1]", "-v")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["test_it.py::test_kernel[[]float32-normal-4x17[]] PASSED*"])
    done = session.run("right", "--collect-only", "-q")
    names = re.findall(r"^test_it.py::test_kernel\[(.*)\]$", done.stdout.str(), re.MULTILINE)
    assert names == [each.name for each in tv.cases("float32")]


@pytest.mark.parametrize("style", ["auto", "native"])
def test_message_of_a_failure(session: Session, style: str) -> None:
    done = session.run("wrong, cases=CASES[:1]", f"--tb={style}")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "y[[]*] is *, the exact answer *: off by * ulp",
            "   in  a wrong kernel",
            " case  float32-normal-4x17: ordinary input, D = 17",
            "cause  the variance is divided by D - 1 (matches y within * ulp)",
            "# float32-normal-4x17: y[[]*",
            "subject = tv.load('*kernels.py:wrong')",
            "case = tv.case('float32-normal-4x17')",
            "FAILED test_it.py::test_kernel[[]float32-normal-4x17[]] - Failed: y[[]*",
        ]
    )
    assert_shows_no_source(done.stdout.str())


@pytest.mark.parametrize(
    "style", ["auto", *(pytest.param(each, marks=pytest.mark.slow) for each in ("long", "short"))]
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


def test_reproducer_runs(session: Session) -> None:
    text = session.run("wrong, cases=CASES[:1]").stdout.str()
    script = text.split("-" * 80 + "\n")[1]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert re.search(r"AssertionError: got .*, exact ", done.stderr), done.stderr


def test_exception_of_a_kernel(session: Session) -> None:
    done = session.run("broken, cases=CASES[:1]")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*raised ValueError: the kernel's own words*"])
    assert str(SOURCES) not in done.stdout.str()


def test_cause_must_explain_control_cases(session: Session) -> None:
    """In this case alone, an inverse root in float16 would give the same zeros."""
    done = session.run("rms_norm, cases=[LARGE]")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["y[[]*] is *, the exact answer *", "cause  *"])
    assert "float16" not in done.stdout.str()


def test_required_grade(session: Session) -> None:
    session.run("right, cases=CASES").assert_outcomes(passed=1, failed=1)
    session.run("right, cases=CASES, require='conditional'").assert_outcomes(passed=2)
    session.run("right, cases=CASES[:1], require='correct'").assert_outcomes(failed=1)


def test_cases_outside_the_domain_are_skipped(session: Session) -> None:
    done = session.run("claims, cases=CASES", "-rs")
    done.assert_outcomes(passed=1, skipped=1)
    done.stdout.fnmatch_lines(["SKIPPED*outside the domain of subject: kappa up*"])


def test_subject_by_target_string(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path is relative to the test file, not to the current folder."""
    chosen = ("-k", "float32-normal-4x17")
    session.pytester.makepyfile(test_it=TESTS.format(marker="'judged_kernels.py:wrong'"))
    monkeypatch.chdir(session.pytester.mkdir("elsewhere"))
    done = session.pytester.runpytest_inprocess(*session.options, *chosen, "../test_it.py")
    assert done.parseoutcomes()["failed"] == 1
    done.stdout.fnmatch_lines(["subject = tv.load('*kernels.py:wrong')"])


def test_operation_and_types_of_the_marker(session: Session) -> None:
    marker = "tv.Subject(lambda x, *_: x), operation='rms_norm', dtypes=['float16']"
    done = session.run(marker, "--collect-only", "-q")
    of_rms_norm = tv.cases("float16", operation=tv.RMS_NORM)
    assert f"{len(of_rms_norm)} tests collected" in done.stdout.str()


@pytest.mark.slow
def test_xdist_workers(session: Session) -> None:
    done = session.run_apart("right, cases=CASES", "-n", "2", "-v")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines([f"*FAILED*test_it.py::test_kernel[[]{OFFSET}[]]*"])


@pytest.mark.slow
def test_fresh_seed(session: Session) -> None:
    done = session.run_apart("wrong", "-n", "2", "--truenorm-seed", "fresh", "-k", "normal-4x17")
    done.assert_outcomes(failed=1)
    (seed,) = re.findall(r"^truenorm: seed (\d+) ", done.stdout.str(), re.MULTILINE)
    name = f"float32-normal-4x17-{seed}"
    done.stdout.fnmatch_lines(
        [f"again  pytest --truenorm-seed {seed}", f"case = tv.case('{name}')"]
    )
    again = session.run("wrong", "--truenorm-seed", seed, "-k", "normal-4x17")
    again.assert_outcomes(failed=1, deselected=len(tv.cases("float32")) - 1)
    symptom = next(line for line in again.stdout.str().splitlines() if line.startswith("y["))
    assert symptom in done.stdout.str()
    another = session.run("wrong", "--truenorm-seed", "fresh", "--collect-only", "-q")
    assert f"-{seed}]" not in another.stdout.str()


@pytest.mark.slow
def test_level_of_the_command_line(session: Session) -> None:
    done = session.run("right, level='quick'", "--truenorm-level", "full", "--collect-only")
    done.stdout.fnmatch_lines(["truenorm: level full"])
    assert f"{len(tv.cases('float32', 'full'))} tests collected" in done.stdout.str()


def test_nothing_is_imported_without_a_marker(session: Session) -> None:
    session.pytester.makepyfile(
        test_it="""
        import sys

        def test_nothing():
            heavy = {"numpy", "truenorm.verify", "truenorm.pytest_plugin.cases"}
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
    done.stderr.fnmatch_lines([f"*--truenorm-seed is '{seed}'; give a number, or fresh"])
