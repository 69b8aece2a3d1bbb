"""Reports as JSON."""

import dataclasses

from truenorm.tools import strict_json
from truenorm.verify.equality import Equality
from truenorm.verify.grading.report import Report
from truenorm.verify.scores import Score

SCHEMAS = {
    Report: "truenorm/report-1",
    Equality: "truenorm/equality-1",
    Score: "truenorm/score-1",
}
"""The number changes when a key is removed or changes its meaning."""


def to_json(report: Report | Equality | Score, indent: int | None = 2) -> str:
    """Return all fields of a report as JSON, with its schema; a score does not pass or fail."""
    fields = {each.name: getattr(report, each.name) for each in dataclasses.fields(report)}
    fields["operation"] = report.operation.spec  # the rest of an operation is code
    header: dict[str, object] = {"schema": SCHEMAS[type(report)]}
    if not isinstance(report, Score):
        header["passed"] = report.passed
    return strict_json.dumps({**header, **fields}, indent)
