"""A plain function as a subject of the judge, on NumPy arrays or on PyTorch tensors."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from truenorm.verify.norms.norm import Norm, require_norm
from truenorm.verify.operations import as_operation
from truenorm.verify.running.array_functions import (
    DTYPES,
    RejectedError,
    arguments_of_norm,
    array_subject,
    is_in_order,
    trial_arrays,
)
from truenorm.verify.running.formula_functions import formula_subject
from truenorm.verify.running.pytorch import is_module
from truenorm.verify.running.records import describe_error
from truenorm.verify.running.torch_subject import FormName, form_of, torch_subject
from truenorm.verify.subject import Subject
from truenorm.verify.types import FORMATS


def function_subject(
    function: Callable[..., Any], operation: str, name: str, dtypes: Sequence[str] = ()
) -> Subject:
    """Return a forward pass as a subject: a function, or a class of PyTorch modules.

    It is called with NumPy arrays; if it rejects them, with PyTorch tensors. Its name says which.
    Raise ValueError if it accepts neither.
    """
    parsed = as_operation(operation)
    if parsed.in_order:
        return formula_subject(function, parsed, name, dtypes)
    norm = require_norm(parsed, "a function")
    claims: dict[str, Any] = {"dtypes": dtypes} if dtypes else {}
    nn = getattr(sys.modules.get("torch"), "nn", None)
    if nn and (isinstance(function, nn.Module) or _is_subclass(function, nn.Module)):
        return torch_subject(function, operation=norm, form="module", name=name, **claims)
    if nn and form_of(function, norm) == "out":
        named = f"{name} on PyTorch tensors"
        return torch_subject(function, operation=norm, form="out", name=named, **claims)
    try:
        return array_subject(function, norm, name, dtypes)
    except RejectedError as rejected:
        return _on_tensors(function, rejected.norm, name, dtypes, describe_error(rejected.reason))


def imported_subject(kernel: Callable[..., Any], operation: str, name: str) -> Subject:
    """Return a kernel of PyTorch as a subject; of a norm, it claims every type.

    A class of modules has the form ``module``; a function may write its results to arguments.
    """
    parsed = as_operation(operation)
    if parsed.in_order:
        return formula_subject(kernel, parsed, name)
    form: FormName = "module" if is_module(kernel) else form_of(kernel, parsed)
    return torch_subject(kernel, operation=parsed, form=form, name=name, dtypes=list(FORMATS))


def _is_subclass(value: object, parent: type) -> bool:
    return isinstance(value, type) and issubclass(value, parent)


def _on_tensors(
    function: Callable[..., Any], norm: Norm, name: str, dtypes: Sequence[str], rejected: str
) -> Subject:
    claims: dict[str, Any] = {"dtypes": dtypes} if dtypes else {}
    if is_in_order(function, norm):
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
