"""``python -m benchmarks.contest``: count results that are not correctly rounded.

The promise's suite runs on the textbook forms and on both modes of truenorm. The output is
Markdown. An element is wrong if it is not the exact answer rounded once, by one bit or by all.

The sign of zero and the bits of NaN are conventions of truenorm: any NaN equals any other, and
zeros of the other sign are counted separately.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.common import markdown_table, options
from shared.promise.checking import OUTPUTS, Implementation, Results, both_passes, expected_results
from shared.promise.families import SHAPE, Array, Case, cases, every_family_cases
from shared.promise.hard_cases import hard_cases
from shared.promise.oracle import bits
from truenorm import textbook

BUDGET = 31_000  # elements of x: the cases of test_promise.py
HARD_ELEMENTS = 4_000  # of each output: enough for ties to be among them


def _results(case: Case, y: Array, gradients: Sequence[Array]) -> Results:
    """Cast each result to the type of its input."""
    like = (case.x, case.x, case.gamma, case.beta)
    return [
        None if source is None else value.astype(source.dtype)
        for value, source in zip((y, *gradients), like, strict=True)
    ]


def textbook_in_the_type_of_x(case: Case) -> Results:
    """Run the textbook form on the arrays as they are; NumPy promotes where gamma is wider."""
    with np.errstate(all="ignore"):
        y, saved = textbook.forward(case.x, *case.parameters, case.eps)
        return _results(case, y, textbook.backward(case.dy, saved))


def textbook_in_float64(case: Case) -> Results:
    """Run the textbook form in float64, and cast at the end."""
    x, gamma, beta, dy = (a.astype(np.float64) for a in (case.x, *case.parameters, case.dy))
    with np.errstate(all="ignore"):
        y, saved = textbook.forward(x, gamma, beta, case.eps)
        return _results(case, y, textbook.backward(dy, saved))


CAST = "textbook in float64, then cast"
CONTESTANTS: dict[str, Implementation] = {
    "textbook": textbook_in_the_type_of_x,
    CAST: textbook_in_float64,
    "truenorm fast": lambda case: both_passes(case, rounding="fast"),
    "truenorm correct": both_passes,
}


@dataclass
class Tally:
    """The wrong elements of one contestant, and those that were compared."""

    wrong: Counter[str] = field(default_factory=Counter)  # by output, and by family
    compared: Counter[str] = field(default_factory=Counter)
    other_zeros: int = 0  # correct except for the sign of zero

    def add(self, case: Case, results: Results, expected: Results, outputs: Sequence[str]) -> None:
        """Compare some outputs of one case."""
        for output, result, right in zip(OUTPUTS, results, expected, strict=True):
            if output not in outputs or result is None or right is None:
                continue
            compared = result if case.columns is None else result[..., list(case.columns)]
            different = bits(compared) != bits(right)
            different &= ~(np.isnan(compared) & np.isnan(right))
            zeros = different & (compared == 0) & (right == 0)
            self.other_zeros += int(zeros.sum())
            for name in (output, str(case).split()[1]):
                self.wrong[name] += int((different & ~zeros).sum())
                self.compared[name] += right.size

    def __getitem__(self, name: str) -> str:
        """Return the cell of an output."""
        return f"{self.wrong[name]:,} of {self.compared[name]:,}"


Tallies = Mapping[str, Tally | None]
Suite = Iterable[tuple[Case, Sequence[str]]]


def contest(dtype: np.dtype[Any], suite: Suite) -> dict[str, Tally | None]:
    """Run every contestant on every case; None for one that does not exist for this type."""
    absent = {CAST} if dtype == np.float64 else set()
    tallies = {name: None if name in absent else Tally() for name in CONTESTANTS}
    for case, outputs in suite:
        expected = expected_results(case)
        for name, tally in tallies.items():
            if tally is not None:
                tally.add(case, CONTESTANTS[name](case), expected, outputs)
    return tallies


def hard(dtype: np.dtype[Any]) -> Iterator[tuple[Case, Sequence[str]]]:
    """Yield hard cases, each with the output that is hard."""
    for output in OUTPUTS:
        for case in hard_cases(output, dtype, HARD_ELEMENTS):
            yield case, [output]


def by_output(title: str, tallies: Tallies) -> str:
    """Return a table with a line for each contestant."""
    rows = [
        [name, *["n/a"] * 5]
        if tally is None
        else [name, *(tally[output] for output in OUTPUTS), f"{tally.other_zeros:,}"]
        for name, tally in tallies.items()
    ]
    head = ["", *OUTPUTS, "zeros of the other sign"]
    return f"**{title}**: wrong elements\n\n{markdown_table(head, rows)}\n"


def by_family(title: str, tallies: Tallies) -> str:
    """Return a table with a line for each family, the worst of the textbook first."""
    present = {name: tally for name, tally in tallies.items() if tally is not None}
    first = next(iter(present.values()))
    families = {name: size for name, size in first.compared.items() if name not in OUTPUTS}
    rows = [
        [family, *(f"{tally.wrong[family]:,}" for tally in present.values())]
        for family in sorted(families, key=lambda f: -first.wrong[f] / families[f])
    ]
    total = f"wrong of {max(families.values()):,} elements"
    return f"**{title}**: {total}\n\n{markdown_table(['', *present], rows)}\n"


def main(argv: list[str] | None = None) -> int:
    """Print the tables of each type."""
    parser = options("contest", "Count the wrong elements of each contestant.")
    parser.add_argument(
        "--dtype", action="append", help="float16, bfloat16, float32 or float64; may be repeated"
    )
    arguments = parser.parse_args(argv)
    for dtype in [np.dtype(name) for name in arguments.dtype or ("float32", "float64")]:
        mixed = contest(dtype, ((case, OUTPUTS) for case in cases(dtype, BUDGET)))
        alike = contest(dtype, ((case, OUTPUTS) for case in every_family_cases(dtype)))
        beside = contest(dtype, hard(dtype))
        rows, size = SHAPE
        print(f"### {dtype.name}\n")
        print(by_output("The families, mixed with every eps and width", mixed))
        print(by_output("Cases built to lie beside a rounding boundary", beside))
        print(by_family(f"Each family at {rows}x{size}, eps 1e-5", alike))
    return 0


if __name__ == "__main__":
    sys.exit(main())
