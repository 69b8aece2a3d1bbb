"""A report as one HTML file that needs nothing else: no script, and nothing from the network."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from truenorm.tools import text
from truenorm.tools.machine import today
from truenorm.verify.grading.report import Report
from truenorm.verify.pages import wording
from truenorm.verify.pages.advice import advice
from truenorm.verify.pages.heat_map import LEVELS, by_case, by_family
from truenorm.verify.pages.kappa_plot import MARKERS, draw
from truenorm.verify.pages.sources import link

__all__ = ["to_html", "write"]


def to_html(report: Report) -> str:
    """Return the page."""
    pages = Environment(
        loader=PackageLoader("truenorm.verify.pages"),
        autoescape=True,  # whatever a file is called: names and symptoms come from others
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages.get_template("report.html.j2").render(
        report=report,
        date=report.machine.get("date", today()),
        machine={name: fact for name, fact in report.machine.items() if name != "date"},
        words=wording,
        text=text,
        link=link,
        advice=advice,
        plots=draw(report.results),
        markers=MARKERS,
        grades={(grade.dtype, grade.output): grade for grade in report.grades},
        families=by_family(report.results),
        cases=by_case(report.results),
        levels=LEVELS,
    )


def write(report: Report, file: Path) -> None:
    """Write the page to a file."""
    file.write_text(to_html(report), encoding="utf-8", errors="xmlcharrefreplace")


def _shown(value: Any) -> Any:
    """Return a text without control characters but line breaks; what is markup is ours."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "\n".join(map(text.printable, value.split("\n")))
