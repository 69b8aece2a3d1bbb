"""Programs as subjects: input and output files, every way to end, and leftover processes."""

import os
import shlex
import stat
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from shared.verify.running.programs import CASE, ends, needs_proc, run, shell
from truenorm.verify.calls import AGAIN, INTERLEAVED, PLAIN, REVERSED, ROWS, Call
from truenorm.verify.running.command import CommandRunner, Program
from truenorm.verify.subject import Subject

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs are shell scripts")

# Writes what no kernel would: y = x, dx = dy, dgamma = gamma and dbeta = beta.
ECHO = """
import sys, pathlib
folder = pathlib.Path(sys.argv[-1])
lines = (folder / "manifest.txt").read_text().splitlines()
assert lines[0] == "truenorm-vectors 1"
name, dtype, rows, d, eps = lines[1].split(" ")
whole, size = int(rows) * int(d) * 4, int(d) * 4
data = (folder / f"{name}.in").read_bytes()
x, gamma, beta, dy = data[:whole], data[whole:-whole-size], data[whole+size:-whole], data[-whole:]
assert len(x + gamma + beta + dy) == len(data)
(folder / f"{name}.out").write_bytes(x + dy + gamma + beta)
"""


@pytest.mark.parametrize("kind", [PLAIN, AGAIN, INTERLEAVED])
def test_results(kind: str) -> None:
    record = run(sys.executable, "-c", ECHO, call=Call(kind))
    assert record.failure == ""
    assert record.damaged == ()
    assert (record.case, record.call) == ("plain", Call(kind))
    assert record.seconds > 0
    inputs = {"y": CASE.x, "dx": CASE.dy, "dgamma": CASE.gamma, "dbeta": CASE.beta}
    assert list(record.results) == list(inputs)
    for output, array in inputs.items():
        np.testing.assert_array_equal(record.results[output], array, strict=True)


def test_some_rows_and_no_rows() -> None:
    record = run(sys.executable, "-c", ECHO, call=Call(ROWS, 2, 5))
    np.testing.assert_array_equal(record.results["y"], CASE.x[2:5], strict=True)
    np.testing.assert_array_equal(record.results["dx"], CASE.dy[2:5], strict=True)
    record = run(sys.executable, "-c", ECHO, call=Call(REVERSED))
    np.testing.assert_array_equal(record.results["y"], CASE.x[::-1], strict=True)
    record = run(sys.executable, "-c", ECHO, call=Call("idle below"))
    np.testing.assert_array_equal(
        record.results["dx"], np.concatenate([CASE.dy, 0 * CASE.dy]), strict=True
    )
    record = run(sys.executable, "-c", ECHO, call=Call("strided gradients"))
    assert record.failure.startswith("the files of a command hold rows")
    none = CommandRunner(Subject(command=["sh", "-c", 'head -c 32 /dev/zero > "$0/plain.out"']))
    record = none.run(CASE.part(slice(0, 0)), Call())
    assert record.failure == ""
    np.testing.assert_array_equal(record.results["y"], CASE.x[:0], strict=True)


def test_forward_alone() -> None:
    record = shell('head -c 96 "$0/plain.in" > "$0/plain.out"')
    assert record.failure == ""
    assert list(record.results) == ["y"]
    np.testing.assert_array_equal(record.results["y"], CASE.x, strict=True)


@pytest.mark.parametrize("size", [0, 12, 223, 225, 2**40])
def test_results_of_the_wrong_size(size: int) -> None:
    """The last is a sparse file: reading it would take a terabyte."""
    record = shell(f'truncate -s {size} "$0/plain.out"')
    assert record.failure == f"wrote {size} bytes to plain.out, expected 224"
    assert record.results == {}


@pytest.mark.parametrize(
    "script", ["true", 'mkfifo "$0/plain.out"', 'ln -s /dev/zero "$0/plain.out"']
)
def test_results_that_are_no_files(script: str) -> None:
    """Reading a pipe would block, and reading a device would never end."""
    assert shell(script).failure == "wrote no file plain.out"


def test_private_folder(tmp_path: Path) -> None:
    report = tmp_path / "report"
    program = f"""
import os, sys
status = os.stat(sys.argv[-1])
seen = status.st_mode, status.st_uid, os.path.samefile(os.getcwd(), sys.argv[-1])
open({str(report)!r}, "w").write(repr((seen, sorted(os.listdir()), sys.stdin.read())))
"""
    run(sys.executable, "-c", program)
    seen = (stat.S_IFDIR | 0o700, os.getuid(), True)
    assert report.read_text() == repr((seen, ["manifest.txt", "plain.in"], ""))


@pytest.mark.parametrize(("script", "damaged"), [
    *((f"printf x | dd of=plain.in bs=1 conv=notrunc status=none seek={place}", (name,)) for name,
        place in {"x": 0, "gamma": 96, "beta": 112, "dy": 220}.items()),
    ("rm plain.in", ("x", "gamma", "beta", "dy")),
    ("echo >> plain.in", ("x", "gamma", "beta", "dy")),
])  # fmt: skip
def test_damaged_inputs(script: str, damaged: tuple[str, ...]) -> None:
    record = shell(f"head -c 224 /dev/zero > plain.out; {script}")
    assert record.failure == ""
    assert record.damaged == damaged


def test_cases_and_subjects_that_do_not_fit() -> None:
    runner = CommandRunner(Subject(command=[sys.executable, "-c", ECHO]))
    record = runner.run(CASE.with_inputs(gamma=None), Call())
    assert "rows, gamma and beta" in record.failure
    with pytest.raises(ValueError, match="lab has no command"):
        CommandRunner(Subject(forward=lambda x, *_: x, name="lab"))


@pytest.mark.parametrize(("script", "failure"), [
    ("echo one >&2; echo two >&2; exit 3", "exit code 3: two"),
    ("echo on stdout; exit 4", "exit code 4: on stdout"),
    ('head -c 224 "$0/plain.in" > "$0/plain.out"; exit 5', "exit code 5"),
    *(
        (f"kill -{name[3:]} $$", f"crashed: signal {name}")
        for name in ("SIGSEGV", "SIGABRT", "SIGFPE", "SIGKILL")
    ),
])  # fmt: skip
def test_failures(script: str, failure: str) -> None:
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
@pytest.mark.parametrize(("then", "seconds", "failure"), [
    ("wait", 0.5, "no answer within 0.5 s"),
    ("exec sleep 60", 0.5, "no answer within 0.5 s"),
    ('head -c 224 /dev/zero > "$0/plain.out"', 30.0, ""),
])  # fmt: skip
def test_children_are_killed(tmp_path: Path, then: str, seconds: float, failure: str) -> None:
    """They keep the pipes open: waiting for them would take a minute."""
    noted = tmp_path / "pid"
    start = time.monotonic()
    record = shell(f"sleep 60 & echo $! > {shlex.quote(str(noted))}; {then}", seconds=seconds)
    assert time.monotonic() - start < 20
    assert record.failure == failure
    assert ends(int(noted.read_text()))


@pytest.mark.parametrize(("redirect", "name"), [("", "stdout"), (">&2", "stderr")])
def test_endless_output(redirect: str, name: str) -> None:
    start = time.monotonic()
    record = shell(f"exec yes {redirect}", seconds=60)
    assert time.monotonic() - start < 20
    assert record.failure == f"stopped: it printed more than 1 MiB to {name}"


def test_long_output() -> None:
    """More than a pipe holds: a program whose output is not read would block."""
    record = shell("head -c 900000 /dev/zero; head -c 900000 /dev/zero >&2; exit 3")
    assert record.failure.startswith("exit code 3")
    assert len(record.failure) < 400


def test_arguments_are_not_parsed_by_a_shell(tmp_path: Path) -> None:
    bait = tmp_path / "bait"
    arguments = [f"; touch {bait}", f"$(touch {bait})", "a b", "*", f"`touch {bait}`", "| cat"]
    report = tmp_path / "report"
    program = f"import sys; open({str(report)!r}, 'w').write(repr(sys.argv[1:-1]))"
    run(sys.executable, "-c", program, *arguments)
    assert report.read_text() == repr(arguments)
    assert not bait.exists()


def test_relative_program_with_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "my kernel; true"
    program.write_text('#!/bin/sh\nhead -c 224 /dev/zero > "$1/plain.out"\n')
    program.chmod(0o700)
    assert run(str(program)).failure == ""
    monkeypatch.chdir(tmp_path)
    assert run("./my kernel; true").failure == ""
    assert "cannot start 'my kernel; true'" in run("my kernel; true").failure  # not on the path


@needs_proc
def test_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during a run: the exception is raised, the process is killed, the folder removed."""
    noted = tmp_path / "pid"
    real = threading.Event.wait

    def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
        if timeout is None:  # a thread that starts
            return real(event)
        while not (noted.exists() and noted.read_text()):
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Event, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shell(f"echo $$ > {shlex.quote(str(noted))}; exec sleep 60")
    assert ends(int(noted.read_text()))


def test_stop(tmp_path: Path) -> None:
    program = Program(["sleep", "60"], tmp_path)
    program.stop()
    assert program.failure(60.0) == "crashed: signal SIGKILL"
    assert program.exit_code == -9
