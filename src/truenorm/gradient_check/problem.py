"""Where an input is moved to: along one element, or along all of them at once."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Direction(NamedTuple):
    """Which input moves, and where to; every number of `step` is a multiple of `grain`."""

    which: int
    step: NDArray[np.float64]
    grain: float


def along_element(which: int, shape: tuple[int, ...], index: tuple[int, ...]) -> Direction:
    """Return the unit vector of one element."""
    step = np.zeros(shape)
    step[index] = 1.0
    return Direction(which, step, 1.0)


def projection(
    which: int, shape: tuple[int, ...], bits: int, random: np.random.Generator
) -> Direction:
    """Return random weights of magnitude 1 to 2 and either sign: multiples of 2**-bits.

    Signs alone would let two errors of the same size cancel in every other projection. With these
    weights v, an error e of the gradient is missed with a probability of at most
    t/max|e| + 2**(-bits - 1) where ``|<e, v>| <= t`` passes: whatever the other elements add up
    to, the weight of the largest error must lie in an interval of length 2*t/max|e|, and it is
    drawn from two intervals of length 1. An error in one element alone is never missed where it
    is above t, since no weight is below 1.
    """
    grain = 2.0**-bits
    magnitude = 1 + grain * random.integers(0, 2**bits, shape)
    # Of no dimensions, what is drawn is a plain number.
    step = np.asarray(magnitude * random.choice([-1.0, 1.0], shape))
    return Direction(which, step, grain)


def moved(
    arguments: Sequence[NDArray[Any]], direction: Direction, by: complex
) -> list[NDArray[Any]]:
    """Return the arguments with one of them moved along the direction, in its own type."""
    found = list(arguments)
    value = found[direction.which]
    found[direction.which] = value + (by * direction.step).astype(value.dtype)
    return found


Array = NDArray[Any]
Forward = Callable[..., Any]
Backward = Callable[..., Any]
Shares = list[NDArray[np.float64]]
"""What each element of each output adds to the loss, or to a derivative of it."""
REPEATED = 2.0**-40
"""How closely two calls must agree, beside the largest number: sums may be reordered."""
NOT_FINITE = (
    "forward returned {value}{where}: it has no derivative there. Choose inputs at which forward "
    "is finite."
)
NOT_REPEATED = (
    "forward is not deterministic: two calls with the same inputs differ by up to {change:.1e}. "
    "Draw random numbers outside of forward, or seed them inside."
)


@dataclass(frozen=True)
class Problem:
    """A loss sum(dy*forward(*inputs)), and its gradients by the input.

    Attributes
    ----------
    names : list of str
        What forward calls its inputs.
    inputs, gradients : list
        Arrays; a gradient is None where backward returned None.
    dys : list of ndarray
        One for each output, in float64.
    gradients_at : callable
        Runs forward and backward at other inputs and returns the gradients.
    obstacle : str
        Why forward has no derivative that could be compared; empty if there is no reason.
    """

    forward: Forward
    names: list[str]
    inputs: list[Array]
    dys: Shares
    gradients: list[Array | None]
    gradients_at: Callable[[Sequence[Array]], list[Array | None]]
    obstacle: str = ""

    def outputs(self, arguments: Sequence[Array]) -> list[Array]:
        """Run forward on copies, which it may write to.

        A probe may leave the domain, and the floor shows that: the caller needs no warning.
        """
        with np.errstate(all="ignore"):
            return _as_list(self.forward(*(array.copy() for array in arguments)))

    def weighted(self, outputs: Iterable[Array]) -> Shares:
        """Return each output, or change of one, times its dy."""
        return [dy * y for dy, y in zip(self.dys, outputs, strict=True)]


def _as_inputs(inputs: Any) -> list[Any]:
    """Return the inputs as a list; an array is one input."""
    if isinstance(inputs, np.ndarray | np.generic):
        return [inputs]
    if isinstance(inputs, Sequence) and not isinstance(inputs, str | bytes):
        return list(inputs)
    raise TypeError(
        f"inputs is of type {type(inputs).__name__}: pass an array, or a list of arrays, one for "
        "each parameter of forward"
    )


def pose(
    forward: Forward, backward: Backward, inputs: Any, random: np.random.Generator
) -> Problem:
    """Draw dy, run forward and backward once, and raise if the answer cannot be a gradient."""
    given = _as_inputs(inputs)
    names = _names(forward, len(given))
    copies = [_checked_copy(*pair) for pair in zip(names, given, strict=True)]
    _refuse_wrong_number(
        forward, "forward", copies, "pass a list of inputs, one array for each parameter"
    )
    answer = forward(*(value.copy() for value in copies))
    outputs = _checked_outputs(answer)
    drawn = [random.standard_normal(y.shape).astype(y.dtype) for y in outputs]
    is_tuple = isinstance(answer, tuple)

    def dy() -> Any:
        """Return copies of dy: backward may write to them."""
        passed = tuple(y.copy() for y in drawn)
        return passed if is_tuple else passed[0]

    def gradients_at(arguments: Sequence[Array]) -> list[Array | None]:
        """Run forward first: backward may use state that forward saved."""
        with np.errstate(all="ignore"):
            forward(*(value.copy() for value in arguments))
            return _one_each(backward(dy(), *(value.copy() for value in arguments)), copies)

    _refuse_wrong_number(
        backward, "backward", [dy(), *copies], f"write it as backward(dy, {', '.join(names)})"
    )
    gradients = [
        None if gradient is None else _checked_gradient(name, value, gradient)
        for name, value, gradient in zip(
            names,
            copies,
            _one_each(backward(dy(), *(value.copy() for value in copies)), copies),
            strict=True,
        )
    ]
    problem = Problem(
        forward, names, copies, [y.astype(np.float64) for y in drawn], gradients, gradients_at
    )
    return replace(problem, obstacle=_obstacle(outputs, problem.outputs(copies)))


def _obstacle(outputs: Sequence[Array], again: Sequence[Array]) -> str:
    """Return why no derivative can be compared where forward returned these, twice."""
    for position, (y, second) in enumerate(zip(outputs, again, strict=True)):
        name = "its output" if len(outputs) == 1 else f"output {position}"
        finite = np.isfinite(y)
        if not finite.all():
            index = tuple(int(k) for k in np.argwhere(~finite)[0])
            where = f" at index {list(index)} of {name}" if index else ""
            return NOT_FINITE.format(value=y[index], where=where)
        wide = y.astype(np.float64)
        with np.errstate(all="ignore"):
            change = np.abs(wide - second).max(initial=0.0)
        if not change <= REPEATED * np.abs(wide).max(initial=0.0):
            return NOT_REPEATED.format(change=change)
    return ""


def _names(forward: Forward, count: int) -> list[str]:
    """Return what forward calls its inputs, or numbers where it has no names for them."""
    numbered = [f"input {position}" for position in range(count)]
    signature = _signature(forward)
    if signature is None:
        return numbered
    positional = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return positional[:count] if len(positional) >= count else numbered


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return what a function takes; None where it does not tell, as a compiled one may not."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _refuse_wrong_number(
    function: Callable[..., Any], name: str, arguments: Sequence[Any], way_out: str
) -> None:
    """Say that a function does not take what it is called with, before it says so in its words."""
    signature = _signature(function)
    try:
        if signature is not None:
            signature.bind(*arguments)
    except TypeError:
        raise TypeError(
            f"{name} takes {signature} but is called with {len(arguments)} arguments: {way_out}"
        ) from None


def _as_list(outputs: Any) -> list[Array]:
    """Return the outputs of forward as a list of arrays; copies, since it may reuse a buffer."""
    return [np.array(y) for y in (outputs if isinstance(outputs, tuple) else (outputs,))]


def _checked_outputs(found: Any) -> list[Array]:
    """Return the outputs, or say which of them is no array of floating-point numbers."""
    for position, y in enumerate(found if isinstance(found, tuple) else (found,)):
        kind = getattr(y, "dtype", np.asarray(y).dtype)
        if not np.issubdtype(kind, np.floating):
            where = f"a tuple whose element {position} is " if isinstance(found, tuple) else ""
            raise TypeError(
                f"forward returned {where}{_described(y)}: return y, or a tuple of such results, "
                "as floating-point arrays; what else backward needs it can compute anew"
            )
    return _as_list(found)


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"an array of type {value.dtype}"
    return "None" if value is None else f"a {type(value).__name__}"


def _one_each(answer: Any, inputs: Sequence[Array]) -> list[Any]:
    """Return the gradients that backward returned, as many as there are inputs."""
    wanted = (
        f"where a tuple of {len(inputs)} was expected: return one gradient for each input, None "
        "where there is none"
    )
    if isinstance(answer, np.ndarray | np.generic):
        if len(inputs) == 1:
            return [answer]
        raise ValueError(f"backward returned an array {wanted}")
    if not isinstance(answer, Sequence) or isinstance(answer, str):
        raise TypeError(f"backward returned {_described(answer)} {wanted}")
    if len(answer) != len(inputs):
        raise ValueError(
            f"backward returned {len(answer)} gradients for {len(inputs)} inputs: "
            "return one for each, None where there is none"
        )
    return list(answer)


def _checked_gradient(name: str, value: Array, gradient: Any) -> Array:
    array = np.asarray(gradient)
    if array.shape != value.shape:
        raise ValueError(
            f"the gradient of {name} has shape {array.shape} but {name} has shape {value.shape}"
        )
    if not np.issubdtype(array.dtype, np.floating):
        raise TypeError(
            f"the gradient of {name} is of type {array.dtype}: return real floating-point numbers"
        )
    return array


def _checked_copy(name: str, value: Any) -> Array:
    """Copy an input, or say why no derivative can be taken by it."""
    array = np.array(value)
    if not np.issubdtype(array.dtype, np.floating):
        raise TypeError(
            f"{name} is of type {array.dtype}: derivatives need floating point, "
            "pass it with .astype(float) or bind it inside forward and backward"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has a non-finite element: derivatives need numbers")
    return array
