"""What a call of somebody's kernel is given, by what the judge calls it."""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.tensors.arguments import NAMES, role_of
from truenorm.verify.tensors.pytorch import array_of
from truenorm.verify.types import Array

__all__ = ["HINT", "SELF", "Given", "MatchError", "given_of", "signature_of"]

HINT = "--signature 'x, weight, eps' says what they are, in order"
OF_NUMBERS = ("eps", "shape", "size")
PASSED_OVER = "_"
"""In a signature: an argument that is none of the norm's."""
SELF = "self"
"""In the signature of a method: the module, which has the parameters."""


class MatchError(ValueError):
    """The arguments of a call cannot be told apart."""


class Given(NamedTuple):
    """Arrays or tensors by role, as they are in the call; and copies of them, before it."""

    things: Mapping[str, Any]
    arrays: Mapping[str, Array]
    eps: float | None
    size: int


def signature_of(text: str) -> inspect.Signature:
    """Return the signature that is written like ``x, weight, eps=1e-6``.

    Examples
    --------
    >>> str(signature_of("x, weight, _, eps=1e-6"))
    '(x, weight, _2, eps=1e-06)'
    """
    parameters = []
    for place, part in enumerate(text.split(",")):
        name, _, default = (each.strip() for each in part.partition("="))
        unnamed = name == PASSED_OVER
        if not (unnamed or role_of(name) or (name == SELF and not place)):
            known = ", ".join(names[0] for names in NAMES.values())
            raise MatchError(
                f"signature has {name!r}, of which nothing is known; write names such as {known}, "
                f"or {PASSED_OVER} for an argument that is none of these"
            )
        parameters.append(
            inspect.Parameter(
                f"_{place}" if unnamed else name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=float(default) if default else inspect.Parameter.empty,
            )
        )
    return inspect.Signature(parameters)


def given_of(
    original: Callable[..., Any],
    written: str,
    arguments: tuple[Any, ...],
    named: Mapping[str, Any],
) -> Given:
    """Tell the arguments of a call apart by their names, and copy arrays."""
    try:
        signature = signature_of(written) if written else inspect.signature(original)
        bound = signature.bind(*arguments, **named)
    except (TypeError, ValueError) as refused:
        of = f"by --signature {written!r}" if written else "by name"
        raise MatchError(f"the arguments cannot be matched {of}: {refused}; {HINT}") from refused
    bound.apply_defaults()
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        role = role_of(name)
        if name == SELF:
            found = _of_module(value)
        elif role in OF_NUMBERS or hasattr(value, "shape"):
            found.setdefault(role, value)
    return _given(found)


def _of_module(module: Any) -> dict[str, Any]:
    """Return the parameters of a module, its eps and its shape."""
    found: dict[str, Any] = {}
    for path, parameter in module.named_parameters():
        found.setdefault(role_of(path.rpartition(".")[2]), parameter)
    for name, value in vars(module).items():
        role = role_of(name)
        if role in OF_NUMBERS:
            found.setdefault(role, value)
    return found


def _given(found: Mapping[str, Any]) -> Given:
    things = {role: value for role, value in found.items() if role and role not in OF_NUMBERS}
    arrays = {role: np.array(array_of(value)) for role, value in things.items()}
    eps = found.get("eps")
    shape = found.get("shape")
    size = math.prod(shape) if isinstance(shape, (tuple, list)) else 0
    return Given(things, arrays, None if eps is None else float(eps), size)
