"""The examination: what is around, and whether truenorm computes what it promises."""

import os
import time
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import numpy as np

from truenorm import textbook
from truenorm.doctor.gpu import devices
from truenorm.doctor.report import Diagnosis, Line, Section
from truenorm.doctor.surroundings import (
    backends,
    error_text,
    processor,
    usable_backends,
    versions,
)
from truenorm.gradient_check import GradientCheck, gradcheck
from truenorm.ops.layer_norm import layer_norm_backward, layer_norm_forward
from truenorm.tools.machine import today
from truenorm.tools.progress import Progress, announced
from truenorm.tools.text import without_home
from truenorm.verify import Subject, verify
from truenorm.verify.answers.expected import expected
from truenorm.verify.operation import Case
from truenorm.verify.operations.layer_norm import OUTPUTS
from truenorm.verify.pages.wording import conclusion
from truenorm.verify.suite import case
from truenorm.verify.types import FORMATS, dtype_of

__all__ = ["examine", "gradients", "judgement", "self_test"]

CASES = ("normal-4x67", "offset-100-4x67", "exact-tie", "one-ulp-off", "two-elements", "nan-in-x")
"""Of the judge: ordinary rows, cancellation, a tie, and numbers that are none."""
OVERRIDES = ("TRUENORM_BACKEND", "TRUENORM_ROUNDING", "TRUENORM_THREADS")
REPORT = "please report this with all lines above"
UNTESTED = Section("Self-test", (Line("not run", "the arithmetic of this process is not IEEE's"),))

Array = np.ndarray[Any, Any]


def examine(
    *, full: bool = False, gpu: bool = False, progress: Progress | None = None
) -> Diagnosis:
    """Look at the installation of truenorm, and test it.

    Parameters
    ----------
    full : bool
        Also check the gradients, and put every case of the judge's quick level to truenorm.
    gpu : bool
        Examine graphics processors instead, or with `full` as well: their bits and their speed.
    progress : callable, optional
        Called with the number of steps done, the number of all, and what comes next.

    Returns
    -------
    Diagnosis
        ``diagnosis.healthy``, ``diagnosis.problems``.

    Examples
    --------
    >>> from truenorm.doctor import examine
    >>> [section.title for section in examine().sections][:2]
    ['Versions', 'Backends']
    """
    found = [versions(), backends(), processor()]
    if found[-1].problems:
        # Then the operation refuses to compute, and more complaints would only hide why.
        return Diagnosis(today(), full, (*found, UNTESTED), gpu)
    if full or not gpu:
        found.append(self_test(progress))
    if full:
        found += [gradients(), judgement(progress)]
    if gpu:
        found += devices(progress)
    return Diagnosis(today(), full, tuple(found), gpu)


def _tested(title: str, lines: Iterable[Line]) -> Section:
    """Make the lines of a test, whatever variables are set, and note how long that takes."""
    started = time.perf_counter()
    overrides = {name: os.environ.pop(name) for name in OVERRIDES if name in os.environ}
    try:
        made = tuple(lines)
    finally:
        os.environ.update(overrides)
    return Section(title, made, time.perf_counter() - started)


def _missing(dtype: str) -> str:
    """Return why there is no such type here, or nothing."""
    try:
        dtype_of(dtype)
    except ValueError as missing:
        return str(missing)
    return ""


def self_test(progress: Progress | None = None) -> Section:
    """Compare a few results of each backend and type with the exact answer, to the bit.

    Devices are left to `devices`: each of these cases would be compiled for.
    """
    backends = [name for name in usable_backends() if name != "gpu"]
    jobs = list(product(backends, FORMATS))
    return _tested("Self-test", (_compared(*job) for job in announced(jobs, progress, ", ".join)))


def _compared(backend: str, dtype: str) -> Line:
    name = f"{backend}, {dtype}"
    if missing := _missing(dtype):
        return Line(name, f"not tested: {missing}")
    try:
        chosen = [case(f"{dtype}-{each}") for each in CASES]
        wrong = [found for each in chosen for found in _wrong(each, backend)]
    except Exception as broken:  # an installation can fail in any way
        return Line(name, f"FAILED: {error_text(broken)}", REPORT)
    if wrong:
        return Line(name, f"WRONG: {'; '.join(wrong)}", REPORT)
    return Line(name, f"correct to the bit ({len(chosen)} cases, forward and backward)")


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


def gradients() -> Section:
    """Check both backward passes against derivatives of the formula they belong to."""
    passes: dict[str, Callable[..., Any]] = {
        "textbook": lambda dy, *given: textbook.backward(dy, textbook.forward(*given)[1]),
        "truenorm": lambda dy, *given: layer_norm_backward(dy, layer_norm_forward(*given)[1]),
    }
    return _tested("Gradient check", (_checked(*each) for each in passes.items()))


def _formula(x: Array, gamma: Array, beta: Array) -> Array:
    """Return y by the textbook: the operation itself takes no numbers that carry derivatives."""
    return textbook.forward(x, gamma, beta)[0]


def _checked(name: str, backward: Callable[..., Any]) -> Line:
    random = np.random.default_rng(0)
    inputs = [random.standard_normal((4, 17)), *random.standard_normal((2, 17))]
    try:
        found: GradientCheck = gradcheck(_formula, backward, inputs)
    except Exception as broken:
        return Line(name, f"FAILED: {error_text(broken)}", REPORT)
    value = f"{found.verdict}, by {found.method}: error {found.error:.1e} of {found.tol:.0e}"
    return Line(name, value, "" if found else REPORT)


def judgement(progress: Progress | None = None) -> Section:
    """Let the judge look at truenorm, as at anyone else's: every grade must be ``correct``."""
    return _tested("Judge, quick level", (_judged(dtype, progress) for dtype in FORMATS))


def _judged(dtype: str, progress: Progress | None) -> Line:
    if missing := _missing(dtype):
        return Line(dtype, f"not judged: {missing}")
    subject = Subject(_forward, layer_norm_backward, name=f"truenorm, {dtype}", dtypes=[dtype])
    report = verify(subject, require="correct", progress=progress)
    if report.passed:
        return Line(dtype, f"correct: y, dx, dgamma and dbeta of {report.cases} cases")
    symptoms = "; ".join(f"{each.symptom} ({each.case})" for each in report.findings[:3])
    return Line(dtype, without_home(f"WRONG: {conclusion(report)} {symptoms}"), REPORT)


def _forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Any, Any]:
    return layer_norm_forward(x, gamma, beta, eps=eps)
