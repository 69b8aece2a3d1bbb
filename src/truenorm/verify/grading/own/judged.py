"""What is wrong with a case: by its exact answers, or by what was measured while it was run."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from truenorm.verify.grading.guards import Judged, Symptom, conduct, inaccurate, judge_case
from truenorm.verify.grading.own.measured import MeasuredRecord
from truenorm.verify.operation import Case
from truenorm.verify.own.cases import is_own
from truenorm.verify.runs.calls import Record

__all__ = ["judge_any"]


def judge_any(
    case: Case, records: Collection[Record], outputs: Collection[str], *, finite: bool = True
) -> tuple[list[Symptom], list[Judged]]:
    """Hold all records of a case against its answers: see `judge_case`."""
    if not is_own(case):
        return judge_case(case, records, outputs, finite=finite)
    symptoms: list[Symptom] = []
    judged: list[Judged] = []
    for record in records:
        symptoms += conduct(case, record)
        if not isinstance(record, MeasuredRecord):
            continue
        for guard, output, text in record.seen:
            if output in outputs:
                symptoms.append(Symptom(guard, case, record, output, text))
        for output, found in record.measured.items():
            if output in outputs:
                one = Judged(case, record, output, np.empty(0), found.error)
                judged.append(one)
                if found.error.needs:
                    symptom = inaccurate(one, found.got, found.right)
                    symptoms.append(replace(symptom, right=found.right, allowed=found.allowed))
    return symptoms, judged
