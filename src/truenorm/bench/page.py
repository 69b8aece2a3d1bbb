"""A report on a terminal: a block for each shape, and how to read it."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truenorm.bench.contestants import DIRECTIONS, FLOORS
from truenorm.bench.report import ARRAYS, FLOPS, Report, label
from truenorm.tools.terminal import number_table
from truenorm.tools.text import counted, duration, three_digits

__all__ = ["rate", "show"]

FLOOR = " | ".join(FLOORS.values())
"""The floors of both directions share a line."""
TITLES = {"layer_norm": "layer norm", "rms_norm": "RMSNorm"}
HOW_TO_READ = (
    "Contestants take turns. Timings on a busy machine wander: trust ratios, of one run.",
    "copy: np.copyto, what forward must move at least; triad: two reads and one write, as "
    "backward.",
    f"GB/s: the {ARRAYS['forward']} arrays x and y forward, the {ARRAYS['backward']} arrays "
    "x, dy and dx backward, and no other traffic.",
    "truenorm and the copy write to an existing array (out=); the textbook forms make new ones.",
)


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
    heading = Text.assemble(
        (f"{TITLES[report.operation]} in {report.dtype}", "bold"),
        f": truenorm with the backend {report.backend!r} on {counted(report.threads, 'thread')}, "
        f"NumPy on one; medians of {counted(report.rounds, 'round')}\n",
        (machine, "dim"),
    )
    calls = ", ".join(f"{name} {duration(lost)}" for name, lost in report.first_calls().items())
    first = Text.assemble(
        ("first calls", "bold"),
        f" took longer than the times above, by: {calls}.",
    )
    for part in (heading, *(_block(report, shape) for shape in report.shapes), first):
        console.print()
        console.print(part)
    console.print()
    flops = FLOPS[report.operation]
    counts = (
        f"GFLOP/s: operations of the textbook formula, {flops['forward']} forward and "
        f"{flops['backward']} backward for each element, whoever computes."
    )
    for line in (*HOW_TO_READ, counts, *report.notes):
        console.print(Text(line, style="dim"))


def _block(report: Report, shape: tuple[int, ...]) -> Table:
    head: list[str | Text] = [Text(label(shape), style="bold not dim")]
    for direction, floor in FLOORS.items():
        head += [f"{direction}\nms", "\nGB/s", "GFLOP\n/s", f"times\n{floor}"]
    table = number_table(head, gap=1, widths=[20, *(9, 5, 5, 5) * len(DIRECTIONS)])
    by_line = zip(*(report.of(shape)[direction].values() for direction in DIRECTIONS), strict=True)
    for figures in by_line:
        name = figures[0].contestant
        title = FLOOR if name in FLOORS.values() else name
        cells = []
        for each in figures:
            flops = each.flops_per_second
            cells += [
                three_digits(each.seconds * 1e3),
                rate(each.bytes_per_second / 1e9),
                rate(flops / 1e9) if flops else "-",
                rate(each.times_floor),
            ]
        style = "bold" if name.startswith("truenorm") else ""
        table.add_row(Text(title, style=style), *cells)
    return table
