"""Judge and compare subjects of the command line, each in a process of its own."""

import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypedDict, Unpack

from truenorm.tools.progress import Progress
from truenorm.tools.text import parse_shape
from truenorm.verify.collecting import collect
from truenorm.verify.equality import Equality, common_cases, compare_runners
from truenorm.verify.grading.report import Report
from truenorm.verify.judge import RunSettings, judge_runner
from truenorm.verify.operation import Case, Domain
from truenorm.verify.running.loading import dotted_path, file_and_name
from truenorm.verify.running.process import START_SECONDS, SubjectProcess
from truenorm.verify.running.records import (
    CannotRunError,
)
from truenorm.verify.running.torch_subject import DTYPES
from truenorm.verify.subject import Subject, SubjectSpec
from truenorm.verify.time_limit import SECONDS
from truenorm.verify.user_cases import (
    case_of_shape,
    load_data,
)
from truenorm.verify.workers import RemoteSubject, distribute


class SubjectOptions(TypedDict, total=False):
    """Options of the command line that override what a subject says of itself.

    `operation` as text, `recipe`, the `dtypes` to judge, and the domain: the `largest` number and
    `kappa`. `shapes` and `data` files add user cases.
    """

    operation: str | None
    recipe: str
    dtypes: Collection[str] | None
    largest: float | None
    kappa: float | None
    shapes: Sequence[str]
    data: Sequence[Path]


def verify_target(
    target: str,
    *,
    level: str = "quick",
    require: str = "stable",
    strict: bool = False,
    progress: Progress | None = None,
    baseline: Path | None = None,
    batch: str = "require",
    time: float = SECONDS,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    start_seconds: float = START_SECONDS,
    executor: Executor | None = None,
    **options: Unpack[SubjectOptions],
) -> Report:
    """Judge the subject of ``file.py:name`` in a process of its own.

    The target may also be ``torch:package.module.function``, whose types are float32 and bfloat16
    by default. `python` is the interpreter of another environment that can import truenorm; the
    workers of an `executor` use their own.
    """
    process = SubjectProcess(
        target,
        operation=options.get("operation") or "",
        dtypes=options.get("dtypes"),
        python=python,
        environment=environment,
        start_seconds=start_seconds,
    )
    with process:
        spec = use_options(process, target, options, strict=strict)
        user_cases = _user_cases(process.subject, options)
        settings = RunSettings(level, require, progress, user_cases, baseline, strict, batch=batch)
        collecting = partial(collect, process, seconds=time)
        if executor is not None:
            remote = RemoteSubject.of(spec, start_seconds)
            collecting = partial(distribute, executor, remote, process)
        return judge_runner(process, spec, settings, collecting)


def compare_targets(
    first: str,
    second: str,
    *,
    level: str = "quick",
    progress: Progress | None = None,
    start_seconds: float = START_SECONDS,
    **options: Unpack[SubjectOptions],
) -> Equality:
    """Compare the bits of two subjects, each of which runs in a process of its own."""
    operation = options.get("operation") or ""
    start = partial(
        SubjectProcess,
        operation=operation,
        dtypes=options.get("dtypes"),
        start_seconds=start_seconds,
    )
    with start(first) as one, start(second) as other:
        use_options(one, first, options, strict=True)
        use_options(other, second, options, strict=True)
        suite = common_cases(one.subject, other.subject, level)
        dtypes = {case.dtype for case in suite}
        suite += [case for case in _user_cases(one.subject, options) if case.dtype in dtypes]
        return compare_runners(one, other, suite, level=level, progress=progress)


def use_options(
    process: SubjectProcess, target: str, options: SubjectOptions, *, strict: bool = False
) -> SubjectSpec:
    """Override claims of the subject of a process, and return its spec."""
    dtypes = options.get("dtypes") or (DTYPES if dotted_path(target) else None)
    options = {**options, "dtypes": dtypes}
    process.subject = with_options(process.subject, options, strict=strict)
    return SubjectSpec.of(process.subject, *file_and_name(target), options.get("operation") or "")


def with_options(subject: Subject, options: SubjectOptions, *, strict: bool = False) -> Subject:
    """Return a subject with another recipe, with fewer types and with another domain."""
    dtypes = options.get("dtypes") or subject.dtypes
    if not set(dtypes) <= set(subject.dtypes):
        raise CannotRunError(
            f"{subject.name} claims {', '.join(subject.dtypes)}, not {', '.join(dtypes)}"
        )
    largest, kappa, domain = options.get("largest"), options.get("kappa"), subject.domain
    if largest is not None or kappa is not None:
        domain = subject.required_domain(strict=strict)
        largest = domain.largest if largest is None else largest
        domain = Domain(largest, domain.kappa if kappa is None else kappa)
    recipe = options.get("recipe") or subject.recipe
    return replace(subject, dtypes=tuple(dtypes), recipe=recipe, domain=domain)


def _user_cases(subject: Subject, options: SubjectOptions) -> list[Case]:
    operation = subject.operation
    files = []
    for path in options.get("data", ()):
        case = load_data(path, operation=operation)
        if case.dtype in subject.dtypes:
            files.append(case)
            continue
        files += [load_data(path, operation=operation, dtype=dtype) for dtype in subject.dtypes]
    shapes = dict.fromkeys(map(parse_shape, options.get("shapes", ())))
    return files + [
        case_of_shape(shape, dtype, operation=operation)
        for dtype in subject.dtypes
        for shape in shapes
    ]
