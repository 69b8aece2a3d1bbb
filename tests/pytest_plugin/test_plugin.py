"""The plugin, in sessions of its own: one test a case, what a failure shows, options, workers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import truenorm.verify as tv
from pytest_plugin.sessions import TESTS, Session

pytest_plugins = ["pytester"]

SOURCES = Path(tv.__file__).parents[1]
OFFSET = "float32-offset-1e4-4x67"


def test_each_case_is_a_test(session: Session) -> None:
    done = session.run("right, cases=CASES[:1]", "-v")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["test_it.py::test_kernel[[]float32-normal-4x17[]] PASSED*"])
    done = session.run("right", "--collect-only", "-q")
    names = re.findall(r"^test_it.py::test_kernel\[(.*)\]$", done.stdout.str(), re.MULTILINE)
    assert names == [each.name for each in tv.cases("float32")]


@pytest.mark.parametrize("style", ["auto", "native"])
def test_a_failure_shows_symptom_cause_and_reproducer(session: Session, style: str) -> None:
    """And no line of ours."""
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
    text = done.stdout.str()
    assert str(SOURCES) not in text
    ours = {
        line.strip()
        for file in SOURCES.rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if len(line.strip()) > 20 and not line.strip().startswith("import truenorm")
    }
    assert {line.lstrip("> ").strip() for line in text.splitlines()}.isdisjoint(ours)


def test_the_reproducer_that_is_shown_runs(session: Session) -> None:
    text = session.run("wrong, cases=CASES[:1]").stdout.str()
    script = text.split("-" * 80 + "\n")[1]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert re.search(r"AssertionError: got .*, exact ", done.stderr), done.stderr


def test_what_a_kernel_raises_is_shown(session: Session) -> None:
    done = session.run("broken, cases=CASES[:1]")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*raised ValueError: the kernel's own words*"])
    assert str(SOURCES) not in done.stdout.str()


def test_a_cause_must_be_true_of_other_cases_too(session: Session) -> None:
    """In this one alone, an inverse root of float16 would give the same zeros."""
    done = session.run("rms_norm, cases=[LARGE]")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["y[[]*] is *, the exact answer *", "cause  *"])
    assert "float16" not in done.stdout.str()


def test_a_grade_can_be_required(session: Session) -> None:
    session.run("right, cases=CASES").assert_outcomes(passed=1, failed=1)
    session.run("right, cases=CASES, require='conditional'").assert_outcomes(passed=2)
    session.run("right, cases=CASES[:1], require='correct'").assert_outcomes(failed=1)


def test_beyond_its_domain_a_subject_is_not_asked(session: Session) -> None:
    done = session.run("claims, cases=CASES", "-rs")
    done.assert_outcomes(passed=1, skipped=1)
    done.stdout.fnmatch_lines(["SKIPPED*beyond what subject is said to be right for: kappa up*"])


def test_a_subject_by_its_name(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is looked for beside the test, wherever pytest is started."""
    chosen = ("-k", "float32-normal-4x17")
    session.pytester.makepyfile(test_it=TESTS.format(marker="'judged_kernels.py:wrong'"))
    monkeypatch.chdir(session.pytester.mkdir("elsewhere"))
    done = session.pytester.runpytest_inprocess(*session.options, *chosen, "../test_it.py")
    assert done.parseoutcomes()["failed"] == 1
    done.stdout.fnmatch_lines(["subject = tv.load('*kernels.py:wrong')"])


def test_another_operation_and_other_types(session: Session) -> None:
    marker = "tv.Subject(lambda x, *_: x), operation='rms_norm', dtypes=['float16']"
    done = session.run(marker, "--collect-only", "-q")
    of_rms_norm = tv.cases("float16", operation=tv.RMS_NORM)
    assert f"{len(of_rms_norm)} tests collected" in done.stdout.str()


@pytest.mark.slow
def test_workers_of_xdist(session: Session) -> None:
    done = session.run_apart("right, cases=CASES", "-n", "2", "-v")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines([f"*FAILED*test_it.py::test_kernel[[]{OFFSET}[]]*"])


@pytest.mark.slow
def test_a_fresh_seed_is_the_same_for_all_workers_and_can_be_given_again(session: Session) -> None:
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
def test_the_level_of_the_command_counts(session: Session) -> None:
    done = session.run("right, level='quick'", "--truenorm-level", "full", "--collect-only")
    done.stdout.fnmatch_lines(["truenorm: level full"])
    assert f"{len(tv.cases('float32', 'full'))} tests collected" in done.stdout.str()


def test_where_it_is_not_used_nothing_is_imported(session: Session) -> None:
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
