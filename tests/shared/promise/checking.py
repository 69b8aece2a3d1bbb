"""Run a case on every backend and instruction set; compare the bits with the oracle."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pytest
from flint import arb

import truenorm as tn
from shared.promise.families import Array, Case
from shared.promise.oracle import BallRow, bits, correct_backward, correct_forward
from truenorm.api import fast_path

OUTPUTS = ("y", "dx", "dgamma", "dbeta")
_SELECTED = os.environ.get("TRUENORM_TEST_BACKENDS")
BACKENDS = tuple(
    status.name
    for status in tn.backends()
    if (
        status.name in _SELECTED.split(",")
        if _SELECTED
        else status.usable and status.name != "gpu"
    )
)
"""The usable backends that support every type, or those of TRUENORM_TEST_BACKENDS."""
SETS = ("baseline", "avx2", "avx512")
"""The instruction sets of the C core."""
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Results = Sequence[Array | None]
Implementation = Callable[[Case], Results]
"""A function from a case to y, dx, dgamma and dbeta."""


@dataclass(frozen=True)
class Mismatch:
    """The elements of one output of a case that are not correctly rounded."""

    backend: str
    case: str
    output: str
    elements: int
    first: tuple[int, ...]
    got: Any
    expected: Any


def without_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the general path compute all calls."""
    for name in fast_path.ENTRIES:
        monkeypatch.setattr(fast_path, name, fast_path.decline)


def forward_pass(case: Case, backend: str | None = None, **options: Any) -> tuple[Array, tn.Saved]:
    """Return y and the saved statistics."""
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
    """Return y, dx, dgamma and dbeta; `backward` may be another backend."""
    y, saved = forward_pass(case, backend, rounding=rounding, threads=threads)
    run_backward = tn.layer_norm_backward if case.centred else tn.rms_norm_backward
    return (y, *run_backward(case.dy, saved, backend=backward or backend, threads=threads))


def on_each_set(
    backend: str,
    compute: Callable[Arguments, Result],
    /,
    *arguments: Arguments.args,
    **options: Arguments.kwargs,
) -> dict[str, Result]:
    """Compute once; on the C core once with each instruction set of this processor."""
    if backend != "native":
        return {backend: compute(*arguments, **options)}
    from truenorm.kernels.native import _core

    results = {}
    try:
        for name in SETS:
            if _core.select(name) == name:
                results[f"native {name}"] = compute(*arguments, **options)
    finally:
        _core.select(None)
    return results


def bytes_of(*results: Array | None) -> list[bytes]:
    """Return the bytes of each result, which differ for -0 and +0 and are equal for equal NaN."""
    return [b"" if result is None else result.tobytes() for result in results]


def expected_results(case: Case, outputs: Sequence[str] = OUTPUTS) -> Results:
    """Return the correct results in the columns of the case.

    Results not in `outputs` may be None: the oracle is slow.
    """
    y: Array | None = None
    gradients: tuple[Array | None, ...] = (None, None, None)
    if "y" in outputs:
        y = correct_forward(
            case.x, case.gamma, case.beta, case.eps, case.columns, centred=case.centred
        )
    if set(outputs) != {"y"}:
        gradients = correct_backward(
            case.dy, case.x, case.gamma, case.beta, case.eps, case.columns, centred=case.centred
        )
    return (y, *gradients)


def check(
    case: Case, outputs: Sequence[str] = OUTPUTS, backends: Sequence[str] = BACKENDS
) -> tuple[int, list[Mismatch]]:
    """Return the number of elements compared on each backend, and the wrong ones."""
    expected = expected_results(case, outputs)
    counts, wrong = [], []
    for backend in backends:
        for name, results in on_each_set(backend, passes_for, outputs, case, backend).items():
            count, mismatches = compare(case, results, expected, outputs, name)
            counts.append(count)
            wrong += mismatches
    return min(counts), wrong


def passes_for(outputs: Sequence[str], case: Case, backend: str) -> Results:
    """Return the results; those of backward are None if only y is among the outputs."""
    if set(outputs) == {"y"}:
        return forward_pass(case, backend)[0], None, None, None
    return both_passes(case, backend)


def compare(
    case: Case, results: Results, expected: Results, outputs: Sequence[str], backend: str
) -> tuple[int, list[Mismatch]]:
    """Return the number of elements compared, as bit patterns, and the wrong ones."""
    compared, wrong = 0, []
    for output, result, answer in zip(OUTPUTS, results, expected, strict=True):
        if output not in outputs:
            continue
        assert (result is None) == (answer is None), (backend, output)
        if result is None or answer is None:
            continue
        assert result.dtype == answer.dtype, (backend, output)
        selected = result if case.columns is None else result[..., list(case.columns)]
        assert selected.shape == answer.shape, (backend, output)
        different = bits(selected) != bits(answer)
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
                    selected[first],
                    answer[first],
                )
            )
    return compared, wrong


def ball_results(case: Case, rows: Sequence[BallRow], output: str) -> list[arb]:
    """Return an output in the columns of the case, from the rows of x in balls."""
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
