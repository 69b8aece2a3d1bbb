"""Progress callbacks, and the status line on a terminal."""

import sys

import pytest

from truenorm.tools import progress
from truenorm.tools.progress import with_callback, with_progress

CLEARED = "\r\x1b[K"


@pytest.mark.parametrize(
    ("terminal", "delay", "interval", "lines"),
    [(True, 0.0, 0.0, 24), (True, 3600.0, 0.0, 0), (True, 0.0, 3600.0, 1), (False, 0.0, 0.0, 0)],
)
def test_status_line_starts_late_and_is_rate_limited(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
    delay: float,
    interval: float,
    lines: int,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(progress, "DELAY", delay)
    monkeypatch.setattr(progress, "INTERVAL", interval)
    assert list(with_progress(range(24), 24, "x")) == list(range(24))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("x [") == lines
    assert err.endswith(CLEARED if lines else "")
    assert "\n" not in err
    if lines == 24:
        assert f"\r\x1b[Kx [{'#' * 12}{'.' * 12}] 12/24" in err


def test_status_line_is_removed_on_interrupt(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    items = with_progress(range(9), 9, "x")
    assert [next(items), next(items)] == [0, 1]
    items.close()  # type: ignore[attr-defined]
    assert capsys.readouterr().err.endswith(CLEARED)


def test_callback_is_called_before_each_item() -> None:
    steps: list[tuple[int, int, str]] = []
    items = with_callback([5, 7], lambda *step: steps.append(step), "case {}".format)
    assert next(items) == 5
    assert steps == [(0, 2, "case 5")]
    assert list(items) == [7]
    assert steps[1:] == [(1, 2, "case 7")]
    assert list(with_callback([5, 7], None, str)) == [5, 7]
