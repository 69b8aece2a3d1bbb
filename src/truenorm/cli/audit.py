"""``truenorm audit``: find wrong kernels that a test suite does not catch."""

from typing import Annotated

import typer

from truenorm.cli.common import (
    JsonOption,
    argument,
    check_positive,
    option,
    print_report,
    progress_bar,
    stop_on,
)
from truenorm.verify.audit.page import show
from truenorm.verify.audit.replacing import AuditTask
from truenorm.verify.audit.running import SECONDS, audit_tests
from truenorm.verify.running.records import CannotRunError


def audit_command(
    tests: Annotated[
        list[str],
        argument(
            "TESTS",
            "Arguments for pytest: files, folders or file.py::test_name. Options of pytest go "
            "after --.",
        ),
    ],
    replace: Annotated[
        str,
        option(
            "MODULE:NAME",
            "The kernel under test: a function on NumPy arrays or PyTorch tensors, or a module "
            "class. Name it where it is defined or where any module imports it.",
        ),
    ],
    operation: Annotated[
        str,
        option(
            "NAME[,OPTION=...]",
            "The operation it computes, such as rms_norm or add_rms_norm,gain=zero-centred. "
            "'truenorm verify --help' lists them.",
        ),
    ],
    backward: Annotated[
        str,
        option(
            "MODULE:NAME",
            "Its backward pass, if that is a separate function of dy and of x or any result of "
            "the forward pass.",
        ),
    ] = "",
    signature: Annotated[
        str,
        option(
            "NAMES",
            "Its arguments in order, such as 'x, weight, _, eps=1e-6', if their names do not say "
            "what they are. Write _ for an argument that the norm does not use.",
        ),
    ] = "",
    eps: Annotated[
        float | None,
        typer.Option(help="The eps of a kernel without such an argument.", show_default=False),
    ] = None,
    recipe: Annotated[
        str,
        option(
            "NAME",
            "Where it must round to 16 bits: late, early or weight-typed; for a quantized norm, "
            "a name such as late/T. Kernels that follow another recipe are then among the wrong "
            "ones.",
        ),
    ] = "",
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Time limit of one run of the tests.")
    ] = SECONDS,
    jobs: Annotated[int, typer.Option(min=1, help="Number of runs in parallel.")] = 1,
    json: JsonOption = False,
) -> None:
    """Find wrong kernels that your tests do not catch.

    Runs your tests with pytest: first unchanged, then with a correct kernel in place of yours to
    see that it can be replaced, then with one wrong kernel after the other. Examples of wrong
    kernels: a missing reduction, zeros, another eps, ddof = 1, a missing term in dx, dgamma over
    half of the rows. Each run is a separate process. Prints every kernel that no test caught,
    with an input that exposes it.

    \b
        truenorm audit tests/test_norm.py --replace mypackage.kernels:rms_norm \\
            --operation rms_norm
        truenorm audit tests/test_norm.py --replace mypackage.layers:LayerNorm \\
            --operation layer_norm --jobs 4
        truenorm audit tests --replace mypackage:norm_forward \\
            --backward mypackage:norm_backward --operation layer_norm -- -k norm
        truenorm audit tests/test_quant.py --replace mypackage:rms_norm_quant \\
            --operation rms_norm,quant=e4m3fn,scale=per-token

    Exit codes:

    \b
        0  the tests catch every wrong kernel
        1  they let some pass
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    check_positive("--seconds", seconds)
    task = AuditTask(replace, operation, backward, signature, eps, recipe)
    with stop_on(CannotRunError, ValueError), progress_bar("auditing") as progress:
        audit = audit_tests(tests, task, seconds=seconds, jobs=jobs, progress=progress)
    print_report(audit.as_dict(), json=json, show=lambda console: show(audit, console))
    raise typer.Exit(0 if audit.passed else 1)
