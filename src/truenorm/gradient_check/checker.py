"""The public checks `gradcheck` and `dot_test`: choose a method and check every gradient."""

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from numbers import Integral, Real
from typing import Literal, NamedTuple, get_args

import numpy as np

from truenorm.gradient_check.central_differences import Central
from truenorm.gradient_check.comparison import (
    MAX_LOCATED,
    GradientTask,
    compare_elements,
    compare_missing,
    compare_projections,
)
from truenorm.gradient_check.complex_step import ComplexStep
from truenorm.gradient_check.jet_method import MANY_ELEMENTS, MAX_ELEMENTS, JetMethod
from truenorm.gradient_check.method import Method, NotApplicableError
from truenorm.gradient_check.problem import Array, Backward, Forward, Problem, make_problem
from truenorm.gradient_check.result import GradientCheck, InputCheck, Verdict
from truenorm.tools.arguments import require_type

MethodName = Literal["auto", "jet", "complex", "central"]
METHODS: tuple[type[Method], ...] = (JetMethod, ComplexStep, Central)
MAX_DEFAULT_TOLERANCE = 0.02
NOT_JETS = "not jet, which takes longer"
TRY_AUTO = "Pass method='auto' to try the other methods, or a {} that loses fewer digits."
EVERY_METHOD = "Every method was tried: choose other inputs, or a {} that loses fewer digits."


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
        ``backward(dy, *inputs)`` returns one gradient for each input. None means a gradient of
        zero, and fails if forward depends on that input. For one input, backward may return the
        gradient itself. dy is a tuple if forward returns one.
    inputs : sequence of ndarray, or ndarray
        The point to check at: finite floating-point arrays, not all of them empty. They are
        copied, never changed.
    method : {"auto", "jet", "complex", "central"}
        How to differentiate forward. "auto" takes the first of these that works and is not
        inconclusive.
    tol : float, optional
        The allowed relative error. The default is 1e-6 for "central" and 1e-12 for the others. It
        is larger for a gradient of a type with fewer digits than float64, and where measured
        rounding errors of backward are larger, up to 1e-6. With an explicit `tol`, rounding errors
        of backward count as errors.
    probes : int
        Small inputs are checked element by element, larger ones by this number of random
        projections. An error of k times the tolerance in the largest element is missed with a
        probability of about ``k**-probes``, an error in a single element never. For projections,
        `tol` is relative to the size of the whole gradient.
    seed : int
        Seed of the random dy and projections. The stream differs from ``default_rng(seed)``,
        which callers draw inputs from: dy = x would hide most errors of dx.
    raise_exception : bool
        Raise AssertionError with the report unless the verdict is PASS.

    Returns
    -------
    GradientCheck
        Its `verdict` is PASS, FAIL or INCONCLUSIVE. It is true only for PASS, and ``str()`` is a
        short report.

    Raises
    ------
    ValueError
        If an option is wrong, or gradients have not the number or the shapes of the inputs.

    Notes
    -----
    Each method measures its own noise, the floor. A check with a floor above the tolerance never
    passes: see docs/learn/gradient-check.md. The verdict is INCONCLUSIVE if forward is not finite,
    or if two calls of it differ.

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
    __tracebackhide__ = True  # pytest shows the line of the caller
    options = _Options(method, tol, probes, seed, projections=False)
    return _run(forward, backward, inputs, options, raise_exception=raise_exception)


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
    """Check that backward is the adjoint of the derivative J of forward, by random projections.

    For random dy and v, the numbers ``<dy, J v>`` and ``<backward(dy), v>`` must agree. That takes
    one derivative for each probe and input of any size, and does not locate wrong elements.

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
    __tracebackhide__ = True  # pytest shows the line of the caller
    options = _Options(method, tol, probes, seed, projections=True)
    return _run(forward, backward, inputs, options, raise_exception=raise_exception)


class _Options(NamedTuple):
    """Options of a check; `projections` is True for projections only."""

    method: str
    tol: float | None
    probes: int
    seed: int
    projections: bool


def _run(
    forward: Forward,
    backward: Backward,
    inputs: Sequence[Array] | Array,
    options: _Options,
    *,
    raise_exception: bool,
) -> GradientCheck:
    """Validate the options, run the check, and raise AssertionError if required."""
    __tracebackhide__ = True
    names = get_args(MethodName)
    if options.method not in names:
        raise ValueError(f"method must be one of {', '.join(names)}; got {options.method!r}")
    require_type("probes", options.probes, Integral, "a whole number")
    require_type("seed", options.seed, Integral, "a whole number")
    require_type("tol", options.tol, Real | None, "a positive number")
    if options.probes < 1:
        raise ValueError(f"probes must be at least 1, got {options.probes}")
    if options.seed < 0:
        raise ValueError(f"seed must be at least 0, got {options.seed}")
    if options.tol is not None and not 0 < options.tol < math.inf:
        raise ValueError(f"tol must be a positive number, got {options.tol}")
    random = np.random.default_rng([*b"gradcheck", options.seed])
    problem = make_problem(forward, backward, inputs, random)
    if problem.inputs and not any(value.size for value in problem.inputs):
        pairs = zip(problem.names, problem.inputs, strict=True)
        shapes = ", ".join(f"{name} of shape {value.shape}" for name, value in pairs)
        raise ValueError(f"nothing to check: inputs must have at least one element; got {shapes}")
    # Probes may leave the domain, and forward may drop an imaginary part: floors show that.
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        check = _without_derivative if problem.obstacle else _first_conclusive
        result = check(problem, options)
    if raise_exception and not result:
        raise AssertionError(str(result))
    return result


def _first_conclusive(problem: Problem, options: _Options) -> GradientCheck:
    """Return the result of the first method that is conclusive, or of the first that works.

    Jets of many elements take long: a complex step is tried first, and decides if it passes.
    """
    first: GradientCheck | None = None
    reasons: list[str] = []
    tie = ""
    elements = sum(value.size for value in problem.inputs)
    if options.method == "auto" and MANY_ELEMENTS < elements <= MAX_ELEMENTS:
        with suppress(NotApplicableError):
            checks = _check_inputs(problem, ComplexStep(problem), options)
            result = GradientCheck(checks, ComplexStep.name, f"{ComplexStep.reason}; {NOT_JETS}")
            if result:
                return result
    for method_type in METHODS:
        name = method_type.name
        if options.method not in ("auto", name):
            continue
        try:
            method = method_type(problem)
        except NotApplicableError as error:
            reasons.append(f"not {name}, since {error}")
            tie = error.tie or tie
            continue
        why = "; ".join([method_type.reason, *reasons])
        result = GradientCheck(_check_inputs(problem, method, options), name, why)
        if options.method == "auto" and options.tol is None:
            result = _with_relaxed_tolerance(result)
        if result.verdict is not Verdict.INCONCLUSIVE or method.found_staircase:
            return result
        first = result if first is None else first
        reasons.append(f"not {name}, which was inconclusive (floor {result.floor:.1e})")
    if first is None:
        raise ValueError(f"{'; '.join(reasons)}. Pass method='auto' for one that works")
    checks = tuple(replace(check, why=tie or check.why) for check in first.inputs)
    advice = EVERY_METHOD if options.method == "auto" else TRY_AUTO
    noisy = any(check.floor > check.tol for check in checks)
    advice = advice.format("forward" if noisy else "backward")
    return replace(first, inputs=checks, advice="" if tie else advice)


def _with_relaxed_tolerance(result: GradientCheck) -> GradientCheck:
    """Return an inconclusive result with the tolerance of central differences if it passes then.

    Central differences would be tried next, and this method is more accurate.
    """
    checks = tuple(
        replace(check, tol=max(check.tol, Central.tolerance)) for check in result.inputs
    )
    relaxed = replace(result, inputs=checks)
    inconclusive = result.verdict is Verdict.INCONCLUSIVE
    return relaxed if inconclusive and relaxed.verdict is Verdict.PASS else result


def _without_derivative(problem: Problem, options: _Options) -> GradientCheck:
    """Return the result for a forward that has no derivative to compare with."""
    tol, why = options.tol or Central.tolerance, problem.obstacle
    checks = [
        InputCheck(name, tol, error=math.inf, floor=math.inf, size=value.size, why=why)
        for name, value in zip(problem.names, problem.inputs, strict=True)
    ]
    return GradientCheck(tuple(checks), "", why)


def _check_inputs(problem: Problem, method: Method, options: _Options) -> tuple[InputCheck, ...]:
    """Compare each gradient with derivatives by one method."""
    random = np.random.default_rng([*b"projections", options.seed])
    checks: list[InputCheck] = []
    for k, (name, gradient) in enumerate(zip(problem.names, problem.gradients, strict=True)):
        value = problem.inputs[k]
        tol = options.tol or _default_tolerance(method, value if gradient is None else gradient)
        check = InputCheck(name, tol, size=value.size, missing=gradient is None)
        task = GradientTask(problem, method, k, check, relax=options.tol is None)
        if not value.size:
            checks.append(check)
        elif gradient is None:
            checks.append(compare_missing(task, options.probes, random))
        elif options.projections or gradient.size > MAX_LOCATED:
            checks.append(compare_projections(task, gradient, options.probes, random))
        else:
            checks.append(compare_elements(task, gradient))
    return tuple(checks)


def _default_tolerance(method: Method, gradient: Array) -> float:
    """Return the tolerance of the method, or as many ulps of a narrower type."""
    unit_roundoff = float(np.finfo(gradient.dtype).eps) / 2
    scaled = JetMethod.tolerance * unit_roundoff / 2.0**-53
    return max(method.tolerance, min(scaled, MAX_DEFAULT_TOLERANCE))
