"""``truenorm warmup``: compile ahead."""

from typing import Annotated

import typer

from truenorm.cli.output import Dtype, Operation, json_option, present, refusing
from truenorm.cli.progress import progress_bar
from truenorm.warmup import warm_up
from truenorm.warmup.page import show

__all__ = ["command"]


def command(
    dtype: Annotated[
        list[Dtype] | None,
        typer.Option(
            metavar="TYPE",
            help="float16, bfloat16, float32 or float64; may be given again for others.",
            show_default="all four",
        ),
    ] = None,
    operation: Annotated[
        list[Operation] | None,
        typer.Option(
            metavar="NORM",
            help="layer_norm or rms_norm: each has kernels of its own. May be given again for "
            "the other; what they share is compiled once.",
            show_default="layer_norm",
        ),
    ] = None,
    json: Annotated[bool, json_option("what was compiled")] = False,
) -> None:
    """Compile the kernels ahead, so that no call has to.

    Else the first call that needs a kernel waits for it. Compiled code is kept for later
    processes: in TRUENORM_CACHE_DIR if that is set, else in the cache folder of your home. So run
    this once, as the user who will compute: after an installation, or while an image of a
    container is built.

    Both passes of both modes are compiled, also for rows that few calls have, which takes about a
    minute for each type of a norm. What is kept from before is only loaded.

    \b
        truenorm warmup
        truenorm warmup --dtype float32 --dtype bfloat16
        truenorm warmup --operation layer_norm --operation rms_norm

    Exit codes:

    \b
        0  compiled or loaded; the last lines say where it is kept, if it can be
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    norms = operation or [Operation.layer_norm]
    # An ImportError is that of a Numba that is installed and does not take this NumPy.
    with refusing(ValueError, ImportError), progress_bar("compiling") as progress:
        report = warm_up(dtype or (), operation=norms, progress=progress)
    present(report.as_dict(), json=json, show=lambda console: show(report, console))
