"""Every way in which a program ends, and what is left over."""

import shlex
import sys
import threading
import time
from pathlib import Path

import pytest

from truenorm.verify.running.command import Program
from verify.runs.programs import ends, needs_proc, run, shell

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs are shell scripts")


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ("echo one >&2; echo two >&2; exit 3", "exit code 3: two"),
        ("echo on stdout; exit 4", "exit code 4: on stdout"),
        ('head -c 224 "$0/plain.in" > "$0/plain.out"; exit 5', "exit code 5"),
        *(
            (f"kill -{name[3:]} $$", f"crashed: signal {name}")
            for name in ("SIGSEGV", "SIGABRT", "SIGFPE", "SIGKILL")
        ),
    ],
)
def test_how_it_ended_is_said_and_results_are_not_taken(script: str, failure: str) -> None:
    record = shell(script)
    assert (record.failure, record.results) == (failure, {})


def test_programs_that_cannot_start(tmp_path: Path) -> None:
    missing = "cannot start 'no-such-program': No such file or directory"
    assert run("no-such-program").failure == missing
    for path, reason in (
        (tmp_path / "missing", "No such file or directory"),
        (tmp_path, "Permission denied"),
    ):
        assert run(str(path)).failure == f"cannot start {str(path)!r}: {reason}"
    text = tmp_path / "text"
    text.write_text("not a program")
    text.chmod(0o700)
    assert "Exec format error" in run(str(text)).failure
    assert "null byte" in run("true", "\0").failure


@needs_proc
@pytest.mark.parametrize(
    ("then", "seconds", "failure"),
    [
        ("wait", 0.5, "no answer within 0.5 s"),
        ("exec sleep 60", 0.5, "no answer within 0.5 s"),
        ('head -c 224 /dev/zero > "$0/plain.out"', 30.0, ""),
    ],
)
def test_its_children_end_with_it(tmp_path: Path, then: str, seconds: float, failure: str) -> None:
    """They also hold the pipes: waiting for their end would take a minute."""
    noted = tmp_path / "pid"
    start = time.monotonic()
    record = shell(f"sleep 60 & echo $! > {shlex.quote(str(noted))}; {then}", seconds=seconds)
    assert time.monotonic() - start < 20
    assert record.failure == failure
    assert ends(int(noted.read_text()))


@pytest.mark.parametrize(("redirect", "name"), [("", "stdout"), (">&2", "stderr")])
def test_endless_output_is_stopped(redirect: str, name: str) -> None:
    start = time.monotonic()
    record = shell(f"exec yes {redirect}", seconds=60)
    assert time.monotonic() - start < 20
    assert record.failure == f"stopped: it printed more than 1 MiB to {name}"


def test_much_output_is_read_but_not_kept() -> None:
    """More than a pipe holds, so that a program nobody reads from would wait for ever."""
    record = shell("head -c 900000 /dev/zero; head -c 900000 /dev/zero >&2; exit 3")
    assert record.failure.startswith("exit code 3")
    assert len(record.failure) < 400


def test_no_shell_takes_arguments_apart(tmp_path: Path) -> None:
    bait = tmp_path / "bait"
    arguments = [f"; touch {bait}", f"$(touch {bait})", "a b", "*", f"`touch {bait}`", "| cat"]
    told = tmp_path / "told"
    program = f"import sys; open({str(told)!r}, 'w').write(repr(sys.argv[1:-1]))"
    run(sys.executable, "-c", program, *arguments)
    assert told.read_text() == repr(arguments)
    assert not bait.exists()


def test_a_relative_program_with_spaces_is_found_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "my kernel; true"
    program.write_text('#!/bin/sh\nhead -c 224 /dev/zero > "$1/plain.out"\n')
    program.chmod(0o700)
    assert run(str(program)).failure == ""
    monkeypatch.chdir(tmp_path)
    assert run("./my kernel; true").failure == ""
    assert "cannot start 'my kernel; true'" in run("my kernel; true").failure  # not on the path


@needs_proc
def test_an_interrupt_kills_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while we wait: the exception passes, the process and the folder do not stay."""
    noted = tmp_path / "pid"
    real = threading.Event.wait

    def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
        if timeout is None:  # a thread that waits for its start
            return real(event)
        while not (noted.exists() and noted.read_text()):
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Event, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shell(f"echo $$ > {shlex.quote(str(noted))}; exec sleep 60")
    assert ends(int(noted.read_text()))


def test_a_program_that_is_stopped(tmp_path: Path) -> None:
    program = Program(["sleep", "60"], tmp_path)
    program.stop()
    assert program.failure(60.0) == "crashed: signal SIGKILL"
    assert program.exit_code == -9
