"""Which argument of somebody's function is which: by the names that kernels give them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["NAMES", "Arguments", "arguments_of", "role_of"]

NAMES = {
    "x": ("input", "x", "hidden_states", "inputs", "inp"),
    "residual": ("residual", "residual_in", "res", "r"),
    "gamma": ("weight", "gamma", "w", "scale", "gain", "weights"),
    "beta": ("bias", "beta", "b"),
    "eps": ("eps", "epsilon", "variance_epsilon"),
    "shape": ("normalized_shape",),
    "size": ("hidden_size", "dim", "d", "n", "size", "features", "num_features"),
    "out": ("out", "output", "y", "result"),
    "dy": ("dy", "grad_output", "grad", "dout", "grad_out", "grad_y", "do"),
    "dsum": ("dsum", "grad_residual", "dresidual_out"),
}
"""By what the judge calls it: what kernels do, in small letters. A shape is [D], a size is D."""
OF_THE_ROW = ("shape", "size")
MAY_BE_NONE = ("residual", "beta")
"""What is None in the call of a kernel that has more than the operation."""


class Arguments(NamedTuple):
    """How a function is called: roles of arguments by their place, then by their name."""

    by_place: tuple[str, ...]
    by_name: tuple[tuple[str, str], ...] = ()

    def call(self, function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
        """Call a function with the values of each role; one that has none is None."""
        placed = [values.get(role) for role in self.by_place]
        return function(*placed, **{name: values.get(role) for name, role in self.by_name})


def role_of(name: str) -> str:
    """Return what an argument is, or nothing.

    Examples
    --------
    >>> role_of("X"), role_of("variance_epsilon"), role_of("cache")
    ('x', 'eps', '')
    """
    return next((role for role, names in NAMES.items() if name.lower() in names), "")


def arguments_of(
    function: Callable[..., Any], wanted: Sequence[str], signature: str = ""
) -> Arguments:
    """Find the arguments of a function; where it has no signature, they come in this order.

    Examples
    --------
    >>> arguments_of(lambda x, weight, eps=1e-6: x, ["x", "gamma", "eps"]).by_name
    (('x', 'x'), ('weight', 'gamma'), ('eps', 'eps'))
    >>> arguments_of(print, ["x", "gamma", "eps"], "input, normalized_shape, weight, eps").by_place
    ('x', 'shape', 'gamma', 'eps')
    """
    if signature:
        return _written(signature, wanted)
    parameters = _parameters(function)
    if parameters is None:
        return Arguments(tuple(wanted))
    placed, named, unknown = [], [], []
    left = [*wanted, *OF_THE_ROW]
    for each in parameters:
        required = each.default is each.empty
        role = role_of(each.name)
        if role in left:
            left.remove(role)
        elif not required:
            continue
        elif role not in MAY_BE_NONE or role in wanted:
            unknown.append(each.name)
            continue
        if each.kind is each.POSITIONAL_ONLY:
            placed.append(role)
        else:
            named.append((each.name, role))
    _refuse(unknown, [role for role in left if role in wanted])
    return Arguments(tuple(placed), tuple(named))


def _written(signature: str, wanted: Sequence[str]) -> Arguments:
    names = [name.strip() for name in signature.split(",")]
    roles = {name: role_of(name) for name in names}
    _refuse(
        [name for name, role in roles.items() if not role],
        [role for role in wanted if role not in roles.values()],
    )
    return Arguments(tuple(roles.values()))


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Return the parameters of a function; None if it does not tell them."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtin, or an operator of torch.ops
        return None
    various = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [each for each in found if each.kind not in various]
    return named if named or not found else None


def _refuse(unknown: Sequence[str], missing: Sequence[str]) -> None:
    """Say which arguments are not known, and which were not found, with what was looked for."""
    if not unknown and not missing:
        return
    said = []
    if unknown:
        said.append(f"nothing is known of {', '.join(unknown)}")
    said += [f"{role} is none of its arguments ({', '.join(NAMES[role])})" for role in missing]
    raise ValueError(
        f"the arguments cannot be matched: {'; '.join(said)}; wrap it in a function that has these"
        " names, or write them in order, as signature='input, weight, eps'. An operation without"
        " beta is written layer_norm,beta=false"
    )
