"""Other cases beside one that failed: what is said of its cause must be true of them, too.

In one case alone, zeros can come of many mistakes, and the hypotheses of most of them fit.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from truenorm.pytest_plugin import PROPERTY
from truenorm.tools.text import counted, one_line
from truenorm.verify.baseline import compare_with_baseline, entries_of, key, read_baseline
from truenorm.verify.grading.grades import split_by_domain
from truenorm.verify.grading.report import GRADES, Finding, Known, Report
from truenorm.verify.judge import collect, grade_records, scope, spec_of
from truenorm.verify.operation import Case
from truenorm.verify.report.wording import conclusion, describe_entry, likely_cause, link
from truenorm.verify.running.loading import file_and_name, load
from truenorm.verify.running.records import Call, GaveUpError, Record
from truenorm.verify.running.runners import runner_for
from truenorm.verify.subject import Subject, SubjectSpec
from truenorm.verify.suite import cases
from truenorm.verify.user_cases import is_user_case

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


Test = Mapping[str, Any]


def told(report: Report | None, tests: int) -> str:
    """Return what one of so many tests tells; without a report, that it was skipped."""
    said: dict[str, Sequence[Known]] = {"found": (), "known": (), "gone": ()}
    if report is not None and report.baseline is not None:
        entries = report.baseline.entries
        passing = {(each.dtype, each.output, each.check) for each in report.findings if each.known}
        known = [each for each in entries if (each.dtype, each.output, each.check) in passing]
        said = {"found": entries_of(report), "known": known, "gone": report.baseline.vanished}
    return json.dumps(
        {"tests": tests, **{name: [asdict(each) for each in some] for name, some in said.items()}}
    )


def lines(properties: Iterable[tuple[str, str]]) -> list[str]:
    """Return what is known, and what has vanished, by what the tests of each function told.

    Only where all tests of a function ran, something can have vanished.
    """
    functions: dict[str, list[Test]] = defaultdict(list)
    for function, text in properties:
        functions[function].append(json.loads(text))
    every = [test for tests in functions.values() for test in tests]
    whole = [test for tests in functions.values() for test in tests if len(tests) == test["tests"]]
    known = [replace(entry, families=()) for entry in _entries(every, "known")]
    times = Counter(known)
    said = [f"known     {_words(each)}, in {counted(times[each], 'test')}" for each in times]
    return sorted(said) + [f"vanished  {_words(each)}" for each in _vanished(every, whole)]


def _entries(tests: Iterable[Test], name: str) -> Iterator[Known]:
    for test in tests:
        for entry in test[name]:
            yield Known(**{**entry, "families": tuple(entry["families"])})


def _words(entry: Known) -> str:
    return one_line(f"{entry.subject}: {describe_entry(entry)}")


def _vanished(every: Sequence[Test], whole: Sequence[Test]) -> list[Known]:
    """Return what some tests looked for and none found, in the families in which that is so."""
    found: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for entry in _entries(every, "found"):
        found[key(entry)].update(entry.families or ("",))
    gone: dict[tuple[str, ...], Known] = {}
    for entry in _entries(whole, "gone"):
        seen = found.get(key(entry), set())
        left = set(entry.families) - seen
        if "" not in seen and (left if entry.families else not seen):
            before = gone[key(entry)].families if key(entry) in gone else ()
            families = tuple(sorted(left.union(before)))
            gone[key(entry)] = replace(entry, families=families)
    return [gone[place] for place in sorted(gone)]


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
    spec : SubjectSpec
        Where the subject is found again, for reproducers.
    company : Company
        What else the subject was asked, for causes.
    known : tuple of Known, optional
        What a baseline has, if there is one.
    tests : int
        So many cases there are of the same marker.
    properties : list of tuple
        What the report of the test is to have: see `truenorm.pytest_plugin.cases`.
    """

    subject: Subject
    case: Case
    require: str
    recipe: str
    seed: int
    spec: SubjectSpec
    company: Company
    known: tuple[Known, ...] | None = None
    tests: int = 1
    properties: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the name of the case: what stands in brackets in a test's name."""
        return self.case.name

    def report(self) -> Report:
        """Judge the case and compare the report with the baseline."""
        if self.known is None:
            return self._judged()
        report = compare_with_baseline(self._judged(), self.known)
        self._tell(report)
        return report

    def _tell(self, report: Report | None = None) -> None:
        """Leave what is said of the baseline in the end; a test may be run again."""
        self.properties[:] = [(PROPERTY, told(report, self.tests))]

    def _judged(self) -> Report:
        records = collect(runner_for(self.subject), [self.case])
        report = self._graded([self.case], records)
        if report.passed or is_user_case(self.case):
            return report
        others, came = self.company.of(self.case)
        return with_causes_of(report, self._graded([self.case, *others], [*records, *came]))

    def _graded(self, suite: Sequence[Case], records: Sequence[Record]) -> Report:
        return grade_records(
            self.subject, suite, records, self.spec, require=self.require, recipe=self.recipe
        )

    def check(self) -> None:
        """Fail the test, with symptom, cause and reproducer; skip it beyond the domain."""
        __tracebackhide__ = True
        domain = self.subject.domain
        if split_by_domain([self.case], domain)[1]:
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
    said = {"  new": finding.new, "cause": likely_cause(finding)}
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
    found, spec = _found(subject, operation, folder)
    if dtypes:
        found = replace(found, dtypes=tuple(dtypes))
    suite = cases or scope(found, level, seed)
    of_seed = 0 if cases else seed
    company = Company(found)
    known = None if baseline is None else read_baseline(folder / baseline)
    return [
        JudgedCase(found, each, require, recipe, of_seed, spec, company, known, len(suite))
        for each in suite
    ]


def _found(subject: Subject | str, operation: str, folder: Path) -> tuple[Subject, SubjectSpec]:
    """Return a subject, which may be named as for `truenorm verify`, and where it is."""
    if isinstance(subject, Subject):
        taken = subject.with_operation(operation) if operation else subject
        return taken, spec_of(subject)._replace(operation=operation)
    if not isinstance(subject, str):
        raise TypeError(f"give a truenorm.verify.Subject, or file.py:name, not {subject!r}")
    file, name = file_and_name(subject, folder)
    loaded = load(f"{file}:{name}", operation)
    return loaded, SubjectSpec.of(loaded, file, name, operation)
