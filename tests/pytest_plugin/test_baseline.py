"""Baselines in the plugin: known findings pass and are listed, new ones fail."""

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


def test_known_findings(judged: Session) -> None:
    done = judged.run(MARKER)
    done.assert_outcomes(passed=2)
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
    done.assert_outcomes(passed=1, failed=1)
    assert message in done.stdout.str()
    assert LISTED not in done.stdout.str()


def test_known_exception(judged: Session) -> None:
    """A call that raises has no result, and so no grade."""
    known = {"output": "", "check": "raised", "families": ["normal"], "grade": ""}
    write(judged, subject="a broken kernel", **known)
    done = judged.run("broken, cases=CASES, baseline='known.json'")
    done.assert_outcomes(passed=1, failed=1)
    assert "  new  the baseline does not have it in offset" in done.stdout.str()


def test_low_grade_with_known_findings(judged: Session) -> None:
    write(judged, check="special", families=["nan-in-x"], grade="")
    subject = (
        "tv.Subject(lambda x, *rest: forward(np.nan_to_num(x), *rest), name='a right kernel')"
    )
    case = "cases=[tv.case('float32-nan-in-x')]"
    done = judged.run(f"{subject}, {case}, baseline='known.json', require='correct'")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["below correct: y in float32."])


def test_vanished_findings(judged: Session) -> None:
    """A finding vanishes only in families that were run, and if all tests were run."""
    write(judged, families=["normal", "offset", "constant"])
    done = judged.run(MARKER)
    done.assert_outcomes(passed=2)
    vanished = "vanished  a right kernel: y, float32, accuracy, in normal (issue 12)"
    done.stdout.fnmatch_lines([LISTED, vanished])
    done = judged.run(MARKER, "-k", "normal")
    done.assert_outcomes(passed=1, deselected=1)
    assert "baseline =" not in done.stdout.str()
    assert "vanished  " not in done.stdout.str()


def test_skipped_cases_count_as_run(judged: Session) -> None:
    write(judged, subject="subject", families=["normal"])
    done = judged.run("claims, cases=CASES, baseline='known.json'")
    done.assert_outcomes(passed=1, skipped=1)
    done.stdout.fnmatch_lines(["vanished  subject: y, float32, accuracy, in normal (issue 12)"])


def test_xdist_workers(judged: Session) -> None:
    """The parent merges the properties of its workers; the JUnit file has them, too."""
    write(judged, families=["normal", "offset"])
    done = judged.run_apart(MARKER, "-n", "2", "--junitxml=found.xml")
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(
        [LISTED, "vanished  a right kernel: y, float32, accuracy, in normal*"]
    )
    written = ET.parse(judged.pytester.path / "found.xml").iter("property")
    assert [each.get("name") for each in written] == ["truenorm-baseline"] * 2


def test_report_method(judged: Session) -> None:
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
    ("text", "message"),
    [
        (None, "there is no baseline *known.json"),
        ("[]", "*is not a baseline that this version can read*"),
    ],
)
def test_invalid_baselines(judged: Session, text: str | None, message: str) -> None:
    file = Path(judged.pytester.path / "known.json")
    file.unlink() if text is None else file.write_text(text)
    done = judged.run(MARKER)
    assert done.ret == pytest.ExitCode.INTERRUPTED
    done.stdout.fnmatch_lines([f"@pytest.mark.truenorm: {message}*"])
