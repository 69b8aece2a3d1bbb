"""What a fingerprint keeps of a report and of its records.

This file alone reads reports and records. It is the guard of a judge that is being rebuilt: adapt
it to the names of the new judge, and keep what it projects.
"""

import hashlib
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

NO_CAUSE = "-"
ADDRESS = re.compile(r"0x[0-9a-f]{6,}|\b\d+(\.\d+)? s\b|/[\w./-]+/")
"""Addresses, seconds and folders in the message of a failed call."""
DIGITS = 2
"""Characters of base64 in a hash: 12 bits of the records of a case, and 12 of its errors."""


class Fingerprint(NamedTuple):
    """The projection of one report: text that is equal in each run of the same judge.

    `cases` has by case the hash of its calls and of their results, then that of the measured
    errors. `words` are the sentences of the causes, which may change where nothing else does.
    """

    kernel: str
    verdict: str
    grades: tuple[str, ...]
    findings: tuple[str, ...]
    facts: tuple[str, ...]
    cases: Mapping[str, str]
    words: tuple[str, ...]


def fingerprint(kernel: str, report: Any, records: Iterable[Any]) -> Fingerprint:
    """Return the projection of a report, and of the records that it is made from."""
    states: dict[str, list[str]] = defaultdict(list)
    for name, state in sorted(report.verdicts.items()):
        if state != "pass":
            states[state].append(name)
    checks = [f"{state}: {', '.join(states[state])}" for state in sorted(states)]
    results, measured = _of_records(records), _of_errors(report)
    cases = {
        name: _short(results.get(name, [])) + _short(measured.get(name, []))
        for name in sorted({*results, *measured})
    }
    if "fail" in (report.verdicts["repeatable"], report.verdicts["sums repeatable"]):
        # The bits of such a kernel, and so its errors, differ from run to run.
        cases = dict.fromkeys(cases, "*" * 2 * DIGITS)
    return Fingerprint(
        kernel,
        "; ".join(["PASS" if report.passed else "FAIL", *checks]),
        tuple(sorted(f"{each.dtype} {each.output} {each.grade}" for each in report.grades)),
        tuple(sorted(map(_finding, report.findings))),
        tuple(sorted(_facts(report))),
        cases,
        tuple(sorted({f"{each.output}: {each.cause}" for each in report.findings if each.cause})),
    )


def cause_id(finding: Any) -> str:
    """Return the ids of the causes of a finding: the one place that reads them."""
    return ", ".join(each.id for each in finding.causes) or NO_CAUSE


def _finding(finding: Any) -> str:
    """Return output, check, cause and case."""
    check = f"{finding.guard}, a warning" if finding.warning else finding.guard
    return " | ".join((finding.output or "call", check, cause_id(finding), finding.case))


def _facts(report: Any) -> Iterable[str]:
    """Yield what a report says beside grades and findings: recipes, scales, other domains."""
    for each in (*report.recipes, *report.backward_recipes):
        yield f"recipe {each.dtype} {each.output}: {each.full_name or 'none'}"
    for each in report.quantization:
        yield f"quantized {each.dtype}: scale {each.scale}, floor {each.floor}"
    for each in report.beyond:
        where = f"{each.limit} {each.least:.6g}" if each.limit else "a check"
        yield f"beyond {each.dtype} {','.join(each.outputs)}: {each.outcome}, {where}"
    for each in report.unsupported:
        yield f"refuses {each.dtype} {','.join(map(str, each.eps))}"
    if report.not_run or report.too_slow:
        yield f"not run: {report.not_run} and {sum(each.cases for each in report.too_slow)} cases"


def _of_records(records: Iterable[Any]) -> dict[str, list[bytes]]:
    """Return by case the calls and the bits of their results; times are left out."""
    by_case: dict[str, list[bytes]] = defaultdict(list)
    for record in records:
        # A call may be left out for the time that it would take, which is no property of a kernel.
        failure = "left out" if record.left_out else ADDRESS.sub("", record.failure)
        text = f"{record.call}|{sorted(record.damaged)}|{sorted(record.holds.items())}|{failure}"
        by_case[record.case].append(text.encode())
        for name, result in sorted(record.results.items()):
            bits = b"" if result is None else np.ascontiguousarray(result).tobytes()
            kind = "none" if result is None else f"{result.dtype} {result.shape}"
            by_case[record.case].append(f"{name} {kind}".encode() + bits)
    return by_case


def _of_errors(report: Any) -> dict[str, list[bytes]]:
    """Return by case the measured errors of its outputs."""
    by_case: dict[str, list[bytes]] = defaultdict(list)
    for each in (*report.results, *report.results_beyond):
        numbers = f"{each.ulp:.9g} {each.natural:.9g} {each.needs} {each.correct}"
        by_case[each.case].append(f"{each.output} {numbers}".encode())
    return by_case


def _short(parts: Iterable[bytes]) -> str:
    """Return the hash of some parts, independent of their order: `DIGITS` characters."""
    digest = hashlib.sha256()
    for part in sorted(hashlib.sha256(part).digest() for part in parts):
        digest.update(part)
    return b64encode(digest.digest()).decode()[:DIGITS]
