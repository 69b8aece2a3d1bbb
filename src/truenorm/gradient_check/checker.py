"""The check itself: which method, which directions, and how it compares with backward."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

import numpy as np

from truenorm.gradient_check.central_differences import Central
from truenorm.gradient_check.comparison import (
    Asked,
    compare_elements,
    compare_missing,
    compare_projections,
)
from truenorm.gradient_check.complex_step import ComplexStep
from truenorm.gradient_check.jet_method import JetMethod
from truenorm.gradient_check.method import Method, RefusedError
from truenorm.gradient_check.problem import Array, Backward, Forward, Problem, pose
from truenorm.gradient_check.result import GradientCheck, InputCheck, Verdict

__all__ = ["MethodName", "dot_test", "gradcheck"]

MethodName = Literal["auto", "jet", "complex", "central"]
METHODS: tuple[type[Method], ...] = (JetMethod, ComplexStep, Central)
LOOSEST = 0.02
TRY_AUTO = "Pass method='auto' to try the other methods, or a forward that loses fewer digits."
EVERY_METHOD = "Every method was tried: choose other inputs, or a forward that loses fewer digits."


def gradcheck(
    forward: Forward,
    backward: Backward,
    inputs: Sequence[Array] | Array,
    *,
    method: MethodName = "auto",
    tol: float | None = None,
    probes: int = 4,
    seed: int = 0,
    raise_exception: bool = False,
) -> GradientCheck:
    """Check a hand-written backward pass against derivatives of its forward pass.

    Parameters
    ----------
    forward : callable
        ``forward(*inputs)`` returns an array, or a tuple of arrays.
    backward : callable
        ``backward(dy, *inputs)`` returns one gradient for each input. None stands for a gradient
        of zero: it fails if forward depends on that input. For one input, the gradient itself will
        do. dy is a tuple if forward returns one.
    inputs : sequence of ndarray, or ndarray
        Where to check: finite floating-point arrays. They are copied, never changed.
    method : {"auto", "jet", "complex", "central"}
        How to find derivatives of forward. "auto" takes the first of these that works and is
        not inconclusive.
    tol : float, optional
        The relative error allowed. By default 1e-6 for "central" and 1e-12 for the others, more
        for a gradient of a type with fewer digits than float64, and where rounding errors of
        backward were measured to be larger, up to 1e-6. If you pass a number, rounding errors of
        backward count as errors.
    probes : int
        Small inputs are checked element by element, larger ones by so many random projections:
        an error of k times the tolerance in the largest element is missed with a probability of
        about ``k**-probes``, and one in a single element never.
    seed : int
        Of the random dy and projections. The stream is not that of ``default_rng(seed)``, which
        callers draw their inputs from: dy = x would hide most errors in a dx like ours.
    raise_exception : bool
        Raise AssertionError with the report unless the verdict is PASS.

    Returns
    -------
    GradientCheck
        Its `verdict` is PASS, FAIL or INCONCLUSIVE, and it is true for PASS alone; ``str()`` is
        a short report.

    Notes
    -----
    Each method measures its own noise, the floor. If that is above the tolerance, the check never
    passes: see docs/gradient-check.md. Where forward is not finite, or two calls of it differ, the
    verdict is INCONCLUSIVE.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm as tn
    >>> def forward(x):
    ...     return np.tanh(x)
    >>> def backward(dy, x):
    ...     return (dy * (1 - np.tanh(x) ** 2),)
    >>> result = tn.gradcheck(forward, backward, [np.linspace(-2, 2, 9)], method="complex")
    >>> print(result.verdict, bool(result))
    PASS True
    """
    __tracebackhide__ = True  # pytest is to show the line of the caller
    options = _Options(method, tol, probes, seed, projections=False)
    return _checked(forward, backward, inputs, options, raise_exception=raise_exception)


def dot_test(
    forward: Forward,
    backward: Backward,
    inputs: Sequence[Array] | Array,
    *,
    method: MethodName = "auto",
    tol: float | None = None,
    probes: int = 4,
    seed: int = 0,
    raise_exception: bool = False,
) -> GradientCheck:
    """Check that backward is the adjoint of forward's derivative J, by random projections alone.

    For random dy and v, the numbers ``<dy, J v>`` and ``<backward(dy), v>`` must agree. That takes
    one derivative for each probe and input, however large they are, and names no element.

    Parameters
    ----------
    forward, backward, inputs, method, tol, probes, seed, raise_exception
        As in `gradcheck`.

    Returns
    -------
    GradientCheck
        As from `gradcheck`.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm as tn
    >>> def forward(x, weight):
    ...     return x @ weight
    >>> def backward(dy, x, weight):
    ...     return dy @ weight.T, x.T @ dy
    >>> inputs = [np.ones((3, 4)), np.eye(4, 2)]
    >>> bool(tn.dot_test(forward, backward, inputs, method="complex"))
    True
    """
    __tracebackhide__ = True  # pytest is to show the line of the caller
    options = _Options(method, tol, probes, seed, projections=True)
    return _checked(forward, backward, inputs, options, raise_exception=raise_exception)


class _Options(NamedTuple):
    """How to check; `projections` is True for projections alone."""

    method: str
    tol: float | None
    probes: int
    seed: int
    projections: bool


def _checked(
    forward: Forward,
    backward: Backward,
    inputs: Sequence[Array] | Array,
    options: _Options,
    *,
    raise_exception: bool,
) -> GradientCheck:
    """Take the first method that works and is not inconclusive."""
    __tracebackhide__ = True
    names = get_args(MethodName)
    if options.method not in names:
        raise ValueError(f"method must be one of {', '.join(names)}; got {options.method!r}")
    if options.probes < 1:
        raise ValueError(f"probes must be at least 1, got {options.probes}")
    if options.tol is not None and not 0 < options.tol < math.inf:
        raise ValueError(f"tol must be a positive number, got {options.tol}")
    problem = pose(forward, backward, inputs, np.random.default_rng([*b"gradcheck", options.seed]))
    # Probes may leave the domain, or forward may drop an imaginary part: floors show that.
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        result = _not_checked(problem, options) if problem.obstacle else _judged(problem, options)
    if raise_exception and not result:
        raise AssertionError(str(result))
    return result


def _judged(problem: Problem, options: _Options) -> GradientCheck:
    """Try one method after the other until one has an answer."""
    result: GradientCheck | None = None
    reasons: list[str] = []
    tie = ""
    for kind in METHODS:
        if options.method not in ("auto", kind.name):
            continue
        try:
            method = kind(problem)
        except RefusedError as refused:
            reasons.append(f"not {kind.name}, since {refused}")
            tie = refused.tie or tie
            continue
        why = "; ".join([kind.reason, *reasons])
        check = GradientCheck(_compared(problem, method, options), kind.name, why)
        if options.method == "auto" and options.tol is None:
            check = _relaxed(check)
        if check.verdict is not Verdict.INCONCLUSIVE:
            return check
        result = check if result is None else result  # the first, if none has an answer
        reasons.append(f"not {kind.name}, which was inconclusive (floor {check.floor:.1e})")
    if result is None:
        raise ValueError(f"{'; '.join(reasons)}. Pass method='auto' for one that works")
    checks = tuple(replace(check, why=tie or check.why) for check in result.inputs)
    advice = EVERY_METHOD if options.method == "auto" else TRY_AUTO
    return replace(result, inputs=checks, advice="" if tie else advice)


def _relaxed(check: GradientCheck) -> GradientCheck:
    """Return a check with the tolerance of central differences if it passes with that alone.

    They would be next, and what they allow is enough for a method that sees more.
    """
    loose = tuple(replace(each, tol=max(each.tol, Central.tolerance)) for each in check.inputs)
    relaxed = replace(check, inputs=loose)
    undecided = check.verdict is Verdict.INCONCLUSIVE
    return relaxed if undecided and relaxed.verdict is Verdict.PASS else check


def _not_checked(problem: Problem, options: _Options) -> GradientCheck:
    """Return the result for a forward that has no derivative to compare with."""
    checks = [
        InputCheck(
            name,
            options.tol or Central.tolerance,
            error=math.inf,
            floor=math.inf,
            size=value.size,
            why=problem.obstacle,
        )
        for name, value in zip(problem.names, problem.inputs, strict=True)
    ]
    return GradientCheck(tuple(checks), "", problem.obstacle)


def _compared(problem: Problem, method: Method, options: _Options) -> tuple[InputCheck, ...]:
    """Compare each gradient with derivatives by one method."""
    random = np.random.default_rng([*b"projections", options.seed])
    checks: list[InputCheck] = []
    for which, (name, gradient) in enumerate(zip(problem.names, problem.gradients, strict=True)):
        value = problem.inputs[which]
        tol = options.tol or _default_tolerance(method, value if gradient is None else gradient)
        check = InputCheck(name, tol, size=value.size, missing=gradient is None)
        asked = Asked(check, method, problem, which, relax=options.tol is None)
        if not value.size:
            checks.append(check)
        elif gradient is None:
            checks.append(compare_missing(asked, options.probes, random))
        elif options.projections or gradient.size > method.most_elements:
            checks.append(compare_projections(asked, gradient, options.probes, random))
        else:
            checks.append(compare_elements(asked, gradient))
    return tuple(checks)


def _default_tolerance(method: Method, gradient: Array) -> float:
    """Return the method's own tolerance, or as many units in the last place of a narrower type."""
    unit_roundoff = float(np.finfo(gradient.dtype).eps) / 2
    scaled = JetMethod.tolerance * unit_roundoff / 2.0**-53
    return max(method.tolerance, min(scaled, LOOSEST))
