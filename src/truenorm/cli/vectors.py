"""``truenorm vectors``: write cases and their exact answers as files."""

from pathlib import Path
from typing import Annotated

import typer

from truenorm.cli.output import Dtype, json_option, refusing
from truenorm.cli.progress import progress_bar
from truenorm.cli.verify.options import LevelName
from truenorm.tools import strict_json
from truenorm.verify import suite
from truenorm.verify.operations import operation_of
from truenorm.verify.pages.vectors import write_vectors

__all__ = ["command"]


def command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A folder that is empty or not there yet.", show_default=False
        ),
    ],
    operation: Annotated[
        str,
        typer.Option(
            metavar="NAME[,OPTION=...]",
            help="Whose inputs and answers: layer_norm, rms_norm, or another that "
            "'truenorm verify --help' names.",
        ),
    ] = "layer_norm",
    level: Annotated[LevelName, typer.Option(help="How many cases.")] = "quick",
    dtype: Annotated[
        list[Dtype] | None,
        typer.Option(
            metavar="TYPE",
            help="float16, bfloat16, float32 or float64; may be given again for others.",
            show_default="float32",
        ),
    ] = None,
    json: Annotated[bool, json_option("what was written")] = False,
) -> None:
    """Write hard inputs and their exact answers as files.

    They are for the tests of kernels in C, Rust, CUDA or anything else that reads files.

    Each case is a few raw little-endian arrays: inputs, correctly rounded results, and the error
    that is allowed. A plain manifest lists them. For Python there is an .npz file beside them.

    \b
        truenorm vectors my_vectors
        truenorm vectors my_vectors --operation rms_norm
        truenorm vectors my_vectors --dtype float16 --dtype float32 --level full

    Exit codes:

    \b
        0  written
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    with refusing(ValueError, OSError), progress_bar("writing") as progress:
        cases = [
            case
            for name in dtype or [Dtype.float32]
            for case in suite.cases(name, level, operation=operation_of(operation))
        ]
        summary = write_vectors(folder, cases, progress)
    if json:
        typer.echo(strict_json.dumps(summary))
    else:
        typer.echo("\n".join(f"{key}: {value}" for key, value in summary.items()))
