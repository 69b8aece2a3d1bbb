"""What this machine can do: bytes by a copy, FLOPs by a matrix product."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from truenorm.cost.model import ITEMSIZES, Cost, Form, PassCost
from truenorm.tools.machine import seconds_of
from truenorm.tools.rich_tables import rich_table

ROUNDS = 8
MEGABYTES = 64
ORDER = 1024
"""Of the matrices: large enough that their product waits for arithmetic alone."""


def measure_bandwidth(threads: int = 1) -> float:
    """Measure how many bytes a second a copy reads and writes, on arrays of 64 MB.

    Parameters
    ----------
    threads : int
        How many copy at once, each its part of the array.

    Returns
    -------
    float
        Bytes read plus bytes written, per second, in the best of eight rounds: whatever else the
        machine does can only slow a copy down.

    Examples
    --------
    >>> from truenorm.cost import layer_norm_cost, measure_bandwidth
    >>> cost = layer_norm_cost((8, 1024, 4096))
    >>> milliseconds = cost.seconds(measure_bandwidth()) * 1e3
    """
    source = np.ones(MEGABYTES * 10**6 // 4, np.float32)
    target = np.zeros_like(source)  # written once, so that no page is new to the copy
    parts = list(
        zip(np.array_split(target, threads), np.array_split(source, threads), strict=True)
    )
    with ThreadPoolExecutor(threads) as pool:
        seconds = _best(lambda: list(pool.map(lambda part: np.copyto(*part), parts)))
    return 2 * source.nbytes / seconds


def measure_flops_rate(dtype: str = "float32") -> float:
    """Measure how many floating-point operations a second a matrix product reaches.

    Parameters
    ----------
    dtype : str
        "float64", or anything else for float32, in which narrower types are computed.

    Returns
    -------
    float
        FLOPs per second in the best of eight rounds, with the threads that NumPy's BLAS takes.

    Examples
    --------
    >>> from truenorm.cost import measure_flops_rate
    >>> measure_flops_rate("float32") > 0
    True
    """
    factor = np.ones((ORDER, ORDER), np.float64 if dtype == "float64" else np.float32)
    product = np.empty_like(factor)
    return 2 * ORDER**3 / _best(lambda: np.matmul(factor, factor, out=product))


def _best(work: Callable[[], object]) -> float:
    """Return the shortest of several times, in seconds."""
    return min(seconds_of(work) for _ in range(ROUNDS))


IN_A_CACHE = 32e6
"""Bytes of x below which all of it may be in a cache, which is faster than memory."""


class Machine(NamedTuple):
    """Bytes and FLOPs per second, and where they are known from."""

    bandwidth: float | None
    flops_rate: float
    source: str

    def seconds(self, counted: PassCost | Cost) -> float:
        """Return the time that is predicted, if the bandwidth is known."""
        assert self.bandwidth is not None
        return counted.seconds(self.bandwidth, self.flops_rate)


def as_data(costs: Sequence[Cost], machine: Machine) -> dict[str, Any]:
    """Return everything, in bytes, FLOPs and seconds."""

    def numbers(counted: PassCost | Cost, *more: str) -> dict[str, Any]:
        names = ("flops", "bytes_moved", "intensity", "peak", *more)
        found = {name: getattr(counted, name) for name in names}
        return found | ({"seconds": machine.seconds(counted)} if machine.bandwidth else {})

    forms = []
    for cost in costs:
        passes = {
            name: numbers(counted, "bytes_read", "bytes_written")
            | {"steps": [step._asdict() for step in counted.steps]}
            for name, counted in cost.passes.items()
        }
        forms.append(vars(cost) | numbers(cost) | passes)
    return {"machine": machine._asdict(), "forms": forms}


class Unit(NamedTuple):
    """What numbers are divided by, and the letter for that."""

    size: float
    letter: str

    def text(self, value: float) -> str:
        """Return a number in this unit, and nothing for none at all."""
        return f"{value / self.size:,.1f}" if value else ""


def show_cost(
    title: str, costs: Sequence[Cost], form: Form, machine: Machine, console: Console
) -> None:
    """Print what the forms of an operation cost, and one of them in detail."""
    (cost,) = (each for each in costs if each.form == form)
    elements = math.prod(cost.shape)
    power = min((len(str(elements)) - 1) // 3, 4)
    unit = Unit(1000.0**power, ("", "k", "M", "G", "T")[power])
    shape = ", ".join(map(str, cost.shape))
    console.print(f"\n[bold]{title} of ({shape}), {cost.dtype}[/]: {elements:,} elements")
    console.print(f"\nThe {form} form step by step, {cost.keep} kept\n")
    console.print(_steps(cost, unit))
    console.print("\nThe three forms\n")
    console.print(_totals(costs, machine, unit))
    console.print()
    for line in _conclusion(costs, machine):
        console.print(line)


def _steps(cost: Cost, unit: Unit) -> Table:
    byte = f"{unit.letter}B"
    head = ["", "", f"{unit.letter}FLOP", f"{byte} read", f"{byte} written", f"{byte} alive"]
    table = rich_table("llrrrr", head)
    for name, counted in cost.passes.items():
        for step in counted.steps:
            table.add_row(f"({step.equation})", step.name, *map(unit.text, step[2:]))
        sums = (counted.flops, counted.bytes_read, counted.bytes_written, counted.peak)
        table.add_row("", f"{name}: sums, and the peak", *map(unit.text, sums), style="bold")
        if name == "forward":
            table.add_row()
    return table


def _totals(costs: Sequence[Cost], machine: Machine, unit: Unit) -> Table:
    table = rich_table("ll" + "r" * len(costs), ["", "", *(cost.form for cost in costs)])
    table.add_row("", "what is kept", *(cost.keep for cost in costs))
    for name in ("forward", "backward"):
        passes = [cost.passes[name] for cost in costs]
        moved = [unit.text(each.bytes_moved) for each in passes]
        table.add_row(name, f"{unit.letter}B moved", *moved)
        table.add_row("", f"{unit.letter}FLOP", *(unit.text(each.flops) for each in passes))
        table.add_row("", "FLOPs per byte", *(f"{each.intensity:.2f}" for each in passes))
        if machine.bandwidth is not None:
            times = [f"{machine.seconds(each) * 1e3:.4g}" for each in passes]
            table.add_row("", "ms, predicted", *times)
    for group, label, name in (
        ("memory", "kept for backward", "kept"),
        ("", "of the caller's kept alive", "referenced"),
        ("", "at the peak of both", "peak"),
    ):
        cells = [unit.text(getattr(cost, name)) for cost in costs]
        table.add_row(group, f"{unit.letter}B {label}", *cells)
    return table


def _conclusion(costs: Sequence[Cost], machine: Machine) -> list[str]:
    """Say what limits it, and what the prediction rests on."""
    intensities = {
        f"{name} {cost.form}": counted.intensity
        for cost in costs
        for name, counted in cost.passes.items()
    }
    most = max(intensities.values())
    if machine.bandwidth is None:
        return [
            f"Memory limits every form on a machine that does more than {most:.2f} FLOPs in the "
            "time it moves a byte.",
            "For a prediction of times add --bandwidth GB/s or --measure.",
        ]
    rates = f"Bandwidth {machine.bandwidth / 1e9:,.1f} GB/s"
    balance = machine.flops_rate / machine.bandwidth
    limit = (
        f"Memory limits every form: none does more than {most:.2f} FLOPs a byte, and this machine "
        f"does {balance:.1f} in the time it moves one."
    )
    if math.isinf(balance):
        limit = "Memory limits every form: arithmetic is taken to cost nothing without --flops."
    else:
        rates += f", {machine.flops_rate / 1e9:,.0f} GFLOP/s"
    if limited := ", ".join(name for name, each in intensities.items() if each > balance):
        limit = (
            f"Arithmetic limits {limited}: this machine does only {balance:.2f} FLOPs in the time "
            "it moves a byte."
        )
    lines = [f"{rates}, {machine.source}.", limit]
    if math.prod(costs[0].shape) * ITEMSIZES[costs[0].dtype] < IN_A_CACHE:
        lines.append("x may fit in a cache, which is faster: read the times as upper limits.")
    return lines
