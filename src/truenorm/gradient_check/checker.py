"""The check itself: which method, which directions, and how it compares with backward."""

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from truenorm.gradient_check.central_differences import Central
from truenorm.gradient_check.complex_step import ComplexStep
from truenorm.gradient_check.jet_method import JetMethod
from truenorm.gradient_check.method import Direction, Estimate, Method, RefusedError
from truenorm.gradient_check.problem import Array, Backward, Forward, Problem, pose
from truenorm.gradient_check.progress import with_progress
from truenorm.gradient_check.result import GradientCheck, InputCheck

__all__ = ["MethodName", "dot_test", "gradcheck"]

MethodName = Literal["auto", "jet", "complex", "central"]
METHODS: tuple[type[Method], ...] = (JetMethod, ComplexStep, Central)
LOOSEST = 0.02


def gradcheck(
    forward: Forward,
    backward: Backward,
    inputs: Sequence[Array],
    *,
    method: MethodName = "auto",
    tol: float | None = None,
    probes: int = 4,
    seed: int = 0,
) -> GradientCheck:
    """Check a hand-written backward pass against derivatives of its forward pass.

    Parameters
    ----------
    forward : callable
        ``forward(*inputs)`` returns an array, or a tuple of arrays.
    backward : callable
        ``backward(dy, *inputs)`` returns one gradient for each input, None where there is none.
        dy is a tuple if forward returns one.
    inputs : sequence of ndarray
        Where to check: finite floating-point arrays. They are copied, never changed.
    method : {"auto", "jet", "complex", "central"}
        How to find derivatives of forward. "auto" takes the first of these that works.
    tol : float, optional
        The relative error allowed: by default 1e-6 for "central" and 1e-12 for the others, and
        more for gradients of a type with fewer digits than float64.
    probes : int
        Small inputs are checked element by element, larger ones by so many random projections.
    seed : int
        Of the random dy and projections. The stream is not that of ``default_rng(seed)``, which
        callers draw their inputs from: dy = x would hide most errors in a dx like ours.

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
    return _checked(forward, backward, inputs, method, tol, probes, seed, projections=False)


def dot_test(
    forward: Forward,
    backward: Backward,
    inputs: Sequence[Array],
    *,
    method: MethodName = "auto",
    tol: float | None = None,
    probes: int = 4,
    seed: int = 0,
) -> GradientCheck:
    """Check that backward is the adjoint of forward's derivative J, by random projections alone.

    For random dy and v, the numbers ``<dy, J v>`` and ``<backward(dy), v>`` must agree. That takes
    one derivative for each probe and input, however large they are, and names no element.

    Parameters
    ----------
    forward, backward, inputs, method, tol, probes, seed
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
    return _checked(forward, backward, inputs, method, tol, probes, seed, projections=True)


def _checked(
    forward: Forward,
    backward: Backward,
    inputs: Sequence[Array],
    method: str,
    tol: float | None,
    probes: int,
    seed: int,
    *,
    projections: bool,
) -> GradientCheck:
    if method not in get_args(MethodName):
        raise ValueError(f"method is {method!r}: choose one of {', '.join(get_args(MethodName))}")
    if probes < 1:
        raise ValueError(f"probes is {probes}: at least one is needed")
    if tol is not None and not tol > 0:
        raise ValueError(f"tol is {tol}: pass a positive number")
    random = np.random.default_rng([*b"gradcheck", seed])
    problem = pose(forward, backward, inputs, random)
    chosen, why = _choose(problem, method)
    if tol is None:
        tol = _default_tolerance(chosen, problem.unit_roundoff)
    found: list[InputCheck | None] = []
    for which, gradient in enumerate(problem.gradients):
        if gradient is None:
            found.append(None)
        elif gradient.size == 0:
            found.append(InputCheck(0.0, 0.0, 0, 0, None, 0.0, 0.0))
        elif projections or gradient.size > chosen.most_elements:
            found.append(_by_projections(chosen, which, gradient, probes, random))
        else:
            found.append(_by_elements(chosen, which, gradient))
    return GradientCheck(tuple(found), tol, chosen.name, why)


def _choose(problem: Problem, name: str) -> tuple[Method, str]:
    """Return the method asked for, or the most trustworthy one that works, and why."""
    refusals: list[str] = []
    for kind in METHODS:
        if name not in ("auto", kind.name):
            continue
        try:
            return kind(problem), "; ".join([kind.reason, *refusals])
        except RefusedError as refused:
            refusals.append(f"not {kind.name}, since {refused}")
    raise ValueError(f"{'; '.join(refusals)}. Pass method='auto' for one that works")


def _default_tolerance(method: Method, unit_roundoff: float) -> float:
    """Return the method's own tolerance, or as many units in the last place of a narrower type."""
    scaled = JetMethod.tolerance * unit_roundoff / 2.0**-53
    return max(method.tolerance, min(scaled, LOOSEST))


def _by_elements(method: Method, which: int, gradient: Array) -> InputCheck:
    """Check every element of a gradient by itself."""
    indices = list(np.ndindex(gradient.shape))
    found: list[Estimate] = []
    for index in with_progress(indices, len(indices), f"gradient of input {which}"):
        step = np.zeros(gradient.shape)
        step[index] = 1.0
        found.append(method.derivative(Direction(which, step)))
    analytic = [float(gradient[index]) for index in indices]
    largest = max(estimate.scale for estimate in found)
    scales = [max(estimate.scale, method.least_scale * largest) for estimate in found]
    return _worst(analytic, found, scales, indices, gradient.size)


def _by_projections(
    method: Method, which: int, gradient: Array, probes: int, random: np.random.Generator
) -> InputCheck:
    """Check sums of all elements with random signs."""
    signs = [random.choice([-1.0, 1.0], gradient.shape) for _ in range(probes)]
    wide: NDArray[np.float64] = gradient.astype(np.float64)
    progress = with_progress(signs, probes, f"gradient of input {which}")
    found = [method.derivative(Direction(which, step)) for step in progress]
    finite = bool(np.isfinite(wide).all())
    analytic = [math.fsum((wide * step).flat) if finite else math.nan for step in signs]
    length = float(np.linalg.norm(wide))
    # A gradient of zero has no length; then the derivative has a scale.
    scales = [length or estimate.scale for estimate in found]
    return _worst(analytic, found, scales, None, gradient.size)


def _worst(
    analytic: list[float],
    found: list[Estimate],
    scales: list[float],
    indices: list[tuple[int, ...]] | None,
    size: int,
) -> InputCheck:
    """Return the largest error and the largest floor, each relative to its scale."""
    errors, floors = [], []
    for given, estimate, scale in zip(analytic, found, scales, strict=True):
        usable = math.isfinite(estimate.value) and math.isfinite(estimate.floor)
        difference = abs(given - estimate.value) if usable else math.inf
        if not math.isfinite(given):
            difference = math.nan
        errors.append(_relative(difference, scale))
        floors.append(_relative(estimate.floor, scale) if usable else math.inf)
    # The first that is not a number, if there is one; else the largest.
    worst = max(range(len(errors)), key=lambda k: (math.isnan(errors[k]), errors[k]))
    return InputCheck(
        errors[worst],
        max(floors),
        0 if indices is None else len(indices),
        size,
        None if indices is None else indices[worst],
        analytic[worst],
        found[worst].value,
    )


def _relative(difference: Any, scale: float) -> float:
    if difference == 0 or difference == math.inf:
        return float(difference)
    return float(difference / scale) if scale else math.inf * float(difference)
