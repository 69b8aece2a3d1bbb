"""Submissions to KernelBench and FlashInfer-Bench as subjects of the judge.

Each function returns a `HarnessSubject`, which `verify` and `score` take.
"""

import atexit
import json
import shutil
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from truenorm.verify.running import tasks
from truenorm.verify.running.recording import source_of
from truenorm.verify.running.torch_subject import Claims, FormName, torch_subject
from truenorm.verify.subject import Subject

FILE, KERNEL, TASKS = "submission.py", "kernel", "tasks.py"


@dataclass(frozen=True, repr=False)
class HarnessSubject(Subject):
    """A submission to another harness: a `Subject` that a score can run in another process.

    Attributes
    ----------
    source : str
        A Python file that defines the function ``kernel``, with PyTorch alone.
    form : str
        How that function is called, as for `torch_subject`.
    """

    source: str = ""
    form: FormName = "functional"

    def write(self, folder: str | Path) -> str:
        """Write the file to a folder, and return its target."""
        file = Path(folder, FILE)
        file.write_text(self.source, encoding="utf-8")
        return f"{file}:{KERNEL}"


def kernelbench(
    problem: str | Path, solution: str | Path, *, device: str = "cpu", **claims: Unpack[Claims]
) -> HarnessSubject:
    """Return a solution of KernelBench as a subject: the norm that its class ModelNew computes.

    The norms are problems 34 to 37, 39 and 40 of level 1: all but batch norm and L1 norm.

    Parameters
    ----------
    problem : str or Path
        A file of KernelBench with its name, such as ``35_GroupNorm_.py``.
    solution : str or Path
        A file with ModelNew, for any shape. Problem 37 normalizes all of x: each row is a call,
        of shape (1, D).
    device : str
        The device of the tensors.
    **claims
        name, dtypes, also, recipe and seconds, as for `torch_subject`; by default float32.

    Returns
    -------
    HarnessSubject
        The eps is that of the problem. Parameters whose names end in weight or gamma, and in
        bias or beta, are set for each case.

    Raises
    ------
    ValueError
        If the judge does not have the operation. Other parameters than those of Model are an
        exception of the first call.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> tv.kernelbench("33_BatchNorm.py", "solution.py")
    Traceback (most recent call last):
        ...
    ValueError: 33_BatchNorm.py cannot be judged: its statistics are those of a batch, ...
    >>> subject = tv.kernelbench("35_GroupNorm_.py", "solution.py")  # doctest: +SKIP
    >>> tv.verify(subject).passed, tv.score(subject, seed=81).value  # doctest: +SKIP
    (True, 0.9...)
    """
    return _subject(tasks.kernelbench, [problem, solution], device, claims)


def flashinfer_bench(
    definition: str | Path,
    solution: str | Path,
    *,
    returns: bool = False,
    device: str = "cpu",
    **claims: Unpack[Claims],
) -> HarnessSubject:
    """Return a solution of FlashInfer-Bench as a subject.

    Parameters
    ----------
    definition : str or Path
        The definition, a JSON file, of RMSNorm or of fused add and RMSNorm. Its reference says
        which eps.
    solution : str or Path
        A Python file with ``run``, or a solution in JSON whose language is Python or Triton. The
        arguments are the inputs of the definition and the output.
    returns : bool
        True if ``run`` returns its result instead, without the style of passing destinations. A
        solution in JSON says it itself.
    device : str
        The device of the tensors.
    **claims
        As for `kernelbench`; by default, the type of the definition.

    Returns
    -------
    HarnessSubject

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> subject = tv.flashinfer_bench("rmsnorm_h4096.json", "main.py")  # doctest: +SKIP
    >>> subject.operation.spec  # doctest: +SKIP
    'rms_norm,eps=1e-05'
    """
    claimed: Claims = {"name": Path(solution).stem, **claims}
    entry = ""
    if Path(solution).suffix == ".json":
        solution, entry, returns = _unpack(Path(solution))
    paths, options = [definition, solution], {"returns": returns, "entry": entry}
    return _subject(tasks.flashinfer_bench, paths, device, claimed, **options)


def _unpack(solution: Path) -> tuple[Path, str, bool]:
    """Write the sources of a solution to a folder, which is removed when this process ends.

    Return the folder, the entry point, and True if the entry point returns its result.
    """
    text = solution.read_text(encoding="utf-8")
    spec, sources = (json.loads(text).get(name) for name in ("spec", "sources"))
    if not spec or not sources:
        raise ValueError(f"{solution} must have spec and sources, as FlashInfer-Bench has them")
    languages = spec.get("languages") or [spec.get("language")]
    if not {*languages} <= {"python", "triton"}:
        names = ", ".join(map(str, languages))
        raise ValueError(f"{solution} cannot be judged: it is of python or triton; got {names}")
    for path in (source["path"] for source in sources):
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise ValueError(f"{solution} has a source outside of its folder: {path}")
    parent = Path(tempfile.mkdtemp(prefix="truenorm-"))
    atexit.register(shutil.rmtree, parent, ignore_errors=True)
    folder = parent / f"solution_{zlib.crc32(text.encode()):08x}"  # a name for a package
    for source in sources:
        file = folder / source["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source["content"], encoding="utf-8")
    return folder, spec["entry_point"], not spec.get("destination_passing_style", True)


def _subject(
    adapter: Callable[..., tasks.Task],
    paths: list[str | Path],
    device: str,
    claims: Claims,
    **options: Any,
) -> HarnessSubject:
    """Return the subject of a task, with the source that makes it elsewhere."""
    arguments = [str(Path(path).resolve()) for path in paths]
    task = adapter(*arguments, **options)
    form: FormName = "out" if task.form == "out" else "functional"
    claimed: Claims = {"name": Path(paths[1]).stem, "dtypes": task.dtypes, **claims}
    # Known without a first call: a solution may support a single shape.
    made = torch_subject(
        task.kernel,
        operation=task.operation,
        form=form,
        device=device,
        backward=False,
        **claimed,
    )
    words = [*map(repr, arguments), *(f"{name}={value!r}" for name, value in options.items())]
    call = f"{KERNEL} = {adapter.__name__}({', '.join(words)}).kernel\n"
    return HarnessSubject(
        made.forward,
        made.backward,
        name=made.name,
        dtypes=made.dtypes,
        also=made.also,
        seconds=made.seconds,
        operation=made.operation,
        recipe=made.recipe,
        source=f"{source_of(TASKS).decode()}\n\n{call}",
        form=form,
    )
