"""Where a subject is found: a worker loads it by its name, since functions are not sent to it."""

import atexit
import sys
import threading
import uuid
from typing import NamedTuple

from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.runs.subject_process import START_SECONDS, SubjectProcess
from truenorm.verify.subject import Subject

__all__ = ["Place", "origin_of", "process_of"]


class Place(NamedTuple):
    """What a subject is loaded by, on any machine that has its file.

    Attributes
    ----------
    target : str
        ``file.py:name`` with the whole path, or ``torch:package.module.function``.
    operation : str
        What it is taken for, if that is not what it says itself.
    start_seconds : float
        How long it may take to load.
    run : str
        Of which run: workers outlive it, and files change.
    """

    target: str
    operation: str = ""
    start_seconds: float = START_SECONDS
    run: str = ""

    @classmethod
    def of(cls, origin: Origin, start_seconds: float = START_SECONDS) -> "Place":
        """Return the place of an origin, for a run that begins; ValueError if it has no file."""
        if not origin.file:
            raise ValueError(
                "workers load a subject by its name, and this one has none in any file: put it at "
                "the top level of one, as subject = truenorm.verify.Subject(...)"
            )
        target = f"{origin.file}:{origin.name}"
        return cls(target, origin.operation, start_seconds, uuid.uuid4().hex)

    def process(self) -> SubjectProcess:
        """Start the subject in a process of its own."""
        return SubjectProcess(
            self.target, operation=self.operation, start_seconds=self.start_seconds
        )


def origin_of(subject: Subject) -> Origin:
    """Find the name and the file of a subject in the modules that are loaded.

    The module of its function comes first, since others may import it from there; the script that
    runs comes last: it may have a name for it only as it runs.
    """
    script, home = sys.modules.get("__main__"), getattr(subject.forward, "__module__", "")
    modules = sorted(
        sys.modules.values(),
        key=lambda each: (each is script, getattr(each, "__name__", "") != home),
    )
    for module in modules:
        file = getattr(module, "__file__", None)
        if file:
            for name, value in list(vars(module).items()):
                if value is subject:
                    return Origin.of(subject, file, name)
    return Origin.of(subject)


class _Mine(threading.local):
    """The process that a thread of a worker has: calls of two threads must not mix."""

    place = Place("")
    process: SubjectProcess | None = None


_mine = _Mine()
_running: set[SubjectProcess] = set()


def process_of(place: Place) -> SubjectProcess:
    """Return the process of a subject in a worker: it is started once and kept for the run."""
    if _mine.process is None or _mine.place != place:
        if _mine.process is not None:
            _end(_mine.process)
            _mine.process = None
        _mine.place, _mine.process = place, place.process()
        _running.add(_mine.process)
    _mine.process.forgive()
    return _mine.process


def _end(process: SubjectProcess) -> None:
    process.__exit__()
    _running.discard(process)


@atexit.register
def _end_all() -> None:
    for process in list(_running):
        _end(process)
