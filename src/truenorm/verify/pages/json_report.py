"""A report as strict JSON, for programs."""

import dataclasses

from truenorm.tools import strict_json
from truenorm.verify.grading.report import Report

__all__ = ["to_json"]


def to_json(report: Report) -> str:
    """Return everything that a report has, and whether it is a pass."""
    told = {each.name: getattr(report, each.name) for each in dataclasses.fields(report)}
    told["operation"] = report.operation.words  # the rest of it is code
    return strict_json.dumps({"passed": report.passed, **told})
