"""Functions on NumPy arrays as subjects: match their arguments by name or in order."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.norms.norm import Norm
from truenorm.verify.operations import parse_operation
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array, dtype_of

DTYPES = ("float32",)
"""The types of a function on NumPy arrays by default."""
TRIAL_SHAPE = (4, 64)
"""The shape of the rows of the first call; a row has at least one group."""
NAMES = {
    "x": ("input", "x", "hidden_states", "inputs", "inp"),
    "residual": ("residual", "residual_in", "res", "r"),
    "gamma": ("weight", "gamma", "w", "scale", "gain", "weights"),
    "beta": ("bias", "beta", "b"),
    "eps": ("eps", "epsilon", "variance_epsilon"),
    "shape": ("normalized_shape",),
    "size": ("hidden_size", "dim", "d", "n", "size", "features", "num_features"),
    "group": ("group_size",),
    "out": ("out", "output", "y", "result"),
    "dy": ("dy", "grad_output", "grad", "dout", "grad_out", "grad_y", "do"),
    "dsum": ("dsum", "grad_residual", "dresidual_out"),
    "sum": ("residual_out",),
}
"""By role, the argument names of kernels in lower case. A shape is [D], a size is D."""
QUANTIZED_NAMES = {
    **NAMES,
    "gamma": tuple(name for name in NAMES["gamma"] if name != "scale"),
    "out": (*NAMES["out"], "codes", "y_fp4", "y_fp8"),
    "scale": ("scale", "scales", "block_scale", "yscale", "y_scale", "scale_out"),
    "scale_ub": ("scale_ub",),
    "global_scale": ("global_scale",),
    "amax": ("amax",),
    "group": ("group_size", "block_size"),
}
"""The names for a quantized norm, in which a scale is not gamma."""
GROUPED_NAMES = {
    **NAMES,
    "z": ("z", "gate", "g"),
    "shift": ("shift", "shift_msa"),
    "size": (*NAMES["size"], "num_channels"),
    "groups": ("num_groups", "groups", "n_groups", "ngroups"),
    "heads": ("num_heads", "n_heads", "heads"),
    "activation": ("activation",),
    "gate_last": ("norm_before_gate",),
    "counted": ("variance_size", "var_hidden_size"),
    "norm_type": ("norm_type",),
}
"""The names for a grouped or gated norm."""
MODULATED_NAMES = {
    **GROUPED_NAMES,
    "gamma": QUANTIZED_NAMES["gamma"],
    "scale": ("scale", "scale_msa"),
}
"""The names for a modulated norm, in which a scale is not gamma."""
OPTIONAL = (
    "shape",
    "size",
    "group",
    "groups",
    "heads",
    "activation",
    "gate_last",
    "counted",
    "norm_type",
)
"""Passed to a kernel that has an argument for it."""
MAY_BE_NONE = ("residual", "gamma", "beta", "scale_ub", "z", "scale", "shift")
"""Passed as None to a kernel that has more arguments than the operation."""
Values = dict[str, Any]
"""Tensors and numbers by role."""


class Arguments(NamedTuple):
    """How a function is called: the roles of positional arguments, then those by name."""

    by_place: tuple[str, ...]
    by_name: tuple[tuple[str, str], ...] = ()

    def call(self, function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
        """Call a function with the value of each role, or None."""
        positional = [values.get(role) for role in self.by_place]
        return function(*positional, **{name: values.get(role) for name, role in self.by_name})

    @property
    def roles(self) -> set[str]:
        """The roles of all arguments."""
        return {*self.by_place, *(role for _, role in self.by_name)}


def names_of(norm: Norm) -> Mapping[str, Sequence[str]]:
    """Return the argument names of kernels of an operation, by role."""
    if norm.has_units:
        return MODULATED_NAMES if norm.modulate else GROUPED_NAMES
    return QUANTIZED_NAMES if norm.is_quantized else NAMES


def constants_of(norm: Norm, shape: Sequence[int]) -> Values:
    """Return the values of the roles that the operation and the shape of x determine."""
    size = int(shape[-1])
    constants: Values = {"shape": [size], "size": size, "group": size}  # one group is a row
    if norm.is_quantized:
        constants["group"] = norm.quant.group
    if norm.has_units:
        constants |= {
            "size": size if norm.channels_last else norm.parameter_size(shape),
            "groups": norm.groups,
            "group": size // norm.groups,
            "heads": norm.heads,
            "activation": norm.activation,
            "gate_last": not norm.gate_first,
            "counted": norm.counted(size),
            "norm_type": "layer" if norm.centred else "rms",
        }
    return constants


def role_of(name: str, names: Mapping[str, Sequence[str]] = NAMES) -> str:
    """Return the role of an argument, or nothing."""
    return next((role for role, known in names.items() if name.lower() in known), "")


def arguments_of(
    function: Callable[..., Any],
    wanted: Sequence[str],
    signature: str = "",
    *,
    names: Mapping[str, Sequence[str]] = NAMES,
    optional: Sequence[str] = (),
) -> Arguments:
    """Match the arguments of a function; one without a signature has them in this order."""
    if signature:
        roles = {name.strip(): role_of(name.strip(), names) for name in signature.split(",")}
        _check_matched(
            [name for name, role in roles.items() if not role],
            [role for role in wanted if role not in roles.values()],
            names,
        )
        return Arguments(tuple(roles.values()))
    parameters = parameters_of(function)
    if parameters is None:
        return Arguments(tuple(wanted))
    positional, named, unknown = [], [], []
    unmatched = [*wanted, *OPTIONAL, *optional]
    fixed = getattr(function, "keywords", {})  # of a functools.partial
    for each in parameters:
        if each.name in fixed:
            continue
        role = role_of(each.name, names)
        if role in unmatched:
            unmatched.remove(role)
        elif each.default is not each.empty:
            continue
        elif role not in MAY_BE_NONE or role in wanted:
            unknown.append(each.name)
            continue
        if each.kind is each.POSITIONAL_ONLY:
            positional.append(role)
        else:
            named.append((each.name, role))
    _check_matched(unknown, [role for role in unmatched if role in wanted], names)
    return Arguments(tuple(positional), tuple(named))


def arguments_of_norm(norm: Norm) -> list[str]:
    """Return the roles of the arguments of forward."""
    return [*norm.inputs_of("data", "parameter"), "eps", *norm.inputs_of("setting")]


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Return the parameters of a function, or None if it has no signature or only * and **."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtin, or an operator of torch.ops
        return None
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [each for each in parameters if each.kind not in variadic]
    return named if named or not parameters else None


def _check_matched(
    unknown: Sequence[str], missing: Sequence[str], names: Mapping[str, Sequence[str]]
) -> None:
    """Raise ValueError for unknown arguments and for roles without an argument."""
    if not unknown and not missing:
        return
    reasons = []
    if unknown:
        reasons.append(f"unknown arguments {', '.join(unknown)}")
    reasons += [f"no argument for {role} ({', '.join(names[role])})" for role in missing]
    raise ValueError(
        f"the arguments cannot be matched: {'; '.join(reasons)}; wrap it in a function that has "
        "these names, or write them in order, as signature='input, weight, eps'. An operation "
        "without beta is written layer_norm,beta=false"
    )


class RejectedError(Exception):
    """A function does not accept NumPy arrays, with the arguments of a norm."""

    def __init__(self, norm: Norm, reason: Exception) -> None:
        super().__init__(reason)
        self.norm, self.reason = norm, reason


def array_subject(
    function: Callable[..., Any], norm: Norm, name: str, dtypes: Sequence[str] = ()
) -> Subject:
    """Return a function on NumPy arrays as a subject; raise RejectedError if it rejects them."""
    norm, arguments = _match(function, norm)
    try:
        _try(function, norm, arguments, (dtypes or DTYPES)[0])
    except Exception as rejected:  # any exception is the function's
        raise RejectedError(norm, rejected) from rejected

    def forward(*values: Any) -> Any:
        by_role = dict(zip(arguments_of_norm(norm), values, strict=True))
        return _call(function, norm, arguments, by_role)

    return Subject(
        forward, name=f"{name} on NumPy arrays", dtypes=dtypes or DTYPES, operation=norm
    )


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
            if is_in_order(function, each):
                return each, Arguments(tuple(wanted))
    wanted = arguments_of_norm(norm)
    names = ", ".join(each.name for each in parameters_of(function) or ())
    raise ValueError(f"expected the arguments {', '.join(wanted)}; got {names}")


def is_in_order(function: Callable[..., Any], norm: Norm) -> bool:
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


def trial_arrays(norm: Norm, dtype: str) -> dict[str, Array]:
    """Return rows, parameters and settings of ones."""
    kind = dtype_of(norm.parameter_type or dtype)
    rows, size = TRIAL_SHAPE
    if norm.has_units:
        return _grouped_trial(norm, dtype)
    if norm.is_quantized:
        size = max(size, norm.quant.group)
    return {
        **{name: np.ones((rows, size), dtype_of(dtype)) for name in norm.inputs_of("data")},
        **{name: np.ones(size, kind) for name in norm.parameters},
        **{name: np.ones(1, np.float32) for name in norm.inputs_of("setting")},
    }


def _grouped_trial(norm: Norm, dtype: str) -> dict[str, Array]:
    """Return samples and parameters of ones, with as many groups or heads as the norm has."""
    rows, size = TRIAL_SHAPE
    units = norm.heads or norm.groups
    shape: tuple[int, ...] = (rows, units * size)
    if norm.has_axes:
        shape = (rows, 2 * units if norm.spatial else max(units, 2), size)
    arrays = {}
    for name in norm.inputs_of("data", "parameter"):
        kind = norm.parameter_type if name in norm.parameters else ""
        (wanted,) = norm.result_shapes(f"d{name}", shape)
        arrays[name] = norm.give(name, np.ones(wanted, dtype_of(kind or dtype)), shape)
    return arrays
