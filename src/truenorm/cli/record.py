"""``truenorm record``: write cases for a kernel on a machine without truenorm."""

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
    parse_seed,
    stop_on,
)
from truenorm.tools import strict_json
from truenorm.tools.command_line import stop
from truenorm.verify.recordings import record_cases
from truenorm.verify.running.torch_subject import DTYPES


def record_command(
    folder: Annotated[Path, argument("FOLDER", "An empty folder, or one to create.")],
    operation: OperationOption = "layer_norm",
    dtype: Annotated[
        list[Dtype] | None,
        option("TYPE", "Judge this type. Can be repeated.", show_default="float32, bfloat16"),
    ] = None,
    level: Annotated[LevelName, typer.Option(help="Number of cases.")] = "quick",
    also: Annotated[
        list[str] | None,
        option("NAME", "Also judge an extension, such as strides or ranks. Can be repeated."),
    ] = None,
    seed: Annotated[
        str,
        typer.Option(
            metavar="S", help="Random seed of the cases, or 'fresh' for one that is new each time."
        ),
    ] = "0",
    json: JsonOption = False,
) -> None:
    """Write cases for a kernel on a machine without truenorm.

    The folder has a file that runs them there, with PyTorch alone. Copy it there, run the
    kernel, copy the folder back, and judge the results:

    \b
        truenorm record norm-cases --operation rms_norm --dtype bfloat16
        scp -r norm-cases gpu:
        ssh gpu python norm-cases/runner.py my_kernel.py:rms_norm \\
            norm-cases --device cuda
        scp -r gpu:norm-cases .
        truenorm judge norm-cases

    Exit codes:

    \b
        0  written
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    number = parse_seed(seed)
    with stop_on(ValueError):
        try:
            summary = record_cases(
                folder,
                operation=operation,
                dtypes=dtype or DTYPES,
                level=level,
                also=also or (),
                seed=number,
            )
        except OSError as error:
            stop(f"cannot write {folder}: {error.strerror or error}; name another folder")
    if json:
        typer.echo(strict_json.dumps(summary))
    else:
        typer.echo("\n".join(f"{key}: {value}" for key, value in summary.items()))
