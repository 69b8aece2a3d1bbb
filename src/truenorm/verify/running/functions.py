"""A plain function as a subject of the judge, on NumPy arrays or on PyTorch tensors."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from truenorm.verify.formulas.operation import FormulaOperation
from truenorm.verify.norms.norm import Norm, require_norm
from truenorm.verify.operations import as_operation, parse_operation
from truenorm.verify.running.formula_functions import formula_subject
from truenorm.verify.running.pytorch import (
    Arguments,
    arguments_of,
    arguments_of_norm,
    constants_of,
    names_of,
    parameters_of,
    role_of,
)
from truenorm.verify.running.records import describe_error
from truenorm.verify.running.torch_subject import (
    form_of,
    torch_subject,
    trial_arrays,
)
from truenorm.verify.subject import Subject

DTYPES = ("float32",)
"""The types of a function on NumPy arrays by default."""


def is_formula(operation: str) -> bool:
    """Return True for the text of an operation that a formula defines."""
    return isinstance(as_operation(operation), FormulaOperation)


def function_subject(
    function: Callable[..., Any], operation: str, name: str, dtypes: Sequence[str] = ()
) -> Subject:
    """Return a forward pass as a subject: a function, or a class of PyTorch modules.

    It is called with NumPy arrays; if it rejects them, with PyTorch tensors. Its name says which.
    Raise ValueError if it accepts neither.
    """
    parsed = as_operation(operation)
    if isinstance(parsed, FormulaOperation):
        return formula_subject(function, parsed, name, dtypes)
    norm = require_norm(parsed, "a function")
    claims: dict[str, Any] = {"dtypes": dtypes} if dtypes else {}
    nn = getattr(sys.modules.get("torch"), "nn", None)
    if nn and (isinstance(function, nn.Module) or _is_subclass(function, nn.Module)):
        return torch_subject(function, operation=norm, form="module", name=name, **claims)
    if nn and form_of(function, norm) == "out":
        named = f"{name} on PyTorch tensors"
        return torch_subject(function, operation=norm, form="out", name=named, **claims)
    norm, arguments = _match(function, norm)
    try:
        _try(function, norm, arguments, (dtypes or DTYPES)[0])
    except Exception as rejected:  # any exception is the function's
        return _on_tensors(function, norm, name, dtypes, describe_error(rejected))

    def forward(*values: Any) -> Any:
        by_role = dict(zip(arguments_of_norm(norm), values, strict=True))
        return _call(function, norm, arguments, by_role)

    return Subject(
        forward, name=f"{name} on NumPy arrays", dtypes=dtypes or DTYPES, operation=norm
    )


def _is_subclass(value: object, parent: type) -> bool:
    return isinstance(value, type) and issubclass(value, parent)


def _match(function: Callable[..., Any], norm: Norm) -> tuple[Norm, Arguments]:
    """Match the arguments by name, or in order; a layer norm may have no beta."""
    norms = [norm]
    if "beta" in norm.parameters:
        without = parse_operation(",beta=false", norm)
        norms.append(without)
    for each in norms:
        wanted = arguments_of_norm(each)
        try:
            return each, arguments_of(function, wanted, names=names_of(each))
        except ValueError:
            if _is_in_order(function, each):
                return each, Arguments(tuple(wanted))
    wanted = arguments_of_norm(norm)
    names = ", ".join(each.name for each in parameters_of(function) or ())
    raise ValueError(f"expected the arguments {', '.join(wanted)}; got {names}")


def _is_in_order(function: Callable[..., Any], norm: Norm) -> bool:
    """Return True if required arguments are as many as wanted, and none is known as another."""
    required = [each for each in parameters_of(function) or () if each.default is each.empty]
    wanted, names = arguments_of_norm(norm), names_of(norm)
    return len(required) == len(wanted) and all(
        each.kind is not each.KEYWORD_ONLY and role_of(each.name, names) in ("", role)
        for each, role in zip(required, wanted, strict=True)
    )


def _call(
    function: Callable[..., Any], norm: Norm, arguments: Arguments, values: Mapping[str, Any]
) -> Any:
    constants = constants_of(norm, values["x"].shape)
    constants["shape"] = tuple(constants["shape"])  # as NumPy's are
    return arguments.call(function, {**values, **constants})


def _try(function: Callable[..., Any], norm: Norm, arguments: Arguments, dtype: str) -> None:
    """Call a function with ones; raise TypeError if it does not return arrays."""
    with np.errstate(all="ignore"):
        returned = _call(function, norm, arguments, {**trial_arrays(norm, dtype), "eps": 1e-5})
    outputs = norm.outputs_of(backward=False)
    results = [returned] if len(outputs) == 1 else returned
    is_tuple = isinstance(results, (list, tuple)) and len(results) == len(outputs)
    if not is_tuple or not all(hasattr(each, "__array__") for each in results):
        raise TypeError(f"it returned {type(returned).__name__}, not {' and '.join(outputs)}")


def _on_tensors(
    function: Callable[..., Any], norm: Norm, name: str, dtypes: Sequence[str], rejected: str
) -> Subject:
    claims: dict[str, Any] = {"dtypes": dtypes} if dtypes else {}
    if _is_in_order(function, norm):
        claims["signature"] = ", ".join(arguments_of_norm(norm))
    try:
        named = f"{name} on PyTorch tensors"
        return torch_subject(function, operation=norm, name=named, **claims)
    except ValueError as error:
        shape = trial_arrays(norm, DTYPES[0])["x"].shape
        shapes = f"{'x'.join(map(str, shape))} ones"
        raise ValueError(
            f"with NumPy arrays of {shapes}: {rejected}\nwith PyTorch tensors: {error}"
        ) from error
