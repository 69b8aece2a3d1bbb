"""Judge the subject of a target, in a process of its own."""

import sys
from collections.abc import Collection, Mapping
from dataclasses import replace

from truenorm.tools.progress import Progress
from truenorm.verify.grading.report import Report
from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.judge import judged
from truenorm.verify.operations import operation_of
from truenorm.verify.runs.loading import dotted_path, split_target
from truenorm.verify.runs.subject_process import START_SECONDS, CannotRunError, SubjectProcess
from truenorm.verify.subject import Subject
from truenorm.verify.tensors.dotted import PREFIX
from truenorm.verify.tensors.torch_subject import DTYPES

__all__ = ["verify_target"]


def verify_target(
    target: str,
    *,
    operation: str = "",
    recipe: str = "",
    level: str = "quick",
    require: str = "stable",
    dtypes: Collection[str] | None = None,
    progress: Progress | None = None,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    start_seconds: float = START_SECONDS,
) -> Report:
    """Judge the subject of ``file.py:name``, which is executed in a process of its own.

    Or of ``torch:package.module.function``: of that, float32 and bfloat16 unless `dtypes` says.
    With `operation` or `recipe` it is taken for one of these, whatever it says itself. With
    `python`, it runs by the interpreter of another environment, which can import truenorm.
    """
    dtypes = dtypes or (DTYPES if dotted_path(target) else None)
    with SubjectProcess(
        target,
        operation=operation,
        python=python,
        environment=environment,
        start_seconds=start_seconds,
    ) as process:
        told = process.description
        try:
            known = operation_of(told["operation"])
        except ValueError as unknown:
            raise CannotRunError(
                f"the operation {told['operation']!r} is known in its file alone"
            ) from unknown
        claimed = Subject(
            forward=_elsewhere,
            backward=_elsewhere if told["backward"] else None,
            name=told["name"],
            dtypes=told["dtypes"],
            also=told["also"],
            operation=known,
            recipe=recipe or told["recipe"],
        )
        if dtypes:
            if not set(dtypes) <= set(claimed.dtypes):
                raise CannotRunError(
                    f"{claimed.name} claims {', '.join(claimed.dtypes)}, not {', '.join(dtypes)}"
                )
            claimed = replace(claimed, dtypes=tuple(dtypes))
        origin = Origin(*_place(target), told["callable"], told["backward"], operation)
        return judged(claimed, process, origin, level=level, require=require, progress=progress)


def _place(target: str) -> tuple[str, str]:
    """Return where the subject is found again, from any folder, and its name there."""
    if dotted := dotted_path(target):
        return PREFIX.rstrip(":"), dotted
    file, name = split_target(target)
    return str(file.resolve()), name


def _elsewhere(*_: object) -> None:
    raise TypeError("this subject runs in another process")
