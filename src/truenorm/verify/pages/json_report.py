"""A report as strict JSON, for programs; `docs/_static/schema` says what stands where."""

import dataclasses

from truenorm.tools import strict_json
from truenorm.verify.campaigns.summary import Campaign
from truenorm.verify.equal.report import Equality
from truenorm.verify.grading.report import Report

__all__ = ["to_json"]

SCHEMAS = {
    Report: "truenorm/report-1",
    Equality: "truenorm/equality-1",
    Campaign: "truenorm/campaign-1",
}
"""By what is told; another number where something is taken away or means something else."""


def to_json(report: Report | Equality | Campaign) -> str:
    """Return everything that a report has, and whether it is a pass."""
    told = {each.name: getattr(report, each.name) for each in dataclasses.fields(report)}
    told["operation"] = report.operation.words  # the rest of it is code
    first = {"schema": SCHEMAS[type(report)], "passed": report.passed}
    return strict_json.dumps({**first, **told})
