"""Submissions to KernelBench, robust-kbench and FlashInfer-Bench as subjects of the judge.

Each function returns a `HarnessSubject`, which `verify` and `score` take.
"""

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
        A Python file that defines it as the function ``kernel``, with PyTorch alone.
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

    Of level 1: 34 to 37, 39 and 40, the norms except batch norm and L1 norm. Of level 2: 30, 62,
    75 and 88, a matrix product and a group norm. Their matrix is the identity, so that the product
    is exact.

    Parameters
    ----------
    problem : str or Path
        A file of KernelBench with its name, such as ``35_GroupNorm_.py``.
    solution : str or Path
        A file with ModelNew. It must support other shapes than those of the problem.
    device : str
        The device of the tensors.
    **claims
        name, dtypes, also, recipe and seconds, as for `torch_subject`; by default float32.

    Returns
    -------
    HarnessSubject
        Its eps is that of the problem. Parameters are set to those of each case; they are found
        by the ends of their names.

    Raises
    ------
    ValueError
        If the judge does not have the operation, or ModelNew has other parameters than Model.

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


def robust_kbench(
    problem: str | Path,
    solution: str | Path,
    *,
    operation: str = "",
    device: str = "cpu",
    **claims: Unpack[Claims],
) -> HarnessSubject:
    """Return a solution of robust-kbench as a subject.

    Parameters
    ----------
    problem : str or Path
        A file with ``forward_fn(x, weight, bias, eps)``, or without bias, and with the class
        AutogradFunction if a backward pass is judged.
    solution : str or Path
        A file with ``forward``, of the same arguments, or ``backward``, which AutogradFunction
        calls, or both.
    operation : str
        By default ``layer_norm``, or ``rms_norm`` if there is no bias; ``layer_norm,axes=3`` for
        a weight of three axes.
    device : str
        The device of the tensors.
    **claims
        As for `kernelbench`.

    Returns
    -------
    HarnessSubject

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> subject = tv.robust_kbench("func_backward.py", "solution.py")  # doctest: +SKIP
    >>> subject.outputs  # doctest: +SKIP
    ('y', 'dx', 'dgamma', 'dbeta')
    """
    return _subject(tasks.robust_kbench, [problem, solution], device, claims, operation=operation)


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
        A file with ``run``. Its arguments are the inputs of the definition and the output. It
        must support every hidden size.
    returns : bool
        True if ``run`` returns its result instead, without the style of passing destinations.
    device : str
        The device of the tensors.
    **claims
        As for `kernelbench`; by default, the type is that of the definition.

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
    return _subject(
        tasks.flashinfer_bench, [definition, solution], device, claims, returns=returns
    )


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
    made = torch_subject(
        task.kernel, operation=task.operation, form=form, device=device, **claimed
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
