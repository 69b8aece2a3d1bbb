"""``python -m benchmarks.campaign``: judge truenorm on many random cases.

Layer norm and RMSNorm by both backends in all types; every element must be correctly rounded. The
report goes to results/campaign.json and docs/campaign-table.md; ``--page`` writes only the table.
"""

import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from typing import Any

from benchmarks.common import (
    DOCS,
    RESULTS,
    heading,
    machine,
    markdown_table,
    options,
    read_results,
)
from benchmarks.subjects.truenorm_subjects import BY_BACKEND
from truenorm.tools import strict_json
from truenorm.tools.progress import status_line
from truenorm.tools.text import duration
from truenorm.verify import Campaign, campaign

FILE, PAGE = RESULTS / "campaign.json", DOCS / "campaign-table.md"
HEAD = """\
<!-- Written by python -m benchmarks.campaign from benchmarks/results/campaign.json. -->

{date}, {cpu}, {cores} cores, Python {python}, NumPy {numpy}: {cases} cases each,
seeds from {seed} on, by {jobs} processes. An element is wrong if it is not correctly rounded.
*Answers* are the exact ones: rows that a case repeats have one, and each of their elements is
compared with it. *Time* is by the clock, at a low priority beside other work."""


def show(name: str, done: int, total: int, what: str) -> None:
    """Show the progress of one subject."""
    status_line(f"{name}: {done}/{total}, {what}")


def record(result: Campaign) -> dict[str, Any]:
    """Return the part of the file about one subject."""
    names = ("subject", "cases", "not_run", "elements", "answers", "wrong", "failed")
    return {name: getattr(result, name) for name in names} | {
        "seconds": round(result.seconds, 1),
        "results": [asdict(each) for each in result.results],
        "findings": [each.symptom for each in result.findings],
    }


def page(report: Mapping[str, Any]) -> str:
    """Return docs/campaign-table.md."""
    rows = [
        [
            each["subject"],
            *(f"{each[name]:,}" for name in ("cases", "elements", "answers", "wrong")),
            duration(each["seconds"]),
        ]
        for each in [*report["campaigns"], report["total"]]
    ]
    head = ["", "cases", "elements", "answers", "wrong", "time"]
    facts = HEAD.format(**{**report["machine"], **report["drawn"]})
    return f"{facts}\n\n{markdown_table(head, rows)}\n"


def main(argv: list[str] | None = None) -> int:
    """Judge, save and print; return 1 if an element is wrong."""
    parser = options(
        "campaign", "Judge truenorm on many random cases.",
        output=FILE, page="write the table from --output",
    )  # fmt: skip
    parser.add_argument("--cases", type=int, default=1600, help="of each operation and backend")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args(argv)
    if not arguments.page:
        with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as executor:
            how: dict[str, Any] = {"seed": arguments.seed, "require": "correct"}
            records = [
                record(
                    campaign(
                        subject,
                        arguments.cases,
                        progress=partial(show, name),
                        executor=executor,
                        **how,
                    )
                )
                for name, subject in BY_BACKEND.items()
            ]
        status_line()
        sums = ("cases", "elements", "answers", "wrong", "seconds")
        total = {name: sum(each[name] for each in records) for name in sums}
        report: dict[str, Any] = {
            "machine": machine(arguments.jobs),
            "drawn": {name: getattr(arguments, name) for name in ("cases", "seed", "jobs")},
            "campaigns": records,
            "total": {"subject": "together", **total},
        }
        strict_json.write(report, arguments.output)
    report = read_results(arguments.output)
    text = page(report)
    if arguments.output == FILE:
        PAGE.write_text(text, encoding="utf-8")
    print(
        strict_json.dumps(report) if arguments.json else f"{heading(report['machine'])}\n\n{text}"
    )
    return 1 if report["total"]["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
