"""The tests of ``@pytest.mark.truenorm``: one for each verdict and output of a type."""

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from truenorm.pytest_plugin import PROPERTY
from truenorm.tools.arguments import require_choice
from truenorm.tools.text import counted, one_line
from truenorm.verify.baseline import compare_with_baseline, read_baseline
from truenorm.verify.collecting import collect
from truenorm.verify.grading.report import ACCURACY, BATCH, GRADES, Finding, Known, Report
from truenorm.verify.grading.symptoms import GUARDS
from truenorm.verify.judge import grade_records, scope, spec_of
from truenorm.verify.operation import Case
from truenorm.verify.report.wording import (
    conclusion,
    describe_entry,
    likely_cause,
    link,
    location,
)
from truenorm.verify.running.loading import load_with_spec
from truenorm.verify.running.process import SubjectProcess
from truenorm.verify.running.records import CannotRunError, Runner
from truenorm.verify.running.runners import runner_for
from truenorm.verify.subject import Subject, SubjectSpec
from truenorm.verify.time_limit import SECONDS

RULE = "-" * 80
RUNS, RECIPE = "runs", "recipe"
OF_ONE_OUTPUT = {"floor": "scale", "biased": "sum"}
"""Checks that are about one result, which not every operation has."""


@dataclass(frozen=True, eq=False)
class Judgement:
    """A subject in one type, which is judged once for all of its tests.

    It runs in a process of its own if `apart`. `known` has the entries of the baseline, if there
    is one.
    """

    subject: Subject
    suite: Sequence[Case]
    spec: SubjectSpec
    apart: bool
    require: str
    recipe: str
    strict: bool
    level: str
    seed: int
    known: tuple[Known, ...] | None
    batch: str = "require"
    time: float = SECONDS

    @cached_property
    def report(self) -> Report:
        """The report, compared with the baseline."""
        with self._runner() as runner:
            records = collect(runner, self.suite, seconds=self.time)
        report = grade_records(
            self.subject,
            self.suite,
            records,
            self.spec,
            require=self.require,
            recipe=self.recipe,
            level=self.level,
            domain=self.subject.required_domain(strict=self.strict),
            strict=self.strict,
            batch=self.batch,
        )
        return report if self.known is None else compare_with_baseline(report, self.known)

    def _runner(self) -> AbstractContextManager[Runner]:
        if not self.apart:
            return nullcontext(runner_for(self.subject))
        return SubjectProcess(
            self.spec.target, operation=self.spec.operation, dtypes=self.subject.dtypes
        )


@dataclass(frozen=True)
class JudgedVerdict:
    """One verdict on a subject in one type: ``truenorm_case`` in a test.

    `output` is the output whose accuracy is judged, else empty. `properties` are user properties
    of the test report: the comparison with the baseline, as JSON, for the first test that judges.
    """

    judgement: Judgement
    dtype: str
    verdict: str
    output: str = ""
    properties: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the name, which is in brackets in the name of the test."""
        words = [self.dtype, self.verdict, *([self.output] if self.output else [])]
        return "-".join(words).replace(" ", "-")

    @property
    def subject(self) -> Subject:
        """The kernel under test."""
        return self.judgement.subject

    def report(self) -> Report:
        """Judge the subject, unless another test has, and return the report of all cases."""
        first = "report" not in vars(self.judgement)
        report = self.judgement.report
        if first and report.baseline is not None:
            self.properties.append((PROPERTY, to_property(report)))
        return report

    def check(self) -> None:
        """Fail with symptom, likely cause and reproducer; skip a verdict that is not judged.

        A finding that is a warning is one of Python.
        """
        __tracebackhide__ = True
        # No traceback: its frames would be those of truenorm.
        try:
            report = self.report()
        except CannotRunError as error:
            if self.verdict == RUNS:
                pytest.fail(str(error), pytrace=False)
            pytest.skip("the subject could not be run")
        if new := list(filter(self._shows, report.failures)):
            pytest.fail(self._message(report, new), pytrace=False)
        if new := list(filter(self._shows, report.warnings)):
            warnings.warn(self._message(report, new), stacklevel=2)
        if self.verdict == ACCURACY:
            self._check_grade(report)
        elif self.verdict == RUNS and not report.grades:
            pytest.fail(conclusion(report), pytrace=False)
        elif report.verdicts.get(self.verdict) == "not judged":
            pytest.skip(f"not judged: {report.explained(self.verdict)}")

    def _check_grade(self, report: Report) -> None:
        __tracebackhide__ = True
        grades = [each for each in report.grades if each.output == self.output]
        if all(map(report.accepts, grades)):
            return
        if not any(each.output == self.output for each in report.results):
            pytest.skip(f"{self.output} has no result to grade")
        pytest.fail(conclusion(report), pytrace=False)

    def _shows(self, finding: Finding) -> bool:
        of_output = self.verdict != ACCURACY or finding.output == self.output
        return finding.verdict == self.verdict and of_output

    def _message(self, report: Report, findings: Sequence[Finding]) -> str:
        """Return the message of a failure: the first symptom, then labelled lines."""
        lines = [findings[0].symptom, "", _line("in", self.subject.name)]
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
        if self.judgement.seed:
            lines += ["", _line("again", f"pytest --truenorm-seed {self.judgement.seed}")]
        return "\n".join([*lines, RULE, findings[0].reproducer.rstrip(), RULE])


def _line(label: str, text: str) -> str:
    return f"{label:>12}  {text}".rstrip()


def judged_verdicts(
    marker: pytest.Mark, file: Path, *, level: str | None, seed: int | None
) -> list[JudgedVerdict]:
    """Return the tests of a marker; `level` and `seed` are options of the command line."""
    options = {**marker.kwargs, "level": level} if level else marker.kwargs
    judgements = _judgements(*marker.args, **options, folder=file.parent, seed=seed or 0)
    return [test for each in judgements for test in _tests(each)]


def _tests(judgement: Judgement) -> Iterator[JudgedVerdict]:
    (dtype,) = judgement.subject.dtypes
    verdicts = dict.fromkeys(GUARDS.values())
    if not (judgement.recipe or judgement.subject.recipe):
        del verdicts[RECIPE]
    for guard, output in OF_ONE_OUTPUT.items():
        if output not in judgement.subject.outputs:
            del verdicts[GUARDS[guard]]
    for verdict in verdicts:
        if verdict != ACCURACY:
            yield JudgedVerdict(judgement, dtype, verdict)
            continue
        for output in judgement.subject.outputs:
            yield JudgedVerdict(judgement, dtype, verdict, output)


def _judgements(
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
    batch: str = "require",
    time: float = SECONDS,
    folder: Path,
    seed: int,
) -> Iterator[Judgement]:
    """Yield the judgement of each type, on the cases of a level or on those of the marker."""
    require_choice("require", require, GRADES)
    require_choice("batch", batch, BATCH)
    judged, spec = _load(subject, operation, folder)
    known = None if baseline is None else read_baseline(folder / baseline)
    types = dtypes or list(dict.fromkeys(case.dtype for case in cases)) or judged.dtypes
    judged = replace(judged, dtypes=tuple(types))
    for dtype in judged.dtypes:
        of_type = replace(judged, dtypes=(dtype,))
        suite = [case for case in cases if case.dtype == dtype] or scope(of_type, level, seed)
        yield Judgement(
            of_type,
            suite,
            spec,
            apart=isinstance(subject, str),
            require=require,
            recipe=recipe,
            strict=strict,
            level=level,
            seed=0 if cases else seed,
            known=known,
            batch=batch,
            time=time,
        )


def _load(subject: Subject | str, operation: str, folder: Path) -> tuple[Subject, SubjectSpec]:
    """Return a subject, which may be a target string, and its spec."""
    if isinstance(subject, Subject):
        spec = spec_of(subject)._replace(operation=operation)
        return subject.with_operation(operation) if operation else subject, spec
    if not isinstance(subject, str):
        raise TypeError(f"subject must be a Subject or file.py:name, got {subject!r}")
    return load_with_spec(subject, operation, folder=folder)


def to_property(report: Report) -> str:
    """Return the known and the vanished findings of a report as JSON."""
    assert report.baseline is not None
    passing = {(each.dtype, each.output, each.check) for each in report.findings if each.known}
    entries = {
        "known": [
            each
            for each in report.baseline.entries
            if (each.dtype, each.output, each.check) in passing
        ],
        "vanished": report.baseline.vanished,
    }
    return json.dumps({name: [asdict(each) for each in some] for name, some in entries.items()})


def summary_lines(properties: Iterable[str]) -> list[str]:
    """Return a line for each known and each vanished finding; workers may report one twice."""
    reports = [json.loads(text) for text in dict.fromkeys(properties)]
    return sorted({*_lines(reports, "known"), *_lines(reports, "vanished")})


def _lines(reports: Iterable[Mapping[str, Any]], name: str) -> Iterator[str]:
    for report in reports:
        for entry in report[name]:
            families = tuple(entry["families"]) if name == "vanished" else ()
            known = Known(**{**entry, "families": families})
            yield f"{name:<9} {one_line(f'{known.subject}: {describe_entry(known)}')}"
