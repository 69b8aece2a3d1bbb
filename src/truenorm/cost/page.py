"""Costs for people and for programs: one form step by step, and all forms side by side."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from truenorm.cost.model import ITEMSIZES, Cost, Form, PassCost
from truenorm.tools.terminal import number_table

__all__ = ["Machine", "as_data", "show"]

IN_A_CACHE = 32e6
"""Bytes of x below which all of it may be in a cache, which is faster than memory."""


class Machine(NamedTuple):
    """Bytes and FLOPs per second, and where they are known from."""

    bandwidth: float | None
    flops_rate: float
    source: str


def as_data(costs: Sequence[Cost], machine: Machine) -> dict[str, Any]:
    """Return everything, in bytes, FLOPs and seconds."""

    def numbers(counted: PassCost | Cost, *names: str) -> dict[str, Any]:
        found = {name: getattr(counted, name) for name in names}
        if machine.bandwidth is not None:
            found["seconds"] = counted.seconds(machine.bandwidth, machine.flops_rate)
        return found

    totals = ("flops", "bytes_moved", "intensity", "peak")
    forms = []
    for cost in costs:
        passes = {
            name: numbers(counted, *totals, "bytes_read", "bytes_written")
            | {"steps": [step._asdict() for step in counted.steps]}
            for name, counted in cost.passes.items()
        }
        forms.append(vars(cost) | numbers(cost, *totals) | passes)
    return {"machine": machine._asdict(), "forms": forms}


class Unit(NamedTuple):
    """What numbers are divided by, and the letter for that."""

    size: float
    letter: str

    @classmethod
    def of(cls, elements: int) -> "Unit":
        """Return the one in which so many elements are a number of at most three digits."""
        power = min((len(str(elements)) - 1) // 3, 4)
        return cls(1000.0**power, ("", "k", "M", "G", "T")[power])

    def text(self, value: float) -> str:
        """Return a number in this unit, and nothing for none at all."""
        return f"{value / self.size:,.1f}" if value else ""


def show(costs: Sequence[Cost], form: Form, machine: Machine, console: Console) -> None:
    """Print what the forms cost, and one of them in detail."""
    (cost,) = (each for each in costs if each.form == form)
    elements = math.prod(cost.shape)
    unit = Unit.of(elements)
    shape = ", ".join(map(str, cost.shape))
    console.print(f"\n[bold]layer norm of ({shape}), {cost.dtype}[/]: {elements:,} elements")
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
    table = number_table(head, words=2)
    for name, counted in cost.passes.items():
        for step in counted.steps:
            table.add_row(f"({step.equation})", step.name, *map(unit.text, step[2:]))
        sums = (counted.flops, counted.bytes_read, counted.bytes_written, counted.peak)
        table.add_row("", f"{name}: sums, and the peak", *map(unit.text, sums), style="bold")
        if name == "forward":
            table.add_row()
    return table


def _totals(costs: Sequence[Cost], machine: Machine, unit: Unit) -> Table:
    def milliseconds(counted: PassCost) -> str:
        assert machine.bandwidth is not None
        return f"{counted.seconds(machine.bandwidth, machine.flops_rate) * 1e3:.4g}"

    of_a_pass: dict[str, Callable[[PassCost], str]] = {
        f"{unit.letter}B moved": lambda counted: unit.text(counted.bytes_moved),
        f"{unit.letter}FLOP": lambda counted: unit.text(counted.flops),
        "FLOPs per byte": lambda counted: f"{counted.intensity:.2f}",
    }
    if machine.bandwidth is not None:
        of_a_pass["ms, predicted"] = milliseconds
    memory = {
        "B kept for backward": "kept",
        "B of the caller's kept alive": "referenced",
        "B at the peak of both": "peak",
    }
    table = number_table(["", "", *(cost.form for cost in costs)], words=2)
    table.add_row("", "what is kept", *(cost.keep for cost in costs))
    for name in ("forward", "backward"):
        for place, (label, text) in enumerate(of_a_pass.items()):
            cells = [text(cost.passes[name]) for cost in costs]
            table.add_row("" if place else name, label, *cells)
    for label, name in memory.items():
        cells = [unit.text(getattr(cost, name)) for cost in costs]
        table.add_row("memory" if name == "kept" else "", f"{unit.letter}{label}", *cells)
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
    said = [f"Bandwidth {machine.bandwidth / 1e9:,.1f} GB/s"]
    balance = machine.flops_rate / machine.bandwidth
    limited = ", ".join(name for name, each in intensities.items() if each > balance)
    if math.isinf(balance):
        limit = "Memory limits every form: arithmetic is taken to cost nothing without --flops."
    else:
        said.append(f"{machine.flops_rate / 1e9:,.0f} GFLOP/s")
        limit = (
            f"Memory limits every form: none does more than {most:.2f} FLOPs a byte, and this "
            f"machine does {balance:.1f} in the time it moves one."
            if not limited
            else f"Arithmetic limits {limited}: this machine does only {balance:.2f} FLOPs in the "
            "time it moves a byte."
        )
    lines = [f"{', '.join(said)}, {machine.source}.", limit]
    if math.prod(costs[0].shape) * ITEMSIZES[costs[0].dtype] < IN_A_CACHE:
        lines.append("x may fit in a cache, which is faster: read the times as upper limits.")
    return lines
