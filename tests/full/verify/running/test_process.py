"""A subject in a process of its own: messages, crashes, hangs, and loading its file."""

import io
import os
import threading
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify.running.programs import ends, is_running
from truenorm.tools.user_files import NotThereError, split_target
from truenorm.verify.calls import Call
from truenorm.verify.judge import verify_target
from truenorm.verify.operation import Case
from truenorm.verify.running.loading import load
from truenorm.verify.running.process import (
    START_SECONDS,
    BrokenMessageError,
    SubjectProcess,
    receive,
    send,
)
from truenorm.verify.running.records import CannotRunError, GaveUpError
from truenorm.verify.suite import case

SLOW = pytest.mark.slow(reason="processes that hang are waited for")

pytestmark = pytest.mark.usefixtures("without_long_calls")


@cache
def example() -> Case:
    return case("float32-normal-4x5")


@cache
def large_example() -> Case:
    return example().with_inputs(x=np.zeros((300_000, 2), np.float32))


HEAD = "import os, sys, time, subprocess\nimport numpy as np\nimport truenorm.verify as tv\n"


def _file(folder: Path, body: str) -> str:
    path = folder / "kernel.py"
    path.write_text(HEAD + body, encoding="utf-8")
    return str(path)


def _forward(folder: Path, line: str, **options: object) -> str:
    arguments = "".join(f", {key}={value!r}" for key, value in options.items())
    return _file(
        folder,
        f"def forward(x, gamma, beta, eps):\n    {line}\n    return x\n"
        f"subject = tv.Subject(forward{arguments})\n",
    )


def _failure(target: str, *cases: tv.Case) -> str:
    """Run these cases in one process, and return how the last one failed."""
    with SubjectProcess(target) as process:
        *before, last = (process.run(each, Call()).failure for each in cases or (example(),))
    assert not any(before)
    return last


def test_results(tmp_path: Path) -> None:
    with SubjectProcess(_forward(tmp_path, "x = 2 * x")) as process:
        record = process.run(example(), Call())
        part = process.run(example(), Call("rows", 1, 3))
        padded = process.run(example(), Call("not finite below"))
    assert not record.failure
    np.testing.assert_array_equal(record.results["y"], 2 * example().x, strict=True)
    np.testing.assert_array_equal(part.results["y"], 2 * example().x[1:3], strict=True)
    below = np.repeat([np.nan, np.inf, -np.inf], 5).reshape(3, 5)
    np.testing.assert_array_equal(padded.results["y"], np.concatenate([2 * example().x, below]))


def test_each_call_gets_the_inputs_of_its_case(tmp_path: Path) -> None:
    """They are sent once for several calls."""
    other = example().with_inputs(x=2 * example().x)
    with SubjectProcess(_forward(tmp_path, "pass")) as process:
        for each in (example(), example(), other, example()):
            np.testing.assert_array_equal(process.run(each, Call()).results["y"], each.x)


def test_damaged_inputs(tmp_path: Path) -> None:
    with SubjectProcess(_forward(tmp_path, "x *= 2")) as process:
        record = process.run(example(), Call())
    assert record.damaged == ("x",)
    assert record.holds == {"x": ("y",)}


@pytest.mark.parametrize("line", [
    "print('noise' * 100_000); os.write(1, b'noise'); assert sys.stdin.read() == ''",
    # Otherwise Ctrl-C would end the subject first, which would be a finding.
    f"assert os.getpgid(0) != {os.getpgid(0)}",
], ids=["it may print and read", "it has a session of its own"])  # fmt: skip
def test_separate_process(tmp_path: Path, line: str) -> None:
    """A large result may follow a small one: each case has its own limit."""
    assert not _failure(_forward(tmp_path, line), example(), large_example())


@pytest.mark.parametrize(("line", "failure"), [
    ("raise ValueError('no')", "raised ValueError: no"),
    ("os.kill(os.getpid(), 11)", "crashed: SIGSEGV"),
    ("time.sleep(60)", "gave no answer within 0.5 s"),
    ("return np.zeros(10**7)", "above"),
    *(
        pytest.param(line, failure, marks=SLOW)
        for line, failure in (
            ("os._exit(0)", "ended with exit code 0"),
            ("sys.exit(3)", "raised SystemExit: 3; this ends the program"),
            ("raise KeyboardInterrupt", "raised KeyboardInterrupt; this ends the program"),
            ("return np.array(['a'])", "returned y as an array of str32; expected an array"),
            (
                "os.close(0); os.closerange(3, 99); time.sleep(60)",
                "closed its pipes and went on",
            ),
        )
    ),
])  # fmt: skip
def test_failures(tmp_path: Path, line: str, failure: str) -> None:
    target = _forward(tmp_path, f"if x[0, 0] == 0: {line}", seconds=0.5)
    zero = example().with_inputs(x=np.zeros_like(example().x))
    with SubjectProcess(target) as process:
        for _ in range(2):  # the new process gets the inputs anew
            assert failure in process.run(zero, Call()).failure
        assert not process.run(example(), Call()).failure  # the next case runs


def test_three_deaths(tmp_path: Path) -> None:
    with SubjectProcess(_forward(tmp_path, "os._exit(1)")) as process:
        for _ in range(3):
            assert process.run(example(), Call()).failure == "ended with exit code 1"
        with pytest.raises(GaveUpError):
            process.run(example(), Call())


def test_children_are_killed(tmp_path: Path) -> None:
    child = tmp_path / "child"
    started = f"open({str(child)!r}, 'w').write(str(subprocess.Popen(['sleep', '60']).pid))"
    target = _forward(tmp_path, f"{started}; time.sleep(60)", seconds=1)
    assert "no answer" in _failure(target)
    assert ends(int(child.read_text()))


def test_command_that_hangs(tmp_path: Path) -> None:
    """The worker removes its processes and its folder; the judge waits for it."""
    body = f"subject = tv.Subject(command=['sh', '-c', 'echo $$ > {tmp_path}/pid; sleep 60'], "
    with SubjectProcess(_file(tmp_path, body + "seconds=1)\n")) as process:
        assert "no answer within 1 s" in process.run(example(), Call()).failure
        assert not is_running(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(("body", "message"), [
    ("x = undefined\n", "name 'undefined' is not defined"),
    ("other = tv.Subject(print)\n", "it has other"),
    ("", "it defines none"),
    ("os._exit(7)\n", "ended with exit code 7"),
    ("subject = tv.Subject(print)\n", "claims float32, not float16"),
    ("time.sleep(60)\n", "no answer within 1 s; --start-seconds gives it longer"),
])  # fmt: skip
def test_files_that_cannot_run(tmp_path: Path, body: str, message: str) -> None:
    seconds = 1.0 if "sleep" in body else START_SECONDS
    with pytest.raises(CannotRunError, match=message):
        verify_target(_file(tmp_path, body), dtypes=["float16"], start_seconds=seconds)


@SLOW
def test_worker_that_stops_between_calls(tmp_path: Path) -> None:
    """Its pipe is full, so that sending would block."""
    line = "import threading; threading.Timer(0.3, os.kill, (os.getpid(), 19)).start()"
    with SubjectProcess(_forward(tmp_path, line, seconds=1.0)) as process:
        assert not process.run(example(), Call()).failure
        time.sleep(0.6)
        assert "no answer within 1 s" in process.run(large_example(), Call()).failure


@SLOW
def test_worker_that_cannot_be_restarted(tmp_path: Path) -> None:
    mark = tmp_path / "crashed"
    body = (
        f"import pathlib\nmark = pathlib.Path({str(mark)!r})\n"
        "if mark.exists():\n    raise RuntimeError('the device is gone')\n"
        "def forward(x, gamma, beta, eps):\n    mark.touch()\n    os.abort()\n"
        "subject = tv.Subject(forward)\n"
    )
    report = verify_target(_file(tmp_path, body))
    assert not report.passed
    symptom = report.findings[0].symptom
    assert "crashed: SIGABRT; and it could not be started again" in symptom
    assert "the device is gone" in symptom
    assert "cases skipped after that" in symptom
    assert report.cases == 1


def test_interrupt_ends_the_command(tmp_path: Path) -> None:
    body = f"subject = tv.Subject(command=['sh', '-c', 'echo $$ > {tmp_path}/pid; sleep 60'])\n"
    pid = tmp_path / "pid"
    with SubjectProcess(_file(tmp_path, body)) as process:
        thread = threading.Thread(target=process.run, args=(example(), Call()), daemon=True)
        thread.start()
        while not (pid.exists() and pid.read_text().strip()):
            time.sleep(0.05)
        process.deaths = 3  # as after an interrupt: no restart
    assert not is_running(int(pid.read_text()))


def test_fork_that_answers(tmp_path: Path) -> None:
    line = "if x.shape[1] == 5: os.fork()"
    with SubjectProcess(_forward(tmp_path, line)) as process:
        assert not process.run(example(), Call()).failure
        time.sleep(1)  # until the fork has answered
        failure = process.run(case("float32-normal-4x3"), Call()).failure
    assert "answered twice" in failure


def test_current_folder_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stray = tmp_path / "stray"
    stray.mkdir()
    (stray / "numpy.py").write_text("raise SystemExit('stray')", encoding="utf-8")
    monkeypatch.chdir(stray)
    assert not _failure(_forward(tmp_path, "pass"))


def test_messages() -> None:
    pipe = io.BytesIO()
    arrays = {"a": np.arange(6, dtype=np.float16).reshape(2, 3)[:, ::2], "b": None}
    send(pipe, {"text": "<ü\n>"}, arrays)
    pipe.seek(0)
    received = receive(pipe, lambda: 100)
    assert received is not None
    message, copies = received
    assert message == {"text": "<ü\n>"}
    assert copies["b"] is None
    assert (np.asarray(copies["a"]) == arrays["a"]).all()
    assert receive(pipe, lambda: 100) is None


@pytest.mark.parametrize("line", [
    b"noise\n",
    b"[]\n",
    b'{"arrays": {"a": ["object", [1]]}}\n12345678',
    b'{"arrays": {"a": ["float32", [-1]]}}\n',
    b'{"arrays": {"a": ["float64", [1000000000000]]}}\n',
    b'{"arrays": {"a": ["float64", [2]]}}\n12345678',
])  # fmt: skip
def test_broken_messages(line: bytes) -> None:
    with pytest.raises(BrokenMessageError):
        receive(io.BytesIO(line), lambda: 1000)


def test_loading(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_kernel.py").write_text("value = 5\n", encoding="utf-8")
    body = "from neighbour_of_kernel import value\nmine = tv.Subject(print, name=str(value))\n"
    path = tmp_path / "kernel.py"
    path.write_text("import truenorm.verify as tv\n" + body, encoding="utf-8")
    assert load(f"{path}:mine").name == "5"
    with pytest.raises(NotThereError, match=r"there is no file .*nothing\.py"):
        load("nothing.py")
    assert split_target(r"C:\folder\file.py", "subject")[1] == "subject"
    assert split_target("file.py:mine", "subject") == (Path("file.py"), "mine")


def test_command_without_gradients() -> None:
    zeros = ["sh", "-c", 'head -c 80 /dev/zero > "$0/float32-normal-4x5.out"']
    with pytest.raises(AssertionError, match=r"y.* is 0") as raised:
        tv.check(tv.Subject(command=zeros), example())
    assert "dx" not in str(raised.value)
