"""The domain of a subject: find the cases in the domain, and describe failures outside it."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from truenorm.verify.grading.consequences import drop_consequences, drop_unclaimed
from truenorm.verify.grading.output_grades import grade_of, kappa_of
from truenorm.verify.grading.report import ACCURACY, GRADES, BeyondDomain, Grade
from truenorm.verify.grading.symptoms import GUARDS, MeasuredResult, Symptom
from truenorm.verify.grading.user_cases import MeasuredRecord
from truenorm.verify.operation import MODEL_INPUT, Case, Domain
from truenorm.verify.user_cases import is_user_case


def split_by_domain(cases: Sequence[Case], domain: Domain) -> tuple[list[Case], list[Case]]:
    """Return the cases within a domain, and the cases outside it."""
    within = [case for case in cases if _is_in_domain(case, domain)]
    return within, [case for case in cases if case not in within]


def _is_in_domain(case: Case, domain: Domain) -> bool:
    """Return True if every row of a case is in a domain; non-finite values have no size.

    Rows of a user case are input of a model, unless the subject declares another domain.
    """
    if domain.is_all or (domain == MODEL_INPUT and is_user_case(case)):
        return True
    return largest_element(case) <= domain.largest and kappa_of(case) <= domain.kappa


def largest_element(case: Case) -> float:
    """Return the largest finite |x| of a case, in any of its data."""
    sizes = [
        np.abs(case.rows[name].astype(np.float64))
        for name in case.operation.inputs_of("data")
        if name not in case.operation.indices
    ]
    return max(float(each[np.isfinite(each)].max(initial=0.0)) for each in sizes)


def check_beyond(
    symptoms: Sequence[Symptom],
    measured: Sequence[MeasuredResult],
    grades: Iterable[Grade],
    require: str,
    domain: Domain,
) -> tuple[BeyondDomain, ...]:
    """Return the failures outside the domain: by type, grade, and the limit that is exceeded.

    `grades` are the grades in the domain. An output that is no worse outside is left out.
    """
    within = {each.type_and_output: each.grade for each in grades}
    groups: dict[tuple[str, str], list[MeasuredResult]] = defaultdict(list)
    for one in measured:
        limit = "kappa" if kappa_of(one.case) > domain.kappa else "|x|"
        if GRADES.index(grade_of([one])) < GRADES.index(require):
            groups[one.case.dtype, limit].append(one)
    beyond: dict[tuple[str, str, str], list[MeasuredResult]] = defaultdict(list)
    for (dtype, limit), group in groups.items():
        for output in dict.fromkeys(one.output for one in group):
            failing = [one for one in group if one.output == output]
            grade = grade_of(failing)
            if GRADES.index(grade) < GRADES.index(within.get((dtype, output), "correct")):
                beyond[dtype, limit, grade] += failing
    entries = []
    for (dtype, limit, grade), failing in beyond.items():
        size = kappa_of if limit == "kappa" else largest_element
        # A case that is only conditional does not show where the output starts to be unstable.
        worst = [one for one in failing if grade_of([one]) == grade] or failing
        entries.append(
            BeyondDomain(
                dtype,
                tuple(dict.fromkeys(one.output for one in failing)),
                grade,
                limit,
                min(size(one.case) for one in worst),
                _values_of(worst, zeros=limit == "|x|"),
                len({one.case.name for one in failing}),
            )
        )
    return (*entries, *_checks_beyond(symptoms))


def _checks_beyond(symptoms: Sequence[Symptom]) -> Iterator[BeyondDomain]:
    """Yield the checks other than accuracy that fail outside the domain, by type."""
    groups: dict[tuple[str, str], list[Symptom]] = defaultdict(list)
    for each in drop_unclaimed(drop_consequences(symptoms), ())[0]:
        if GUARDS[each.guard] != ACCURACY:
            groups[each.case.dtype, GUARDS[each.guard]].append(each)
    for (dtype, verdict), group in groups.items():
        outputs = tuple(dict.fromkeys(each.output for each in group if each.output))
        count = len({each.case.name for each in group})
        yield BeyondDomain(dtype, outputs, verdict, "", 0.0, group[0].text, count)


def _values_of(measured: Iterable[MeasuredResult], *, zeros: bool) -> str:
    """Describe the worst elements that are NaN or infinite, with `zeros` also zero."""
    kinds = set()
    for one in measured:
        if isinstance(one.record, MeasuredRecord):
            value = one.record.measured[one.output].got
        else:
            value = float(np.real(one.result[one.error.at]))
        if (zeros and value == 0) or not math.isfinite(value):
            kinds.add("zeros" if value == 0 else "NaN" if math.isnan(value) else "infinity")
    return " or ".join(sorted(kinds))
