"""How far long work is: for a listener, and for people at a terminal, not for files."""

import sys

import pytest

from truenorm.tools import progress
from truenorm.tools.progress import announced, with_progress

GONE = "\r\x1b[K"


@pytest.mark.parametrize(
    ("terminal", "patience", "between", "lines"),
    [(True, 0.0, 0.0, 24), (True, 3600.0, 0.0, 0), (True, 0.0, 3600.0, 1), (False, 0.0, 0.0, 0)],
)
def test_a_line_on_a_terminal_not_at_once_nor_too_often(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
    patience: float,
    between: float,
    lines: int,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(progress, "PATIENCE", patience)
    monkeypatch.setattr(progress, "BETWEEN", between)
    assert list(with_progress(range(24), 24, "x")) == list(range(24))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("x [") == lines
    assert err.endswith(GONE if lines else "")
    assert "\n" not in err
    if lines == 24:
        assert f"\r\x1b[Kx [{'#' * 12}{'.' * 12}] 12/24" in err


def test_the_line_is_removed_when_work_is_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    items = with_progress(range(9), 9, "x")
    assert [next(items), next(items)] == [0, 1]
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
