"""What the pages of a report have in common: how they write numbers, and how they end."""

import math

from truenorm.verify.grading.report import Grade, Report

__all__ = [
    "MEANINGS",
    "below",
    "conclusion",
    "duration",
    "number",
    "one_line",
    "power_of_ten",
    "printable",
    "slope",
]

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

MEANINGS = {
    "correct": "the exact answer rounded once, everywhere",
    "faithful": "less than 1 ulp everywhere",
    "stable": "a small multiple of u times the natural scale of the result, whatever kappa is",
    "conditional": "grows like kappa: a mean that is rounded once, Welford",
    "unstable": "grows like kappa squared, or is NaN, infinite or zero where the answer is finite",
    "wrong": "fails on ordinary input",
}
"""What each grade says about the error, from the best to the worst."""


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


def slope(grade: Grade) -> str:
    """Return the power of kappa with which errors grow; a dash where nothing does."""
    return "-" if grade.slope is None else f"{grade.slope:.1f}"


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


def one_line(text: str) -> str:
    """Return a text without line breaks and without what would command a terminal."""
    return printable(" ".join(text.split()))


def printable(line: str) -> str:
    """Return a line as it is, but for what would command a terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def power_of_ten(value: float) -> str:
    """Return the power of ten next to a number, as axes of plots have it.

    Examples
    --------
    >>> power_of_ten(0.01)
    '10⁻²'
    """
    return "10" + str(round(math.log10(value))).translate(SUPERSCRIPTS)


def below(report: Report) -> list[Grade]:
    """Return the grades that are lower than required."""
    return [grade for grade in report.grades if not grade.reaches(report.require)]


def conclusion(report: Report) -> str:
    """Return what the verdict rests on, in one sentence."""
    if report.passed:
        return f"No finding, and every grade is at least {report.require}."
    count = len(report.findings)
    said = [f"{count} finding{'' if count == 1 else 's'}"] if count else []
    low: dict[str, list[str]] = {}
    for grade in below(report):
        low.setdefault(grade.dtype, []).append(grade.output)
    if low:
        which = ", ".join(f"{' '.join(outputs)} in {dtype}" for dtype, outputs in low.items())
        said.append(f"below {report.require}: {which}")
    return "; ".join(said) + "."
