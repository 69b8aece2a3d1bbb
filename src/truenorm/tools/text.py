"""Numbers, times and tables as text, and text that is safe to print."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

MOST_DIGITS = 19
"""A length has fewer digits: NumPy counts elements in 64 bits."""
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def printable(line: str) -> str:
    """Return a line with control characters escaped."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def one_line(text: str) -> str:
    """Return a text in one line, with control characters escaped."""
    return printable(" ".join(text.split()))


def without_home(text: str) -> str:
    """Replace the home folder, which has the name of the user, by ``~``."""
    try:
        home = str(Path.home())
    except RuntimeError:  # the user has none
        return text
    return text.replace(home + os.sep, "~" + os.sep) if len(home) > 1 else text


def counted(count: int, thing: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> counted(1, "thread"), counted(2, "thread")
    ('1 thread', '2 threads')
    """
    return f"{count} {thing}{'' if count == 1 else 's'}"


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the shape of a text: lengths with an x between them; the last one is D.

    Examples
    --------
    >>> parse_shape("2x128x1024")
    (2, 128, 1024)
    """
    lengths = text.lower().split("x")
    if not all(each.isdecimal() and len(each) < MOST_DIGITS and int(each) for each in lengths):
        raise ValueError(f"shape must be like 4096x5120 or 8x1024x4096; got {one_line(text)!r}")
    return tuple(map(int, lengths))


def number(value: float) -> str:
    """Return a number with two digits, or more if it needs no exponent then.

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


def short_number(value: float) -> str:
    """Return a number as people write a limit.

    Examples
    --------
    >>> [short_number(value) for value in (10.0, 1e4, 65504.0, 1.7e19)]
    ['10', '1e4', '65504', '1.7e19']
    """
    digits, _, power = f"{value:e}".partition("e")
    with_power = f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
    return min(f"{value:g}", with_power, key=len)


def three_digits(value: float) -> str:
    """Return a number of at least 1e-4 with three significant digits.

    Examples
    --------
    >>> [three_digits(value) for value in (0.0036831, 0.99996, 19.234, 285.8, 1756.2)]
    ['0.00368', '1.00', '19.2', '286', '1756']
    """
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"


def power_of_ten(value: float) -> str:
    """Return the nearest power of ten, for the axis of a plot.

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
    """Return a plain-text table: the first column left-aligned, the others right-aligned.

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
