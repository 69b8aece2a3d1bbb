"""What a marker, a test or an option cannot mean is said without a traceback."""

import re

import pytest

from pytest_plugin.sessions import Session

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("", "missing 1 required positional argument: 'subject'"),
        ("forward", "give a truenorm.verify.Subject, or file.py:name, not"),
        ("right, grade='stable'", "unexpected keyword argument 'grade'"),
        ("right, require='best'", "require is 'best'; it is one of wrong, unstable"),
        ("right, dtypes=['float8']", "dtypes is"),
        ("right, operation='norm'", "operation is 'norm'"),
        ("'nowhere.py:subject'", "there is no file"),
    ],
)
def test_what_a_marker_cannot_mean(session: Session, marker: str, said: str) -> None:
    marker = marker.replace("forward", "forward, level='quick'")  # else it is what is marked
    done = session.run(marker)
    assert done.ret == pytest.ExitCode.INTERRUPTED
    assert re.search(rf"@pytest.mark.truenorm: .*{re.escape(said)}", done.stdout.str())
    assert "Traceback" not in done.stdout.str()


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("def test_it(truenorm_case): ...", "test_it has no marker"),
        ("@pytest.mark.truenorm(1)\ndef test_it(): ...", "test_it does not take truenorm_case"),
    ],
)
def test_marker_and_argument_belong_together(session: Session, test: str, said: str) -> None:
    session.pytester.makepyfile(test_it=f"import pytest\n{test}")
    done = session.pytester.runpytest_inprocess(*session.options)
    done.stdout.fnmatch_lines([f"{said}: write @pytest.mark.truenorm(subject) on a test that *"])


@pytest.mark.parametrize("seed", ["-1", "x", "1.5"])
def test_what_is_no_seed(session: Session, seed: str) -> None:
    done = session.run("right, cases=CASES[:1]", f"--truenorm-seed={seed}")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"*--truenorm-seed is '{seed}'; give a number, or fresh"])
