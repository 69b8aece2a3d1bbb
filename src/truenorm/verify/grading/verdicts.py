"""Decide the verdicts beside the grades: pass, fail, warn, or the reason for no judgement."""

from collections.abc import Collection, Mapping, Sequence

from truenorm.verify.calls import (
    AGAIN,
    GRADIENT_LAYOUTS,
    IDLE_ROWS,
    INTERLEAVED,
    LARGE,
    LARGE_FORWARD,
    LATER,
    ROWS,
    TWICE,
)
from truenorm.verify.grading.report import VERDICTS, CaseResult, Finding, TooSlow
from truenorm.verify.grading.symptoms import GUARDS, Symptom
from truenorm.verify.operation import Case
from truenorm.verify.running.records import Record

VERDICT_OF_CALL = {TWICE: "saved kept", LARGE: "large calls", LARGE_FORWARD: "large calls"}
"""By kind of call: the verdict that is not judged if the call was left out."""


def _reasons_not_judged(
    cases: Sequence[Case],
    records: Sequence[Record],
    kinds: Collection[str],
    *,
    in_process: bool,
    too_slow: bool,
) -> dict[str, str]:
    """Return, by verdict, why there is no judgement; an empty text if the records allow one.

    `kinds` are the kinds of cases with a measured result. A call that failed shows nothing. A
    command is a new process each time and has no state.
    """
    done = [record for record in records if not record.failure]
    calls = {record.call.kind for record in done if record.results}
    gradients = {name for case in cases for name in case.operation.outputs_of(backward=True)}
    column_sums = {
        name for case in cases for name in gradients if not case.operation.is_rows(name)
    }
    backward, sums = (
        {record.call.kind for record in done if names & record.results.keys()}
        for names in (gradients, column_sums)
    )
    not_run = "its calls are too slow" if too_slow else "no call for it returned"
    no_backward = not_run if backward else "there is no backward pass"
    no_sums = not_run if sums else "there is no gradient of a parameter"
    a_command = "" if in_process else "each call of a command is a new process"
    reasons = dict.fromkeys(VERDICTS, "" if done else not_run) | {
        "special values": "" if "special" in kinds else "no result for NaN or infinity is known",
        "subnormals kept": "" if "subnormal" in kinds else "no result for subnormals is known",
        "repeatable": "" if AGAIN in calls else not_run,
        "sums repeatable": "" if AGAIN in sums else no_sums,
        "batch-invariant": "" if ROWS in calls else not_run,
        "idle rows": no_sums if sums.isdisjoint(IDLE_ROWS) else "",
        "large calls": "" if LARGE in calls else not_run,
        "results kept": a_command or ("" if LATER in calls else not_run),
        "own state": a_command or ("" if INTERLEAVED in backward else no_backward),
        "saved kept": a_command or ("" if TWICE in backward else no_backward),
    }
    if backward.isdisjoint(GRADIENT_LAYOUTS):
        claim = "it is judged with also=['layouts-of-gradients']"
        reasons["layouts of gradients"] = claim if backward else no_backward
    return reasons


def judge_verdicts(
    cases: Sequence[Case],
    by_case: Mapping[str, Sequence[Record]],
    results: Collection[CaseResult],
    symptoms: Collection[Symptom],
    findings: Collection[Finding],
    *,
    in_process: bool,
    too_slow: Sequence[TooSlow] = (),
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the verdicts by name, and the reasons of verdicts that are not judged.

    `cases` have records and are in the domain, and `results` are their measured results.
    `symptoms` include consequences of other symptoms: a verdict that a symptom decides does not
    pass, even if another finding explains the symptom.
    `too_slow` are the calls that were left out.
    """
    records = [each for case in cases for each in by_case[case.name]]
    kinds = {each.kind for each in results}
    reasons = _reasons_not_judged(
        cases, records, kinds, in_process=in_process, too_slow=bool(too_slow)
    )
    failing = {GUARDS[each.guard] for each in symptoms}
    reasons |= dict.fromkeys(failing & reasons.keys(), "a finding explains what it shows")
    verdicts = {name: "not judged" if reason else "pass" for name, reason in reasons.items()}
    failed = {each.verdict: "warn" if each.warning else "fail" for each in findings}
    verdicts |= {name: outcome for name, outcome in failed.items() if name in verdicts}
    return verdicts, {name: reasons[name] for name in reasons if verdicts[name] == "not judged"}


def reasons_left_out(by_case: Mapping[str, Sequence[Record]]) -> dict[str, str]:
    """Return, by verdict, why calls that decide it were left out."""
    records = (each for group in by_case.values() for each in group)
    return {VERDICT_OF_CALL[each.call.kind]: each.left_out for each in records if each.left_out}
