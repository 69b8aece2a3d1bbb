"""The judge in a test suite: one test for each type and check of a subject."""

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from unittest import SkipTest

from truenorm.tools.arguments import require_choice
from truenorm.tools.text import counted
from truenorm.verify.collecting import collect
from truenorm.verify.grading.report import ACCURACY, Finding, Report
from truenorm.verify.grading.symptoms import GUARDS
from truenorm.verify.judge import RunSettings, judge_runner, spec_of
from truenorm.verify.operation import Case
from truenorm.verify.report.wording import conclusion, likely_cause, link, location
from truenorm.verify.running.process import SubjectProcess
from truenorm.verify.running.records import CannotRunError
from truenorm.verify.subject import Subject, require_subject
from truenorm.verify.suite import LEVELS
from truenorm.verify.time_limit import SECONDS

RULE = "-" * 80
RUNS, RECIPE = "runs", "recipe"
OF_ONE_OUTPUT = {"floor": "scale", "biased": "sum"}
"""Checks that are about one result, which not every operation has."""


def verdicts(
    subject: Subject,
    *,
    level: str = "quick",
    require: str = "stable",
    strict: bool = False,
    own: Sequence[Case] = (),
    baseline: str | Path | None = None,
    batch: str = "require",
    time: float = SECONDS,
) -> list["Verdict"]:
    """Return the verdicts of a subject, to parametrize a test: one for each type and check.

    Nothing is run before the first `Verdict.assert_passed` of a type. Then the file of the subject
    is executed in another process, once for each type: a crash or a hang is a finding.

    Parameters
    ----------
    subject : Subject
        It must have a name at the top level of a file, for the other process.
    level, require, strict, own, baseline, batch, time
        As for `verify`; the time limit is that of one type.

    Returns
    -------
    list of Verdict
        Names of tests are such as ``float32-accuracy-y`` and ``float32-batch-invariant``.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> subject = tv.Subject(lambda x, gamma, beta, eps: x, dtypes=["float32"])
    >>> [str(each) for each in tv.verdicts(subject)][:2]
    ['float32-runs', 'float32-accuracy-y']
    """
    require_subject(subject)
    require_choice("level", level, LEVELS)
    settings = RunSettings(level, require, None, own, baseline, strict, batch=batch)
    settings.check()
    judgements = [_Judgement(subject, dtype, settings, time) for dtype in subject.dtypes]
    return [
        Verdict(judgement, *place) for judgement in judgements for place in _places_of(subject)
    ]


def _places_of(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield each check of a subject, and the output whose accuracy it is about."""
    checks = dict.fromkeys(GUARDS.values())
    if not subject.recipe:
        del checks[RECIPE]
    for guard, output in OF_ONE_OUTPUT.items():
        if output not in subject.outputs:
            del checks[GUARDS[guard]]
    for check in checks:
        if check == ACCURACY:
            yield from ((check, output) for output in subject.outputs)
        else:
            yield check, ""


@dataclass(frozen=True, repr=False)
class Verdict:
    """The verdict of the judge on one check of a subject in one type.

    `check` is ``accuracy`` or the name of another check. `output` is the output whose accuracy is
    judged, else empty.
    """

    judgement: "_Judgement"
    check: str
    output: str = ""

    def __str__(self) -> str:
        """Return the name, such as ``float32-accuracy-y``."""
        words = [self.judgement.dtype, self.check, *filter(None, [self.output])]
        return "-".join(words).replace(" ", "-")

    __repr__ = __str__

    @property
    def __name__(self) -> str:
        """The name in the name of a test: pytest asks an object for it."""
        return str(self)

    @property
    def report(self) -> Report:
        """The report of all checks in this type; `CannotRunError` says why there is none."""
        outcome = self.judgement.outcome
        if isinstance(outcome, CannotRunError):
            raise outcome
        return outcome

    def assert_passed(self) -> None:
        """Raise AssertionError with symptom, likely cause and reproducer of a finding.

        Skip the test if the check was not judged. A finding that is a warning is one of Python.
        """
        __tracebackhide__ = True  # pytest shows the line of the test, and no line of this function
        outcome = self.judgement.outcome
        if isinstance(outcome, CannotRunError):
            raise AssertionError(f"the subject could not be run: {outcome}")
        if new := list(filter(self._shows, outcome.failures)):
            raise AssertionError(self._message(outcome, new))
        if new := list(filter(self._shows, outcome.warnings)):
            warnings.warn(self._message(outcome, new), stacklevel=2)
        if self.check == ACCURACY:
            self._check_grade(outcome)
        elif self.check == RUNS and not outcome.grades:
            raise AssertionError(conclusion(outcome))
        elif outcome.verdicts.get(self.check) == "not judged":
            raise SkipTest(f"not judged: {outcome.explained(self.check)}")

    def _check_grade(self, report: Report) -> None:
        __tracebackhide__ = True
        grades = [each for each in report.grades if each.output == self.output]
        if all(map(report.accepts, grades)):
            return
        if not any(each.output == self.output for each in report.results):
            raise SkipTest(f"{self.output} has no result to grade")
        raise AssertionError(conclusion(report))

    def _shows(self, finding: Finding) -> bool:
        of_output = self.check != ACCURACY or finding.output == self.output
        return finding.verdict == self.check and of_output

    def _message(self, report: Report, findings: Sequence[Finding]) -> str:
        """Return the message of a failure: the first symptom, then labelled lines."""
        lines = [findings[0].symptom, "", _line("in", report.subject)]
        for position, finding in enumerate(findings):
            lines += ["", _line("and", finding.symptom)] if position else []
            others = f" (and {counted(finding.also_in, 'other case')})" if finding.also_in else ""
            texts = {
                "case": f"{finding.case}: {finding.why}{others}",
                "new": finding.new,
                "likely cause": likely_cause(finding),
            }
            if finding.follows:
                leader = location(report.findings[finding.follows - 1])
                number = f"finding {finding.follows}"
                texts["likely cause"] = texts["likely cause"].replace(number, leader)
            lines += [_line(label, text) for label, text in texts.items() if text]
            lines += [_line("seen", f"{each} {link(each)}") for each in finding.sources]
        return "\n".join([*lines, RULE, findings[0].reproducer.rstrip(), RULE])


def _line(label: str, text: str) -> str:
    return f"{label:>12}  {text}".rstrip()


@dataclass(frozen=True, eq=False)
class _Judgement:
    """A subject in one type, which is judged once for all of its verdicts."""

    subject: Subject
    dtype: str
    settings: RunSettings
    time: float

    @cached_property
    def outcome(self) -> Report | CannotRunError:
        """The report, or why there is none."""
        own = [case for case in self.settings.user_cases if case.dtype == self.dtype]
        settings = replace(self.settings, user_cases=own)
        spec = spec_of(self.subject)
        try:
            if not spec.file:
                raise CannotRunError(
                    "another process loads it by its name, and no file defines it: put it at the "
                    "top level of a file, as subject = truenorm.verify.Subject(...)"
                )
            with SubjectProcess(
                spec.target, environment=_imports(), strict=settings.strict, dtypes=[self.dtype]
            ) as process:
                collecting = partial(collect, process, seconds=self.time)
                return judge_runner(process, process.spec, settings, collecting)
        except CannotRunError as error:
            return error


def _imports() -> Mapping[str, Any]:
    """Return variables of a process that imports what this one can import."""
    return {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
