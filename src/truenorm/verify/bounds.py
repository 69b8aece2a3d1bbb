"""Exact answers and tolerances for somebody's own tests, as a call."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.tools.text import counted
from truenorm.verify.diagnosis.diagnosis import cause_of
from truenorm.verify.diagnosis.evidence import Came
from truenorm.verify.enclosures import largest_kappa, unsupported_reason
from truenorm.verify.grading.errors import Apart, all_misplaced, apart
from truenorm.verify.grading.user_cases import Enclosed, answered
from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations import parse_operation
from truenorm.verify.operations.norms import Norm
from truenorm.verify.oracle import Expected, compute_exact, output_types
from truenorm.verify.running.pytorch import array_of
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of
from truenorm.verify.user_cases import USER_FAMILY

NAME = "what is given"


def asked(norm: Norm, given: Mapping[str, Any], eps: float) -> Case:
    """Return the case of arrays or tensors; None is what is not given.

    A parameter may be absent. A gradient that is not given is zero, which takes no memory.
    """
    arrays = {name: array_of(each) for name, each in given.items() if each is not None}
    names = [each.name for each in norm.inputs]
    if unknown := arrays.keys() - set(names):
        raise ValueError(f"{norm.name} takes no {' and no '.join(sorted(unknown))}")
    for name in norm.inputs_of("data"):
        if name not in arrays:
            raise ValueError(f"{norm.name} needs {name}")
    for name, array in arrays.items():
        if array.dtype.name not in FORMATS:
            raise ValueError(f"{name} is {array.dtype.name}; it is one of {', '.join(FORMATS)}")
    x = arrays["x"]
    if x.ndim == 0 or x.size == 0:
        raise ValueError(f"x has the shape {x.shape}; it needs rows of at least one element")
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps is {eps}; it is a number from 0 on")
    if norm.sum == "unrounded" and FORMATS[x.dtype.name].precision > 11:
        raise ValueError(f"an unrounded sum is for types of 16 bits, and not for {x.dtype.name}")
    inputs = {name: _as_rows(norm, name, arrays.get(name), x) for name in names}
    return Case(norm, NAME, x.dtype.name, inputs, float(eps), family=USER_FAMILY, seeded=True)


def _as_rows(norm: Norm, name: str, array: Array | None, x: Array) -> Array | None:
    """Return rows, or a parameter, of the shape that x asks for."""
    size = x.shape[-1]
    if not norm.is_rows(name):
        if array is not None and array.shape != (size,):
            raise ValueError(f"{name} has the shape {array.shape}; x asks for {(size,)}")
        return array
    if array is None:
        return np.broadcast_to(np.zeros(1, x.dtype), (x.size // size, size))
    if array.shape != x.shape or array.dtype != x.dtype:
        raise ValueError(
            f"{name} is {array.dtype.name} of the shape {array.shape}; "
            f"it should be as x, {x.dtype.name} of the shape {x.shape}"
        )
    return array.reshape(-1, size)


SMALLEST, LARGEST = 2.0**-8, 2.0**10
"""Between these, the largest number of every row of x and of dy is ordinary."""
KAPPA = 16.0


def cause_in(case: Case, output: str, result: Array) -> str:
    """Return the hypothesis that fits a result in words; nothing if none does."""
    if not _is_ordinary(case):
        return ""
    came = [Came(case, output, result, right=False)]
    return cause_of(came, case.operation.hypotheses(output), partly=False).words


def _is_ordinary(case: Case) -> bool:
    """Tell whether no number is large, no row of x small, and none of them mostly mean."""
    for name, array in case.rows.items():
        largest = np.abs(array.astype(np.float64)).max(axis=1)
        least = SMALLEST if name == "x" else 0.0
        if not ((least <= largest) & (largest <= LARGEST)).all():
            return False
    return largest_kappa(case) <= KAPPA


GRADES = ("conditional", "stable", "faithful", "correct")
"""Those that say of one input how far a result may be off, from the loosest."""
POWERS = {"conditional": 1, "stable": 0}


@dataclass(frozen=True)
class Off:
    """Elements that are off, and the worst of them.

    `times` says how many times the tolerance its error is.
    """

    count: int = 0
    of: int = 0
    at: tuple[int, ...] = ()
    got: Any = 0.0
    exact: Any = 0.0
    allowed: float = 0.0
    error: float = 0.0
    ulp: float = 0.0
    times: float = -1.0

    def said(self, name: str, place: Sequence[int], grade: str, cause: str) -> str:
        """Return it in words, the worst element with its place."""
        are = "is" if self.count == 1 else "are"
        lines = [
            f"{name} is not {grade}: {self.count} of {counted(self.of, 'element')} {are} off",
            f"  worst: {name}{list(place)} is {self.got}, the exact answer {self.exact}: off by "
            f"{self.error:.3g}, {self.ulp:.3g} ulp, where {self.allowed:.3g} is allowed",
        ]
        return "\n".join([*lines, f"  cause: {cause}"] if cause else lines)


def tolerance_of(answer: Expected, output: str, grade: str) -> Float64s:
    """Return how far each element may be from the exact number, before that is rounded.

    Nothing beyond its own rounding, for *correct*; less than an ulp, for *faithful*. Where that
    number is not finite, nothing is allowed.
    """
    if grade in POWERS:
        return answer.allowed(output, POWERS[grade])
    finite, ulps = np.isfinite(answer.wide[output]), answer.ulps[output]
    room = ulps if grade == "faithful" else np.abs(answer.remainders[output]) * ulps
    return np.where(finite, room, 0.0)


def held_against(
    parts: Iterable[tuple[slice, Expected]], output: str, got: Array, grade: str
) -> Off:
    """Hold a result against all parts of its answers: rows of it, or all of its columns."""
    found = Off()
    for some, answer in parts:
        one = _in_part(answer, output, got[some], grade)
        start = some.start or 0
        moved = (start + one.at[0], *one.at[1:]) if one.at else ()
        shown = replace(one, at=moved) if one.times > found.times else found
        found = replace(shown, count=found.count + one.count, of=found.of + one.of)
    return found


def _in_part(answer: Expected, output: str, got: Array, grade: str) -> Off:
    known = answer.bounds[output] if isinstance(answer, Enclosed) else None
    away = apart(answer, output, got, known=known)
    misplaced = all_misplaced(answer, output, got, known)
    tolerance = tolerance_of(answer, output, grade)
    wrong = _beyond(away, tolerance, grade) | misplaced
    count, values = int(wrong.sum()), answer.values[output]
    if not count or values is None:
        return Off(of=wrong.size)
    with np.errstate(all="ignore"):
        times = away.error / np.maximum(tolerance, answer.ulps[output] / 2)
    times = np.where(wrong, np.where(misplaced, np.inf, times), -1.0)
    at = tuple(map(int, np.unravel_index(int(np.argmax(times)), times.shape)))
    return Off(
        count,
        wrong.size,
        at,
        got[at],
        values[at],
        float(tolerance[at]),
        float(away.error[at]),
        float(away.in_ulp[at]),
        float(times[at]),
    )


def _beyond(away: Apart, tolerance: Float64s, grade: str) -> NDArray[np.bool_]:
    """Tell of each element whether it is further off than its grade says."""
    if grade == "correct":
        return ~away.right
    if grade == "faithful":
        return np.asarray(away.in_ulp >= 1)
    return np.asarray(away.error > tolerance)


SMALL = 2**12
"""Elements that integers are asked for, at some 50 microseconds each; of more, there are balls."""
TRIED = 2**12
"""Elements of some rows of those, that hypotheses are held against."""


class Bound:
    """The exact results of one input, and how far a computed one may be from each element.

    Made by `bound`. Nothing is computed before it is asked for. Of inputs with more than 4096
    elements no answer is held but what is asked for: they are gone through some rows at a time.

    Attributes
    ----------
    results : tuple of str
        The names of the results it knows, in the order in which kernels return them.
    grade : str
        What is asked of them.
    """

    def __init__(self, case: Case, shape: tuple[int, ...], grade: str, *, backward: bool) -> None:
        self._case, self._shape, self.grade = case, shape, grade
        types = output_types(case)
        outputs = case.operation.outputs
        self._returned = [each.name for each in outputs if backward or not each.backward]
        self.results = tuple(name for name in self._returned if name in types)

    def __repr__(self) -> str:
        """Say of what it is the bound."""
        return f"Bound({', '.join(self.results)} of {self._case.operation.title}, {self.grade})"

    def exact(self, name: str = "y") -> Array:
        """Return the exact result, rounded to its type.

        Ties go to even. Of inputs with more than 4096 elements, an answer within 2^-52 of itself
        of a tie may be rounded to the other side.
        """
        found = np.empty(
            self._shape_of(name), dtype_of(output_types(self._case)[self._known(name)])
        )
        rows = self._as_rows(name, found)
        for some, answer in self._answers(name):
            rows[some] = answer.values[name]
        return found

    def tolerance(self, name: str = "y") -> Float64s:
        """Return how far each element of a result may be from the exact number, in float64."""
        found = np.empty(self._shape_of(self._known(name)))
        rows = self._as_rows(name, found)
        for some, answer in self._answers(name):
            rows[some] = tolerance_of(answer, name, self.grade)
        return found

    def assert_close(self, actual: Any = None, /, **results: Any) -> None:
        """Raise AssertionError unless each element of each result is near enough.

        Parameters
        ----------
        actual : array, tensor, tuple or mapping
            The first result; or several, in the order in which kernels return them; or by name.
        **results : array or tensor
            The same by name, such as ``dx=dx``.
        """
        __tracebackhide__ = True  # pytest shows the test that failed, and none of these lines
        given = {**self._by_name(actual), **results}
        if not given:
            raise TypeError("there is nothing to compare: give a result, or several")
        said = [text for name, each in given.items() if (text := self._said(name, each))]
        if said:
            raise AssertionError("\n".join(said))

    def _by_name(self, actual: Any) -> Mapping[str, Any]:
        if actual is None:
            return {}
        if isinstance(actual, Mapping):
            return actual
        several: Sequence[Any] = actual if isinstance(actual, tuple) else (actual,)
        if len(several) > len(self._returned):
            raise ValueError(f"there are {len(several)} results; known are {self._names}")
        named = zip(self._returned, several, strict=False)
        # The gradient of a parameter that is None has its place, and is None.
        return {name: each for name, each in named if name in self.results or each is not None}

    @property
    def _names(self) -> str:
        return ", ".join(self.results)

    def _known(self, name: str) -> str:
        if name not in self.results:
            hint = "" if any(each[0] == "d" for each in self.results) else "; for others, give dy"
            raise ValueError(f"there is no result {name!r}; there are {self._names}{hint}")
        return name

    def _shape_of(self, name: str) -> tuple[int, ...]:
        return self._shape if self._case.operation.is_rows(name) else self._shape[-1:]

    def _as_rows(self, name: str, result: Array) -> Array:
        return (
            result.reshape(-1, self._shape[-1]) if self._case.operation.is_rows(name) else result
        )

    @cached_property
    def _whole(self) -> Expected | None:
        """The answers in integers, if there are not too many."""
        case = self._case
        return Expected(case, compute_exact(case)) if case.x.size <= SMALL else None

    def _answers(self, name: str) -> Iterator[tuple[slice, Expected]]:
        """Yield the answers of some rows after the other, or of all columns."""
        if self._whole is not None:
            yield slice(None), self._whole
            return
        for some, answer in answered(self._case, [name]):
            if name in answer.types:
                yield (slice(None) if some is None else some), answer

    def _said(self, name: str, actual: Any) -> str:
        """Return what is wrong with a result; nothing if it is near enough."""
        shape, kind = self._shape_of(self._known(name)), output_types(self._case)[name]
        got = array_of(actual)
        if got.shape != shape:
            return f"{name} has the shape {got.shape}; it should be {shape}"
        if got.dtype.name != kind:
            return f"{name} is {got.dtype.name}; it should be {kind}"
        rows = self._as_rows(name, got)
        off = held_against(self._answers(name), name, rows, self.grade)
        if not off.count:
            return ""
        return off.said(name, self._place(off.at), self.grade, self._cause(name, rows, off))

    def _place(self, at: tuple[int, ...]) -> list[int]:
        """Return where an element is, by all axes."""
        if len(at) < 2:
            return list(at)
        return [*map(int, np.unravel_index(at[0], self._shape[:-1])), at[1]]

    def _cause(self, name: str, rows: Array, off: Off) -> str:
        """Try the hypotheses on all rows, or on the worst and its neighbours.

        What a sum over many rows is cannot be told from some of them.
        """
        case = self._case
        if self._whole is None:
            if rows.ndim == 1 or rows.shape[1] > TRIED:
                return ""
            count = TRIED // rows.shape[1]
            start = max(0, min(off.at[0], len(rows) - count))
            some = slice(start, start + count)
            case, rows = case.part(some), rows[some]
        return cause_in(case, name, rows)


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
) -> Bound:
    """Return the exact results of an input, and a tolerance for each element.

    The tolerances are those by which `verify` grades: see "What the judge says". They come from
    the input, and not from habit: where terms cancel more is allowed, and elsewhere less.

    Parameters
    ----------
    operation : str or Operation
        Such as ``rms_norm`` or ``add_rms_norm,gain=zero-centred``; or what `norm` returned.
    x : array or tensor
        Of any rank; rows lie along the last axis. float16, bfloat16, float32 or float64.
    gamma, beta : array or tensor, optional
        One number for each column, in any of these types; without gamma, a column is not scaled.
    eps : float
    residual : array or tensor
        What is added first, of an operation that does so.
    dy, dsum : array or tensor, optional
        The gradients that arrive at y and at the sum. Without dy, backward results have no bound.
    grade : str
        ``correct``, ``faithful``, ``stable`` or ``conditional``.

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
    norm = parse_operation(operation) if isinstance(operation, str) else operation
    if not isinstance(norm, Norm):
        raise ValueError(f"there are bounds for norms, and not for {norm.title}")
    if grade not in GRADES:
        raise ValueError(f"grade is {grade!r}; it is one of {', '.join(GRADES)}")
    rows = {"x": x, "residual": residual, "dy": dy, "dsum": dsum}
    case = asked(norm, {**rows, "gamma": gamma, "beta": beta}, eps)
    if case.x.size > SMALL and (refused := unsupported_reason(case)):
        raise ValueError(refused)
    return Bound(case, tuple(np.shape(x)), grade, backward=dy is not None)
