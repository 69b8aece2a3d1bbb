"""Who puts a case to a subject: it depends on what the subject is."""

from truenorm.verify.runs.calls import Runner
from truenorm.verify.runs.command import CommandRunner
from truenorm.verify.runs.in_process import InProcess
from truenorm.verify.subject import Subject

__all__ = ["runner_for"]


def runner_for(subject: Subject) -> Runner:
    """Return what runs a subject from this process: its functions here, its command beside it."""
    return InProcess(subject) if subject.command is None else CommandRunner(subject)
