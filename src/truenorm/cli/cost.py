"""``truenorm cost``: what the operation costs, counted."""

import math
from typing import Annotated, get_args

import typer

from truenorm.cli import stop
from truenorm.cli.output import Dtype, Operation, json_option, present, refusing
from truenorm.cost import (
    Form,
    Keep,
    layer_norm_cost,
    measure_bandwidth,
    measure_flops_rate,
    rms_norm_cost,
)
from truenorm.cost.page import Machine, as_data, show
from truenorm.threads import thread_count

__all__ = ["command"]

NATURAL: dict[Form, Keep] = {"textbook": "xhat", "blocked": "x", "fused": "x"}
"""What each form keeps if it is not asked: truenorm.textbook has xhat."""
COUNTED = {"layer_norm": ("layer norm", layer_norm_cost), "rms_norm": ("RMSNorm", rms_norm_cost)}
"""Each operation in words, and who counts it."""


def command(
    shape: Annotated[
        list[int],
        typer.Argument(
            metavar="SHAPE",
            help="The shape of x, the normalized axis last: 8 1024 4096.",
            show_default=False,
        ),
    ],
    dtype: Annotated[
        Dtype,
        typer.Option(metavar="TYPE", help="float16, bfloat16, float32 or float64."),
    ] = Dtype.float32,
    operation: Annotated[Operation, typer.Option(help="Which norm.")] = Operation.layer_norm,
    steps: Annotated[Form, typer.Option(help="Which form to show step by step.")] = "textbook",
    keep: Annotated[
        Keep | None,
        typer.Option(
            help="What forward keeps for backward.", show_default="xhat in the textbook, else x"
        ),
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(
            metavar="GB/S", help="Predict times for a memory of this speed.", show_default=False
        ),
    ] = None,
    flops: Annotated[
        float | None,
        typer.Option(
            metavar="GFLOP/S",
            help="Beside --bandwidth: how fast the machine computes.",
            show_default="arithmetic takes no time",
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Predict times for this machine: a copy, a matrix product."
        ),
    ] = False,
    json: Annotated[bool, json_option("all numbers")] = False,
) -> None:
    """Count what layer norm or RMSNorm costs: FLOPs, bytes, memory.

    Three forms are compared: the textbook's, where each NumPy operation goes through memory; the
    same in blocks that stay in a cache; one fused kernel a pass. Nothing is run, except with
    --measure. The numbers (D1) to (D29) are equations of the page "Derivation".

    \b
        truenorm cost 8 1024 4096
        truenorm cost 8 1024 4096 --operation rms_norm
        truenorm cost 8 1024 4096 --dtype bfloat16 --measure
        truenorm cost 8 1024 4096 --steps fused --bandwidth 3350 --flops 67000

    Exit codes:

    \b
        0  counted
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    title, counted = COUNTED[operation]
    with refusing(ValueError):
        costs = [counted(shape, dtype, form, keep or NATURAL[form]) for form in get_args(Form)]
    machine = _machine(bandwidth, flops, measure, dtype)
    present(
        {"operation": operation, **as_data(costs, machine)},
        json=json,
        show=lambda console: show(title, costs, steps, machine, console),
    )


def _machine(bandwidth: float | None, flops: float | None, measure: bool, dtype: str) -> Machine:
    """Return what was given or what is measured now."""
    for name, value in (("--bandwidth", bandwidth), ("--flops", flops)):
        if value is not None and not 0 < value < math.inf:
            stop(f"{name} is {value:g}: give a number above zero")
        if value is not None and measure:
            stop(f"{name} and --measure contradict each other: give one of them")
    if flops is not None and bandwidth is None:
        stop("--flops alone predicts no time: give --bandwidth as well")
    if measure:
        threads = thread_count(None)
        source = f"measured now: a copy on {threads} threads, a matrix product"
        return Machine(measure_bandwidth(threads), measure_flops_rate(dtype), source)
    if bandwidth is None:
        return Machine(None, math.inf, "")
    return Machine(bandwidth * 1e9, math.inf if flops is None else flops * 1e9, "as given")
