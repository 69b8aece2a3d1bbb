"""The function to differentiate: forward, backward, their inputs, and directions to move along."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.tools.arguments import require_type

Array = NDArray[Any]
Forward = Callable[..., Any]
Backward = Callable[..., Any]
Contributions = list[NDArray[np.float64]]
"""What each element of each output contributes to the loss, or to a derivative of it."""

REPEATABILITY = 2.0**-40
"""Two calls may differ by this, relative to the largest number: sums may be reordered."""
NOT_FINITE = (
    "forward returned {value}{where}: it has no derivative there. Choose inputs at which forward "
    "is finite."
)
NOT_DETERMINISTIC = (
    "forward is not deterministic: two calls with the same inputs differ by up to {change:.1e}. "
    "Draw random numbers outside of forward, or seed them inside."
)


class Direction(NamedTuple):
    """The input that moves, and its step; all elements of `step` are multiples of `grain`."""

    input_index: int
    step: NDArray[np.float64]
    grain: float


def unit_direction(input_index: int, shape: tuple[int, ...], index: tuple[int, ...]) -> Direction:
    """Return the unit vector of one element."""
    step = np.zeros(shape)
    step[index] = 1.0
    return Direction(input_index, step, 1.0)


def random_direction(
    input_index: int, shape: tuple[int, ...], bits: int, random: np.random.Generator
) -> Direction:
    """Return random weights of magnitude 1 to 2 and either sign: multiples of 2**-bits.

    With signs alone as weights, two errors of the same size would cancel in every other
    projection. With these weights v, an error e of the gradient is missed with a probability of
    at most t/max|e| + 2**(-bits - 1) if ``|<e, v>| <= t`` passes. For any values of the other
    elements, the weight of the largest error must lie in an interval of length 2*t/max|e|, and it
    is drawn from two intervals of length 1. An error above t in a single element is never missed,
    since no weight is below 1.
    """
    grain = 2.0**-bits
    magnitude = 1 + grain * random.integers(0, 2**bits, shape)
    # For an empty shape, the generator returns a Python number.
    step = np.asarray(magnitude * random.choice([-1.0, 1.0], shape))
    return Direction(input_index, step, grain)


def move_inputs(inputs: Sequence[Array], direction: Direction, distance: complex) -> list[Array]:
    """Return the inputs with one of them moved along the direction, in its own type."""
    moved = list(inputs)
    value = moved[direction.input_index]
    moved[direction.input_index] = value + (distance * direction.step).astype(value.dtype)
    return moved


@dataclass(frozen=True)
class Problem:
    """The loss sum(dy*forward(*inputs)) and its gradients with respect to the inputs.

    `dys` has one array for each output, in float64. A gradient is None if backward returned None.
    `gradients_at` runs forward and backward at other inputs. `obstacle` says why forward has no
    derivative to compare with, and is empty if it has one.
    """

    forward: Forward
    names: list[str]
    inputs: list[Array]
    dys: Contributions
    gradients: list[Array | None]
    gradients_at: Callable[[Sequence[Array]], list[Array | None]]
    obstacle: str = ""

    def outputs(self, inputs: Sequence[Array]) -> list[Array]:
        """Run forward on copies, which it may modify."""
        with np.errstate(all="ignore"):  # the inputs may be outside of the domain
            return _as_list(self.forward(*(array.copy() for array in inputs)))

    def times_dy(self, outputs: Iterable[Array]) -> Contributions:
        """Return each output, or change of one, times its dy."""
        return [dy * y for dy, y in zip(self.dys, outputs, strict=True)]


def make_problem(
    forward: Forward, backward: Backward, inputs: Any, random: np.random.Generator
) -> Problem:
    """Draw dy, and run forward and backward once.

    Raise TypeError or ValueError if an input, an output or a gradient has a wrong type, number or
    shape.
    """
    require_type("forward", forward, Callable, "a function")
    require_type("backward", backward, Callable, "a function")
    arrays = _input_list(inputs)
    names = _input_names(forward, len(arrays))
    copies = [checked_input(*pair) for pair in zip(names, arrays, strict=True)]
    _check_signature(
        forward, "forward", copies, "pass a list of inputs, one array for each parameter"
    )
    result = forward(*(value.copy() for value in copies))
    outputs = _checked_outputs(result)
    dys = [random.standard_normal(y.shape).astype(y.dtype) for y in outputs]

    def dy_argument() -> Any:
        """Return copies of dy, which backward may modify."""
        copied = tuple(dy.copy() for dy in dys)
        return copied if isinstance(result, tuple) else copied[0]

    def gradients(at: Sequence[Array]) -> list[Any]:
        return _gradient_list(backward(dy_argument(), *(value.copy() for value in at)), len(at))

    def gradients_at(at: Sequence[Array]) -> list[Array | None]:
        with np.errstate(all="ignore"):
            forward(*(value.copy() for value in at))  # backward may use state of forward
            return gradients(at)

    _check_signature(
        backward,
        "backward",
        [dy_argument(), *copies],
        f"write it as backward(dy, {', '.join(names)})",
    )
    checked_gradients = [
        None if gradient is None else _checked_gradient(name, value, gradient)
        for name, value, gradient in zip(names, copies, gradients(copies), strict=True)
    ]
    wide_dys = [dy.astype(np.float64) for dy in dys]
    problem = Problem(forward, names, copies, wide_dys, checked_gradients, gradients_at)
    return replace(problem, obstacle=_obstacle(outputs, problem.outputs(copies)))


def _obstacle(outputs: Sequence[Array], repeated: Sequence[Array]) -> str:
    """Return why two calls of forward with these outputs allow no derivative, or nothing."""
    for position, (y, second) in enumerate(zip(outputs, repeated, strict=True)):
        name = "its output" if len(outputs) == 1 else f"output {position}"
        finite = np.isfinite(y)
        if not finite.all():
            index = tuple(int(k) for k in np.argwhere(~finite)[0])
            where = f" at index {list(index)} of {name}" if index else ""
            return NOT_FINITE.format(value=y[index], where=where)
        wide = y.astype(np.float64)
        with np.errstate(all="ignore"):
            change = np.abs(wide - second).max(initial=0.0)
        if not change <= REPEATABILITY * np.abs(wide).max(initial=0.0):
            return NOT_DETERMINISTIC.format(change=change)
    return ""


def _input_list(inputs: Any) -> list[Any]:
    """Return the inputs as a list; an array is one input."""
    if isinstance(inputs, np.ndarray | np.generic):
        return [inputs]
    if isinstance(inputs, Sequence) and not isinstance(inputs, str | bytes):
        return list(inputs)
    raise TypeError(
        "inputs must be an array, or a list of arrays, one for each parameter of forward; got "
        f"{type(inputs).__name__}"
    )


def _input_names(forward: Forward, count: int) -> list[str]:
    """Return the names of forward's parameters, or numbers if it has no names for them."""
    signature = _signature(forward)
    names = [
        parameter.name
        for parameter in (signature.parameters.values() if signature else ())
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return names[:count] if len(names) >= count else [f"input {k}" for k in range(count)]


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function, or None if it has none, as some compiled ones."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _check_signature(
    function: Callable[..., Any], name: str, arguments: Sequence[Any], advice: str
) -> None:
    """Raise TypeError if a function cannot be called with this number of arguments."""
    signature = _signature(function)
    try:
        if signature is not None:
            signature.bind(*arguments)
    except TypeError:
        raise TypeError(
            f"{name} takes {signature} but is called with {len(arguments)} arguments: {advice}"
        ) from None


def _as_list(outputs: Any) -> list[Array]:
    """Return the outputs of forward as a list of copies, since it may reuse a buffer."""
    return [np.array(y) for y in (outputs if isinstance(outputs, tuple) else (outputs,))]


def _checked_outputs(outputs: Any) -> list[Array]:
    """Return the outputs as a list, or raise TypeError if one is not a floating-point array."""
    for position, y in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
        dtype = getattr(y, "dtype", np.asarray(y).dtype)
        if not np.issubdtype(dtype, np.floating):
            where = f"a tuple whose element {position} is " if isinstance(outputs, tuple) else ""
            raise TypeError(
                f"forward returned {where}{_description(y)}: return y, or a tuple of such "
                "results, as floating-point arrays; backward can compute anything else anew"
            )
    return _as_list(outputs)


def _description(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"an array of type {value.dtype}"
    return "None" if value is None else f"a {type(value).__name__}"


def _gradient_list(gradients: Any, count: int) -> list[Any]:
    """Return the gradients as a list, or raise an error unless there is one for each input."""
    expected = (
        f"where a tuple of {count} was expected: return one gradient for each input, or None if "
        "there is none"
    )
    if isinstance(gradients, np.ndarray | np.generic):
        if count == 1:
            return [gradients]
        raise ValueError(f"backward returned an array {expected}")
    if not isinstance(gradients, Sequence) or isinstance(gradients, str):
        raise TypeError(f"backward returned {_description(gradients)} {expected}")
    if len(gradients) != count:
        raise ValueError(
            f"backward returned {len(gradients)} gradients for {count} inputs: "
            "return one for each, or None if there is none"
        )
    return list(gradients)


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


def checked_input(name: str, value: Any) -> Array:
    """Copy an input, or raise an error if it cannot be differentiated by."""
    array = np.array(value)
    if array.dtype.kind in "iub":
        raise TypeError(
            f"{name} is of type {array.dtype}: inputs must be floating-point arrays. If {name} "
            f"holds indices, labels or a mask, leave it out of the inputs and bind it: "
            f"lambda x: forward(x, {name}), and the same for backward. Only if it holds numbers "
            f"to differentiate by, pass {name}.astype(float)"
        )
    if not np.issubdtype(array.dtype, np.floating):
        raise TypeError(
            f"{name} is of type {array.dtype}: inputs must be real floating-point arrays. Leave "
            f"{name} out of the inputs and bind it inside forward and backward"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has a non-finite element: derivatives need numbers")
    return array
