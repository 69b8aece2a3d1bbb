"""What the pages of a report have in common: what grades mean, and how a report ends."""

from truenorm.tools.text import counted, number
from truenorm.verify.grading.report import Finding, Grade, Known, Recipe, Report

__all__ = [
    *("LEGEND", "MEANINGS", "about", "below", "cause", "conclusion", "counts"),
    *("entry_in_words", "max_ulp"),
    *("place", "recipe_lines", "slope", "vanished_lines"),
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
    """Return the grades that are lower than required, and than a baseline has them."""
    return [grade for grade in report.grades if not report.accepts(grade)]


def counts(report: Report) -> str:
    """Return what a baseline says of a report, in numbers; nothing if there is none."""
    if report.baseline is None:
        return ""
    known, new, gone = report.baseline.known, report.baseline.new, len(report.baseline.vanished)
    return f"{known} known (baseline), {new} new, {gone} vanished"


def vanished_lines(report: Report) -> list[str]:
    """Return what a baseline has and this run has not, or has with a better grade."""
    if report.baseline is None:
        return []
    better = [
        f"better than {each.grade}: {entry_in_words(each, families=False)}"
        for each in report.baseline.better
    ]
    # Where nothing is left of an entry, its families say no more.
    whole = report.baseline.entries
    return [
        f"vanished: {entry_in_words(each, families=each not in whole)}"
        for each in report.baseline.vanished
    ] + better


def entry_in_words(known: Known, *, families: bool = True) -> str:
    """Return a finding of a baseline in words."""
    said = place(known)
    if families and known.families:
        said += f", in {', '.join(known.families)}"
    return f"{said} ({known.reason})" if known.reason else said


def place(found: Finding | Known) -> str:
    """Return what a finding is about: the result, the type, the check."""
    what = found.verdict if isinstance(found, Finding) else found.check
    return ", ".join(each for each in (found.output, found.dtype, what) if each)


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
        if report.baseline is None:
            return f"No finding, and every grade is at least {report.require}{where}."
        known = "" if all(each.reaches(report.require) for each in report.grades) else " or known"
        return f"No new finding, and every grade is at least {report.require}{known}{where}."
    new = [each for each in report.findings if not each.known]
    said = [counted(len(new), "finding" if report.baseline is None else "new finding")]
    said = said if new else []
    low: dict[str, list[str]] = {}
    for grade in below(report):
        low.setdefault(grade.dtype, []).append(grade.output)
    if low:
        which = ", ".join(f"{' '.join(outputs)} in {dtype}" for dtype, outputs in low.items())
        said.append(f"below {report.require}: {which}")
    return "; ".join(said) + "."
