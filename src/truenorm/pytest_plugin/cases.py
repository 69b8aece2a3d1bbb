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
from truenorm.verify.grading.report import GRADES, Known, Report
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
"""The largest size of a control case: small cases run quickly, and refute most hypotheses."""
CONTROL_FAMILIES = (
    *("normal", "padding", "large-scale", "small-scale"),
    *("spread-of-eps", "large-eps"),
)
"""Ordinary rows, and rows of another magnitude or with another eps."""
RULE = "-" * 80


class ControlCases:
    """Small cases of a subject that the diagnosis of another, failed case must explain as well.

    In a single case most hypotheses fit: a result of zeros can have many causes.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._by_dtype: dict[str, tuple[list[Case], list[Record]]] = {}

    def without(self, case: Case) -> tuple[list[Case], list[Record]]:
        """Return the other control cases of the same type, and their records."""
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

    `known` has the entries of the baseline, if there is one, and `tests` is the number of cases of
    the marker. `properties` are user properties of the test report: the comparison with the
    baseline, as JSON.
    """

    subject: Subject
    case: Case
    require: str
    recipe: str
    strict: bool
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
            cause, tried = causes.get((each.verdict, each.dtype, each.output), ("", 0))
            findings.append(replace(each, cause=cause, tried=tried))
        return replace(report, findings=tuple(findings))

    def _grade(self, suite: Sequence[Case], records: Sequence[Record]) -> Report:
        return grade_records(
            self.subject,
            suite,
            records,
            self.spec,
            require=self.require,
            recipe=self.recipe,
            strict=self.strict,
        )

    def check(self) -> None:
        """Fail with symptom, likely cause and reproducer; skip a case outside the domain."""
        __tracebackhide__ = True
        domain = self.subject.required_domain(strict=self.strict)
        if split_by_domain([self.case], domain)[1]:
            if self.known is not None:
                self._set_property()
            pytest.skip(f"outside the domain of {self.subject.name}: {domain}")
        report = self.report()
        if not report.passed:
            # No traceback: its frames would be those of truenorm.
            pytest.fail(self._message(report), pytrace=False)

    def _message(self, report: Report) -> str:
        """Return the message of a failure: the first symptom, then labelled lines."""
        new = [each for each in report.findings if not each.known]
        lines = [new[0].symptom if new else conclusion(report), ""]
        lines += [_line("in", self.subject.name)]
        lines += [_line("case", f"{self.case.name}: {self.case.why}")]
        for position, finding in enumerate(new):
            lines += ["", _line("and", finding.symptom)] if position else []
            texts = {"new": finding.new, "likely cause": likely_cause(finding)}
            lines += [_line(label, text) for label, text in texts.items() if text]
            lines += [_line("seen", f"{each} {link(each)}") for each in finding.sources]
        if self.seed:
            lines += ["", _line("again", f"pytest --truenorm-seed {self.seed}")]
        lines += [RULE, new[0].reproducer.rstrip(), RULE] if new else []
        return "\n".join(lines)


def _line(label: str, text: str) -> str:
    return f"{label:>12}  {text}".rstrip()


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
    strict: bool = False,
    level: str = "quick",
    dtypes: Sequence[str] = (),
    cases: Sequence[Case] = (),
    baseline: str | Path | None = None,
    folder: Path,
    seed: int,
) -> list[JudgedCase]:
    """Return the cases of a level, or those of the marker's argument `cases`."""
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
        JudgedCase(judged, each, require, recipe, strict, seed, spec, controls, known, len(suite))
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
    """Return the comparison with the baseline as JSON; `report` is None for a skipped case."""
    entries: dict[str, Sequence[Known]] = {"findings": (), "known": (), "vanished": ()}
    if report is not None and report.baseline is not None:
        passing = {(each.dtype, each.output, each.check) for each in report.findings if each.known}
        known = [
            each
            for each in report.baseline.entries
            if (each.dtype, each.output, each.check) in passing
        ]
        vanished = report.baseline.vanished
        entries = {"findings": entries_of(report), "known": known, "vanished": vanished}
    lists = {name: [asdict(each) for each in some] for name, some in entries.items()}
    return json.dumps({"tests": tests, **lists})


def summary_lines(properties: Iterable[tuple[str, str]]) -> list[str]:
    """Return known and vanished findings, from pairs of a test function and a property.

    A finding can have vanished only if all cases of its test function were run.
    """
    functions: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for function, text in properties:
        functions[function].append(json.loads(text))
    groups = functions.values()
    tests = [test for group in groups for test in group]
    complete = [test for group in groups for test in group if len(group) == test["tests"]]
    counts = Counter(replace(entry, families=()) for entry in _entries(tests, "known"))
    known = [f"known     {_text(each)}, in {counted(counts[each], 'test')}" for each in counts]
    return sorted(known) + [f"vanished  {_text(each)}" for each in _vanished(tests, complete)]


def _entries(tests: Iterable[Mapping[str, Any]], name: str) -> Iterator[Known]:
    for test in tests:
        for entry in test[name]:
            yield Known(**{**entry, "families": tuple(entry["families"])})


def _text(entry: Known) -> str:
    return one_line(f"{entry.subject}: {describe_entry(entry)}")


def _vanished(
    tests: Sequence[Mapping[str, Any]], complete: Sequence[Mapping[str, Any]]
) -> list[Known]:
    """Return the entries without a finding, each with the families in which it has vanished."""
    failing: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for entry in _entries(tests, "findings"):
        failing[key(entry)].update(entry.families or ("",))
    vanished: dict[tuple[str, ...], Known] = {}
    for entry in _entries(complete, "vanished"):
        families = failing[key(entry)]
        missing = set(entry.families) - families
        if "" not in families and (missing if entry.families else not families):
            before = vanished[key(entry)].families if key(entry) in vanished else ()
            vanished[key(entry)] = replace(entry, families=tuple(sorted(missing.union(before))))
    return [vanished[entry_key] for entry_key in sorted(vanished)]
