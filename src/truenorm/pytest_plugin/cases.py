"""What a test is given: a subject and a case, and what is said when it fails."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from truenorm.pytest_plugin import PROPERTY
from truenorm.pytest_plugin.company import Company, with_causes_of
from truenorm.pytest_plugin.known import told
from truenorm.verify.baselines.comparing import against
from truenorm.verify.baselines.file import read
from truenorm.verify.collecting.one_by_one import collect
from truenorm.verify.collecting.places import origin_of
from truenorm.verify.grading.beyond import parted
from truenorm.verify.grading.report import GRADES, Finding, Known, Report
from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.judge import graded, scope
from truenorm.verify.operation import Case
from truenorm.verify.own.cases import is_own
from truenorm.verify.pages.sources import link
from truenorm.verify.pages.wording import cause, conclusion
from truenorm.verify.runs.calls import Record
from truenorm.verify.runs.loading import dotted_path, load, split_target
from truenorm.verify.runs.runners import runner_for
from truenorm.verify.subject import Subject
from truenorm.verify.tensors.dotted import PREFIX

__all__ = ["JudgedCase", "judged_cases"]

RULE = "-" * 80


@dataclass(frozen=True)
class JudgedCase:
    """One case of a subject: ``truenorm_case`` in a test.

    Attributes
    ----------
    subject : Subject
    case : Case
    require : str
        The least grade that passes.
    recipe : str
        Where it must round on the way, if that is asked.
    seed : int
        The one that cases were asked of.
    origin : Origin
        Where the subject is found again, for reproducers.
    company : Company
        What else the subject was asked, for causes.
    known : tuple of Known, optional
        What a baseline has, if there is one.
    tests : int
        So many cases there are of the same marker.
    properties : list of tuple
        What the report of the test is to have: see `truenorm.pytest_plugin.known`.
    """

    subject: Subject
    case: Case
    require: str
    recipe: str
    seed: int
    origin: Origin
    company: Company
    known: tuple[Known, ...] | None = None
    tests: int = 1
    properties: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the name of the case: what stands in brackets in a test's name."""
        return self.case.name

    def report(self) -> Report:
        """Judge the case, whatever comes of it, and hold that against the baseline."""
        if self.known is None:
            return self._judged()
        report = against(self._judged(), self.known)
        self._tell(report)
        return report

    def _tell(self, report: Report | None = None) -> None:
        """Leave what is said of the baseline in the end; a test may be run again."""
        self.properties[:] = [(PROPERTY, told(report, self.tests))]

    def _judged(self) -> Report:
        records = collect(runner_for(self.subject), [self.case])
        report = self._graded([self.case], records)
        if report.passed or is_own(self.case):
            return report
        others, came = self.company.of(self.case)
        return with_causes_of(report, self._graded([self.case, *others], [*records, *came]))

    def _graded(self, suite: Sequence[Case], records: Sequence[Record]) -> Report:
        return graded(
            self.subject, suite, records, self.origin, require=self.require, recipe=self.recipe
        )

    def check(self) -> None:
        """Fail the test, with symptom, cause and reproducer; skip it beyond the domain."""
        __tracebackhide__ = True
        domain = self.subject.domain
        if parted([self.case], domain)[1]:
            if self.known is not None:
                self._tell()
            pytest.skip(f"beyond what {self.subject.name} is said to be right for: {domain}")
        report = self.report()
        if not report.passed:
            # Without a traceback, whose frames would be ours.
            pytest.fail(self._said(report), pytrace=False)

    def _said(self, report: Report) -> str:
        """Return what a person needs to know; the plainest symptom is the first line."""
        new = [each for each in report.findings if not each.known]
        lines = [
            new[0].symptom if new else conclusion(report),
            "",
            f"   in  {self.subject.name}",
            f" case  {self.case.name}: {self.case.why}",
        ]
        for place, finding in enumerate(new):
            lines += ["", f"  and  {finding.symptom}"] if place else []
            lines += _beside(finding)
        if self.seed:
            lines += ["", f"again  pytest --truenorm-seed {self.seed}"]
        lines += [RULE, new[0].reproducer.rstrip(), RULE] if new else []
        return "\n".join(lines)


def _beside(finding: Finding) -> list[str]:
    """Return what is new about it, the cause, and who has seen such a failure."""
    said = {"  new": finding.new, "cause": cause(finding)}
    seen = [f" seen  {each} {link(each)}".rstrip() for each in finding.sources]
    return [*(f"{label}  {text}" for label, text in said.items() if text), *seen]


def judged_cases(
    marker: pytest.Mark, file: Path, *, level: str | None, seed: int | None
) -> list[JudgedCase]:
    """Return the cases that a marker asks for; `level` and `seed` are those of the command."""
    said = {**marker.kwargs, "level": level} if level else marker.kwargs
    return _cases(*marker.args, **said, folder=file.parent, seed=seed or 0)


def _cases(
    subject: Subject | str,
    *,
    operation: str = "",
    require: str = "stable",
    recipe: str = "",
    level: str = "quick",
    dtypes: Sequence[str] = (),
    cases: Sequence[Case] = (),
    baseline: str | Path | None = None,
    folder: Path,
    seed: int,
) -> list[JudgedCase]:
    """Return a subject with each case of a level, or with those that are given."""
    if require not in GRADES:
        raise ValueError(f"require is {require!r}; it is one of {', '.join(GRADES)}")
    found, origin = _found(subject, operation, folder)
    if dtypes:
        found = replace(found, dtypes=tuple(dtypes))
    suite = cases or scope(found, level, seed)
    of_seed = 0 if cases else seed
    company = Company(found)
    known = None if baseline is None else read(folder / baseline)
    return [
        JudgedCase(found, each, require, recipe, of_seed, origin, company, known, len(suite))
        for each in suite
    ]


def _found(subject: Subject | str, operation: str, folder: Path) -> tuple[Subject, Origin]:
    """Return a subject, which may be named as for `truenorm verify`, and where it is."""
    if isinstance(subject, Subject):
        taken = subject.taken_for(operation) if operation else subject
        return taken, origin_of(subject)._replace(operation=operation)
    if not isinstance(subject, str):
        raise TypeError(f"give a truenorm.verify.Subject, or file.py:name, not {subject!r}")
    if dotted := dotted_path(subject):
        file, name = PREFIX.rstrip(":"), dotted
    else:
        path, name = split_target(subject)
        file = str(folder / path)
    found = load(f"{file}:{name}", operation)
    return found, Origin.of(found, file, name)._replace(operation=operation)
