"""Programs as subjects: what they answer, every way in which they fail, and what is left over."""

import os
import shlex
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from truenorm.verify.operation import Case
from truenorm.verify.operations.layer_norm import layer_norm_case
from truenorm.verify.runs.calls import AGAIN, INTERLEAVED, PLAIN, ROWS, Call, Record
from truenorm.verify.runs.command import CommandRunner
from truenorm.verify.subject import Subject

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs are shell scripts")

# Answers with what no kernel would: y = x, dx = dy, dgamma = gamma and dbeta = beta.
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


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keep private folders in one place, and see that all of them are removed."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


@pytest.fixture
def case() -> Case:
    random = np.random.default_rng(11)
    x, dy = random.standard_normal((2, 6, 4)).astype(np.float32)
    gamma, beta = random.standard_normal((2, 4)).astype(np.float32)
    return layer_norm_case("plain", (x, gamma, beta, dy), eps=0.125)


def run(case: Case, *command: str, call: Call | None = None, seconds: float = 30.0) -> Record:
    return CommandRunner(Subject(command=command, seconds=seconds)).run(case, call or Call())


def shell(case: Case, script: str, seconds: float = 30.0) -> Record:
    """Run a script, in which $0 is the private folder."""
    return run(case, "sh", "-c", script, seconds=seconds)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_running(pid)


@pytest.mark.parametrize("kind", [PLAIN, AGAIN, INTERLEAVED])
def test_results_are_read_back(case: Case, kind: str) -> None:
    record = run(case, sys.executable, "-c", ECHO, call=Call(kind))
    assert record.failure == ""
    assert record.damaged == ()
    assert (record.case, record.call) == ("plain", Call(kind))
    assert record.seconds > 0
    given = {"y": case.x, "dx": case.dy, "dgamma": case.gamma, "dbeta": case.beta}
    assert list(record.results) == list(given)
    for output, array in given.items():
        np.testing.assert_array_equal(record.results[output], array, strict=True)


def test_rows_alone(case: Case) -> None:
    record = run(case, sys.executable, "-c", ECHO, call=Call(ROWS, 2, 5))
    np.testing.assert_array_equal(record.results["y"], case.x[2:5], strict=True)
    np.testing.assert_array_equal(record.results["dx"], case.dy[2:5], strict=True)


def test_no_rows(case: Case) -> None:
    empty = case.part(slice(0, 0))
    record = shell(empty, 'head -c 32 /dev/zero > "$0/plain.out"')
    assert record.failure == ""
    y = record.results["y"]
    assert y is not None
    assert y.shape == (0, 4)


def test_a_program_without_backward(case: Case) -> None:
    record = shell(case, 'head -c 96 "$0/plain.in" > "$0/plain.out"')
    assert record.failure == ""
    assert list(record.results) == ["y"]
    np.testing.assert_array_equal(record.results["y"], case.x, strict=True)


@pytest.mark.parametrize("size", [0, 12, 223, 225])
def test_answers_of_the_wrong_size(case: Case, size: int) -> None:
    record = shell(case, f'head -c {size} /dev/zero > "$0/plain.out"')
    assert record.failure == f"wrote {size} bytes to plain.out, expected 224"
    assert record.results == {}


def test_a_huge_answer_is_not_read(case: Case) -> None:
    """A file with a hole: to read it would take a terabyte."""
    record = shell(case, 'truncate -s 1T "$0/plain.out"')
    assert record.failure == "wrote 1099511627776 bytes to plain.out, expected 224"


@pytest.mark.parametrize(
    "script", ["true", 'mkfifo "$0/plain.out"', 'ln -s /dev/zero "$0/plain.out"']
)
def test_answers_that_are_no_files(case: Case, script: str) -> None:
    """A pipe would make us wait for ever, and a device would never end."""
    assert shell(case, script).failure == "wrote no file plain.out"


def test_exit_codes(case: Case) -> None:
    assert shell(case, "echo one >&2; echo two >&2; exit 3").failure == "exit code 3: two"
    assert shell(case, "echo on stdout; exit 4").failure == "exit code 4: on stdout"
    assert shell(case, "exit 5").failure == "exit code 5"


def test_results_of_a_program_that_failed_are_not_taken(case: Case) -> None:
    record = shell(case, 'cp "$0/plain.in" "$0/plain.out"; exit 1')
    assert record.results == {}


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGFPE", "SIGKILL"])
def test_crashes(case: Case, name: str) -> None:
    number = signal.Signals[name].value
    assert shell(case, f"kill -{number} $$").failure == f"crashed: signal {name}"


def test_programs_that_cannot_start(case: Case, tmp_path: Path) -> None:
    missing = "cannot start 'no-such-program': No such file or directory"
    assert run(case, "no-such-program").failure == missing
    for path, reason in (
        (tmp_path / "missing", "No such file or directory"),
        (tmp_path, "Permission denied"),
    ):
        assert run(case, str(path)).failure == f"cannot start {str(path)!r}: {reason}"
    text = tmp_path / "text"
    text.write_text("not a program")
    text.chmod(0o700)
    assert "Exec format error" in run(case, str(text)).failure
    assert "null byte" in run(case, "true", "\0").failure


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("end", ["wait", "exec sleep 60"])
def test_a_hang_is_killed_with_its_children(case: Case, tmp_path: Path, end: str) -> None:
    noted = tmp_path / "pid"
    start = time.monotonic()
    record = shell(case, f"sleep 60 & echo $! > {shlex.quote(str(noted))}; {end}", seconds=0.5)
    assert time.monotonic() - start < 20
    assert record.failure == "no answer within 0.5 s"
    assert wait_until_gone(int(noted.read_text()))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_what_a_program_leaves_running_is_killed(case: Case, tmp_path: Path) -> None:
    """The child also holds the pipes: waiting for their end would take a minute."""
    noted = tmp_path / "pid"
    start = time.monotonic()
    record = shell(
        case,
        f'sleep 60 & echo $! > {shlex.quote(str(noted))}; head -c 224 /dev/zero > "$0/plain.out"',
    )
    assert time.monotonic() - start < 20
    assert record.failure == ""
    assert wait_until_gone(int(noted.read_text()))


@pytest.mark.parametrize(("redirect", "name"), [("", "stdout"), (">&2", "stderr")])
def test_endless_output_is_stopped(case: Case, redirect: str, name: str) -> None:
    start = time.monotonic()
    record = shell(case, f"exec yes {redirect}", seconds=60)
    assert time.monotonic() - start < 20
    assert record.failure == f"stopped: it printed more than 1 MiB to {name}"


def test_much_output_is_read_but_not_kept(case: Case) -> None:
    """More than a pipe holds, so that a program nobody reads from would wait for ever."""
    record = shell(case, "head -c 900000 /dev/zero; head -c 900000 /dev/zero >&2; exit 3")
    assert record.failure.startswith("exit code 3")
    assert len(record.failure) < 400


def test_no_shell_takes_arguments_apart(case: Case, tmp_path: Path) -> None:
    bait = tmp_path / "bait"
    arguments = [f"; touch {bait}", f"$(touch {bait})", "a b", "*", f"`touch {bait}`", "| cat"]
    told = tmp_path / "told"
    program = f"import sys; open({str(told)!r}, 'w').write(repr(sys.argv[1:-1]))"
    run(case, sys.executable, "-c", program, *arguments)
    assert told.read_text() == repr(arguments)
    assert not bait.exists()


def test_a_program_with_spaces_in_its_name(case: Case, tmp_path: Path) -> None:
    program = tmp_path / "my kernel; true"
    program.write_text('#!/bin/sh\nhead -c 224 /dev/zero > "$1/plain.out"\n')
    program.chmod(0o700)
    assert run(case, str(program)).failure == ""


def test_a_relative_program_is_found_from_here(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kernel"
    program.write_text('#!/bin/sh\nhead -c 224 /dev/zero > "$1/plain.out"\n')
    program.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    assert run(case, "./kernel").failure == ""
    assert "cannot start 'kernel'" in run(case, "kernel").failure  # not on the path


def test_the_folder_is_private_and_where_it_runs(case: Case, tmp_path: Path) -> None:
    told = tmp_path / "told"
    program = f"""
import os, sys
status = os.stat(sys.argv[-1])
seen = status.st_mode, status.st_uid, os.path.samefile(os.getcwd(), sys.argv[-1])
open({str(told)!r}, "w").write(repr((seen, sorted(os.listdir()), sys.stdin.read())))
"""
    run(case, sys.executable, "-c", program)
    seen = (stat.S_IFDIR | 0o700, os.getuid(), True)
    assert told.read_text() == repr((seen, ["manifest.txt", "plain.in"], ""))


@pytest.mark.parametrize(
    ("script", "damaged"),
    [
        ("printf xxxx | dd of=plain.in conv=notrunc status=none", ("x",)),
        ("printf xxxx | dd of=plain.in seek=96 bs=1 conv=notrunc status=none", ("gamma",)),
        ("printf xxxx | dd of=plain.in seek=112 bs=1 conv=notrunc status=none", ("beta",)),
        ("printf xxxx | dd of=plain.in seek=220 bs=1 conv=notrunc status=none", ("dy",)),
        ("rm plain.in", ("x", "gamma", "beta", "dy")),
        ("echo >> plain.in", ("x", "gamma", "beta", "dy")),
    ],
)
def test_damage_to_inputs_is_seen(case: Case, script: str, damaged: tuple[str, ...]) -> None:
    record = shell(case, f"head -c 224 /dev/zero > plain.out; {script}")
    assert record.failure == ""
    assert record.damaged == damaged


def test_cases_that_the_files_cannot_hold(case: Case) -> None:
    record = run(case.with_inputs(gamma=None), sys.executable, "-c", ECHO)
    assert "rows, gamma and beta" in record.failure


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_an_interrupt_kills_too(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        shell(case, f"echo $$ > {shlex.quote(str(noted))}; exec sleep 60")
    assert wait_until_gone(int(noted.read_text()))


def test_a_subject_of_functions_is_refused() -> None:
    with pytest.raises(ValueError, match="lab has no command"):
        CommandRunner(Subject(forward=lambda x, *_: x, name="lab"))
