"""``python -m benchmarks.campaign``: our own operations on cases that nobody has seen.

Layer norm and RMSNorm in both backends and all types, each on so many cases, and every element
must be correctly rounded. Cases are judged by processes, ``--jobs`` of them. It writes
results/campaign.json and docs/campaign-table.md; ``--page`` writes the table anew, from a file
that was written before.
"""
# ruff: noqa: T201
# A command prints its result.

import argparse
import json
import sys
from collections.abc import Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks import campaign_subjects
from benchmarks.pages import markdown_table
from benchmarks.timing import heading, machine
from truenorm.tools import strict_json
from truenorm.tools.progress import status_line
from truenorm.tools.text import duration
from truenorm.verify import Campaign, campaign

__all__ = ["PAGE", "RESULTS", "page"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "campaign.json"
PAGE = ROOT / "docs" / "campaign-table.md"
HEAD = """\
<!-- Written by python -m benchmarks.campaign from benchmarks/results/campaign.json. -->

{date}, {cpu}, {cores} cores, Python {python}, NumPy {numpy}: {cases} cases each,
seeds from {seed} on, by {jobs} processes. An element is wrong if it is not correctly rounded.
*Answers* are the exact ones: rows that a case repeats have one, and each of their elements is
compared with it. *Time* is by the clock, at a low priority beside other work."""


def arguments_of(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.campaign", description="Judge our own operations on many cases."
    )
    described.add_argument("--cases", type=int, default=1600, help="of each operation and backend")
    described.add_argument("--seed", type=int, default=1)
    described.add_argument("--jobs", type=int, default=2, help="processes")
    described.add_argument("--output", type=Path, default=RESULTS, help="the JSON file to write")
    described.add_argument(
        "--page", action="store_true", help="judge nothing: write the table from --output"
    )
    return described.parse_args(argv)


def judged(name: str, cases: int, seed: int, executor: Executor) -> Campaign:
    """Judge a subject, and say how far that is."""

    def tell(done: int, total: int, what: str) -> None:
        status_line(f"{name}: {done}/{total}, {what}")

    subject = getattr(campaign_subjects, name)
    return campaign(subject, cases, seed=seed, require="correct", progress=tell, executor=executor)


def entry(found: Campaign) -> dict[str, Any]:
    """Return what the file says of a campaign."""
    return {
        "subject": found.subject,
        "cases": found.cases,
        "not_run": found.not_run,
        "elements": found.elements,
        "answers": found.answers,
        "wrong": found.wrong,
        "failed": found.failed,
        "seconds": round(found.seconds, 1),
        "results": [asdict(each) for each in found.results],
        "findings": [each.symptom for each in found.findings],
    }


def page(report: Mapping[str, Any]) -> str:
    """Return the whole file."""
    rows = [
        [
            each["subject"],
            *(f"{each[name]:,}" for name in ("cases", "elements", "answers", "wrong")),
            duration(each["seconds"]),
        ]
        for each in [*report["campaigns"], report["total"]]
    ]
    told = HEAD.format(**{**report["machine"], **report["drawn"]})
    head = ["", "cases", "elements", "answers", "wrong", "time"]
    return f"{told}\n\n{markdown_table(head, rows)}\n"


def main(argv: list[str] | None = None) -> int:
    """Judge, save and print."""
    arguments = arguments_of(argv)
    if not arguments.page:
        context = get_context("spawn")
        with ProcessPoolExecutor(arguments.jobs, mp_context=context) as executor:
            found = [
                entry(judged(name, arguments.cases, arguments.seed, executor))
                for name in campaign_subjects.__all__
            ]
        status_line()
        sums = ("cases", "elements", "answers", "wrong", "seconds")
        report = {
            "machine": machine(arguments.jobs),
            "drawn": {name: getattr(arguments, name) for name in ("cases", "seed", "jobs")},
            "campaigns": found,
            "total": {"subject": "together"}
            | {name: sum(e[name] for e in found) for name in sums},
        }
        strict_json.write(report, arguments.output)
    report = json.loads(arguments.output.read_text(encoding="utf-8"))
    if arguments.output == RESULTS:
        PAGE.write_text(page(report), encoding="utf-8")
    print(heading(report["machine"]) + "\n\n" + page(report))
    return 0 if not report["total"]["wrong"] else 1


if __name__ == "__main__":
    sys.exit(main())
