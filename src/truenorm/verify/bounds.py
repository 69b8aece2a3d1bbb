"""Exact answers and tolerances for tests of a kernel: `bound` and the class `Bound`."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from truenorm.tools.arguments import require_choice
from truenorm.tools.text import counted
from truenorm.verify.diagnosis.accuracy import diagnose
from truenorm.verify.diagnosis.matches import Evidence
from truenorm.verify.grading.user_cases import EnclosedAnswers, enclosed_answers
from truenorm.verify.norms.enclosures import largest_kappa, unsupported_reason
from truenorm.verify.operation import Case, Operation, require_support
from truenorm.verify.operations import as_operation
from truenorm.verify.oracle import Expected, compute_exact, output_types
from truenorm.verify.running.pytorch import array_of
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of
from truenorm.verify.user_cases import USER_FAMILY

GRADES = ("conditional", "stable", "faithful", "correct")
"""The grades that give a tolerance for one input, from the loosest."""
POWERS = {"conditional": 1, "stable": 0}
EXACT_ELEMENTS = 2**12
"""Largest input with exact answers, at some 50 microseconds an element."""
DIAGNOSED_ELEMENTS = 2**12
"""Elements of a larger input that are compared with hypotheses."""
SMALLEST, LARGEST, KAPPA = 2.0**-8, 2.0**10, 16.0
"""Limits of ordinary rows, the only rows that are diagnosed: the largest element of a row, and the
condition number. On other rows several hypotheses could match."""


def make_case(operation: Operation, inputs: Mapping[str, Any], eps: float) -> Case:
    """Return the case of arrays or tensors; missing arrays are None.

    A parameter may be absent. A gradient that is not given is zero, which takes no memory.
    """
    arrays = {name: array_of(each) for name, each in inputs.items() if each is not None}
    names = [each.name for each in operation.inputs]
    if unknown := arrays.keys() - set(names):
        raise ValueError(f"{operation.name} takes no {' and no '.join(sorted(unknown))}")
    for name in operation.inputs_of("data"):
        if name not in arrays:
            raise ValueError(f"{operation.name} needs {name}")
    for name, array in arrays.items():
        if name not in operation.indices and array.dtype.name not in FORMATS:
            raise ValueError(f"{name} must be {', '.join(FORMATS)}; got {array.dtype.name}")
    x = arrays[names[0]]
    if x.ndim == 0 or x.size == 0:
        raise ValueError(f"{names[0]} must have rows of at least one element; got shape {x.shape}")
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps must be finite and not negative; got {eps}")
    operation.require_type(x.dtype.name)
    rows = {name: _as_rows(operation, name, arrays.get(name), x) for name in names}
    # The input may be as hard as any case, so its sums may be taken in sequence as there.
    return Case(
        operation,
        "the input",
        x.dtype.name,
        rows,
        float(eps),
        family=USER_FAMILY,
        kind="hard",
        seeded=True,
    )


def _as_rows(operation: Operation, name: str, array: Array | None, x: Array) -> Array | None:
    """Return an input as rows, or a parameter as it is; check its shape and type."""
    size = x.shape[-1]
    if not operation.is_rows(name):
        if array is not None and array.shape != (size,):
            raise ValueError(f"{name} must have shape {(size,)}, got {array.shape}")
        return array
    shape = x.shape[:-1] if name in operation.columns else x.shape
    wanted = (x.size // size, 1 if name in operation.columns else size)
    if array is None:
        return np.broadcast_to(np.zeros(1, x.dtype), wanted)
    if name in operation.indices:
        if array.shape != shape or array.dtype.kind not in "iu" or not _is_below(array, size):
            raise ValueError(
                f"{name} must have integers from 0 to {size - 1} and the shape {shape}; "
                f"got {array.dtype.name} {array.shape}"
            )
        return array.astype(np.int64).reshape(wanted)
    if array.shape != shape or array.dtype != x.dtype:
        of_x = f"{operation.inputs[0].name}, {x.dtype.name} {shape}"
        raise ValueError(
            f"{name} must have the type and shape of {of_x}; got {array.dtype.name} {array.shape}"
        )
    return array.reshape(wanted)


def _is_below(index: Array, size: int) -> bool:
    return bool(((index >= 0) & (index < size)).all())


def _likely_cause(case: Case, output: str, result: Array) -> str:
    """Return the likely cause of a wrong result on ordinary rows, or an empty string."""
    for name in case.rows.keys() - case.operation.indices:
        largest = np.abs(case.rows[name].astype(np.float64)).max(axis=1)
        least = SMALLEST if name == case.operation.inputs[0].name else 0.0
        if not ((least <= largest) & (largest <= LARGEST)).all():
            return ""
    if not largest_kappa(case) <= KAPPA:
        return ""
    evidence = [Evidence(case, output, result, correct=False)]
    return diagnose(evidence, case.operation.knowledge.hypotheses(output), by_size=False).words()


@dataclass(frozen=True)
class OutOfBounds:
    """The number of elements beyond the tolerance, and the worst element.

    `ratio` is the error of the worst element divided by its tolerance.
    """

    count: int = 0
    total: int = 0
    at: tuple[int, ...] = ()
    got: Any = 0.0
    exact: Any = 0.0
    allowed: float = 0.0
    error: float = 0.0
    ulp: float = 0.0
    ratio: float = -1.0

    def message(self, name: str, at: Sequence[int], grade: str, cause: str) -> str:
        """Describe the violation; `at` is the index of the worst element by all axes."""
        are = "is" if self.count == 1 else "are"
        lines = [
            f"{name} is not {grade}: {self.count} of {counted(self.total, 'element')} {are} off",
            f"  worst: {name}{list(at)} is {self.got}, the exact answer {self.exact}: off by "
            f"{self.error:.3g}, {self.ulp:.3g} ulp, where {self.allowed:.3g} is allowed",
        ]
        return "\n".join([*lines, f"  likely cause: {cause}"] if cause else lines)


def tolerance_of(answers: Expected, output: str, grade: str) -> Float64s:
    """Return how far each element may be from the exact number before rounding.

    For *correct*, the rounding of the answer; for *faithful*, less than one ulp. 0 where the
    answer is not finite.
    """
    if grade in POWERS:
        return answers.allowed(output, POWERS[grade])
    finite, ulps = np.isfinite(answers.wide[output]), answers.ulps[output]
    tolerance = ulps if grade == "faithful" else np.abs(answers.remainders[output]) * ulps
    return np.where(finite, tolerance, 0.0)


def compare_with_answers(
    parts: Iterable[tuple[slice, Expected]], output: str, result: Array, grade: str
) -> OutOfBounds:
    """Compare a result with the answers of its parts: blocks of rows, or all columns."""
    total = OutOfBounds()
    for rows, answers in parts:
        part = _compare_part(answers, output, result[rows], grade)
        worst = total
        if part.ratio > total.ratio:
            worst = replace(part, at=((rows.start or 0) + part.at[0], *part.at[1:]))
        total = replace(worst, count=total.count + part.count, total=total.total + part.total)
    return total


def _compare_part(answers: Expected, output: str, result: Array, grade: str) -> OutOfBounds:
    bounds = answers.bounds[output] if isinstance(answers, EnclosedAnswers) else None
    errors = answers.element_errors(output, result, bounds=bounds)
    tolerance = tolerance_of(answers, output, grade)
    if grade == "correct":
        wrong = ~errors.correct
    else:
        wrong = errors.in_ulp >= 1 if grade == "faithful" else errors.error > tolerance
    not_finite = answers.misplaced(output, result, bounds)
    wrong = wrong | not_finite
    values = answers.values[output]
    if not wrong.any() or values is None:
        return OutOfBounds(total=wrong.size)
    with np.errstate(all="ignore"):
        ratio = errors.error / np.maximum(tolerance, answers.ulps[output] / 2)
    ratio = np.where(wrong, np.where(not_finite, np.inf, ratio), -1.0)
    at = tuple(map(int, np.unravel_index(int(np.argmax(ratio)), ratio.shape)))
    return OutOfBounds(
        int(wrong.sum()),
        wrong.size,
        at,
        result[at],
        values[at],
        float(tolerance[at]),
        float(errors.error[at]),
        float(errors.in_ulp[at]),
        float(ratio[at]),
    )


class Bound:
    """The exact results of one input, and a tolerance for each element.

    Returned by `bound`. Answers are computed when they are needed. For inputs with more than 4096
    elements, answers are computed for a block of rows at a time and not stored.

    Attributes
    ----------
    results : tuple of str
        The names of the results, in the order in which kernels return them.
    grade : str
        The grade that `assert_close` requires.
    """

    def __init__(self, case: Case, shape: tuple[int, ...], grade: str, *, backward: bool) -> None:
        self._case, self._shape, self.grade = case, shape, grade
        types = output_types(case)
        outputs = case.operation.outputs
        self._returned = [each.name for each in outputs if backward or not each.backward]
        self.results = tuple(name for name in self._returned if name in types)

    def __repr__(self) -> str:
        """Return the results, the operation and the grade."""
        return f"Bound({', '.join(self.results)} of {self._case.operation.title}, {self.grade})"

    def exact(self, name: str = "y") -> Array:
        """Return the exact result, rounded to its type.

        Ties go to even. For inputs with more than 4096 elements, an answer within 2^-52 of itself
        of a tie may be rounded to the other side.
        """
        exact = np.empty(self._shape_of(name), dtype_of(output_types(self._case)[name]))
        rows = self._as_rows(name, exact)
        for block, answers in self._answers(name):
            rows[block] = answers.values[name]
        return exact

    def tolerance(self, name: str = "y") -> Float64s:
        """Return how far each element of a result may be from the exact number, in float64."""
        tolerance = np.empty(self._shape_of(name))
        rows = self._as_rows(name, tolerance)
        for block, answers in self._answers(name):
            rows[block] = tolerance_of(answers, name, self.grade)
        return tolerance

    def assert_close(self, actual: Any = None, /, **results: Any) -> None:
        """Raise AssertionError unless each element of each result is within its tolerance.

        Parameters
        ----------
        actual : array, tensor, tuple or mapping
            The first result; or several, in the order in which kernels return them; or by name.
        **results : array or tensor
            Results by name, such as ``dx=dx``.
        """
        __tracebackhide__ = True  # pytest shows the test that failed, and no line of this function
        named = {**self._by_name(actual), **results}
        if not named:
            raise TypeError("there is nothing to compare: pass one or more results")
        messages = [text for name, each in named.items() if (text := self._message(name, each))]
        if messages:
            raise AssertionError("\n".join(messages))

    def _by_name(self, actual: Any) -> Mapping[str, Any]:
        if actual is None:
            return {}
        if isinstance(actual, Mapping):
            return actual
        several: Sequence[Any] = actual if isinstance(actual, tuple) else (actual,)
        if len(several) > len(self._returned):
            names = ", ".join(self.results)
            raise ValueError(f"expected at most the results {names}; got {len(several)} results")
        named = zip(self._returned, several, strict=False)
        # The gradient of a parameter that is None is returned as None.
        return {name: each for name, each in named if name in self.results or each is not None}

    def _shape_of(self, name: str) -> tuple[int, ...]:
        if name not in self.results:
            hint = "" if any(each[0] == "d" for each in self.results) else "; for others, pass dy"
            names = ", ".join(self.results)
            raise ValueError(f"result must be one of {names}; got {name!r}{hint}")
        return self._case.operation.result_shapes(name, self._shape)[0]

    def _as_rows(self, name: str, result: Array) -> Array:
        is_rows = self._case.operation.is_rows(name)
        return result.reshape(self._case.shape[0], -1) if is_rows else result

    @cached_property
    def _exact(self) -> Expected | None:
        """The exact answers, if the input is small enough."""
        case = self._case
        return Expected(case, compute_exact(case)) if case.first.size <= EXACT_ELEMENTS else None

    def _answers(self, name: str) -> Iterator[tuple[slice, Expected]]:
        """Yield the answers of all rows, of one block of rows after another, or of all columns."""
        if self._exact is not None:
            yield slice(None), self._exact
            return
        for block, answers in enclosed_answers(self._case, [name]):
            if name in answers.types:
                yield (slice(None) if block is None else block), answers

    def _message(self, name: str, actual: Any) -> str:
        """Describe the error of a result; return an empty string if the result is close."""
        shape, kind = self._shape_of(name), output_types(self._case)[name]
        result = array_of(actual)
        if result.shape != shape:
            return f"{name} has the shape {result.shape}; it should be {shape}"
        if result.dtype.name != kind:
            return f"{name} is {result.dtype.name}; it should be {kind}"
        rows = self._as_rows(name, result)
        violations = compare_with_answers(self._answers(name), name, rows, self.grade)
        if not violations.count:
            return ""
        at = violations.at
        cause = self._cause(name, rows, at[0])
        flat = np.ravel_multi_index(at, rows.shape)
        at = tuple(map(int, np.unravel_index(flat, shape)))
        return violations.message(name, at, self.grade, cause)

    def _cause(self, name: str, rows: Array, worst: int) -> str:
        """Diagnose all rows of a small input, or some rows around the worst of a large input.

        Sums over the rows of a large input are not diagnosed.
        """
        case = self._case
        if self._exact is None:
            if rows.ndim == 1 or rows.shape[1] > DIAGNOSED_ELEMENTS:
                return ""
            count = DIAGNOSED_ELEMENTS // rows.shape[1]
            start = max(0, min(worst, len(rows) - count))
            block = slice(start, start + count)
            case, rows = case.part(block), rows[block]
        return _likely_cause(case, name, rows)


def bound(
    operation: str | Operation,
    x: Any,
    gamma: Any = None,
    beta: Any = None,
    eps: float = 1e-5,
    *,
    residual: Any = None,
    dy: Any = None,
    dsum: Any = None,
    grade: str = "stable",
    **inputs: Any,
) -> Bound:
    """Return the exact results of an input, and a tolerance for each element.

    The tolerances are the bounds of grades in `verify`: see "What the judge says". Tolerances
    follow from the input: where terms cancel, more is allowed.

    Parameters
    ----------
    operation : str or Operation
        Such as ``rms_norm`` or ``add_rms_norm,gain=zero-centred``; or a result of `norm` or of
        `formula`, for at most 4096 elements.
    x : array or tensor
        Of any rank; rows lie along the last axis. float16, bfloat16, float32 or float64.
    gamma, beta : array or tensor, optional
        One number for each column, in a type of x; None for no scale, or no shift.
    eps : float
    residual : array or tensor
        Added to x first, by operations that do so.
    dy, dsum : array or tensor, optional
        The gradients of y and of the sum. Without a gradient, only forward results have a bound.
    grade : str
        ``correct``, ``faithful``, ``stable`` or ``conditional``.
    **inputs : array or tensor
        Other inputs of a formula, and gradients of its results, by name.

    Returns
    -------
    Bound
        ``exact(name)``, ``tolerance(name)`` and ``assert_close(actual)``.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm.verify as tv
    >>> x = np.random.default_rng(0).normal(size=(2, 3, 64)).astype(np.float32)
    >>> bound = tv.bound("rms_norm", x, eps=1e-6)
    >>> y = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-6))
    >>> bound.assert_close(y)
    >>> bound.assert_close(y * np.float32(1.0001))
    Traceback (most recent call last):
        ...
    AssertionError: y is not stable: 384 of 384 elements are off
      worst: y[...] is ...
    """
    parsed = as_operation(operation)
    require_support(parsed, "bound", "bound")
    require_choice("grade", grade, GRADES)
    named = {"residual": residual, "dy": dy, "dsum": dsum, "gamma": gamma, "beta": beta, **inputs}
    case = make_case(parsed, {parsed.inputs[0].name: x, **named}, eps)
    if case.first.size > EXACT_ELEMENTS:
        require_support(parsed, "enclosures", f"bound of more than {EXACT_ELEMENTS} elements")
        if reason := unsupported_reason(case):
            raise ValueError(reason)
    backward = any(named.get(name) is not None for name in parsed.inputs_of("gradient"))
    return Bound(case, tuple(np.shape(x)), grade, backward=backward)
