"""The line that tells how far a check is: for people, not for files."""

import sys
from collections.abc import Callable

import numpy as np
import pytest

import truenorm as tn
from gradient_check.pairs import Array
from truenorm.tools import progress
from truenorm.tools.progress import announced, with_progress


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "BETWEEN", 0.0)


@pytest.fixture
def terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """Return what makes a terminal of stderr, to be called where it is in place: in the test."""
    assert capsys is not None
    return lambda: monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def forward(x: Array) -> Array:
    return np.exp(x)


def check() -> None:
    assert tn.gradcheck(forward, lambda dy, x: dy * np.exp(x), np.ones(24), method="complex")


@pytest.mark.usefixtures("_impatient")
def test_on_a_terminal(capsys: pytest.CaptureFixture[str], terminal: Callable[[], None]) -> None:
    terminal()
    check()
    out, err = capsys.readouterr()
    assert out == ""
    assert f"\r\x1b[Kgradient of x [{'#' * 12}{'.' * 12}] 12/24" in err
    assert err.endswith("\r\x1b[K")
    assert "\n" not in err


@pytest.mark.usefixtures("_impatient")
def test_never_to_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    check()
    assert capsys.readouterr() == ("", "")


def test_not_within_the_first_second(
    capsys: pytest.CaptureFixture[str],
    terminal: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal()
    monkeypatch.setattr(progress, "PATIENCE", 3600.0)
    check()
    assert capsys.readouterr() == ("", "")


def test_not_too_often(
    capsys: pytest.CaptureFixture[str],
    terminal: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal()
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "BETWEEN", 3600.0)
    check()
    assert capsys.readouterr().err.count("gradient of") == 1


@pytest.mark.usefixtures("_impatient")
def test_the_line_is_removed_when_a_check_is_interrupted(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[], None]
) -> None:
    terminal()
    items = with_progress(range(9), 9, "x")
    assert [next(items), next(items)] == [0, 1]
    assert "1/9" in capsys.readouterr().err
    items.close()  # type: ignore[attr-defined]
    assert capsys.readouterr().err.endswith("\r\x1b[K")


def test_all_items_in_order() -> None:
    assert list(with_progress("abc", 3, "x")) == list("abc")


def test_a_listener_is_told_before_each_item() -> None:
    told: list[tuple[int, int, str]] = []
    items = announced([5, 7], lambda *step: told.append(step), "case {}".format)
    assert next(items) == 5
    assert told == [(0, 2, "case 5")]
    assert list(items) == [7]
    assert told[1:] == [(1, 2, "case 7")]


def test_without_a_listener_all_items_come() -> None:
    assert list(announced([5, 7], None, str)) == [5, 7]
