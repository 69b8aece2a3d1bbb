"""The bar: for people, on stderr, and gone in the end."""

import sys
import time

import pytest

from truenorm.cli.progress import progress_bar


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "UNUSED"])
def test_no_bar_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Not even where colours are forced."""
    monkeypatch.setenv(variable, "1")
    with progress_bar("judging") as update:
        assert update is None
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar("judging") as update:
        assert update is not None
        update(3, 7, "case [bold]\x1b[2J\n")
    out, err = capsys.readouterr()
    assert out == ""
    assert "judging" in err
    assert "3/7" in err
    assert r"case [bold]\x1b[2J" in err
    assert err.endswith("\x1b[2K")  # the line is erased


def test_the_clock_runs_on_when_all_are_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grading comes then, and takes the longest."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar("judging") as update:
        assert update is not None
        update(7, 7, "grading")
        time.sleep(1.3)
    err = capsys.readouterr().err
    assert "7/7" in err
    assert "0:00:01" in err
