"""The long checks: gradients against derivatives, and the judge on truenorm itself."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from truenorm import textbook
from truenorm.doctor.report import Line, Section, without_home
from truenorm.doctor.self_test import REPORT, without_overrides
from truenorm.gradient_check import GradientCheck, gradcheck
from truenorm.ops.layer_norm import layer_norm_backward, layer_norm_forward
from truenorm.tools.progress import Progress
from truenorm.verify import Subject, verify
from truenorm.verify.pages.wording import conclusion
from truenorm.verify.types import FORMATS, dtype_of

__all__ = ["gradients", "judgement"]

Array = np.ndarray[Any, Any]


def gradients() -> Section:
    """Check both backward passes against derivatives of the formula they belong to."""
    started = time.perf_counter()
    with without_overrides():
        lines = [
            _checked("textbook", lambda dy, *given: textbook.backward(dy, _kept(*given))),
            _checked(
                "truenorm",
                lambda dy, *given: layer_norm_backward(dy, layer_norm_forward(*given)[1]),
            ),
        ]
    return Section("Gradient check", tuple(lines), time.perf_counter() - started)


def _formula(x: Array, gamma: Array, beta: Array) -> Array:
    """Return y by the textbook: the operation itself takes no numbers that carry derivatives."""
    return textbook.forward(x, gamma, beta)[0]


def _kept(x: Array, gamma: Array, beta: Array) -> textbook.Saved:
    return textbook.forward(x, gamma, beta)[1]


def _checked(name: str, backward: Callable[..., Any]) -> Line:
    random = np.random.default_rng(0)
    inputs = [random.standard_normal((4, 17)), *random.standard_normal((2, 17))]
    try:
        found: GradientCheck = gradcheck(_formula, backward, inputs)
    except Exception as broken:
        return Line(name, without_home(f"FAILED: {type(broken).__name__}: {broken}"), REPORT)
    value = f"{found.verdict}, by {found.method}: error {found.error:.1e} of {found.tol:.0e}"
    return Line(name, value, "" if found else REPORT)


def judgement(progress: Progress | None = None) -> Section:
    """Let the judge look at truenorm, as at anyone else's: every grade must be ``correct``."""
    started = time.perf_counter()
    with without_overrides():
        lines = [_judged(dtype, progress) for dtype in FORMATS]
    return Section("Judge, quick level", tuple(lines), time.perf_counter() - started)


def _judged(dtype: str, progress: Progress | None) -> Line:
    try:
        dtype_of(dtype)
    except ValueError as missing:
        return Line(dtype, f"not judged: {missing}")
    subject = Subject(_forward, layer_norm_backward, name=f"truenorm, {dtype}", dtypes=[dtype])
    report = verify(subject, require="correct", progress=progress)
    if report.passed:
        return Line(dtype, f"correct: y, dx, dgamma and dbeta of {report.cases} cases")
    symptoms = "; ".join(f"{each.symptom} ({each.case})" for each in report.findings[:3])
    return Line(dtype, without_home(f"WRONG: {conclusion(report)} {symptoms}"), REPORT)


def _forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Any, Any]:
    return layer_norm_forward(x, gamma, beta, eps=eps)
