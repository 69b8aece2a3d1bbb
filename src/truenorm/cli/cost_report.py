"""Costs on a terminal: one form step by step, then all forms side by side."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from truenorm.cost import ITEMSIZES, Cost, Form, PassCost

__all__ = ["Machine", "show"]

IN_A_CACHE = 32e6
"""Bytes of x below which all of it may be in a cache, which is faster than memory."""


class Machine(NamedTuple):
    """Bytes and FLOPs per second, and where they are known from."""

    bandwidth: float | None
    flops_rate: float
    source: str


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


def _table(*columns: str) -> Table:
    """Return a table whose first two columns are words and whose others are numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place < 2 else "right", no_wrap=True)
    return table


def _steps(cost: Cost, unit: Unit) -> Table:
    byte = f"{unit.letter}B"
    table = _table(
        "", "", f"{unit.letter}FLOP", f"{byte} read", f"{byte} written", f"{byte} alive"
    )
    for name, counted in (("forward", cost.forward), ("backward", cost.backward)):
        for step in counted.steps:
            numbers = (step.flops, step.bytes_read, step.bytes_written, step.alive)
            table.add_row(f"({step.equation})", step.name, *map(unit.text, numbers))
        numbers = (counted.flops, counted.bytes_read, counted.bytes_written, counted.peak)
        table.add_row("", f"{name}: sums, and the peak", *map(unit.text, numbers), style="bold")
        if name == "forward":
            table.add_row()
    return table


def _totals(costs: Sequence[Cost], machine: Machine, unit: Unit) -> Table:
    table = _table("", "", *(cost.form for cost in costs))
    table.add_row("", "what is kept", *(cost.keep for cost in costs))
    for name in ("forward", "backward"):
        passes = [cost.forward if name == "forward" else cost.backward for cost in costs]
        for place, (label, number) in enumerate(_lines_of_a_pass(machine, unit)):
            table.add_row(name if not place else "", label, *map(number, passes))
    memory: list[tuple[str, Callable[[Cost], int]]] = [
        ("B kept for backward", lambda cost: cost.kept),
        ("B of the caller's kept alive", lambda cost: cost.referenced),
        ("B at the peak of both", lambda cost: cost.peak),
    ]
    for place, (label, size) in enumerate(memory):
        cells = [unit.text(size(cost)) for cost in costs]
        table.add_row("memory" if not place else "", f"{unit.letter}{label}", *cells)
    return table


def _lines_of_a_pass(machine: Machine, unit: Unit) -> list[tuple[str, Callable[[PassCost], str]]]:
    lines: list[tuple[str, Callable[[PassCost], str]]] = [
        (f"{unit.letter}B moved", lambda counted: unit.text(counted.bytes_moved)),
        (f"{unit.letter}FLOP", lambda counted: unit.text(counted.flops)),
        ("FLOPs per byte", lambda counted: f"{counted.intensity:.2f}"),
    ]
    bandwidth = machine.bandwidth
    if bandwidth is not None:
        lines.append(
            (
                "ms, predicted",
                lambda counted: f"{counted.seconds(bandwidth, machine.flops_rate) * 1e3:.4g}",
            )
        )
    return lines


def _conclusion(costs: Sequence[Cost], machine: Machine) -> list[str]:
    """Say what limits it, and what the prediction rests on."""
    passes = [each for cost in costs for each in (cost.forward, cost.backward)]
    most = max(each.intensity for each in passes)
    if machine.bandwidth is None:
        return [
            f"Memory limits every form on a machine that does more than {most:.2f} FLOPs in the "
            "time it moves a byte.",
            "For a prediction of times add --bandwidth GB/s or --measure.",
        ]
    said = [f"Bandwidth {machine.bandwidth / 1e9:,.1f} GB/s"]
    balance = machine.flops_rate / machine.bandwidth
    if math.isinf(balance):
        limit = "Memory limits every form: arithmetic is taken to cost nothing without --flops."
    else:
        said.append(f"{machine.flops_rate / 1e9:,.0f} GFLOP/s")
        who = _limited_by_arithmetic(costs, balance)
        limit = (
            f"Memory limits every form: none does more than {most:.2f} FLOPs a byte, and this "
            f"machine does {balance:.1f} in the time it moves one."
            if not who
            else f"Arithmetic limits {who}: this machine does only {balance:.2f} FLOPs in the "
            "time it moves a byte."
        )
    lines = [f"{', '.join(said)}, {machine.source}.", limit]
    if math.prod(costs[0].shape) * ITEMSIZES[costs[0].dtype] < IN_A_CACHE:
        lines.append("x may fit in a cache, which is faster: read the times as upper limits.")
    return lines


def _limited_by_arithmetic(costs: Sequence[Cost], balance: float) -> str:
    return ", ".join(
        f"{name} {cost.form}"
        for cost in costs
        for name, counted in (("forward", cost.forward), ("backward", cost.backward))
        if counted.intensity > balance
    )
