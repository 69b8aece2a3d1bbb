"""Causes that a report names, compared with those of a table."""

from collections.abc import Collection

from truenorm.verify.grading.report import Report


def named_ids(report: Report, output: str = "") -> list[set[str]]:
    """Return the ids of the causes of each finding that has any, of one output or of all."""
    return [
        {cause.id for cause in each.causes}
        for each in report.findings
        if each.causes and output in ("", each.output)
    ]


def assert_true(report: Report, true: Collection[str], output: str = "") -> None:
    """Raise AssertionError unless each cause is one of those that are true, and some are named."""
    named = named_ids(report, output)
    assert all(ids & {*true} for ids in named), named
    assert bool(named) == bool(true), named
