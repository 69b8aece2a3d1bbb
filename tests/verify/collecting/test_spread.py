"""Cases that workers put to a subject: the report is the same to the byte, whoever they are."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import truenorm.verify as tv
from truenorm.verify import judge
from truenorm.verify import oracle as answers
from truenorm.verify.judge import RemoteSubject, verify_target
from truenorm.verify.oracle import compute_exact, load_or_compute
from truenorm.verify.running.records import Call, CannotRunError, Record
from verify.collecting import kernels
from verify.collecting.executors import Backwards, processes, text_of

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
    monkeypatch.setattr(judge, "TASK_ELEMENTS", 1)


def without_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what is known, and have nothing computed by this process that it did not get."""
    answers.EXPECTED_BY_CASE.clear()
    monkeypatch.setattr(answers, "load_or_compute", None)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_the_whole_suite(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    plain = text_of(tv.verify(kernels.wrong))
    without_answers(monkeypatch)
    with processes(count) as executor:
        assert text_of(tv.verify(kernels.wrong, executor=executor)) == plain


@pytest.mark.usefixtures("short")
def test_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers come from the workers: here none is computed."""
    plain = text_of(tv.verify(kernels.wrong))
    without_answers(monkeypatch)
    with processes(2) as executor:
        assert text_of(tv.verify(kernels.wrong, executor=executor)) == plain


@pytest.mark.usefixtures("short")
@pytest.mark.slow
def test_last_task_first_and_own_cases_after_all() -> None:
    executor = Backwards()
    own = [tv.case_of_shape((3, 5), "float32")]
    found = tv.verify(kernels.wrong, own=own, executor=executor)
    assert executor.done == found.cases - 1 == 13
    assert found.results[-1].family == "own"
    assert text_of(found) == text_of(tv.verify(kernels.wrong, own=own))


@pytest.mark.usefixtures("short")
def test_threads_have_a_subject_each() -> None:
    with ThreadPoolExecutor(2) as executor:
        found = tv.verify(kernels.wrong, executor=executor)
    assert text_of(found) == text_of(tv.verify(kernels.wrong))


@pytest.mark.usefixtures("short")
def test_workers_load_the_subject(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that is right in the first process alone, which is the judge's."""
    monkeypatch.setenv(kernels.FIRST_COME, str(tmp_path))
    target = f"{FILE}:of_process"
    report = verify_target(target, executor=Backwards())
    assert len(list(tmp_path.iterdir())) == 2
    assert report.grades[0].grade == "wrong"


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_a_file_that_changes_between_two_runs(tmp_path: Path) -> None:
    file = tmp_path / "changing.py"
    text = FILE.read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    before = verify_target(f"{file}:right", executor=Backwards())
    file.write_text(f"{text}\nright = wrong\n", encoding="utf-8")
    found = verify_target(f"{file}:right", executor=Backwards())
    assert found.subject == kernels.wrong.name
    assert (before.grades[0].grade, found.grades[0].grade) == ("correct", "conditional")


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_a_crash_is_a_finding_and_the_third_is_the_last() -> None:
    one_by_one = verify_target(f"{FILE}:aborts")
    assert (one_by_one.cases, one_by_one.not_run) == (5, 8)
    assert "crashed: SIGABRT" in one_by_one.findings[0].symptom
    assert text_of(verify_target(f"{FILE}:aborts", executor=Backwards())) == text_of(one_by_one)


def test_what_comes_after_the_third_crash_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task has its own three; those of all, in order, count."""
    suite = tv.cases("float32")[:6]
    deaths = [0, 1, 0, 1, 1, 1]
    found = [
        judge.CaseRecords(
            each.name,
            [Record(each.name, Call(), deaths=count)],
            load_or_compute(each, compute_exact),
        )
        for each, count in zip(suite, deaths, strict=True)
    ]
    monkeypatch.setattr(judge, "map_in_order", lambda *_: [found[:2], found[2:]])
    remote = RemoteSubject(f"{FILE}:right")
    with remote.start() as process:
        records = judge.distribute(Backwards(), remote, process, suite)
        assert [each.case for each in records] == [each.name for each in suite[:5]]
        process.deaths = 1  # in the call before all others
        assert len(judge.distribute(Backwards(), remote, process, suite)) == 4


@pytest.mark.usefixtures("short")
def test_a_worker_that_ends() -> None:
    with processes(1) as executor:
        executor.submit(os._exit, 1)
        with pytest.raises(CannotRunError, match="a worker of ProcessPoolExecutor has ended"):
            tv.verify(kernels.right, executor=executor)


def test_what_a_worker_says_is_passed_on(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("raise RuntimeError('no GPU here')\n", encoding="utf-8")
    remote = RemoteSubject(f"{file}:subject")
    (task,) = judge._tasks(remote, [tv.case("float32-normal-4x17")])
    with pytest.raises(CannotRunError, match="no GPU here"):
        list(judge.map_in_order(Backwards(), judge.run_task, [task]))


def test_a_subject_without_a_name_is_refused() -> None:
    nameless = tv.Subject(kernels.two_pass)
    with pytest.raises(ValueError, match="put it at the top level of one"):
        tv.verify(nameless, executor=Backwards())
    with pytest.raises(ValueError, match="put it at the top level of one"):
        tv.campaign(nameless, 1, executor=Backwards())


def test_few_tasks_are_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "PENDING_TASKS", 3)
    made: list[int] = []

    def tasks() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number

    found = judge.map_in_order(Backwards(), abs, tasks())
    assert next(found) == 0
    assert made == [0, 1, 2]
    assert list(found) == list(range(1, 10))
