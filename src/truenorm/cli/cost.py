"""``truenorm cost``: what the operation costs, counted."""

import dataclasses
import math
from typing import Annotated, Any, Literal, NamedTuple, get_args

import typer
from rich.console import Console
from rich.table import Table

from truenorm.cli import stop
from truenorm.cli.verify import Dtype
from truenorm.cost import (
    Cost,
    Form,
    Keep,
    PassCost,
    layer_norm_cost,
    measure_bandwidth,
    measure_flops_rate,
)
from truenorm.threads import thread_count
from truenorm.verify.json_report import strict_json

__all__ = ["command"]

FORMS: tuple[Form, ...] = get_args(Form)
NATURAL: dict[Form, Keep] = {"textbook": "xhat", "blocked": "x", "fused": "x"}
"""What each form keeps if it is not asked: truenorm.textbook has xhat."""
IN_A_CACHE = 32e6
"""Bytes of x below which a copy may be faster than memory."""


class Machine(NamedTuple):
    """Bytes and FLOPs per second, and where that is known from."""

    bandwidth: float | None
    flops_rate: float
    source: str


def command(
    shape: Annotated[
        list[int],
        typer.Argument(
            metavar="SHAPE...",
            help="The shape of x, the normalized axis last: 8 1024 4096.",
            show_default=False,
        ),
    ],
    dtype: Annotated[Dtype, typer.Option(metavar="TYPE", help="The type of x.")] = Dtype.float32,
    steps: Annotated[
        Literal["textbook", "blocked", "fused"],
        typer.Option(help="Which form to show step by step."),
    ] = "textbook",
    keep: Annotated[
        Literal["x", "xhat"] | None,
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
        typer.Option("--measure", help="Predict times for this machine: a copy, a matrix product."),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print all numbers as JSON, and nothing else.")
    ] = False,
) -> None:
    """Count what layer norm costs: FLOPs, bytes, memory.

    Three forms are compared: the textbook's, where each NumPy operation goes through memory; the
    same in blocks that stay in a cache; one fused kernel a pass. Nothing is run, except with
    --measure. The numbers (D1) to (D17) are equations of the page "Derivation".

    \b
        truenorm cost 8 1024 4096
        truenorm cost 8 1024 4096 --dtype bfloat16 --measure
        truenorm cost 8 1024 4096 --steps fused --bandwidth 3350 --flops 67000

    Exit codes:

    \b
        0  counted
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    try:
        costs = [layer_norm_cost(shape, dtype, form, keep or NATURAL[form]) for form in FORMS]
    except ValueError as refused:
        stop(str(refused))
    machine = _machine(bandwidth, flops, measure, dtype)
    if json:
        typer.echo(strict_json(_as_data(costs, machine)))
    else:
        _show(costs, FORMS.index(steps), machine, Console(highlight=False))


def _machine(
    bandwidth: float | None, flops: float | None, measure: bool, dtype: str
) -> Machine:
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


def _as_data(costs: list[Cost], machine: Machine) -> dict[str, Any]:
    """Return everything, in bytes, FLOPs and seconds."""

    def numbers(counted: PassCost | Cost) -> dict[str, Any]:
        names = ("flops", "bytes_moved", "intensity", "peak")
        found = {name: getattr(counted, name) for name in names}
        if machine.bandwidth is not None:
            found["seconds"] = counted.seconds(machine.bandwidth, machine.flops_rate)
        return found

    def one_pass(counted: PassCost) -> dict[str, Any]:
        moved = {name: getattr(counted, name) for name in ("bytes_read", "bytes_written")}
        return {**numbers(counted), **moved, "steps": [step._asdict() for step in counted.steps]}

    return {
        "machine": machine._asdict(),
        "forms": [
            dataclasses.asdict(cost)
            | numbers(cost)
            | {"forward": one_pass(cost.forward), "backward": one_pass(cost.backward)}
            for cost in costs
        ],
    }


def _show(costs: list[Cost], chosen: int, machine: Machine, console: Console) -> None:
    """Print one form step by step, then all side by side."""
    cost = costs[chosen]
    elements = math.prod(cost.shape)
    power = min(max(len(f"{elements:,}".split(",")) - 1, 0), 4)
    scale, prefix = 1000.0**power, ("", "k", "M", "G", "T")[power]
    shape = ", ".join(map(str, cost.shape))
    console.print(f"\nlayer norm of ({shape}), {cost.dtype}: {elements:,} elements", style="bold")
    console.print(f"\nThe {cost.form} form step by step, {cost.keep} kept:")
    for name, counted in (("forward", cost.forward), ("backward", cost.backward)):
        console.print(_steps(name, counted, scale, prefix))
    console.print(_totals(costs, machine, scale, prefix))
    console.print(_limit(costs, machine), soft_wrap=True)
    if machine.bandwidth is None:
        console.print("Predicted times: give --bandwidth GB/s, or --measure.", style="dim")


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.title_justify = "left"
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table
