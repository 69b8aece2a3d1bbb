"""The check itself: which method, which directions, and how it compares with backward."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from truenorm.gradient_check.comparing import compare_elements, compare_projections
from truenorm.gradient_check.methods.central import Central
from truenorm.gradient_check.methods.complex_step import ComplexStep
from truenorm.gradient_check.methods.jet import JetMethod
from truenorm.gradient_check.methods.method import Method, RefusedError
from truenorm.gradient_check.problem import Array, Backward, Forward, Problem, pose
from truenorm.gradient_check.result import GradientCheck, InputCheck, Verdict

__all__ = ["MethodName", "dot_test", "gradcheck"]

MethodName = Literal["auto", "jet", "complex", "central"]
METHODS: tuple[type[Method], ...] = (JetMethod, ComplexStep, Central)
LOOSEST = 0.02


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
        ``backward(dy, *inputs)`` returns one gradient for each input, None where there is none;
        for one input, the gradient itself will do. dy is a tuple if forward returns one.
    inputs : sequence of ndarray, or ndarray
        Where to check: finite floating-point arrays. They are copied, never changed.
    method : {"auto", "jet", "complex", "central"}
        How to find derivatives of forward. "auto" takes the first of these that works and is
        not inconclusive.
    tol : float, optional
        The relative error allowed: by default 1e-6 for "central" and 1e-12 for the others, and
        more for a gradient of a type with fewer digits than float64.
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
    Each method knows its own noise, the floor. If that is above the tolerance, the check never
    passes: see docs/gradient-check.md.

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
    how = _Asked(method, tol, probes, seed, projections=False)
    return _checked(forward, backward, inputs, how, raise_exception=raise_exception)


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
    how = _Asked(method, tol, probes, seed, projections=True)
    return _checked(forward, backward, inputs, how, raise_exception=raise_exception)


class _Asked(NamedTuple):
    """How to check; `projections` says whether by projections alone."""

    method: str
    tol: float | None
    probes: int
    seed: int
    projections: bool


def _checked(
    forward: Forward,
    backward: Backward,
    inputs: Sequence[Array] | Array,
    asked: _Asked,
    *,
    raise_exception: bool,
) -> GradientCheck:
    """Take the first method that works and is not inconclusive."""
    __tracebackhide__ = True
    names = get_args(MethodName)
    if asked.method not in names:
        raise ValueError(f"method is {asked.method!r}: choose one of {', '.join(names)}")
    if asked.probes < 1:
        raise ValueError(f"probes is {asked.probes}: at least one is needed")
    if asked.tol is not None and not asked.tol > 0:
        raise ValueError(f"tol is {asked.tol}: pass a positive number")
    problem = pose(forward, backward, inputs, np.random.default_rng([*b"gradcheck", asked.seed]))
    result: GradientCheck | None = None
    reasons: list[str] = []
    for kind in METHODS:
        if asked.method not in ("auto", kind.name):
            continue
        try:
            chosen = kind(problem)
        except RefusedError as refused:
            reasons.append(f"not {kind.name}, since {refused}")
            continue
        why = "; ".join([kind.reason, *reasons])
        found = GradientCheck(_compared(problem, chosen, asked), kind.name, why)
        if found.verdict is not Verdict.INCONCLUSIVE:
            result = found
            break
        result = found if result is None else result  # the first, if none has an answer
        reasons.append(f"not {kind.name}, which was inconclusive (floor {found.floor:.1e})")
    if result is None:
        raise ValueError(f"{'; '.join(reasons)}. Pass method='auto' for one that works")
    if raise_exception and not result:
        raise AssertionError(str(result))
    return result


def _compared(problem: Problem, method: Method, asked: _Asked) -> tuple[InputCheck | None, ...]:
    """Compare each gradient that backward returned with derivatives by one method."""
    random = np.random.default_rng([*b"projections", asked.seed])
    found: list[InputCheck | None] = []
    for which, (name, gradient) in enumerate(zip(problem.names, problem.gradients, strict=True)):
        if gradient is None:
            found.append(None)
            continue
        tol = asked.tol or _default_tolerance(method, gradient)
        check = InputCheck(name, tol, size=gradient.size)
        if gradient.size == 0:
            compared = check
        elif asked.projections or gradient.size > method.most_elements:
            compared = compare_projections(check, method, which, gradient, asked.probes, random)
        else:
            compared = compare_elements(check, method, which, gradient)
        found.append(compared)
    return tuple(found)


def _default_tolerance(method: Method, gradient: Array) -> float:
    """Return the method's own tolerance, or as many units in the last place of a narrower type."""
    unit_roundoff = float(np.finfo(gradient.dtype).eps) / 2
    scaled = JetMethod.tolerance * unit_roundoff / 2.0**-53
    return max(method.tolerance, min(scaled, LOOSEST))
