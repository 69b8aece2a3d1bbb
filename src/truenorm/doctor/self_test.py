"""Does it compute what it promises? A few rows of each type, on each backend, to the bit."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from truenorm.doctor.backends import usable_backends
from truenorm.doctor.report import Line, Section, without_home
from truenorm.ops.layer_norm import layer_norm_backward, layer_norm_forward
from truenorm.tools.progress import Progress
from truenorm.verify.answers.expected import expected
from truenorm.verify.operation import Case
from truenorm.verify.operations.layer_norm import OUTPUTS
from truenorm.verify.suite import case
from truenorm.verify.types import FORMATS, dtype_of

__all__ = ["self_test", "without_overrides"]

CASES = (
    "normal-4x67",
    "offset-100-4x67",
    "exact-tie",
    "one-ulp-off",
    "two-elements",
    "nan-in-x",
)
"""Of the judge: ordinary rows, cancellation, a tie, and numbers that are none."""
OVERRIDES = ("TRUENORM_BACKEND", "TRUENORM_ROUNDING", "TRUENORM_THREADS")
REPORT = "please report this with all lines above"
REINSTALL = "reinstall Numba (pip install -U 'truenorm[fast]'), or set TRUENORM_BACKEND=reference"


@contextmanager
def without_overrides() -> Iterator[None]:
    """Let the arguments of a call decide while the block runs, and no variable."""
    taken = {name: os.environ.pop(name) for name in OVERRIDES if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(taken)


def self_test(progress: Progress | None = None) -> Section:
    """Compare every result with the exact answer, rounded once."""
    started = time.perf_counter()
    jobs = [(backend, dtype) for backend in usable_backends() for dtype in FORMATS]
    lines = []
    with without_overrides():
        for done, (backend, dtype) in enumerate(jobs):
            if progress is not None:
                compiles = ", compiled the first time" if backend == "fused" else ""
                progress(done, len(jobs), f"{backend}, {dtype}{compiles}")
            lines.append(Line(f"{backend}, {dtype}", *_outcome(backend, dtype)))
    return Section("Self-test", tuple(lines), time.perf_counter() - started)


def _outcome(backend: str, dtype: str) -> tuple[str, str]:
    """Return what happened, and what to do about it."""
    try:
        dtype_of(dtype)
    except ValueError as missing:
        return f"not tested: {missing}", ""
    try:
        chosen = [case(f"{dtype}-{name}") for name in CASES]
        wrong = [found for each in chosen for found in _wrong(each, backend)]
    except Exception as broken:  # an installation can fail in any way
        what = without_home(f"{type(broken).__name__}: {broken}")
        return f"FAILED: {what}", REINSTALL if backend == "fused" else REPORT
    if wrong:
        return f"WRONG: {'; '.join(wrong)}", REPORT
    return f"correct to the bit ({len(chosen)} cases, forward and backward)", ""


def _wrong(given: Case, backend: str) -> list[str]:
    """Return the results whose bits are not those of the exact answer."""
    y, saved = layer_norm_forward(given.x, given.gamma, given.beta, eps=given.eps, backend=backend)
    results = (y, *layer_norm_backward(given.dy, saved, backend=backend))
    answers = [expected(given).values[name] for name in OUTPUTS]
    return [
        f"{name} of {given.name}"
        for name, result, answer in zip(OUTPUTS, results, answers, strict=True)
        if result is None or answer is None or result.tobytes() != answer.tobytes()
    ]
