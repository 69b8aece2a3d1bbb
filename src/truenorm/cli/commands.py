"""The commands vectors, gradcheck and doctor.

Each imports its part of the package when it runs: all of them together take seconds to import.
"""

from pathlib import Path
from typing import Annotated

import typer

from truenorm.cli.common import (
    Dtype,
    JsonOption,
    LevelName,
    OperationOption,
    argument,
    option,
    progress_bar,
    stop_on,
)
from truenorm.gradient_check.checker import MethodName
from truenorm.tools import strict_json
from truenorm.tools.command_line import stop
from truenorm.tools.command_texts import DOCTOR, GRADCHECK
from truenorm.tools.text import printable


def vectors_command(
    folder: Annotated[Path, argument("DIR", "An empty folder, or one to create.")],
    operation: OperationOption = "layer_norm",
    level: Annotated[LevelName, typer.Option(help="Number of cases.")] = "quick",
    dtype: Annotated[
        list[Dtype] | None,
        typer.Option(
            metavar="TYPE",
            help=f"One of {', '.join(Dtype)}. Can be repeated.",
            show_default="float32",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write hard inputs and their exact answers to files.

    They are test data for kernels in C, Rust, CUDA or any other language.

    Each case is a few raw little-endian arrays: inputs, correctly rounded results and the allowed
    error. A plain-text manifest lists them. An .npz file has the same data for Python.

    \b
        truenorm vectors my_vectors
        truenorm vectors my_vectors --operation rms_norm
        truenorm vectors my_vectors --dtype float16 --dtype float32 --level full

    Exit codes:

    \b
        0  written
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    from truenorm.verify import suite
    from truenorm.verify.operation import require_support
    from truenorm.verify.operations import as_operation
    from truenorm.verify.report.vectors import write_vectors

    with stop_on(ValueError), progress_bar("writing") as progress:
        norm = as_operation(operation)
        require_support(norm, "files", "truenorm vectors")
        cases = [
            case
            for name in dtype or [Dtype.float32]
            for case in suite.cases(name, level, operation=norm)
        ]
        try:
            summary = write_vectors(folder, cases, progress)
        except OSError as error:
            stop(f"cannot write {folder}: {error.strerror or error}; name another folder")
    if json:
        typer.echo(strict_json.dumps(summary))
    else:
        typer.echo("\n".join(f"{key}: {value}" for key, value in summary.items()))


def gradcheck_command(
    target: Annotated[str, argument("TARGET", GRADCHECK.options["target"])],
    method: Annotated[MethodName, typer.Option(help=GRADCHECK.options["method"])] = "auto",
    tol: Annotated[float | None, option("NUMBER", GRADCHECK.options["tol"])] = None,
    probes: Annotated[int, typer.Option(help=GRADCHECK.options["probes"])] = 4,
    seed: Annotated[int, typer.Option(help=GRADCHECK.options["seed"])] = 0,
    json: JsonOption = False,
) -> None:
    """Check a pair of functions in a file; `GRADCHECK` has the text of the help."""
    from truenorm.gradient_check.pairs import CannotCheckError, check_target
    from truenorm.gradient_check.result import record_of

    with stop_on(CannotCheckError):
        result = check_target(target, method=method, tol=tol, probes=probes, seed=seed)
    if json:
        typer.echo(strict_json.dumps(record_of(result)))
    else:
        for line in str(result).splitlines():
            typer.echo(printable(line))
    raise typer.Exit(0 if result else 1)


def doctor_command(
    full: Annotated[bool, typer.Option("--full", help=DOCTOR.options["full"])] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help=DOCTOR.options["gpu"])] = False,
    json: JsonOption = False,
) -> None:
    """Examine this installation; `DOCTOR` has the text of the help."""
    from truenorm.doctor import examine, report_text

    with progress_bar("testing") as progress:
        diagnosis = examine(full=full, gpu=gpu, progress=progress)
    typer.echo(report_text(diagnosis, json=json))
    raise typer.Exit(0 if diagnosis.healthy else 1)
