"""No line that a command prints is executed by GitHub, whatever text of a kernel it quotes."""

import io
import json
import re
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.cli.recording import record
from shared.verify.fake_report import failing_report, finding
from truenorm.cli import main
from truenorm.tools import strict_json
from truenorm.tools.command_line import PlainStream, run_command, stop
from truenorm.verify.running.records import CannotRunError

HOSTILE = (
    "::error::1 ::set-output name=a::2 ##[error]3 \u2003::debug::4 :::: ###[warning]5 "
    "::add-mask::6 aten::norm"
)


def executed(text: str) -> list[str]:
    """Return the lines that the runner of GitHub may execute.

    Its ActionCommand trims white space and looks for :: at the start; then for ##[ anywhere.
    """
    lines = re.split("\r\n|\r|\n", text)
    return [line for line in lines if line.lstrip().startswith("::") or "##[" in line]


@given(st.lists(st.text(":#[ \n\r\ta\u2003", max_size=6), max_size=12))
def test_a_stream_in_any_parts(parts: list[str]) -> None:
    stream = io.StringIO(newline="")
    plain = PlainStream(stream)
    assert [plain.write(part) for part in parts] == [len(part) for part in parts]
    assert executed(stream.getvalue()) == []
    assert stream.getvalue().replace("\\", "") == "".join(parts)


@given(st.text("ab:#[ \n", max_size=40))
def test_other_text_is_unchanged(text: str) -> None:
    stream = io.StringIO(newline="")
    PlainStream(stream).write(text)
    if not executed(text):
        assert stream.getvalue() == text


def test_json_has_the_same_values() -> None:
    value = {"##[error]": ["##[group]", "###[", "::x"]}
    for indent in (None, 2):
        text = strict_json.dumps(value, indent)
        assert executed(text) == []
        assert json.loads(text) == value


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["truenorm", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("width", [20, 31, 40, 57, 80, 120])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_reports_of_any_width(
    width: int,
    options: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    texts: dict[str, Any] = {
        "symptom": HOSTILE,
        "cause": HOSTILE,
        "why": HOSTILE,
        "reproducer": f"\n{HOSTILE}\n",
    }
    report = replace(failing_report(), subject=HOSTILE)
    findings = tuple(replace(each, **texts) for each in (*report.findings, finding()))
    report = replace(report, findings=findings, machine={"torch": HOSTILE, HOSTILE: "1"})
    record(monkeypatch, "truenorm.cli.judge.judge_recording", report)
    assert run(["judge", "cases", *options], monkeypatch) == 1
    printed = capsys.readouterr()
    assert executed(printed.out + printed.err) == []
    assert "error::1" in printed.out + printed.err


@pytest.mark.parametrize(
    "error",
    [CannotRunError(f"why:\n{HOSTILE}\n  {HOSTILE}\r{HOSTILE}"), RuntimeError(f"\n{HOSTILE}")],
)
def test_messages_of_commands_that_cannot_run(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(monkeypatch, "truenorm.cli.judge.judge_recording", error)
    assert run(["judge", "cases"], monkeypatch) == 2
    printed = capsys.readouterr()
    assert executed(printed.out + printed.err) == []
    assert "error::1" in printed.err


@pytest.mark.parametrize("argument", ["::error::1", "--a\n::error::1", "##[error]1"])
def test_wrong_arguments(
    argument: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ([argument], ["judge", "cases", "--require", argument], ["verify", argument]):
        assert run(arguments, monkeypatch) == 2
    printed = capsys.readouterr()
    assert executed(printed.out + printed.err) == []


def test_streams_are_restored(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with pytest.raises(SystemExit):
        run_command(lambda: stop("::error::1"))
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr().err == "truenorm: ::error::1\n"
