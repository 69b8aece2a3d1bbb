"""Other cases beside one that failed: what is said of its cause must be true of them, too.

In one case alone, zeros can come of many mistakes, and the hypotheses of most of them fit.
"""

from dataclasses import replace

from truenorm.verify.grading.report import Report
from truenorm.verify.operation import Case
from truenorm.verify.runs.calls import Call, GaveUpError, Record
from truenorm.verify.runs.runners import runner_for
from truenorm.verify.subject import Subject
from truenorm.verify.suite import cases

__all__ = ["Company", "with_causes_of"]

ELEMENTS = 4 * 67
"""Of a case: the small ones are called in no time, and most hypotheses fall there."""
FAMILIES = ("normal", "padding", "large-scale", "small-scale", "spread-of-eps", "large-eps")
"""Ordinary rows, and such whose size, or whose eps, is another."""


class Company:
    """What a subject makes of some small cases, of each type once."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._known: dict[str, tuple[list[Case], list[Record]]] = {}

    def of(self, case: Case) -> tuple[list[Case], list[Record]]:
        """Return the others of its type, and what came back."""
        if case.dtype not in self._known:
            self._known[case.dtype] = self._asked(case.dtype)
        suite, records = self._known[case.dtype]
        return (
            [each for each in suite if each.name != case.name],
            [each for each in records if each.case != case.name],
        )

    def _asked(self, dtype: str) -> tuple[list[Case], list[Record]]:
        suite = [
            each
            for each in cases(dtype, operation=self._subject.operation)
            if each.family in FAMILIES and each.x.size <= ELEMENTS
        ]
        runner, records = runner_for(self._subject), []
        for each in suite:
            try:
                records.append(runner.run(each, Call()))
            except GaveUpError:
                break
        return suite, records


def with_causes_of(report: Report, fuller: Report) -> Report:
    """Return a report with the causes that one on more cases has; none where it does not say."""
    causes = {
        (each.verdict, each.dtype, each.output): (each.cause, each.tried)
        for each in fuller.findings
    }
    findings = []
    for each in report.findings:
        words, tried = causes.get((each.verdict, each.dtype, each.output), ("", 0))
        findings.append(replace(each, cause=words, tried=tried))
    return replace(report, findings=tuple(findings))
