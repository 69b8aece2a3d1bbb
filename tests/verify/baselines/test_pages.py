"""What a baseline says of a report, on a terminal and as HTML."""

import io
from dataclasses import replace

from rich.console import Console

from truenorm.verify.baseline import against, updated
from truenorm.verify.grading.report import Report
from truenorm.verify.report.html import to_html
from truenorm.verify.report.terminal import show
from truenorm.verify.report.wording import conclusion, counts, vanished_lines
from verify.baselines.known import finding, made

NASTY = "<b>[bold]why[/bold]</b>"
BEFORE = [
    replace(each, reason=NASTY)
    for each in updated(made(finding(families=("offset", "constant")), finding("repeat")), ())
]
KNOWN = against(made(finding(families=("offset",))), BEFORE)
NEW = against(
    made(finding(families=("offset", "constant")), finding("special", ["nan-in-x"])), BEFORE
)


def shown(report: Report) -> str:
    stream = io.StringIO()
    show(report, Console(file=stream, width=100, highlight=False))
    return stream.getvalue()


def test_without_one_nothing_is_said() -> None:
    report = made(finding())
    assert (counts(report), vanished_lines(report)) == ("", [])
    assert "baseline" not in shown(report)
    assert "<dt>baseline</dt>" not in to_html(report)


def test_numbers_and_what_vanished() -> None:
    assert counts(KNOWN) == "1 known (baseline), 0 new, 2 vanished"
    assert vanished_lines(KNOWN) == [
        f"vanished: y, float32, accuracy, in constant ({NASTY})",
        f"vanished: y, float32, repeat ({NASTY})",
    ]
    assert conclusion(KNOWN) == "No new finding, and every grade is at least stable or known."
    gone = against(made(of_y="stable"), BEFORE[:1])
    assert vanished_lines(gone) == [f"vanished: y, float32, accuracy ({NASTY})"]
    better = against(made(finding(families=("offset", "constant")), of_y="conditional"), BEFORE)
    assert f"better than unstable: y, float32, accuracy ({NASTY})" in vanished_lines(better)
    good = against(made(of_y="stable"), BEFORE)
    assert conclusion(good) == "No new finding, and every grade is at least stable."
    assert conclusion(NEW) == "1 new finding."
    worse = against(made(finding(), of_y="wrong"), BEFORE)
    assert conclusion(worse) == "1 new finding; below stable: y in float32."


def test_a_terminal_lists_known_ones_and_numbers_new_ones() -> None:
    text = shown(KNOWN)
    assert f"known     y, float32, accuracy: y is off ({NASTY})" in text
    assert "1 known (baseline), 0 new, 2 vanished" in text
    assert "PASS" in text
    assert "\n    1  " not in text  # no finding is shown at length
    text = shown(NEW)
    lines = [line.strip().split(maxsplit=1) for line in text.splitlines()]
    assert ["1", "y is off"] in lines
    assert ["new", "the baseline does not have it"] in lines
    assert "FAIL" in text
    assert "1 known (baseline), 1 new, 1 vanished" in text


def test_a_page_marks_each() -> None:
    page = to_html(NEW)
    assert "1 known (baseline), 1 new, 1 vanished" in page
    assert page.index("new: the baseline does not have it") < page.index("<dd>known")
    assert "<li>vanished: y, float32, repeat (&lt;b&gt;" in page
    assert NASTY not in page
    assert NASTY not in to_html(KNOWN)
