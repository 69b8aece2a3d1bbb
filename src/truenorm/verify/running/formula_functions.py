"""A plain function as a subject for a formula, on NumPy arrays or on PyTorch tensors."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from truenorm.verify.operation import Case, Operation
from truenorm.verify.running.pytorch import Tensors
from truenorm.verify.running.records import describe_error
from truenorm.verify.subject import Subject
from truenorm.verify.suite import cases

DTYPES = ("float32",)
"""The types of a function on NumPy arrays by default."""
TENSOR_DTYPES = ("float32", "bfloat16")
SETTINGS = {"dim": -1, "axis": -1, "reduction": "none"}
"""Arguments that a formula determines: it is about the last axis, and reduces no rows."""


def formula_subject(
    function: Callable[..., Any],
    operation: Operation,
    name: str,
    dtypes: Sequence[str] = (),
) -> Subject:
    """Return a forward pass as a subject; its arguments are those of the formula, in order.

    It is called with NumPy arrays; if it rejects them, with PyTorch tensors, whose gradients are
    those of autograd. Raise ValueError if it accepts neither.
    """
    called = partial(function, **_settings_of(function))
    case = cases((dtypes or DTYPES)[0], operation=operation)[0]
    arguments = _arguments_of(case, operation)
    try:
        with np.errstate(all="ignore"):
            _results(called(*arguments), operation, np.ndarray)
    except Exception as rejected:  # any exception is the function's
        reason = describe_error(rejected)
    else:
        named = f"{name} on NumPy arrays"
        return Subject(called, name=named, dtypes=dtypes or DTYPES, operation=operation)
    try:
        passes = _OnTensors(called, operation)
        *_, saved = passes.forward(*arguments)
    except Exception as rejected:  # any exception is the function's
        names = ", ".join(
            [*operation.inputs_of("data", "parameter"), *["eps"][: operation.takes_eps]]
        )
        raise ValueError(
            f"{name} is called with {names}; with NumPy arrays: {reason}\n"
            f"with PyTorch tensors: {describe_error(rejected)}"
        ) from rejected
    is_differentiable = all(each.requires_grad for each in saved[0])
    return Subject(
        passes.forward if is_differentiable else passes.forward_alone,
        passes.backward if is_differentiable else None,
        name=f"{name} on PyTorch tensors",
        dtypes=dtypes or TENSOR_DTYPES,
        operation=operation,
    )


def _settings_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtin
        return {}
    return {name: value for name, value in SETTINGS.items() if name in parameters}


def _arguments_of(case: Case, operation: Operation) -> list[Any]:
    names = operation.inputs_of("data", "parameter")
    arrays = [(name, case.inputs[name]) for name in names]
    given = [operation.give(n, each, case.given_shape) for n, each in arrays if each is not None]
    return [*given, *[case.eps][: operation.takes_eps]]


def _results(returned: Any, operation: Operation, kind: type) -> list[Any]:
    """Return the results of forward; raise TypeError unless all are arrays or tensors."""
    names = operation.outputs_of(backward=False)
    results = [returned] if len(names) == 1 else list(returned)
    if len(results) != len(names) or not all(isinstance(each, kind) for each in results):
        raise TypeError(f"it returned {type(returned).__name__}, not {' and '.join(names)}")
    return results


class _OnTensors:
    """Forward and backward by PyTorch, on arrays."""

    def __init__(self, function: Callable[..., Any], operation: Operation) -> None:
        self._function, self._operation, self._tensors = function, operation, Tensors("cpu")
        self._wanted = {name.removeprefix("d") for name in operation.outputs_of(backward=True)}

    def forward(self, *values: Any) -> Any:
        """Return the results, and what backward needs."""
        names = self._operation.inputs_of("data", "parameter")
        with self._tensors.memory():
            inputs = [self._tensors.of(each) for each in values[: len(names)]]
            wanted = [x for x, name in zip(inputs, names, strict=True) if name in self._wanted]
            for each in wanted:
                each.requires_grad_()
            returned = self._function(*inputs, *values[len(names) :])
            results = _results(returned, self._operation, self._tensors.torch.Tensor)
            return *map(self._tensors.array, results), (results, wanted)

    def forward_alone(self, *values: Any) -> Any:
        """Return the results."""
        *results, _ = self.forward(*values)
        return results[0] if len(results) == 1 else tuple(results)

    def backward(self, *values: Any) -> Any:
        """Return the gradients by autograd."""
        *arrays, (results, wanted) = values
        with self._tensors.memory():
            incoming = [
                self._tensors.of(array).reshape(result.shape)
                for array, result in zip(arrays, results, strict=True)
            ]
            gradients = self._tensors.gradients(results, incoming, wanted)
            found = [*map(self._tensors.array, gradients)]
            return found[0] if len(found) == 1 else tuple(found)
