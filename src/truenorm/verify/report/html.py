"""The HTML report: grades, verdicts, findings, plots of errors against kappa, and a heat map.

The page is one file that loads nothing and runs no script. The heat map is a table and no picture,
so that it can be searched, scrolled on a phone and read by a screen reader.
"""

import io
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from truenorm.tools import text
from truenorm.tools.machine import today
from truenorm.tools.text import number, power_of_ten
from truenorm.verify.grading.report import CaseResult, Report
from truenorm.verify.report import wording
from truenorm.verify.report.wording import link
from truenorm.verify.types import FORMATS, Float64s

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Level(NamedTuple):
    """A colour of the heat map: its largest ratio of error to tolerance, and its legend."""

    name: str
    up_to: float
    words: str


LEVELS = (
    Level("h0", 0.1, "up to 0.1"),
    Level("h1", 1.0, "up to 1: stable"),
    Level("h2", 10.0, "up to 10"),
    Level("h3", 1e3, "up to 10³"),
    Level("h4", 1e6, "up to 10⁶"),
    Level("h5", sys.float_info.max, "more"),
    Level("h6", math.inf, "infinite"),
)


class Cell(NamedTuple):
    """The worst result in a row and a column."""

    level: str
    text: str
    title: str


class HeatMap(NamedTuple):
    """A table of cells; columns are groups of outputs. A cell is None if nothing was judged."""

    groups: list[tuple[str, list[str]]]
    rows: list[tuple[str, list[Cell | None]]]


def _excess(result: CaseResult) -> float:
    """Return the ratio of error to tolerance; NaN counts as infinite."""
    if result.natural == 0:
        return 0.0
    ratio = result.natural / result.allowed if result.allowed > 0 else math.inf
    return math.inf if math.isnan(ratio) else ratio


def _cell(results: Sequence[CaseResult]) -> Cell:
    worst = max(results, key=_excess)
    excess = _excess(worst)
    level = next(level for level in LEVELS if excess <= level.up_to)
    title = f"{worst.case}: {worst.output} is off by {number(worst.ulp)} ulp"
    return Cell(level.name, "∞" if math.isinf(excess) else number(excess), title)


def _heat_map(
    results: Sequence[CaseResult],
    row_of: Callable[[CaseResult], str],
    group_of: Callable[[CaseResult], str],
) -> HeatMap:
    places: dict[tuple[str, str, str], list[CaseResult]] = defaultdict(list)
    outputs_of: dict[str, dict[str, None]] = defaultdict(dict)
    for result in results:
        group = group_of(result)
        places[row_of(result), group, result.output].append(result)
        outputs_of[group][result.output] = None
    columns = [(group, output) for group, outputs in outputs_of.items() for output in outputs]
    rows = []
    for row in dict.fromkeys(map(row_of, results)):
        cells = [places.get((row, *column)) for column in columns]
        rows.append((row, [None if each is None else _cell(each) for each in cells]))
    return HeatMap([(group, list(outputs)) for group, outputs in outputs_of.items()], rows)


def by_family(results: Sequence[CaseResult], outside: Collection[str] = ()) -> HeatMap:
    """Return a heat map of families by type and output, with the worst result in each cell.

    The cases `outside` the domain have rows of their own.
    """
    return _heat_map(
        results, lambda each: _row_name(each.family, each, outside), lambda each: each.dtype
    )


def by_case(results: Sequence[CaseResult], outside: Collection[str] = ()) -> HeatMap:
    """Return a heat map of cases by output; rows of cases `outside` the domain say so."""
    return _heat_map(results, lambda each: _row_name(each.case, each, outside), lambda _: "")


def _row_name(name: str, result: CaseResult, outside: Collection[str]) -> str:
    return f"{name}, beyond the domain" if result.case in outside else name


VARIABLES = {
    "#010101": "ink",
    "#020202": "faint",
    "#030303": "stable",
    "#040401": "float16",
    "#040402": "bfloat16",
    "#040403": "float32",
    "#040404": "float64",
}
PLACEHOLDERS = {name: colour for colour, name in VARIABLES.items()}
MARKERS = dict(zip(FORMATS, ("s", "D", "o", "P"), strict=True))
FLOOR = 1e-2
"""Smaller errors are drawn here: most are 0, which has no logarithm."""
CEILING = 1e40
"""Larger errors are drawn as infinite: they would compress all others."""


class KappaPlot(NamedTuple):
    """The plot of one output, with the number of some points.

    `too_large` are drawn at the top edge; `outside` the domain points are hollow.
    """

    output: str
    svg: str
    dtypes: list[str]
    too_large: int
    outside: int


class _Frame(NamedTuple):
    """The limits of the axes: kappa from left to right, errors from FLOOR to top."""

    left: float
    right: float
    top: float


def draw(results: Sequence[CaseResult], outside: Collection[str] = ()) -> list[KappaPlot]:
    """Draw the errors of the sweeps for each output, with the same axes.

    The points of cases `outside` the domain are hollow.
    """
    points = [each for each in results if each.kind == "sweep"]
    return [
        _draw_output(
            output, [each for each in points if each.output == output], _frame(points), outside
        )
        for output in dict.fromkeys(each.output for each in points)
    ]


def _draw_output(
    output: str, points: Sequence[CaseResult], frame: _Frame, outside: Collection[str]
) -> KappaPlot:
    import matplotlib as mpl  # Matplotlib takes a second to import
    from matplotlib.figure import Figure

    dtypes = [name for name in FORMATS if any(each.dtype == name for each in points)]
    # A fixed salt gives the same file for the same data.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "truenorm", "font.size": 9}):
        figure = Figure(figsize=(5.0, 3.3), layout="constrained")
        axes = figure.add_subplot()
        _prepare(axes, frame)
        _draw_guides(axes, frame, [each.allowed for each in points])
        for name in dtypes:
            of_type = [each for each in points if each.dtype == name]
            for hollow in (False, True):
                some = [each for each in of_type if (each.case in outside) == hollow]
                _draw_points(axes, frame, name, some, hollow=hollow)
        svg = _inline(figure, output)
    hollow_points = sum(each.case in outside for each in points)
    return KappaPlot(output, svg, dtypes, sum(map(_is_too_large, points)), hollow_points)


def _is_too_large(point: CaseResult) -> bool:
    return not point.natural <= CEILING


def _frame(points: Sequence[CaseResult]) -> _Frame:
    """Return round limits that include the tolerance and every point below CEILING."""
    kappas = [each.kappa for each in points if 1 / CEILING < each.kappa < CEILING] or [1.0]
    errors = [each.natural for each in points if not _is_too_large(each)]
    errors += [each.allowed for each in points]
    return _Frame(
        10.0 ** (np.floor(np.log10(min(kappas))) - 0.2),
        10.0 ** (np.ceil(np.log10(max(kappas))) + 0.2),
        10.0 ** (np.ceil(np.log10(max(errors) + FLOOR)) + 1),
    )


def _prepare(axes: "Axes", frame: _Frame) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(frame.left, frame.right)
    axes.set_ylim(FLOOR, frame.top)
    axes.set_xlabel("condition number κ", color=PLACEHOLDERS["ink"])
    label = "error / (u · natural scale)"
    axes.set_title(label, loc="left", fontsize=9, pad=10, color=PLACEHOLDERS["ink"])
    for axis in (axes.xaxis, axes.yaxis):
        axis.minorticks_off()
        axis.set_major_formatter(_tick)
    axes.tick_params(color=PLACEHOLDERS["faint"], labelcolor=PLACEHOLDERS["ink"])
    axes.grid(color=PLACEHOLDERS["faint"], linewidth=0.5, alpha=0.35)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(PLACEHOLDERS["faint"])


def _tick(value: float, _: float | None = None) -> str:
    return f"≤ {power_of_ten(value)}" if value <= FLOOR else power_of_ten(value)


def _draw_guides(axes: "Axes", frame: _Frame, allowed: Sequence[float]) -> None:
    """Draw the tolerance of `stable`, and lines that grow like kappa and kappa squared."""
    low, high = min(allowed), max(allowed)
    if low < high:
        axes.axhspan(max(low, FLOOR), high, color=PLACEHOLDERS["stable"], alpha=0.15, linewidth=0)
    axes.axhline(high, color=PLACEHOLDERS["stable"], linewidth=1.2)
    words = number(low) if number(low) == number(high) else f"{number(low)} to {number(high)}"
    axes.annotate(
        f"stable allows {words}",
        (1.0, high),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 3),
        textcoords="offset points",
        horizontalalignment="right",
        color=PLACEHOLDERS["stable"],
        fontsize=8,
    )
    for power, name in ((1, "κ"), (2, "κ²")):
        ends = np.array([max(frame.left, 1.0), frame.right])
        axes.plot(ends, high * ends**power, ":", color=PLACEHOLDERS["ink"], linewidth=1, alpha=0.6)
        # Place the name to the right of the line, below the point where it leaves the frame.
        height = min(high * frame.right**power, frame.top) / 10**0.6
        axes.annotate(
            name,
            ((height / high) ** (1 / power), height),
            xytext=(7, -7),
            textcoords="offset points",
            verticalalignment="center",
            color=PLACEHOLDERS["ink"],
            fontsize=9,
        )


def _draw_points(
    axes: "Axes", frame: _Frame, dtype: str, points: Sequence[CaseResult], *, hollow: bool
) -> None:
    colour = PLACEHOLDERS[dtype]
    style: dict[str, Any] = {"color": colour, "linewidths": 0, "zorder": 3}
    if hollow:
        style |= {"color": "none", "edgecolors": colour, "linewidths": 0.8}
    style["clip_on"] = False  # half of a marker at the edge is outside
    kappas = _within([each.kappa for each in points], frame.left, frame.right)
    errors = _within([each.natural for each in points], FLOOR, frame.top)
    too_large = np.array(list(map(_is_too_large, points)), bool)
    within = ~too_large
    axes.scatter(kappas[within], errors[within], 16, marker=MARKERS[dtype], alpha=0.75, **style)
    axes.scatter(kappas[too_large], errors[too_large], 34, marker="^", **style)


def _within(values: Sequence[float], low: float, high: float) -> Float64s:
    return np.clip(np.nan_to_num(np.array(values, np.float64), nan=high), low, high)


def _inline(figure: "Figure", output: str) -> str:
    """Return the SVG element with the colours of the page, unique ids and no size."""
    stream = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(stream, format="svg", transparent=True, metadata=nothing)
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'((?:xlink:)?href="#|url\(#|\bid=")', rf"\g<1>{output}-", svg)
    for colour, name in VARIABLES.items():
        svg = svg.replace(colour, f"var(--{name})")
    label = f"error of {output} against the condition number"
    return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def to_html(report: Report) -> str:
    """Return the page."""
    pages = Environment(
        loader=PackageLoader("truenorm.verify.report"),
        autoescape=True,  # names and symptoms come from the subject
        finalize=_escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    results = (*report.results, *report.results_beyond)
    outside = {each.case for each in report.results_beyond}
    return pages.get_template("report.html.j2").render(
        report=report,
        date=report.machine.get("date", today()),
        machine={name: fact for name, fact in report.machine.items() if name != "date"},
        words=wording,
        text=text,
        link=link,
        plots=draw(results, outside),
        markers=MARKERS,
        grades={(grade.dtype, grade.output): grade for grade in report.grades},
        families=by_family(results, outside),
        cases=by_case(results, outside),
        levels=LEVELS,
    )


def write(report: Report, file: Path) -> None:
    """Write the page to a file."""
    file.write_text(to_html(report), encoding="utf-8", errors="xmlcharrefreplace")


def _escaped(value: Any) -> Any:
    """Escape the control characters of a text except line breaks; leave markup as it is."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "\n".join(map(text.printable, value.split("\n")))
