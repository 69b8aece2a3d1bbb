"""The bar: for people, on stderr, and gone in the end."""

import sys
import time

import pytest

from truenorm.cli.output import progress_bar


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
    """When all are done the clock runs on: grading comes then, and takes the longest."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar("judging") as update:
        assert update is not None
        update(7, 7, "case [bold]\x1b[2J\n")
        time.sleep(1.3)
    out, err = capsys.readouterr()
    assert out == ""
    for words in ("judging", "7/7", "0:00:01", r"case [bold]\x1b[2J"):
        assert words in err
    assert err.endswith("\x1b[2K")  # the line is erased
