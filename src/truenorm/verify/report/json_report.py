"""Reports as JSON."""

import dataclasses

from truenorm.tools import strict_json
from truenorm.verify.campaigns import Campaign
from truenorm.verify.equality import Equality
from truenorm.verify.grading.report import Report

SCHEMAS = {
    Report: "truenorm/report-1",
    Equality: "truenorm/equality-1",
    Campaign: "truenorm/campaign-1",
}
"""The number changes when a key is removed or changes its meaning."""


def to_json(report: Report | Equality | Campaign) -> str:
    """Return all fields of a report as JSON, with its schema and whether it passes."""
    fields = {each.name: getattr(report, each.name) for each in dataclasses.fields(report)}
    fields["operation"] = report.operation.spec  # the rest of an operation is code
    header = {"schema": SCHEMAS[type(report)], "passed": report.passed}
    return strict_json.dumps({**header, **fields})
