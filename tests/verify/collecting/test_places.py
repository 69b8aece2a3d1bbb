"""Where workers find a subject, and for how long they keep its process."""

import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

import truenorm.verify as tv
from truenorm.verify import judge
from truenorm.verify.subject import SubjectSpec
from verify.collecting import kernels

FILE = str(Path(kernels.__file__))


class Process:
    """Counts."""

    ended: ClassVar[list[object]] = []

    def __init__(self) -> None:
        self.resets = 0

    def reset_deaths(self) -> None:
        self.resets += 1

    def __exit__(self, *_: object) -> None:
        self.ended.append(self)


@pytest.fixture
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "_thread", judge._ThreadState())
    monkeypatch.setattr(judge, "_processes", set())
    monkeypatch.setattr(judge.RemoteSubject, "start", lambda _: Process())
    Process.ended.clear()


@pytest.mark.usefixtures("_counted")
def test_one_process_for_a_run() -> None:
    """The next run has another one, since the file may have changed."""
    remote = judge.RemoteSubject.of(SubjectSpec("a.py", "mine"))
    first = judge.process_of(remote)
    assert judge.process_of(remote) is first
    assert first.resets == 2  # type: ignore[attr-defined]
    again = judge.RemoteSubject.of(SubjectSpec("a.py", "mine"))
    assert (again.target, again.target) == (remote.target, "a.py:mine")
    second = judge.process_of(again)
    assert second is not first
    assert Process.ended == [first]
    judge._end_all()
    assert Process.ended == [first, second]


@pytest.mark.usefixtures("_counted")
def test_a_thread_has_its_own() -> None:
    remote = judge.RemoteSubject.of(SubjectSpec("a.py"))
    found = [judge.process_of(remote)]
    thread = threading.Thread(target=lambda: found.append(judge.process_of(remote)))
    thread.start()
    thread.join()
    assert len(set(found)) == 2


def test_the_module_of_its_function_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one, which was loaded before, has imported it from there."""
    importer = ModuleType("importer")
    importer.__dict__.update(__file__="importer.py", subject=kernels.right)
    others = {**sys.modules}
    monkeypatch.setattr(sys, "modules", {"importer": importer, **others})
    assert judge.spec_of(kernels.right)[:2] == (FILE, "right")
    monkeypatch.setattr(kernels, "right", None)
    assert judge.spec_of(importer.subject)[:2] == ("importer.py", "subject")


def test_a_module_comes_before_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script has its name only as it runs."""
    script = sys.modules["__main__"]
    monkeypatch.setattr(script, "__file__", FILE, raising=False)  # a worker of pytest has none
    monkeypatch.setattr(script, "mine", kernels.right, raising=False)
    assert judge.spec_of(kernels.right)[:2] == (FILE, "right")
    only = tv.Subject(kernels.two_pass)
    monkeypatch.setattr(script, "mine", only, raising=False)
    assert judge.spec_of(only)[:2] == (FILE, "mine")
    assert not judge.spec_of(tv.Subject(kernels.two_pass)).file
