"""``python -m benchmarks.campaign``: judge truenorm on many random cases.

Layer norm and RMSNorm by both backends in all types; every element must be correctly rounded. The
report goes to results/campaign.json, which docs/judge/campaign.md shows.
"""

import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from typing import Any

from benchmarks.common import (
    RESULTS,
    coloured,
    machine,
    markdown_table,
    options,
    progress,
    publish,
)
from benchmarks.subjects.truenorm_subjects import BY_BACKEND
from truenorm.tools.progress import status_line
from truenorm.tools.text import duration
from truenorm.verify import campaign

FILES = (RESULTS / "campaign.json",)
FACTS = """\
An element is wrong if it is not correctly rounded.
*Answers* counts exact answers: repeated rows of a case share one.
*Time* is elapsed time, at a low priority beside other work.
Each line has {cases} cases with seeds from {seed} on, by {jobs} processes.
Run on {date}: {cpu}, {cores} cores, Python {python}, NumPy {numpy}."""
NUMBERS = ("cases", "elements", "answers", "wrong")


def measure(cases: int, seed: int, jobs: int) -> dict[str, Any]:
    """Judge every subject, and return the report."""
    campaigns, names = [], ("subject", *NUMBERS, "not_run", "failed")
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as executor:
        how: dict[str, Any] = {"seed": seed, "require": "correct", "executor": executor}
        for name, subject in BY_BACKEND.items():
            result = campaign(subject, cases, progress=progress(name), **how)
            campaigns.append(
                {each: getattr(result, each) for each in names}
                | {
                    "seconds": round(result.seconds, 1),
                    "results": [asdict(each) for each in result.results],
                    "findings": [each.symptom for each in result.findings],
                }
            )
    status_line()
    total = {name: sum(each[name] for each in campaigns) for name in (*NUMBERS, "seconds")}
    return {
        "machine": machine(jobs),
        "drawn": {"cases": cases, "seed": seed, "jobs": jobs},
        "campaigns": campaigns,
        "total": {"subject": "together", **total},
    }


def page(report: Mapping[str, Any]) -> str:
    """Return the table, and how it was made."""
    rows = [
        [
            each["subject"],
            *(f"{each[name]:,}" for name in NUMBERS[:-1]),
            coloured(f"{each['wrong']:,}", "fail" if each["wrong"] else "pass"),
            duration(each["seconds"]),
        ]
        for each in [*report["campaigns"], report["total"]]
    ]
    table = markdown_table(["", *NUMBERS, "time"], rows)
    return f"{table}\n\n{FACTS.format(**{**report['machine'], **report['drawn']})}\n"


def main(argv: list[str] | None = None) -> int:
    """Judge, save and print; return 1 if an element is wrong."""
    parser = options("campaign", "Judge truenorm on many random cases.", output=FILES[0])
    parser.add_argument("--cases", type=int, default=1600, help="of each operation and backend")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args(argv)
    report = measure(arguments.cases, arguments.seed, arguments.jobs)
    publish(report, arguments.output, page)
    return 1 if report["total"]["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
