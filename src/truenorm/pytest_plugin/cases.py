"""The tests of ``@pytest.mark.truenorm``: one case each, with symptom, diagnosis and baseline."""

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

CONTROL_ELEMENTS = 4 * 67
"""Of a control case: small cases run quickly, and most hypotheses are refuted there."""
CONTROL_FAMILIES = (
    "normal",
    "padding",
    "large-scale",
    "small-scale",
    "spread-of-eps",
    "large-eps",
)
"""Ordinary rows, and rows of another size or with another eps."""
RULE = "-" * 80


class ControlCases:
    """Other small cases of a subject, which a diagnosis of one failed case must explain, too.

    In one case alone, zeros can have many causes, and most hypotheses fit.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._by_dtype: dict[str, tuple[list[Case], list[Record]]] = {}

    def without(self, case: Case) -> tuple[list[Case], list[Record]]:
        """Return the control cases of the same type except this one, and their records."""
        if case.dtype not in self._by_dtype:
            self._by_dtype[case.dtype] = self._run(case.dtype)
        suite, records = self._by_dtype[case.dtype]
        return (
            [each for each in suite if each.name != case.name],
            [each for each in records if each.case != case.name],
        )

    def _run(self, dtype: str) -> tuple[list[Case], list[Record]]:
        suite = [
            each
            for each in cases(dtype, operation=self._subject.operation)
            if each.family in CONTROL_FAMILIES and each.x.size <= CONTROL_ELEMENTS
        ]
        runner, records = runner_for(self._subject), []
        for each in suite:
            try:
                records.append(runner.run(each, Call()))
            except GaveUpError:
                break
        return suite, records


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
        The rounding recipe to compare with, if any.
    seed : int
        The seed of the case.
    spec : SubjectSpec
        Where the subject is defined, for reproducers.
    controls : ControlCases
    known : tuple of Known, optional
        The entries of the baseline, if there is one.
    tests : int
        Number of cases of the same marker.
    properties : list of tuple
        User properties of the test report: the comparison with the baseline, as JSON.
    """

    subject: Subject
    case: Case
    require: str
    recipe: str
    seed: int
    spec: SubjectSpec
    controls: ControlCases
    known: tuple[Known, ...] | None = None
    tests: int = 1
    properties: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the name of the case, which is in brackets in the name of the test."""
        return self.case.name

    def report(self) -> Report:
        """Judge the case and compare the report with the baseline."""
        report = self._judge()
        if self.known is not None:
            report = compare_with_baseline(report, self.known)
            self._set_property(report)
        return report

    def _set_property(self, report: Report | None = None) -> None:
        """Replace the user property: a test may run again."""
        self.properties[:] = [(PROPERTY, to_property(report, self.tests))]

    def _judge(self) -> Report:
        records = collect(runner_for(self.subject), [self.case])
        report = self._grade([self.case], records)
        if report.passed or is_user_case(self.case):
            return report
        controls, more = self.controls.without(self.case)
        fuller = self._grade([self.case, *controls], [*records, *more])
        causes = {
            (each.verdict, each.dtype, each.output): (each.cause, each.tried)
            for each in fuller.findings
        }
        findings = []
        for each in report.findings:
            text, tried = causes.get((each.verdict, each.dtype, each.output), ("", 0))
            findings.append(replace(each, cause=text, tried=tried))
        return replace(report, findings=tuple(findings))

    def _grade(self, suite: Sequence[Case], records: Sequence[Record]) -> Report:
        return grade_records(
            self.subject, suite, records, self.spec, require=self.require, recipe=self.recipe
        )

    def check(self) -> None:
        """Fail the test with symptom, cause and reproducer; skip a case outside the domain."""
        __tracebackhide__ = True
        domain = self.subject.domain
        if split_by_domain([self.case], domain)[1]:
            if self.known is not None:
                self._set_property()
            pytest.skip(f"outside the domain of {self.subject.name}: {domain}")
        report = self.report()
        if not report.passed:
            # No traceback: its frames would be those of truenorm.
            pytest.fail(self._message(report), pytrace=False)

    def _message(self, report: Report) -> str:
        """Return the message of a failure, which starts with the most obvious symptom."""
        new = [each for each in report.findings if not each.known]
        lines = [
            new[0].symptom if new else conclusion(report),
            "",
            f"   in  {self.subject.name}",
            f" case  {self.case.name}: {self.case.why}",
        ]
        for place, finding in enumerate(new):
            lines += ["", f"  and  {finding.symptom}"] if place else []
            lines += _details(finding)
        if self.seed:
            lines += ["", f"again  pytest --truenorm-seed {self.seed}"]
        lines += [RULE, new[0].reproducer.rstrip(), RULE] if new else []
        return "\n".join(lines)


def _details(finding: Finding) -> list[str]:
    """Return what is new about a finding, its cause, and issues with such a failure."""
    texts = {"  new": finding.new, "cause": likely_cause(finding)}
    issues = [f" seen  {each} {link(each)}".rstrip() for each in finding.sources]
    return [*(f"{label}  {text}" for label, text in texts.items() if text), *issues]


def judged_cases(
    marker: pytest.Mark, file: Path, *, level: str | None, seed: int | None
) -> list[JudgedCase]:
    """Return the cases of a marker; `level` and `seed` are options of the command line."""
    options = {**marker.kwargs, "level": level} if level else marker.kwargs
    return _cases(*marker.args, **options, folder=file.parent, seed=seed or 0)


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
    """Return the cases of a level, or those that are passed."""
    if require not in GRADES:
        raise ValueError(f"require must be one of {', '.join(GRADES)}; got {require!r}")
    judged, spec = _load(subject, operation, folder)
    if dtypes:
        judged = replace(judged, dtypes=tuple(dtypes))
    suite = cases or scope(judged, level, seed)
    controls = ControlCases(judged)
    known = None if baseline is None else read_baseline(folder / baseline)
    seed = 0 if cases else seed
    return [
        JudgedCase(judged, each, require, recipe, seed, spec, controls, known, len(suite))
        for each in suite
    ]


def _load(subject: Subject | str, operation: str, folder: Path) -> tuple[Subject, SubjectSpec]:
    """Return a subject, which may be a target string, and its spec."""
    if isinstance(subject, Subject):
        spec = spec_of(subject)._replace(operation=operation)
        return subject.with_operation(operation) if operation else subject, spec
    if not isinstance(subject, str):
        raise TypeError(f"subject must be a Subject or file.py:name, got {subject!r}")
    file, name = file_and_name(subject, folder)
    loaded = load(f"{file}:{name}", operation)
    return loaded, SubjectSpec.of(loaded, file, name, operation)


def to_property(report: Report | None, tests: int) -> str:
    """Return the comparison of one of `tests` cases with the baseline; None for a skipped one."""
    entries: dict[str, Sequence[Known]] = {"found": (), "known": (), "gone": ()}
    if report is not None and report.baseline is not None:
        passing = {(each.dtype, each.output, each.check) for each in report.findings if each.known}
        known = [
            each
            for each in report.baseline.entries
            if (each.dtype, each.output, each.check) in passing
        ]
        gone = report.baseline.vanished
        entries = {"found": entries_of(report), "known": known, "gone": gone}
    lists = {name: [asdict(each) for each in some] for name, some in entries.items()}
    return json.dumps({"tests": tests, **lists})


def summary_lines(properties: Iterable[tuple[str, str]]) -> list[str]:
    """Return known and vanished findings, from the test function and property of each case.

    A finding can have vanished only if all cases of a function were run.
    """
    functions: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for function, text in properties:
        functions[function].append(json.loads(text))
    every = [test for tests in functions.values() for test in tests]
    whole = [test for tests in functions.values() for test in tests if len(tests) == test["tests"]]
    times = Counter(replace(entry, families=()) for entry in _entries(every, "known"))
    known = [f"known     {_text(each)}, in {counted(times[each], 'test')}" for each in times]
    return sorted(known) + [f"vanished  {_text(each)}" for each in _vanished(every, whole)]


def _entries(tests: Iterable[Mapping[str, Any]], name: str) -> Iterator[Known]:
    for test in tests:
        for entry in test[name]:
            yield Known(**{**entry, "families": tuple(entry["families"])})


def _text(entry: Known) -> str:
    return one_line(f"{entry.subject}: {describe_entry(entry)}")


def _vanished(
    every: Sequence[Mapping[str, Any]], whole: Sequence[Mapping[str, Any]]
) -> list[Known]:
    """Return the entries that no test found, with the families in which that is so."""
    found: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for entry in _entries(every, "found"):
        found[key(entry)].update(entry.families or ("",))
    vanished: dict[tuple[str, ...], Known] = {}
    for entry in _entries(whole, "gone"):
        families = found.get(key(entry), set())
        missing = set(entry.families) - families
        if "" not in families and (missing if entry.families else not families):
            before = vanished[key(entry)].families if key(entry) in vanished else ()
            all_families = tuple(sorted(missing.union(before)))
            vanished[key(entry)] = replace(entry, families=all_families)
    return [vanished[entry_key] for entry_key in sorted(vanished)]
