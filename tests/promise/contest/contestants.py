"""``PYTHONPATH=tests python -m promise.contest.contestants``: who rounds correctly, and where not.

The suite that truenorm has to pass, pointed at the textbook form and at truenorm's fast mode too.
It prints Markdown. "Wrong" means: not the exact answer rounded once, be it by one bit or by all.

Which zero and which NaN is a convention of ours, so nobody else is called wrong for another one:
any NaN is as good as any, and results that differ in the sign of a zero alone are counted apart.
"""
# ruff: noqa: T201
# A command prints its result.

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import truenorm as tn
from promise.families import X_FAMILIES, Array, Case, Choice, cases
from promise.formats import bits
from promise.hard_cases import hard_cases
from promise.judging import (
    OUTPUTS,
    Implementation,
    Results,
    expected_results,
    truenorm_correct,
)
from truenorm import textbook

BUDGET = 31_000  # elements of x: the very cases of test_promise.py
HARD_ELEMENTS = 4_000  # of each output: enough for ties to be among them
SHAPE = (7, 67)  # of each family, where they are compared


def _parameters(case: Case) -> tuple[Array, Array]:
    size, dtype = case.x.shape[1], case.x.dtype
    return (
        np.ones(size, dtype) if case.gamma is None else case.gamma,
        np.zeros(size, dtype) if case.beta is None else case.beta,
    )


def _results(case: Case, y: Array, gradients: Sequence[Array]) -> Results:
    """Give each result the type that is asked for, with the cast a user would write."""
    like = (case.x, case.x, case.gamma, case.beta)
    return [
        None if source is None else value.astype(source.dtype)
        for value, source in zip((y, *gradients), like, strict=True)
    ]


def textbook_in_the_type_of_x(case: Case) -> Results:
    """Run the textbook form on the arrays as they are; NumPy promotes where gamma is wider."""
    gamma, beta = _parameters(case)
    with np.errstate(all="ignore"):
        y, saved = textbook.forward(case.x, gamma, beta, case.eps)
        return _results(case, y, textbook.backward(case.dy, saved))


def textbook_in_float64(case: Case) -> Results:
    x, gamma, beta, dy = (a.astype(np.float64) for a in (case.x, *_parameters(case), case.dy))
    with np.errstate(all="ignore"):
        y, saved = textbook.forward(x, gamma, beta, case.eps)
        return _results(case, y, textbook.backward(dy, saved))


def truenorm_fast(case: Case) -> Results:
    y, saved = tn.layer_norm_forward(case.x, case.gamma, case.beta, eps=case.eps, rounding="fast")
    return (y, *tn.layer_norm_backward(case.dy, saved))


CAST = "textbook in float64, then cast"
CONTESTANTS: dict[str, Implementation] = {
    "textbook": textbook_in_the_type_of_x,
    CAST: textbook_in_float64,
    "truenorm fast": truenorm_fast,
    "truenorm correct": truenorm_correct,
}


@dataclass
class Score:
    """Elements that are wrong, and compared, by output or by family."""

    wrong: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    compared: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, name: str, wrong: int, compared: int) -> None:
        self.wrong[name] += wrong
        self.compared[name] += compared

    def __getitem__(self, name: str) -> str:
        return f"{self.wrong[name]:,} of {self.compared[name]:,}"

    def share(self, name: str) -> float:
        return self.wrong[name] / self.compared[name]


@dataclass
class Tally:
    """What one contestant got wrong."""

    outputs: Score = field(default_factory=Score)
    families: Score = field(default_factory=Score)
    other_zeros: int = 0  # right but for the sign of a zero

    def add(self, case: Case, results: Results, expected: Results, outputs: Sequence[str]) -> None:
        for output, result, right in zip(OUTPUTS, results, expected, strict=True):
            if output not in outputs or result is None or right is None:
                continue
            looked_at = result if case.columns is None else result[..., list(case.columns)]
            different = bits(looked_at) != bits(right)
            different &= ~(np.isnan(looked_at) & np.isnan(right))
            zeros = different & (looked_at == 0) & (right == 0)
            wrong = int((different & ~zeros).sum())
            self.other_zeros += int(zeros.sum())
            self.outputs.add(output, wrong, right.size)
            self.families.add(str(case).split()[1], wrong, right.size)


Tallies = Mapping[str, Tally | None]
Suite = Iterable[tuple[Case, Sequence[str]]]


def contest(dtype: np.dtype[Any], suite: Suite) -> dict[str, Tally | None]:
    """Judge every contestant on every case; None for one that does not exist for this type."""
    absent = {CAST} if dtype == np.float64 else set()
    tallies = {name: None if name in absent else Tally() for name in CONTESTANTS}
    for case, outputs in suite:
        expected = expected_results(case)
        for name, tally in tallies.items():
            if tally is not None:
                tally.add(case, CONTESTANTS[name](case), expected, outputs)
    return tallies


def mixed_cases(dtype: np.dtype[Any]) -> Iterator[tuple[Case, Sequence[str]]]:
    for case in cases(dtype, BUDGET):
        yield case, OUTPUTS


def each_family_alike(dtype: np.dtype[Any]) -> Iterator[tuple[Case, Sequence[str]]]:
    """Give every family the same weight and the usual eps; `cases` does neither."""
    parameters = ("random", dtype)
    for family in X_FAMILIES:
        for seed in range(3):
            choice = Choice(family, *SHAPE, 1e-5, "random", parameters, parameters)
            yield choice.build(dtype, seed), OUTPUTS


def hard(dtype: np.dtype[Any]) -> Iterator[tuple[Case, Sequence[str]]]:
    for output in OUTPUTS:
        for case in hard_cases(output, dtype, HARD_ELEMENTS):
            yield case, [output]


def by_output(title: str, tallies: Tallies) -> str:
    """Return a table with a line for each contestant."""
    lines = [f"**{title}**: wrong elements", ""]
    lines += ["| | y | dx | dgamma | dbeta | zeros of the other sign |", "|---" + "|--:" * 5 + "|"]
    for name, tally in tallies.items():
        cells = ["n/a"] * 5
        if tally is not None:
            cells = [*(tally.outputs[output] for output in OUTPUTS), f"{tally.other_zeros:,}"]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join([*lines, ""])


def by_family(title: str, tallies: Tallies) -> str:
    """Return a table with a line for each family, the worst of the textbook first."""
    present = {name: tally.families for name, tally in tallies.items() if tally is not None}
    first = next(iter(present.values()))
    lines = [f"**{title}**: wrong of {max(first.compared.values()):,} elements", ""]
    lines += [f"| | {' | '.join(present)} |", "|---" + "|--:" * len(present) + "|"]
    for family in sorted(first.compared, key=first.share, reverse=True):
        cells = [f"{score.wrong[family]:,}" for score in present.values()]
        lines.append(f"| {' | '.join([family, *cells])} |")
    return "\n".join([*lines, ""])


def record(tallies: Tallies) -> dict[str, Any]:
    """Return [wrong, compared] by output and by family, for JSON."""

    def pairs(score: Score) -> dict[str, list[int]]:
        return {name: [score.wrong[name], score.compared[name]] for name in score.compared}

    return {
        name: tally
        and {
            "outputs": pairs(tally.outputs),
            "families": pairs(tally.families),
            "zeros_of_the_other_sign": tally.other_zeros,
        }
        for name, tally in tallies.items()
    }


def main(argv: list[str] | None = None) -> int:
    described = argparse.ArgumentParser(
        prog="python -m promise.contest.contestants",
        description="Count what each contestant gets wrong.",
    )
    described.add_argument("--json", action="store_true", help="print one JSON object")
    described.add_argument(
        "--dtype", action="append", help="float16, bfloat16, float32 or float64; may be repeated"
    )
    arguments = described.parse_args(argv)
    report: dict[str, Any] = {}
    for dtype in [np.dtype(name) for name in arguments.dtype or ("float32", "float64")]:
        suites = {"cases": mixed_cases, "families": each_family_alike, "hard": hard}
        found = {name: contest(dtype, suite(dtype)) for name, suite in suites.items()}
        report[dtype.name] = {name: record(tallies) for name, tallies in found.items()}
        if not arguments.json:
            print(f"### {dtype.name}\n")
            print(by_output("The families, mixed with every eps and width", found["cases"]))
            print(by_output("Cases built to lie beside a rounding boundary", found["hard"]))
            rows, size = SHAPE
            print(by_family(f"Each family at {rows}x{size}, eps 1e-5", found["families"]))
    if arguments.json:
        print(json.dumps(report, allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
