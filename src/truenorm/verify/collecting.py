"""Collect records: run every case with its calls, in this process or another.

`run_alone` runs cases of unexplained findings again, each in a new process.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from functools import partial

from truenorm.tools.progress import Progress
from truenorm.verify.calls import ALONE, FEW_ELEMENTS, Call, calls_of
from truenorm.verify.causes import depends_on_calls
from truenorm.verify.grading.checks import check_case
from truenorm.verify.grading.large_calls import large_call
from truenorm.verify.grading.report import Finding
from truenorm.verify.grading.user_cases import run_user_case
from truenorm.verify.operation import Case
from truenorm.verify.oracle import (
    EXPECTED_BY_CASE,
    expected,
    remember,
)
from truenorm.verify.running.array_functions import TRIAL_SHAPE
from truenorm.verify.running.process import MAX_DEATHS, SubjectProcess
from truenorm.verify.running.records import GaveUpError, Record, Runner
from truenorm.verify.time_limit import WithinLimit
from truenorm.verify.user_cases import (
    is_user_case,
)
from truenorm.verify.workers import answers_by

MOST_ANSWERS = 3000
"""Answers of earlier runs in memory: answers of all operations at the full level are gigabytes."""
WRONG = ("ordinary", "finite")
"""Checks of results that no condition number explains."""
MOST_ALONE = 2
"""Cases that are run alone: each one starts a process."""


def hold_answers(suite: Sequence[Case], progress: Progress | None, jobs: int = 1) -> None:
    """Compute the exact answers that are not in memory yet, by `jobs` processes if above 1.

    Answers are computed before the first call, since a subject may set the processor to flush
    subnormal numbers to zero. More than `MOST_ANSWERS` answers of earlier runs are dropped.
    """
    tell = progress or (lambda *_: None)
    of_suite = [case for case in suite if not (is_user_case(case) or case.compared)]
    if len(EXPECTED_BY_CASE) > MOST_ANSWERS and not EXPECTED_BY_CASE.keys() >= {*of_suite}:
        EXPECTED_BY_CASE.clear()
    missing = [case for case in of_suite if case not in EXPECTED_BY_CASE]
    if jobs > 1 and missing:
        tell(0, 2 * len(suite), f"exact answers: waiting for {jobs} processes")
        for done, (case, exact) in enumerate(answers_by(jobs, missing)):
            tell(done, 2 * len(suite), f"exact answers: {case.name}")
            remember(case, exact)
        return
    for done, case in enumerate(missing):
        tell(done, 2 * len(suite), f"exact answers: {case.name}")
        expected(case)


def collect(
    runner: Runner,
    suite: Sequence[Case],
    progress: Progress | None = None,
    *,
    seconds: float = math.inf,
    jobs: int = 1,
) -> list[Record]:
    """Run the calls of each case and return the records, up to where the subject is given up.

    If the calls would take longer than `seconds`, some are left out. `jobs` processes compute
    exact answers.
    """
    hold_answers(suite, progress, jobs)
    steps = 2 * len(suite)
    tell = progress or (lambda *_: None)
    records: list[Record] = []
    runner = limited = WithinLimit(runner, suite, seconds)
    for done, case in enumerate(limited.cases(), start=len(suite)):
        tell(done, steps, case.name)
        try:
            if is_user_case(case):
                tell_step = partial(_tell_step, tell, done, steps, case.name)
                records += run_user_case(runner, case, tell_step)
            else:
                records += records_of(runner, case)
        except GaveUpError:
            return records
    tell(steps, steps, "grading")
    return records


def _tell_step(tell: Progress, done: int, steps: int, name: str, step: str) -> None:
    tell(done, steps, f"{name}: {step}")


def records_of(runner: Runner, case: Case) -> Iterator[Record]:
    """Yield the record of each call of a case; after a failure, no other call is made."""
    plain = None
    for call in calls_of(case):
        record = runner.run(case, call)
        yield record
        if record.failure:
            return
        plain = plain or record
    if case.family == "large" and plain is not None:
        yield from large_call(runner, case, plain)


def run_alone(
    process: SubjectProcess,
    suite: Sequence[Case],
    records: Sequence[Record],
    findings: Collection[Finding],
) -> list[Record]:
    """Run cases of findings without a matching hypothesis again, each in a new process.

    Return the records whose results are right in a new process: elsewhere the results depend on
    earlier calls. Loading a function calls it with `TRIAL_SHAPE`, so cases of that width are left
    out.
    """
    unexplained = {
        (each.dtype, each.output)
        for each in findings
        if each.guard in WRONG and not each.matched and not depends_on_calls(each.causes)
    }
    alone: list[Record] = []
    tried = 0
    for case in suite:
        if not unexplained or tried == MOST_ALONE or process.deaths >= MAX_DEATHS:
            break
        if is_user_case(case) or case.kind != "ordinary" or case.shape[1] == TRIAL_SHAPE[1]:
            continue
        if math.prod(case.shape) <= FEW_ELEMENTS:
            of_case = [record for record in records if record.case == case.name]
            symptoms, _ = check_case(case, of_case, process.subject.outputs)
            wrong = {each.type_and_output for each in symptoms if each.guard in WRONG}
            if wrong & unexplained:
                unexplained -= wrong
                tried += 1
                with process.another() as other:
                    record = other.run(case, Call(ALONE))
                symptoms, _ = check_case(case, [*of_case, record], process.subject.outputs)
                if any(each.guard == "history" for each in symptoms):
                    alone.append(record)
    return alone
