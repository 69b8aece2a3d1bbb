"""A report on a terminal: a block for each shape, and how to read it."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truenorm.bench.contestants import DIRECTIONS, FLOORS
from truenorm.bench.measuring import label
from truenorm.bench.report import ARRAYS, FLOPS, Figure, Report
from truenorm.tools.text import duration

__all__ = ["rate", "show", "three_digits"]

FLOOR = " | ".join(FLOORS.values())
"""The floors of both directions share a line."""
TEXTBOOK = f"{FLOPS['forward']} forward and {FLOPS['backward']} backward for each element"


def three_digits(value: float) -> str:
    """Return a number of at least 1e-4 with three significant digits.

    Examples
    --------
    >>> [three_digits(value) for value in (0.0036831, 0.99996, 19.234, 285.8, 1756.2)]
    ['0.00368', '1.00', '19.2', '286', '1756']
    """
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"


def rate(value: float) -> str:
    """Return a rate with few digits; one that is too small to matter as such.

    Examples
    --------
    >>> [rate(value) for value in (0.0012, 0.913, 19.24, 285.8)]
    ['<0.01', '0.91', '19.2', '286']
    """
    if value < 0.01:
        return "<0.01"
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def show(report: Report, console: Console) -> None:
    """Print a report."""
    machine = ", ".join(f"{key} {value}" for key, value in report.machine.items())
    threads = f"{report.threads} thread{'' if report.threads == 1 else 's'}"
    console.print()
    console.print(
        Text.assemble(
            (f"layer norm in {report.dtype}", "bold"),
            f": truenorm with the backend {report.backend!r} on {threads}, NumPy on one; medians "
            f"of {report.rounds} round{'' if report.rounds == 1 else 's'}\n",
            (machine, "dim"),
        )
    )
    for shape in report.shapes:
        console.print()
        console.print(_block(shape, report))
    console.print()
    console.print(_first_calls(report))
    console.print()
    for line in (*_how_to_read(), *report.notes):
        console.print(Text(line, style="dim"))


def _block(shape: tuple[int, ...], report: Report) -> Table:
    figures = report.of(shape)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(Text(label(shape), style="bold not dim"), no_wrap=True, min_width=20)
    for direction in DIRECTIONS:
        table.add_column(f"{direction}\nms", justify="right", no_wrap=True, min_width=9)
        for head in ("\nGB/s", "GFLOP\n/s", f"times\n{FLOORS[direction]}"):
            table.add_column(head, justify="right", no_wrap=True, min_width=5)
    for name in figures["backward"]:
        floor = name == FLOORS["backward"]
        ours = name.startswith("truenorm")
        cells = [
            cell
            for direction in DIRECTIONS
            for cell in _cells(figures[direction], FLOORS[direction] if floor else name)
        ]
        table.add_row(Text(FLOOR if floor else name, style="bold" if ours else ""), *cells)
    return table


def _cells(figures: Mapping[str, Figure], name: str) -> list[str]:
    figure = figures[name]
    flops = figure.flops_per_second
    return [
        three_digits(figure.seconds * 1e3),
        rate(figure.bytes_per_second / 1e9),
        rate(flops / 1e9) if flops else "-",
        rate(figure.times_floor),
    ]


def _first_calls(report: Report) -> Text:
    calls = ", ".join(f"{name} {duration(lost)}" for name, lost in report.first_calls().items())
    return Text.assemble(
        ("first calls", "bold"),
        f" took longer than the times above, by: {calls}. Kernels are compiled when they are "
        "first needed, kept on disk, and loaded by the next process."
        if report.backend == "fused"
        else f" took longer than the times above, by: {calls}.",
    )


def _how_to_read() -> list[str]:
    return [
        "Contestants take turns. Timings on a busy machine wander: trust ratios, of one run.",
        "copy: np.copyto, what forward must move at least; triad: two reads and one write, as "
        "backward.",
        f"GB/s: the {ARRAYS['forward']} arrays x and y forward, the {ARRAYS['backward']} arrays "
        "x, dy and dx backward, and no other traffic.",
        f"GFLOP/s: operations of the textbook formula, {TEXTBOOK}, whoever computes.",
        "truenorm and the copy write to an existing array (out=); the textbook forms make new "
        "ones.",
    ]
