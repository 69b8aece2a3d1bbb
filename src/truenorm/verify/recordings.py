"""Record the cases of the judge for a kernel on another machine, and judge its results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify import judge
from truenorm.verify.collecting import collect
from truenorm.verify.grading.large_calls import PATIENCE, planned_calls
from truenorm.verify.grading.report import Report
from truenorm.verify.operation import Operation
from truenorm.verify.operations import as_operation
from truenorm.verify.running.pytorch import Unpacking
from truenorm.verify.running.recorded import Recorded, check_recording, read_log, read_manifest
from truenorm.verify.running.recording import Recording, make_recording, write_recording
from truenorm.verify.running.schema import DamagedResultsError
from truenorm.verify.running.torch_subject import DTYPES
from truenorm.verify.subject import Subject, SubjectOptions, in_another_process

FACTS: tuple[str, ...] = ("torch", "python", "gpu")
"""Facts of a report about the machine where the kernel ran."""


def record_cases(
    folder: str | Path,
    *,
    operation: Operation | str,
    dtypes: Sequence[str] = DTYPES,
    level: str = "quick",
    also: Sequence[str] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """Write the cases and the calls of the judge to a folder, with a file that makes the calls.

    Copy the folder to the machine of the kernel, where PyTorch is enough to run its
    ``runner.py``; copy it back, and call `judge_recording`.

    Parameters
    ----------
    folder : str or Path
        A new or empty folder.
    operation : Operation or str
        What the kernel computes.
    dtypes : sequence of str
        The types to judge.
    level : str
        ``quick`` or ``full``.
    also : sequence of str
        The extensions that the kernel claims to support.
    seed : int
        A seed other than 0 gives other random numbers: see `cases`.

    Returns
    -------
    dict
        The numbers of ``cases`` and ``calls``, the size in ``bytes``, ``seed`` and ``folder``.

    Examples
    --------
    >>> import tempfile
    >>> import truenorm.verify as tv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = tv.record_cases(folder, operation="rms_norm", dtypes=["float32"])
    >>> written["bytes"] < 10_000_000
    True
    """
    scope = RecordedScope(as_operation(operation).spec, tuple(dtypes), level, tuple(also), seed)
    return write_recording(Path(folder), scope.recording())


@dataclass(frozen=True)
class RecordedScope:
    """The cases of a recording, as its manifest names them."""

    operation: str
    dtypes: tuple[str, ...]
    level: str
    also: tuple[str, ...]
    seed: int

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "RecordedScope":
        """Return the scope of a manifest."""
        dtypes, also = tuple(manifest["dtypes"]), tuple(manifest["also"])
        return cls(manifest["operation"], dtypes, manifest["level"], also, manifest["seed"])

    def recording(self) -> Recording:
        """Make the recording of these cases."""
        subject = self.subject(in_another_process)
        suite = judge.scope(subject, self.level, self.seed)
        names = {name: value for name, value in asdict(self).items() if name != "operation"}
        patience = min(PATIENCE, subject.seconds)
        return make_recording(suite, planned_calls, patience=patience, scope=names)

    def subject(self, forward: Callable[..., Any], **options: Any) -> Subject:
        """Return a subject for these cases."""
        operation = as_operation(self.operation)
        return Subject(forward, operation=operation, dtypes=self.dtypes, also=self.also, **options)


def judge_recording(
    folder: str | Path,
    *,
    require: str = "stable",
    strict: bool = False,
    progress: Progress | None = None,
    baseline: str | Path | None = None,
    batch: str = "require",
    unpack: Unpacking | None = None,
    **options: Unpack[SubjectOptions],
) -> Report:
    """Judge the results that ``runner.py`` wrote to the folder of a recording.

    Parameters
    ----------
    folder : str or Path
        The folder that `record_cases` wrote, with the results.
    require, strict, progress, baseline, batch
        As for `verify`.
    unpack : callable, optional
        As for `torch_subject`: returns the scales of a quantized norm in rows.
    **options
        ``recipe``, ``dtypes``, ``largest`` and ``kappa`` override the claims of the kernel.

    Returns
    -------
    Report

    Raises
    ------
    CannotRunError
        If files are missing, damaged or of another recording.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> tv.judge_recording("norm-cases").passed  # doctest: +SKIP
    True
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    recorded_scope = RecordedScope.of(manifest)
    try:
        recording = recorded_scope.recording()
    except ValueError as unknown:
        raise DamagedResultsError(f"{folder} is no recording: {unknown}") from unknown
    check_recording(folder, manifest, recording)
    log = read_log(folder, recording)
    header, name = log[0], log[0]["target"].rpartition(":")[2]
    subject = recorded_scope.subject(
        in_another_process,
        backward=in_another_process if header["backward"] else None,
        name=name if header["form"] == "module" else f"{name} on PyTorch tensors",
        seconds=header["seconds"],
    )
    subject = subject.with_options(options, strict=strict)
    runner = Recorded(folder, subject, recording, log, unpack)
    level, seed = recorded_scope.level, recorded_scope.seed
    settings = judge.RunSettings(level, require, progress, (), baseline, strict, seed, batch)
    spec = runner.subject.spec()
    report = judge.judge_runner(runner, spec, settings, partial(collect, runner))
    facts = {each: header[each] for each in FACTS if header.get(each)}
    return replace(report, machine={**describe("date"), **facts})
