"""What the pages of a report have in common: what grades mean, and how a report ends."""

from truenorm.tools.text import counted, number
from truenorm.verify.grading.report import Finding, Grade, Recipe, Report

__all__ = [
    *("LEGEND", "MEANINGS", "about", "below", "cause", "conclusion", "max_ulp", "recipe_lines"),
    "slope",
]

MEANINGS = {
    "correct": "the exact answer rounded once, everywhere",
    "faithful": "less than 1 ulp everywhere",
    "stable": "a small multiple of u times the natural scale of the result, whatever kappa is",
    "conditional": "grows like kappa: a mean that is rounded once, Welford",
    "unstable": "grows like kappa squared, or is NaN, infinite or zero where the answer is finite",
    "wrong": "fails on ordinary input",
}
"""What each grade says about the error, from the best to the worst."""


LEGEND = "ulp: a step of the type; natural unit: u times the scale; slope: power of kappa"
"""What the numbers beside the grades are, in 80 columns."""
DECIDED_BY_ULP = ("correct", "faithful")


def max_ulp(grade: Grade) -> str:
    """Return the largest error in ulp where the grade rests on it, else a dash.

    A stable result may be off by any number of them where terms cancel, and nothing is wrong.
    """
    return number(grade.max_ulp) if grade.grade in DECIDED_BY_ULP else "-"


def slope(grade: Grade) -> str:
    """Return the power of kappa with which errors grow; a dash where nothing does."""
    return "-" if grade.slope is None else f"{grade.slope:.1f}"


def about(report: Report) -> list[str]:
    """Return what the grades rest on, where that is not all cases."""
    said = []
    every = report.cases + report.not_run
    if report.not_run:
        said.append(f"{report.not_run} of {every} cases did not run: the grades are of the others")
    if not report.domain.is_all:
        left = f"{report.left_out} of {every + report.left_out} cases are beyond and left out"
        said.append(f"the grades are about {report.domain}; {left}")
    return said


def cause(finding: Finding) -> str:
    """Return what is done wrong, if that is known; nothing where it is not asked for."""
    if finding.cause or not finding.tried:
        return finding.cause
    return f"none of {finding.tried} hypotheses fits"


def below(report: Report) -> list[Grade]:
    """Return the grades that are lower than required."""
    return [grade for grade in report.grades if not grade.reaches(report.require)]


def recipe_lines(report: Report) -> dict[str, tuple[str, str]]:
    """Return by type the name of the recipe, and in how many elements each has its bits."""
    if not report.operation.recipe_names:
        return {}
    lines = {each.dtype: (_named(each), str(each)) for each in report.recipes}
    hidden = ("not told", "arithmetic in this type hides where a result is rounded on the way")
    return {each.dtype: lines.get(each.dtype, hidden) for each in report.grades}


def _named(recipe: Recipe) -> str:
    """Return the name of a recipe, and of those that cannot be told from it."""
    name, *others = recipe.names or ("none fits",)
    return f"{name} (as {' and '.join(others)} here)" if others else name


def conclusion(report: Report) -> str:
    """Return what the verdict rests on, in one sentence."""
    if report.passed:
        where = "" if report.domain.is_all else f" for {report.domain}"
        return f"No finding, and every grade is at least {report.require}{where}."
    said = [counted(len(report.findings), "finding")] if report.findings else []
    low: dict[str, list[str]] = {}
    for grade in below(report):
        low.setdefault(grade.dtype, []).append(grade.output)
    if low:
        which = ", ".join(f"{' '.join(outputs)} in {dtype}" for dtype, outputs in low.items())
        said.append(f"below {report.require}: {which}")
    return "; ".join(said) + "."
