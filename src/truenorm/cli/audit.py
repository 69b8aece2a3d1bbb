"""``truenorm audit``: find out which wrong kernels somebody's tests let pass."""

from typing import Annotated

import typer

from truenorm.cli.output import json_option, present, progress_bar, refusing
from truenorm.verify.audit.page import show
from truenorm.verify.audit.replacing import Task
from truenorm.verify.audit.running import SECONDS, audit_tests
from truenorm.verify.running.process import CannotRunError


def command(
    tests: Annotated[
        list[str],
        typer.Argument(
            metavar="TESTS",
            help="What pytest is given: files, folders, or file.py::test_name; after --, options "
            "of pytest as well.",
            show_default=False,
        ),
    ],
    replace: Annotated[
        str,
        typer.Option(
            metavar="MODULE:NAME",
            help="The kernel that the tests are about: a function on arrays of NumPy or tensors "
            "of PyTorch, or a class of modules, where it is defined or by any other name that "
            "it has in a module.",
            show_default=False,
        ),
    ],
    operation: Annotated[
        str,
        typer.Option(
            metavar="NAME[,OPTION=...]",
            help="What it computes, such as rms_norm or add_rms_norm,gain=zero-centred: "
            "'truenorm verify --help' has the list.",
            show_default=False,
        ),
    ],
    backward: Annotated[
        str,
        typer.Option(
            metavar="MODULE:NAME",
            help="Its backward pass, if that is a function of its own: of dy, and of x or of "
            "anything that the forward pass returned.",
            show_default=False,
        ),
    ] = "",
    signature: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Its arguments in order, such as 'x, weight, _, eps=1e-6', where their names do "
            "not tell; _ is one that is none of the norm's.",
            show_default=False,
        ),
    ] = "",
    eps: Annotated[
        float | None,
        typer.Option(help="The eps of a kernel that has no such argument.", show_default=False),
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Where it must round on the way to 16 bits: late, early or weight-typed. Then "
            "another recipe is one of the wrong kernels.",
            show_default=False,
        ),
    ] = "",
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long one run of the tests may take.")
    ] = SECONDS,
    jobs: Annotated[int, typer.Option(min=1, help="How many runs at once.")] = 1,
    json: Annotated[bool, json_option("what came of it")] = False,
) -> None:
    """Find out which wrong kernels your tests let pass.

    Your tests are run by pytest: as they are, then with a right kernel in the place of yours, to
    see that it can be replaced, and then with one wrong kernel after the other: without a
    reduction, zeros, another eps, ddof = 1, a term missing in dx, dgamma of half the rows, and so
    on. Each run is a process of its own. What is printed are the kernels that no test failed, each
    with an input that shows it.

    \b
        truenorm audit tests/test_norm.py --replace mypackage.kernels:rms_norm \\
            --operation rms_norm
        truenorm audit tests/test_norm.py --replace mypackage.layers:LayerNorm \\
            --operation layer_norm --jobs 4
        truenorm audit tests --replace mypackage:norm_forward \\
            --backward mypackage:norm_backward --operation layer_norm -- -k norm

    Exit codes:

    \b
        0  the tests catch every wrong kernel
        1  they let some pass
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    task = Task(replace, operation, backward, signature, eps, recipe)
    with refusing(CannotRunError, ValueError), progress_bar("auditing") as progress:
        audit = audit_tests(tests, task, seconds=seconds, jobs=jobs, progress=progress)
    present(audit.as_dict(), json=json, show=lambda console: show(audit, console))
    raise typer.Exit(0 if audit.passed else 1)
