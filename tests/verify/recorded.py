"""What each subject of the tests returned, at the quick level: asked once, graded often."""

from functools import cache

from truenorm.verify.grading import grade
from truenorm.verify.guards import GUARDS
from truenorm.verify.judge import collect, scope
from truenorm.verify.record import Record
from truenorm.verify.report import Report
from truenorm.verify.running import InProcess
from truenorm.verify.subject import Subject
from verify.planted.registry import PLANTED, RIGHT


def subject_named(name: str) -> Subject:
    return PLANTED[name].subject if name in PLANTED else RIGHT[name]


@cache
def records_of(name: str, level: str = "quick") -> tuple[Record, ...]:
    subject = subject_named(name)
    return tuple(collect(InProcess(subject), scope(subject, level)))


def graded(name: str, level: str = "quick", without: str = "", require: str = "stable") -> Report:
    """Grade what a subject returned, with all guards but one."""
    subject = subject_named(name)
    return grade(
        name,
        scope(subject, level),
        records_of(name, level),
        outputs=subject.outputs,
        guards=[guard for guard in GUARDS if guard != without],
        require=require,
    )
