"""Processes that the judge starts end with the judge, however that one ends."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import truenorm.verify as tv
from shared.verify.running.programs import ends, is_running, needs_proc

SLOW = pytest.mark.slow(reason="processes that outlive their parent are waited for")

pytestmark = [
    needs_proc,
    pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups"),
]
SIGNALS = ("SIGTERM", "SIGHUP", "SIGKILL")
HOLD = "ctypes.PyDLL(None).sleep(600)"  # a call that holds the lock of the interpreter
WAITS = {
    "a call of C": HOLD,
    "a loop": "while True: pass",
    "ignored signals": f"[signal.signal(each, signal.SIG_IGN) for each in (1, 2, 15)]; {HOLD}",
    "a child": "subprocess.Popen(['sh', '-c', f'echo $$ >> {PID}; exec sleep 600']).wait()",
}


def note(folder: Path) -> str:
    """Return lines of Python that write the id of their process to a file."""
    return (
        f"import ctypes, os, signal, subprocess\nPID = {str(folder / 'pid')!r}\n"
        "with open(PID, 'w') as file: file.write(f'{os.getpid()}\\n')\n"
    )


class Judge:
    """A process of truenorm, which is ended while what it started waits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *command: str, stdin: str = "", **environment: str) -> None:
        with (self.folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.folder,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # that of the tests must not get a signal of the terminal
            )
        assert self.process.stdin is not None
        self.process.stdin.write(stdin.encode())
        self.process.stdin.flush()

    def children(self, count: int = 1) -> list[int]:
        """Wait for so many lines of the file, and return the ids of the processes."""
        assert self.process is not None
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            file = self.folder / "pid"
            lines = file.read_text().split("\n") if file.exists() else []
            if len(lines) > count:
                return [int(line) for line in lines[:count]]
            assert self.process.poll() is None, (self.folder / "output").read_text()
            time.sleep(0.02)
        raise AssertionError((self.folder / "output").read_text())

    def end(self, name: str = "SIGKILL") -> None:
        assert self.process is not None
        self.process.send_signal(getattr(signal, name))
        self.process.communicate()


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Judge]:
    each = Judge(tmp_path)
    yield each
    if each.process is not None and each.process.poll() is None:
        each.end()


def kernel(folder: Path, body: str, before: str = "") -> None:
    lines = textwrap.indent(body, "    ")
    text = f"import truenorm.verify as tv\n{before}\ndef forward(x, gamma, beta, eps):\n{lines}\n"
    (folder / "kernel.py").write_text(f"{text}\nsubject = tv.Subject(forward)\n")


def verify(judge: Judge, command: str = "verify", *options: str) -> None:
    judge.start("-m", "truenorm", command, "kernel.py", *options)


def check_end(judge: Judge, pid: int, name: str = "SIGKILL") -> None:
    assert is_running(pid)
    judge.end(name)
    assert ends(pid)


@pytest.mark.parametrize("name", SIGNALS)
def test_a_kernel_ends_with_its_judge(judge: Judge, name: str) -> None:
    kernel(judge.folder, note(judge.folder) + HOLD)
    verify(judge)
    check_end(judge, judge.children()[0], name)


@SLOW
@pytest.mark.parametrize("wait", list(WAITS)[1:])
def test_whatever_the_kernel_does(judge: Judge, wait: str) -> None:
    kernel(judge.folder, note(judge.folder) + WAITS[wait])
    verify(judge)
    *_, pid = judge.children(1 + (wait == "a child"))
    check_end(judge, pid)


@SLOW
def test_a_file_that_is_still_loaded(judge: Judge) -> None:
    kernel(judge.folder, "return x", before=note(judge.folder) + HOLD)
    verify(judge)
    check_end(judge, judge.children()[0])


def test_a_program(judge: Judge) -> None:
    """It is a child of the process of the subject, in a group of its own."""
    command = ["sh", "-c", f"echo $$ > {judge.folder}/pid; exec sleep 600"]
    (judge.folder / "kernel.py").write_text(
        f"import truenorm.verify as tv\nsubject = tv.Subject(command={command!r})\n"
    )
    verify(judge)
    check_end(judge, judge.children()[0])


def test_processes_of_a_pool(judge: Judge) -> None:
    """They execute the file of a formula, here until the judge ends."""
    hold = textwrap.indent(f"{note(judge.folder)}import time; time.sleep(600)", "    ")
    (judge.folder / "formulas.py").write_text(
        f"import multiprocessing\nif multiprocessing.parent_process():\n{hold}\n"
        "def double(x):\n    return x + x\n"
    )
    (judge.folder / "kernel.py").write_text("def double(x):\n    return x + x\n")
    options = ("kernel.py:double", "--formula", "formulas.py:double", "--jobs", "2")
    judge.start("-m", "truenorm", "verify", *options)
    check_end(judge, judge.children()[0])


def test_the_runner_of_a_recording(judge: Judge) -> None:
    """Its child imports PyTorch, in place of which there is a file that waits."""
    cases = judge.folder / "cases"
    tv.record_cases(cases, operation="rms_norm", dtypes=["float32"])
    (cases / "torch.py").write_text(note(judge.folder) + HOLD)
    judge.start(str(cases / "runner.py"), "norm.py:norm", str(cases))
    check_end(judge, judge.children()[0])


@pytest.mark.parametrize("serve", [False, pytest.param(True, marks=SLOW)])
def test_a_run_of_a_score(judge: Judge, serve: bool) -> None:
    (judge.folder / "torch.py").write_text(note(judge.folder) + HOLD)
    python = judge.folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={judge.folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    target = ["--serve"] if serve else ["norm.py:norm"]
    judge.start("-m", "truenorm", "score", *target, "--python", str(python))
    check_end(judge, judge.children()[0])


def test_a_fork_has_groups_of_its_own() -> None:
    """Else a fork would keep the pipe open, and children would outlive the process."""
    script = """
        import os, sys, time
        from truenorm.verify.running.runner import start_group
        nowhere = dict.fromkeys(("stdout", "stderr"), -3)
        child = start_group(["sleep", "600"], **nowhere)
        if not os.fork():
            for stream in (0, 1, 2):
                os.close(stream)
            time.sleep(5)
            os._exit(0)
        print(child.pid)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, check=True
    )
    pid = int(done.stdout)
    deadline = time.monotonic() + 2
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(pid)
