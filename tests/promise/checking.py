"""Run a case through every backend and count the bits that are wrong."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb

import truenorm as tn
from promise.families import Array, Case
from promise.oracle import BallRow, bits, correct_backward, correct_forward

OUTPUTS = ("y", "dx", "dgamma", "dbeta")
_ASKED = os.environ.get("TRUENORM_TEST_BACKENDS")
BACKENDS = tuple(
    status.name
    for status in tn.backends()
    if (status.name in _ASKED.split(",") if _ASKED else status.usable and status.name != "gpu")
)
"""Those that take every type, unless others are asked for, as the session `gpu` does."""
Results = Sequence[Array | None]
Implementation = Callable[[Case], Results]
"""Takes a case, returns y, dx, dgamma and dbeta."""


@dataclass(frozen=True)
class Mismatch:
    """The elements of one output of one case that are not the exact answer rounded once."""

    backend: str
    case: str
    output: str
    elements: int
    first: tuple[int, ...]
    got: Any
    expected: Any


def forward_pass(case: Case, backend: str | None = None, **options: Any) -> tuple[Array, tn.Saved]:
    """Return y, and what is kept for backward."""
    options |= {"eps": case.eps, "backend": backend}
    if case.centred:
        return tn.layer_norm_forward(case.x, case.gamma, case.beta, **options)
    return tn.rms_norm_forward(case.x, case.gamma, **options)


def both_passes(
    case: Case,
    backend: str | None = None,
    rounding: str = "correct",
    *,
    backward: str | None = None,
    threads: int | None = None,
) -> tuple[Array, Array, Array | None, Array | None]:
    """Return y, dx, dgamma and dbeta; another backend may do backward."""
    y, saved = forward_pass(case, backend, rounding=rounding, threads=threads)
    backwards = tn.layer_norm_backward if case.centred else tn.rms_norm_backward
    return (y, *backwards(case.dy, saved, backend=backward or backend, threads=threads))


def _y_alone(case: Case, backend: str) -> Results:
    return forward_pass(case, backend)[0], None, None, None


def bytes_of(*results: Array | None) -> list[bytes]:
    """Return what is equal for the same bits only, be they those of zeros or of NaN."""
    return [b"" if result is None else result.tobytes() for result in results]


def expected_results(case: Case, outputs: Sequence[str] = OUTPUTS) -> Results:
    """Return what is right, in the columns where the case is to be looked at.

    What nobody asks for may be None: the judge is slow.
    """
    y: Array | None = None
    gradients: tuple[Array | None, ...] = (None, None, None)
    if "y" in outputs:
        y = correct_forward(
            case.x, case.gamma, case.beta, case.eps, case.columns, centred=case.centred
        )
    if set(outputs) != {"y"}:
        gradients = correct_backward(
            case.dy,
            case.x,
            case.gamma,
            case.beta,
            case.eps,
            case.columns,
            centred=case.centred,
        )
    return (y, *gradients)


def check(
    case: Case, outputs: Sequence[str] = OUTPUTS, backends: Sequence[str] = BACKENDS
) -> tuple[int, list[Mismatch]]:
    """Return how many elements of each backend were compared, and which are wrong."""
    expected = expected_results(case, outputs)
    counts, wrong = [], []
    for backend in backends:
        only_y = set(outputs) == {"y"}
        results = _y_alone(case, backend) if only_y else both_passes(case, backend)
        count, found = compare(case, results, expected, outputs, backend)
        counts.append(count)
        wrong += found
    return min(counts), wrong


def compare(
    case: Case, results: Results, right: Results, outputs: Sequence[str], backend: str
) -> tuple[int, list[Mismatch]]:
    """Return how many elements were compared, as bit patterns, and which are wrong."""
    compared, wrong = 0, []
    for output, result, expected in zip(OUTPUTS, results, right, strict=True):
        if output not in outputs:
            continue
        assert (result is None) == (expected is None), (backend, output)
        if result is None or expected is None:
            continue
        assert result.dtype == expected.dtype, (backend, output)
        looked_at = result if case.columns is None else result[..., list(case.columns)]
        assert looked_at.shape == expected.shape, (backend, output)
        different = bits(looked_at) != bits(expected)
        compared += different.size
        if different.any():
            first = tuple(int(index[0]) for index in np.nonzero(different))
            wrong.append(
                Mismatch(
                    backend,
                    str(case),
                    output,
                    int(different.sum()),
                    first,
                    looked_at[first],
                    expected[first],
                )
            )
    return compared, wrong


def ball_results(case: Case, rows: Sequence[BallRow], output: str) -> list[arb]:
    """Return an output where it is to be looked at, from the rows of x in balls."""
    columns = range(case.x.shape[1]) if case.columns is None else case.columns
    gamma, beta, dys = (array.astype(np.float64).tolist() for array in (*case.parameters, case.dy))
    if output == "y":
        return [value for row in rows for value in row.y(gamma, beta, columns)]
    pairs = list(zip(rows, dys, strict=True))
    if output == "dx":
        return [value for row, dy in pairs for value in row.dx(gamma, dy, columns)]
    if output == "dbeta":
        return [sum((arb(dy[j]) for dy in dys), arb(0)) for j in columns]
    return [sum((arb(dy[j]) * row.c[j] * row.r for row, dy in pairs), arb(0)) for j in columns]
