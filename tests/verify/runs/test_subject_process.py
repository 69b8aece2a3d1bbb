"""A subject in a process of its own, and what it may do there."""

import os
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.judge import verify_target
from truenorm.verify.running.process import START_SECONDS, SubjectProcess
from truenorm.verify.running.records import Call, CannotRunError, GaveUpError
from truenorm.verify.suite import case
from verify.runs.programs import ends, is_running

CASE = case("float32-normal-4x5")
LARGE = CASE.with_inputs(x=np.zeros((300_000, 2), np.float32))
HEAD = "import os, sys, time, subprocess\nimport numpy as np\nimport truenorm.verify as tv\n"


def _file(folder: Path, body: str) -> str:
    path = folder / "given.py"
    path.write_text(HEAD + body, encoding="utf-8")
    return str(path)


def _forward(folder: Path, line: str, **options: object) -> str:
    said = "".join(f", {key}={value!r}" for key, value in options.items())
    return _file(
        folder,
        f"def forward(x, gamma, beta, eps):\n    {line}\n    return x\n"
        f"subject = tv.Subject(forward{said})\n",
    )


def _failure(target: str, *cases: tv.Case) -> str:
    """Return how the last of these cases failed, one after the other in one process."""
    with SubjectProcess(target) as process:
        *before, last = (process.run(each, Call()).failure for each in cases or (CASE,))
    assert not any(before)
    return last


def test_results_come_back_as_they_are(tmp_path: Path) -> None:
    with SubjectProcess(_forward(tmp_path, "x = 2 * x")) as process:
        record = process.run(CASE, Call())
        part = process.run(CASE, Call("rows", 1, 3))
        padded = process.run(CASE, Call("not finite below"))
    assert not record.failure
    np.testing.assert_array_equal(record.results["y"], 2 * CASE.x, strict=True)
    np.testing.assert_array_equal(part.results["y"], 2 * CASE.x[1:3], strict=True)
    below = np.repeat([np.nan, np.inf, -np.inf], 5).reshape(3, 5)
    np.testing.assert_array_equal(padded.results["y"], np.concatenate([2 * CASE.x, below]))


def test_what_an_input_holds_comes_back(tmp_path: Path) -> None:
    with SubjectProcess(_forward(tmp_path, "x *= 2")) as process:
        record = process.run(CASE, Call())
    assert record.damaged == ("x",)
    assert record.holds == {"x": ("y",)}


@pytest.mark.parametrize(
    "line",
    [
        "print('noise' * 100_000); os.write(1, b'noise'); assert sys.stdin.read() == ''",
        # Else Ctrl-C would end the subject first, and that would be a finding.
        f"assert os.getpgid(0) != {os.getpgid(0)}",
    ],
    ids=["it may print and read", "it has a session of its own"],
)
def test_its_process_is_its_own(tmp_path: Path, line: str) -> None:
    """And a large result may follow a small one: the limit is that of the case it belongs to."""
    assert not _failure(_forward(tmp_path, line), CASE, LARGE)


@pytest.mark.parametrize(
    ("line", "failure"),
    [
        ("raise ValueError('no')", "raised ValueError: no"),
        ("os.kill(os.getpid(), 11)", "crashed: SIGSEGV"),
        ("os._exit(0)", "ended with exit code 0"),
        ("sys.exit(3)", "ended with exit code 3"),
        ("time.sleep(60)", "gave no answer within 0.5 s"),
        ("return np.array(['a'])", "which are no numbers"),
        pytest.param(
            "os.close(0); os.closerange(3, 99); time.sleep(60)",
            "closed its pipes and went on",
            marks=pytest.mark.slow,
        ),
        ("return np.zeros(10**7)", "above"),
    ],
)
def test_whatever_happens_is_told(tmp_path: Path, line: str, failure: str) -> None:
    target = _forward(tmp_path, f"if x[0, 0] == 0: {line}", seconds=0.5)
    zero = CASE.with_inputs(x=np.zeros_like(CASE.x))
    with SubjectProcess(target) as process:
        assert failure in process.run(zero, Call()).failure
        assert not process.run(CASE, Call()).failure  # and it goes on


def test_after_three_deaths_it_gives_up(tmp_path: Path) -> None:
    with SubjectProcess(_forward(tmp_path, "os._exit(1)")) as process:
        for _ in range(3):
            assert process.run(CASE, Call()).failure == "ended with exit code 1"
        with pytest.raises(GaveUpError):
            process.run(CASE, Call())


def test_a_hang_takes_its_children_along(tmp_path: Path) -> None:
    child = tmp_path / "child"
    started = f"open({str(child)!r}, 'w').write(str(subprocess.Popen(['sleep', '60']).pid))"
    target = _forward(tmp_path, f"{started}; time.sleep(60)", seconds=1)
    assert "no answer" in _failure(target)
    assert ends(int(child.read_text()))


def test_a_command_that_hangs_is_ended_by_the_worker(tmp_path: Path) -> None:
    """Which alone knows its processes and its folder: the judge must wait for it."""
    body = f"subject = tv.Subject(command=['sh', '-c', 'echo $$ > {tmp_path}/pid; sleep 60'], "
    with SubjectProcess(_file(tmp_path, body + "seconds=1)\n")) as process:
        assert "no answer within 1 s" in process.run(CASE, Call()).failure
        assert not is_running(int((tmp_path / "pid").read_text()))


def test_a_program_without_gradients_is_judged_by_y() -> None:
    program = (
        "import pathlib, sys; f = pathlib.Path(sys.argv[1]); "
        "n, _, rows, size, _ = (f / 'manifest.txt').read_text().splitlines()[1].split(); "
        "(f / (n + '.out')).write_bytes(bytes(4 * int(rows) * int(size)))"
    )
    with pytest.raises(AssertionError, match=r"y.* is 0") as raised:
        tv.check(tv.Subject(command=[sys.executable, "-c", program]), CASE)
    assert "dx" not in str(raised.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x = undefined\n", "name 'undefined' is not defined"),
        ("other = tv.Subject(print)\n", "it has other"),
        ("", "it defines none"),
        ("os._exit(7)\n", "ended with exit code 7"),
        ("subject = tv.Subject(print)\n", "claims float32, not float16"),
        ("time.sleep(60)\n", "no answer within 1 s; --start-seconds gives it longer"),
    ],
)
def test_what_cannot_run_is_said(tmp_path: Path, body: str, message: str) -> None:
    seconds = 1.0 if "sleep" in body else START_SECONDS
    with pytest.raises(CannotRunError, match=message):
        verify_target(_file(tmp_path, body), dtypes=["float16"], start_seconds=seconds)


@pytest.mark.slow
def test_a_worker_that_stops_between_calls_is_not_waited_for(tmp_path: Path) -> None:
    """The pipe to it is full, so that sending would wait for ever."""
    line = "import threading; threading.Timer(0.3, os.kill, (os.getpid(), 19)).start()"
    with SubjectProcess(_forward(tmp_path, line, seconds=1.0)) as process:
        assert not process.run(CASE, Call()).failure
        time.sleep(0.6)
        assert "no answer within 1 s" in process.run(LARGE, Call()).failure


@pytest.mark.slow
def test_what_cannot_be_started_again_is_still_a_finding(tmp_path: Path) -> None:
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
    assert "cases were not run" in symptom
    assert report.cases == 1


def test_an_interrupt_of_the_judge_ends_the_program_too(tmp_path: Path) -> None:
    body = f"subject = tv.Subject(command=['sh', '-c', 'echo $$ > {tmp_path}/pid; sleep 60'])\n"
    pid = tmp_path / "pid"
    with SubjectProcess(_file(tmp_path, body)) as process:
        thread = threading.Thread(target=process.run, args=(CASE, Call()), daemon=True)
        thread.start()
        while not (pid.exists() and pid.read_text().strip()):
            time.sleep(0.05)
        process.deaths = 3  # as after an interrupt, no other worker is started
    assert not is_running(int(pid.read_text()))


def test_a_fork_that_answers_too_is_noticed(tmp_path: Path) -> None:
    line = "if x.shape[1] == 5: os.fork()"
    with SubjectProcess(_forward(tmp_path, line)) as process:
        assert not process.run(CASE, Call()).failure
        time.sleep(1)  # for the other one to answer as well
        failure = process.run(case("float32-normal-4x3"), Call()).failure
    assert "answered twice" in failure


def test_a_stray_file_of_the_current_folder_is_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stray = tmp_path / "stray"
    stray.mkdir()
    (stray / "numpy.py").write_text("raise SystemExit('stray')", encoding="utf-8")
    monkeypatch.chdir(stray)
    assert not _failure(_forward(tmp_path, "pass"))
