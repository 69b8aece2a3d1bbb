"""Grade a subject: from the records of all cases to a report.

`grade` calls the stages in order:

1. `check_all` checks every case (`checks`).
2. `drop_consequences` and `drop_unclaimed` leave out symptoms that follow from other ones.
3. `grade_outputs` grades each output in each type.
4. `with_rounding` and `identify_roundings` find results that are rounded otherwise than required.
5. `diagnose_all` finds the likely cause of each symptom.
6. `make_findings` and `judge_verdicts` write findings and verdicts.
7. `check_beyond` describes what fails outside the domain.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from truenorm.tools.arguments import require_choice
from truenorm.verify.grading.checks import check_case, relax_sums
from truenorm.verify.grading.consequences import (
    claims_of,
    drop_consequences,
    drop_unclaimed,
)
from truenorm.verify.grading.diagnoses import Diagnoses, diagnose_all
from truenorm.verify.grading.domain import check_beyond, split_by_domain
from truenorm.verify.grading.findings import make_findings
from truenorm.verify.grading.not_judged import (
    find_refusals,
    find_too_slow,
    is_too_slow,
    without_refused,
)
from truenorm.verify.grading.output_grades import case_result, grade_outputs
from truenorm.verify.grading.report import ACCURACY, BATCH, GRADES, CaseResult, Report
from truenorm.verify.grading.roundings import identify_roundings, rounding_symptoms
from truenorm.verify.grading.symptoms import GUARDS, MeasuredResult, Symptom
from truenorm.verify.grading.user_cases import check_user_case
from truenorm.verify.grading.verdicts import judge_verdicts, reasons_left_out
from truenorm.verify.operation import EVERYWHERE, Case, Domain
from truenorm.verify.running.records import Record
from truenorm.verify.subject import SubjectSpec
from truenorm.verify.user_cases import is_user_case

NOWHERE = SubjectSpec()


class Checked(NamedTuple):
    """The symptoms and the measured results of some cases, and their entries in the report."""

    symptoms: list[Symptom]
    measured: list[MeasuredResult]
    results: list[CaseResult]

    def of(self, cases: Iterable[Case]) -> "Checked":
        """Return the symptoms and results of some of the cases."""
        names = {case.name for case in cases}
        return Checked(
            [each for each in self.symptoms if each.case.name in names],
            [each for each in self.measured if each.case.name in names],
            [each for each in self.results if each.case in names],
        )


def grade(
    subject: str,
    cases: Sequence[Case],
    records: Sequence[Record],
    *,
    outputs: Sequence[str] = (),
    require: str = "stable",
    level: str = "quick",
    spec: SubjectSpec = NOWHERE,
    recipe: str = "",
    domain: Domain = EVERYWHERE,
    strict: bool = True,
    causes: bool = True,
    batch: str = "require",
) -> Report:
    """Grade the results of a subject.

    The `records` of the calls may have any order. `outputs` are by default all outputs of the
    operation. `spec` says where the subject is defined, for the reproducers. Cases outside
    `domain` have no grades.
    Unless `strict`, a sum over n rows may have log2(n) times the error of a stable result.
    Without `causes`, which may take seconds, findings have no diagnosis. If `batch` is "warn",
    results that depend on the batch are a warning.
    """
    require_choice("require", require, GRADES)
    require_choice("batch", batch, BATCH)
    operation = cases[0].operation
    outputs = outputs or [each.name for each in operation.outputs]
    by_case = records_by_case(records)
    refusals = find_refusals(cases, by_case)
    cases = without_refused(cases, refusals)
    within, beyond = split_by_domain(cases, domain)
    run = [case for case in within if by_case[case.name]]
    too_slow = find_too_slow(within, {case.name for case in run}, records)

    every = check_all(cases, by_case, outputs, strict=strict)
    inside, outside = every.of(within), every.of(beyond)
    shown = [*inside.symptoms, *(each.symptom for each in refusals)]
    symptoms, notes = drop_unclaimed(drop_consequences(shown), claims_of(within))
    grades = grade_outputs(run, inside.results, every.results, outputs, symptoms)
    below = {each.type_and_output for each in grades if not each.reaches(require)}
    symptoms = with_rounding(symptoms, inside.measured, below)
    roundings = identify_roundings(inside.measured, grades)
    symptoms += roundings.symptoms(inside.measured, below, recipe)
    diagnoses: Diagnoses = {}
    if causes:
        diagnoses = diagnose_all(symptoms, every.measured, run, by_case, roundings.recipes)
    not_run = len(within) - len(run) - sum(each.cases for each in too_slow)
    spec = spec._replace(recipe=recipe)
    findings = make_findings(symptoms, grades, spec, not_run, diagnoses, batch)
    verdicts, reasons = judge_verdicts(
        run, by_case, inside.results, shown, findings, in_process=spec.callable, too_slow=too_slow
    )
    notes = reasons | notes | reasons_left_out(by_case)

    return Report(
        subject,
        level,
        require,
        grades,
        verdicts,
        findings,
        tuple(inside.results),
        len(run),
        sum(record.seconds for record in records),
        recipes=roundings.recipes,
        backward_recipes=roundings.backward_recipes,
        quantization=roundings.quantization,
        notes=notes,
        domain=domain,
        left_out=len(beyond),
        beyond=check_beyond(outside.symptoms, outside.measured, grades, require, domain),
        results_beyond=tuple(outside.results),
        strict=strict,
        not_run=not_run,
        unsupported=tuple(each.outcome for each in refusals),
        too_slow=too_slow,
        recipe=recipe,
        batch=batch,
        operation=operation,
    )


def records_by_case(records: Iterable[Record]) -> Mapping[str, list[Record]]:
    """Return the records of each case by its name, without calls that are too slow to make."""
    by_case: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if not is_too_slow(record):
            by_case[record.case].append(record)
    return by_case


def check_all(
    cases: Iterable[Case],
    by_case: Mapping[str, Sequence[Record]],
    outputs: Collection[str],
    *,
    strict: bool,
) -> Checked:
    """Run the checks on every case, in the domain or not."""
    symptoms: list[Symptom] = []
    measured: list[MeasuredResult] = []
    for case in cases:
        records = by_case[case.name]
        if is_user_case(case):
            more_symptoms, more_measured = check_user_case(case, records, outputs)
        else:
            more_symptoms, more_measured = check_case(case, records, outputs)
        symptoms += more_symptoms
        measured += more_measured
    if not strict:
        symptoms, measured = relax_sums(symptoms, measured)
    return Checked(symptoms, measured, [case_result(one) for one in measured])


def with_rounding(
    symptoms: Sequence[Symptom],
    measured: Iterable[MeasuredResult],
    below: Collection[tuple[str, str]],
) -> list[Symptom]:
    """Return the symptoms that count for the required grade.

    Inaccuracy counts where a type and an output are `below` it. Where no symptom says why, the
    results are not rounded as the grade requires.
    """
    counting = [
        each
        for each in symptoms
        if GUARDS[each.guard] != ACCURACY or each.type_and_output in below
    ]
    return counting + rounding_symptoms(
        measured, {*below} - {each.type_and_output for each in counting}
    )
