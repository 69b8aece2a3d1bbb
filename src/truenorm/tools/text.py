"""Text for people: numbers, times and tables, and what a terminal may be shown."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

__all__ = [
    "counted",
    "duration",
    "number",
    "one_line",
    "power_of_ten",
    "printable",
    "table",
    "three_digits",
    "without_home",
]

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def printable(line: str) -> str:
    """Return a line as it is, but for what would command a terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def one_line(text: str) -> str:
    """Return a text without line breaks and without what would command a terminal."""
    return printable(" ".join(text.split()))


def without_home(text: str) -> str:
    """Return a text with ``~`` for the home folder, whose name is nobody's business."""
    try:
        home = str(Path.home())
    except RuntimeError:  # there is none
        return text
    return text.replace(home + os.sep, "~" + os.sep) if len(home) > 1 else text


def counted(count: int, thing: str) -> str:
    """Return how many things there are.

    Examples
    --------
    >>> counted(1, "thread"), counted(2, "thread")
    ('1 thread', '2 threads')
    """
    return f"{count} {thing}{'' if count == 1 else 's'}"


def number(value: float) -> str:
    """Return a number as people read it: two digits, or so many that it is a plain number.

    Examples
    --------
    >>> [number(value) for value in (0.0, 0.5, 3.14, 123.4, 240000.0, 1e-4, math.inf)]
    ['0', '0.50', '3.1', '123', '2.4e5', '1.0e-4', 'inf']
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:.0f}"
    size = abs(value)
    if 0.01 <= size < 1e4:
        return f"{value:.{2 if size < 1 else 1 if size < 10 else 0}f}"
    digits, _, power = f"{value:.1e}".partition("e")
    return f"{digits}e{int(power)}"


def three_digits(value: float) -> str:
    """Return a number of at least 1e-4 with three significant digits.

    Examples
    --------
    >>> [three_digits(value) for value in (0.0036831, 0.99996, 19.234, 285.8, 1756.2)]
    ['0.00368', '1.00', '19.2', '286', '1756']
    """
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"


def power_of_ten(value: float) -> str:
    """Return the power of ten next to a number, as axes of plots have it.

    Examples
    --------
    >>> power_of_ten(0.01)
    '10⁻²'
    """
    return "10" + str(round(math.log10(value))).translate(SUPERSCRIPTS)


def duration(seconds: float) -> str:
    """Return a time in seconds, or in minutes and seconds.

    Examples
    --------
    >>> duration(9.87), duration(272.4)
    ('9.9 s', '4 min 32 s')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a plain table: the first column to the left, the others to the right.

    Examples
    --------
    >>> print(table(["", "ms"], [["copy", "1.5"], ["triad", "12.0"]]))
             ms
    -----  ----
    copy    1.5
    triad  12.0
    """
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]

    def line(cells: Sequence[str]) -> str:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        return "  ".join([cells[0].ljust(widths[0]), *padded[1:]]).rstrip()

    rule = "  ".join("-" * width for width in widths).rstrip()
    return "\n".join([line(head), rule, *map(line, rows)])
