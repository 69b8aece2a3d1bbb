"""A baseline in the plugin: what is known passes and is listed, what is new fails."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from pytest_plugin.sessions import Session

pytest_plugins = ["pytester"]

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
MARKER = "right, cases=CASES, baseline='known.json'"
LISTED = "known     a right kernel: y, float32, accuracy (issue 12), in 1 test"


@pytest.fixture
def judged(session: Session) -> Session:
    """Return a session with a baseline: the kernel fails in the second of two cases."""
    write(session)
    return session


def write(session: Session, **changed: Any) -> None:
    findings = [KNOWN | changed]
    text = json.dumps({"schema": "truenorm/baseline-1", "findings": findings})
    (session.pytester.path / "known.json").write_text(text, encoding="utf-8")


def test_what_is_known_passes_and_is_listed(judged: Session) -> None:
    done = judged.run(MARKER)
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["*truenorm, against the baseline*", LISTED])
    assert "vanished  " not in done.stdout.str()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"families": ["constant"]}, "  new  the baseline does not have it in offset"),
        ({"output": "dx"}, "  new  it is not in the baseline"),
        ({"subject": "another"}, "  new  it is not in the baseline"),
    ],
)
def test_what_is_new_fails_and_says_so(
    judged: Session, changed: dict[str, Any], said: str
) -> None:
    write(judged, **changed)
    done = judged.run(MARKER)
    done.assert_outcomes(passed=1, failed=1)
    assert said in done.stdout.str()
    assert LISTED not in done.stdout.str()


def test_a_known_exception_passes(judged: Session) -> None:
    """It leaves no result, and so no grade that the baseline could have."""
    known = {"output": "", "check": "raised", "families": ["normal"], "grade": ""}
    write(judged, subject="a broken kernel", **known)
    done = judged.run("broken, cases=CASES, baseline='known.json'")
    done.assert_outcomes(passed=1, failed=1)
    assert "  new  the baseline does not have it in offset" in done.stdout.str()


def test_a_grade_that_is_too_low_where_all_findings_are_known(judged: Session) -> None:
    write(judged, check="special", families=["nan-in-x"], grade="")
    subject = (
        "tv.Subject(lambda x, *rest: forward(np.nan_to_num(x), *rest), name='a right kernel')"
    )
    case = "cases=[tv.case('float32-nan-in-x')]"
    done = judged.run(f"{subject}, {case}, baseline='known.json', require='correct'")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["below correct: y in float32."])


def test_what_has_vanished_is_told_after_all_tests_alone(judged: Session) -> None:
    """Of a family that was run; one that was not, nobody has looked at."""
    write(judged, families=["normal", "offset", "constant"])
    done = judged.run(MARKER)
    done.assert_outcomes(passed=2)
    vanished = "vanished  a right kernel: y, float32, accuracy, in normal (issue 12)"
    done.stdout.fnmatch_lines([LISTED, vanished])
    done = judged.run(MARKER, "-k", "normal")
    done.assert_outcomes(passed=1, deselected=1)
    assert "baseline =" not in done.stdout.str()
    assert "vanished  " not in done.stdout.str()


def test_a_case_beyond_the_domain_counts_as_run(judged: Session) -> None:
    write(judged, subject="subject", families=["normal"])
    done = judged.run("claims, cases=CASES, baseline='known.json'")
    done.assert_outcomes(passed=1, skipped=1)
    done.stdout.fnmatch_lines(["vanished  subject: y, float32, accuracy, in normal (issue 12)"])


def test_workers_send_what_they_found(judged: Session) -> None:
    """Of which each has a part; and so has the file of JUnit."""
    write(judged, families=["normal", "offset"])
    done = judged.run_apart(MARKER, "-n", "2", "--junitxml=found.xml")
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(
        [LISTED, "vanished  a right kernel: y, float32, accuracy, in normal*"]
    )
    written = ET.parse(judged.pytester.path / "found.xml").iter("property")
    assert [each.get("name") for each in written] == ["truenorm-baseline"] * 2


def test_a_report_is_held_against_it_as_well(judged: Session) -> None:
    judged.pytester.makepyfile(
        test_it=f"""
        import pytest
        from judged_kernels import *

        @pytest.mark.truenorm({MARKER})
        def test_kernel(truenorm_case):
            report = truenorm_case.report()
            assert report.baseline.new == 0
            assert report.baseline.known == (truenorm_case.case.family == "offset")
        """
    )
    done = judged.pytester.runpytest_inprocess(*judged.options)
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines([LISTED])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no baseline *known.json"),
        ("[]", "*is not a baseline that this version can read*"),
    ],
)
def test_what_is_no_baseline_is_refused(judged: Session, text: str | None, said: str) -> None:
    file = Path(judged.pytester.path / "known.json")
    file.unlink() if text is None else file.write_text(text)
    done = judged.run(MARKER)
    assert done.ret == pytest.ExitCode.INTERRUPTED
    done.stdout.fnmatch_lines([f"@pytest.mark.truenorm: {said}*"])
