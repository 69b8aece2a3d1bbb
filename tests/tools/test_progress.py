"""How far long work is: for a listener, and for people at a terminal, not for files."""

import sys
from collections.abc import Callable

import pytest

from truenorm.tools import progress
from truenorm.tools.progress import announced, status_line, with_progress

HALF = f"\r\x1b[Kx [{'#' * 12}{'.' * 12}] 12/24"
GONE = "\r\x1b[K"


@pytest.fixture
def terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[float, float], None]:
    """Return what makes a terminal of stderr, which waits so long for a line and the next."""
    assert capsys is not None

    def make(patience: float, between: float) -> None:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setattr(progress, "PATIENCE", patience)
        monkeypatch.setattr(progress, "BETWEEN", between)

    return make


def test_a_line_on_a_terminal(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[float, float], None]
) -> None:
    terminal(0.0, 0.0)
    assert list(with_progress(range(24), 24, "x")) == list(range(24))
    out, err = capsys.readouterr()
    assert out == ""
    assert HALF in err
    assert err.endswith(GONE)
    assert "\n" not in err


@pytest.mark.parametrize(("patience", "between", "lines"), [(3600.0, 0.0, 0), (0.0, 3600.0, 1)])
def test_not_at_once_nor_too_often(
    capsys: pytest.CaptureFixture[str],
    terminal: Callable[[float, float], None],
    patience: float,
    between: float,
    lines: int,
) -> None:
    terminal(patience, between)
    list(with_progress(range(24), 24, "x"))
    assert capsys.readouterr().err.count("x [") == lines


def test_never_to_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    assert list(with_progress("abc", 3, "x")) == list("abc")
    status_line("x")
    assert capsys.readouterr() == ("", "")


def test_the_line_is_removed_when_work_is_interrupted(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[float, float], None]
) -> None:
    terminal(0.0, 0.0)
    items = with_progress(range(9), 9, "x")
    assert [next(items), next(items)] == [0, 1]
    assert "1/9" in capsys.readouterr().err
    items.close()  # type: ignore[attr-defined]
    assert capsys.readouterr().err.endswith(GONE)


def test_a_listener_is_told_before_each_item() -> None:
    told: list[tuple[int, int, str]] = []
    items = announced([5, 7], lambda *step: told.append(step), "case {}".format)
    assert next(items) == 5
    assert told == [(0, 2, "case 5")]
    assert list(items) == [7]
    assert told[1:] == [(1, 2, "case 7")]
    assert list(announced([5, 7], None, str)) == [5, 7]
