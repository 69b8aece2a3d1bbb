"""Run a case through an implementation and count the bits that are wrong."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import truenorm as tn
from promise.families import Array, Case
from promise.formats import bits
from promise.oracle import correct_backward, correct_forward

OUTPUTS = ("y", "dx", "dgamma", "dbeta")
Results = Sequence[Array | None]
Implementation = Callable[[Case], Results]
"""Takes a case, returns y, dx, dgamma and dbeta."""


@dataclass(frozen=True)
class Wrong:
    """The elements of one output of one case that are not the exact answer rounded once."""

    case: str
    output: str
    elements: int
    first: tuple[int, ...]
    got: Any
    expected: Any


def truenorm_correct(case: Case) -> Results:
    y, saved = tn.layer_norm_forward(case.x, case.gamma, case.beta, eps=case.eps)
    return (y, *tn.layer_norm_backward(case.dy, saved))


def expected_results(case: Case) -> Results:
    """Return what is right, in the columns where the case is to be looked at."""
    y = correct_forward(case.x, case.gamma, case.beta, case.eps, case.columns)
    rest = correct_backward(case.dy, case.x, case.gamma, case.beta, case.eps, case.columns)
    return (y, *rest)


def judge(
    case: Case, results: Results, outputs: Sequence[str] = OUTPUTS
) -> tuple[int, list[Wrong]]:
    """Return how many elements were compared, as bit patterns, and which are wrong."""
    compared, wrong = 0, []
    for output, result, expected in zip(OUTPUTS, results, expected_results(case), strict=True):
        if output not in outputs:
            continue
        assert (result is None) == (expected is None), output
        if result is None or expected is None:
            continue
        assert result.dtype == expected.dtype, output
        looked_at = result if case.columns is None else result[..., list(case.columns)]
        different = bits(looked_at) != bits(expected)
        compared += different.size
        if different.any():
            first = tuple(int(index[0]) for index in np.nonzero(different))
            wrong.append(
                Wrong(
                    str(case),
                    output,
                    int(different.sum()),
                    first,
                    looked_at[first],
                    expected[first],
                )
            )
    return compared, wrong
