"""``python -m tools.own_bits``: compare truenorm's bits with exact answers on random cases.

Each seed draws cases of the judge's families. Layer norm and RMSNorm run on them, forward and
backward, by every usable backend; each result must be the exact answer rounded once.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import truenorm as tn
import truenorm.verify as tv
from truenorm.tools import strict_json
from truenorm.tools.machine import describe
from truenorm.tools.progress import with_progress
from truenorm.verify.oracle import expected, forget
from truenorm.verify.types import FORMATS, Array

SHOWN = 20
"""Wrong results that are listed; all are counted."""


def drawn_cases(operation: Any, dtype: str, seed: int) -> list[tv.Case]:
    """Return the cases that a seed draws; their names end with it. A large call is left out."""
    suite = tv.cases(dtype, operation=operation, seed=seed)
    return [each for each in suite if each.name.endswith(f"-{seed}") and each.family != "large"]


def results_of(case: tv.Case, backend: str) -> Iterator[tuple[str, Array | None]]:
    """Yield each output of a case with its result."""
    x, gamma, dy = (case.inputs[name] for name in ("x", "gamma", "dy"))
    if case.operation is tv.LAYER_NORM:
        beta = case.inputs["beta"]
        y, saved = tn.layer_norm_forward(x, gamma, beta, eps=case.eps, backend=backend)
        gradients = tn.layer_norm_backward(dy, saved)
    else:
        y, saved = tn.rms_norm_forward(x, gamma, eps=case.eps, backend=backend)
        gradients = tn.rms_norm_backward(dy, saved)
    yield "y", y
    yield from zip(("dx", "dgamma", "dbeta"), gradients, strict=True)


def count_wrong(case: tv.Case, backend: str) -> Iterator[tuple[str, int, int]]:
    """Yield each output with its numbers of elements and of wrong elements; NaN equals NaN."""
    answers = expected(case).values
    for output, result in results_of(case, backend):
        answer = answers.get(output)
        if result is not None and answer is not None:
            with np.errstate(invalid="ignore"):
                right = (result == answer) | (np.isnan(result) & np.isnan(answer))
            yield output, result.size, int((~right).sum())


def run(seeds: range, backends: list[str]) -> dict[str, Any]:
    """Return the counts of all seeds, and the first wrong results."""
    counts: Counter[str] = Counter()
    wrong: list[dict[str, Any]] = []
    for seed in seeds:
        suite = [
            case
            for operation in (tv.LAYER_NORM, tv.RMS_NORM)
            for dtype in FORMATS
            for case in drawn_cases(operation, dtype, seed)
        ]
        for case in with_progress(suite, len(suite), f"seed {seed}"):
            for backend in backends:
                counts["cases"] += 1
                for output, elements, number in count_wrong(case, backend):
                    counts.update(elements=elements, wrong=number)
                    if number and len(wrong) < SHOWN:
                        where = {"operation": case.operation.spec, "case": case.name}
                        wrong.append({**where, "backend": backend, "output": output})
            forget([case])
        sys.stderr.write(
            f"seed {seed}: {counts['elements']:,} elements, {counts['wrong']} wrong\n"
        )
    numbers = {name: counts[name] for name in ("cases", "elements", "wrong")}
    return {"seeds": [seeds[0], seeds[-1]], "backends": backends, **numbers, "first": wrong}


def main(argv: list[str] | None = None) -> int:
    """Run, and print JSON; return 1 if an element is wrong."""
    usable = [each.name for each in tn.backends() if each.usable]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed, 1 or above")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--backend", choices=usable, action="append", help="default: all usable")
    parser.add_argument("--output", type=Path, help="a file for the JSON, beside stdout")
    arguments = parser.parse_args(argv)
    if min(arguments.seed, arguments.seeds) < 1:
        parser.error(f"--seed and --seeds must be 1 or above, got {arguments.seed} and "
                     f"{arguments.seeds}")  # fmt: skip
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    report = run(seeds, arguments.backend or usable)
    report = {"machine": describe("cpu", "python", "numpy", "truenorm", "date"), **report}
    if arguments.output:
        strict_json.write(report, arguments.output)
    sys.stdout.write(f"{strict_json.dumps(report)}\n")
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
