"""Workers of an executor: the report has the same bytes, and each run has new processes."""

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

import truenorm.verify as tv
from shared.verify.workers import kernels
from shared.verify.workers.executors import Backwards, processes, text_of
from truenorm.verify import judge, workers
from truenorm.verify import oracle as answers
from truenorm.verify.calls import Call
from truenorm.verify.judge import verify_target
from truenorm.verify.oracle import compute_exact, load_or_compute
from truenorm.verify.running.records import CannotRunError, Record
from truenorm.verify.subject import SubjectSpec
from truenorm.verify.workers import RemoteSubject, map_in_order, run_named

SLOW = pytest.mark.slow(reason="a verdict by workers takes half a minute")

FILE = Path(kernels.__file__)


def few(subject: tv.Subject, *_: object) -> list[tv.Case]:
    """Return some cases: ordinary ones, and five with D = 5 among them."""
    cases = tv.cases(subject.dtypes[0])
    five = [each for each in cases if each.family == "rows"]
    return [*cases[:2], *five, *cases[3:9]]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge on a few cases, each of which is a task."""
    monkeypatch.setattr("truenorm.verify.judge.scope", few)
    monkeypatch.setattr(workers, "TASK_ELEMENTS", 1)


def without_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what is known, and have nothing computed by this process that it did not get."""
    answers.EXPECTED_BY_CASE.clear()
    monkeypatch.setattr(answers, "load_or_compute", None)


@SLOW
@pytest.mark.usefixtures("short")
def test_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact answers come from the workers: this process computes none."""
    plain = text_of(tv.verify(kernels.wrong))
    without_answers(monkeypatch)
    with processes(2) as executor:
        assert text_of(tv.verify(kernels.wrong, executor=executor)) == plain


@pytest.mark.usefixtures("short")
@SLOW
def test_order_of_tasks_and_user_cases() -> None:
    executor = Backwards()
    own = [tv.case_of_shape((3, 5), "float32")]
    report = tv.verify(kernels.wrong, own=own, executor=executor)
    assert executor.done == report.cases + report.left_out - 1 == 13
    assert report.results[-1].family == "own"
    assert text_of(report) == text_of(tv.verify(kernels.wrong, own=own))


@pytest.mark.usefixtures("short")
def test_threads() -> None:
    with ThreadPoolExecutor(2) as executor:
        report = tv.verify(kernels.wrong, executor=executor)
    assert text_of(report) == text_of(tv.verify(kernels.wrong))


@pytest.mark.usefixtures("short")
def test_workers_load_the_subject(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernel is right only in the first process, that of the judge; one runs cases alone."""
    monkeypatch.setenv(kernels.FIRST_COME, str(tmp_path))
    target = f"{FILE}:of_process"
    report = verify_target(target, executor=Backwards())
    assert len(list(tmp_path.iterdir())) in (2, 3)
    assert report.grades[0].grade == "wrong"


@SLOW
@pytest.mark.usefixtures("short")
def test_file_that_changes_between_runs(tmp_path: Path) -> None:
    file = tmp_path / "changing.py"
    text = FILE.read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    before = verify_target(f"{file}:right", executor=Backwards())
    file.write_text(f"{text}\nright = wrong\n", encoding="utf-8")
    after = verify_target(f"{file}:right", executor=Backwards())
    assert after.subject == kernels.wrong.name
    assert (before.grades[0].grade, after.grades[0].grade) == ("correct", "conditional")


def test_records_after_the_third_crash_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task may have three crashes; those of all tasks are counted in order."""
    suite = tv.cases("float32")[:6]
    deaths = [0, 1, 0, 1, 1, 1]
    results = [
        workers.CaseRun(
            each.name,
            [Record(each.name, Call(), deaths=count)],
            load_or_compute(each, compute_exact),
        )
        for each, count in zip(suite, deaths, strict=True)
    ]
    monkeypatch.setattr(workers, "map_in_order", lambda *_: [results[:2], results[2:]])
    remote = RemoteSubject(f"{FILE}:right")
    with remote.start() as process:
        records = workers.distribute(Backwards(), remote, process, suite)
        assert [each.case for each in records] == [each.name for each in suite[:5]]
        process.deaths = 1  # in the trial call
        assert len(workers.distribute(Backwards(), remote, process, suite)) == 4


@pytest.mark.usefixtures("short")
def test_worker_that_ends() -> None:
    with processes(1) as executor:
        executor.submit(os._exit, 1)
        with pytest.raises(CannotRunError, match="a worker of ProcessPoolExecutor has ended"):
            tv.verify(kernels.right, executor=executor)


def test_error_of_a_worker(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("raise RuntimeError('no GPU here')\n", encoding="utf-8")
    remote = RemoteSubject(f"{file}:subject")
    with pytest.raises(CannotRunError, match="no GPU here"):
        list(map_in_order(Backwards(), partial(run_named, remote), [["float32-normal-4x17"]]))


def test_subject_without_a_name() -> None:
    nameless = tv.Subject(kernels.two_pass)
    with pytest.raises(ValueError, match="put it at the top level of a file"):
        tv.verify(nameless, executor=Backwards())


def test_pending_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PENDING_TASKS", 3)
    made: list[int] = []

    def tasks() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number

    results = workers.map_in_order(Backwards(), abs, tasks())
    assert next(results) == 0
    assert made == [0, 1, 2]
    assert list(results) == list(range(1, 10))


def test_module_of_the_function_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that was loaded before imports the subject from there."""
    importer = ModuleType("importer")
    importer.__dict__.update(__file__="importer.py", subject=kernels.right)
    others = {**sys.modules}
    monkeypatch.setattr(sys, "modules", {"importer": importer, **others})
    assert judge.spec_of(kernels.right)[:2] == (str(FILE), "right")
    monkeypatch.setattr(kernels, "right", None)
    assert judge.spec_of(importer.subject)[:2] == ("importer.py", "subject")


def test_module_comes_before_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name in a script may exist only while it runs; a worker of pytest has no file."""
    script = sys.modules["__main__"]
    monkeypatch.setattr(script, "__file__", str(FILE), raising=False)
    monkeypatch.setattr(script, "mine", kernels.right, raising=False)
    assert judge.spec_of(kernels.right)[:2] == (str(FILE), "right")
    only = tv.Subject(kernels.two_pass)
    monkeypatch.setattr(script, "mine", only, raising=False)
    assert judge.spec_of(only)[:2] == (str(FILE), "mine")
    assert not judge.spec_of(tv.Subject(kernels.two_pass)).file


class Process:
    """A subject process that counts its resets and exits."""

    ended: ClassVar[list[object]] = []

    def __init__(self) -> None:
        self.resets = 0

    def reset_deaths(self) -> None:
        self.resets += 1

    def __exit__(self, *_: object) -> None:
        self.ended.append(self)


@pytest.fixture
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_thread", workers._ThreadState())
    monkeypatch.setattr(workers, "_processes", set())
    monkeypatch.setattr(workers.RemoteSubject, "start", lambda _: Process())
    Process.ended.clear()


@pytest.mark.usefixtures("_counted")
def test_one_process_for_each_run() -> None:
    """The next run starts another process, since the file may have changed."""
    remote = workers.RemoteSubject.of(SubjectSpec("a.py", "mine"))
    first = workers.process_of(remote)
    assert workers.process_of(remote) is first
    assert first.resets == 2  # type: ignore[attr-defined]
    again = workers.RemoteSubject.of(SubjectSpec("a.py", "mine"))
    assert (again.target, again.target) == (remote.target, "a.py:mine")
    second = workers.process_of(again)
    assert second is not first
    assert Process.ended == [first]
    workers._end_all()
    assert Process.ended == [first, second]


@pytest.mark.usefixtures("_counted")
def test_one_process_for_each_thread() -> None:
    remote = workers.RemoteSubject.of(SubjectSpec("a.py"))
    processes_of_threads = [workers.process_of(remote)]
    found = processes_of_threads.append
    thread = threading.Thread(target=lambda: found(workers.process_of(remote)))
    thread.start()
    thread.join()
    assert len(set(processes_of_threads)) == 2
