"""The operations of the judge: layer norm, RMSNorm and their variants."""

from difflib import get_close_matches
from functools import cache
from typing import Any, Unpack, cast

from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations.grouped import norm as grouped_norms
from truenorm.verify.operations.grouped.norm import GroupedNorm, GroupedOptions, SpatialName
from truenorm.verify.operations.norms import NAMES, Gain, Norm, NormName, Sum
from truenorm.verify.operations.quantized import quant as quantization
from truenorm.verify.operations.quantized.norm import QuantizedNorm
from truenorm.verify.operations.quantized.quant import Quant, quant_from
from truenorm.verify.types import Array

__all__ = ["LAYER_NORM", "NAMES", "OPERATIONS", "RMS_NORM", "norm", "parse_operation"]

LAYER_NORM = Norm("layer_norm")
RMS_NORM = Norm("rms_norm")
OPERATIONS: dict[str, Norm] = {each.name: each for each in (LAYER_NORM, RMS_NORM)}
"""The plain norms, by name."""
EXTENSIONS = LAYER_NORM.extensions
"""What is judged only if a subject claims it, by name."""
OUTPUTS = tuple(each.name for each in LAYER_NORM.outputs)
OPTIONS = {"gain", "beta", "parameters", "result", "sum", "eps", "width"}
QUANT_OPTIONS = quantization.OPTIONS


def layer_norm_case(
    name: str, arrays: tuple[Array, Array | None, Array | None, Array], eps: float, **fields: Any
) -> Case:
    """Return a case of x, gamma, beta and dy."""
    inputs = dict(zip(("x", "gamma", "beta", "dy"), arrays, strict=True))
    return Case(LAYER_NORM, name, arrays[0].dtype.name, inputs, eps, **fields)


def rms_norm_case(
    name: str, arrays: tuple[Array, Array | None, Array], eps: float, **fields: Any
) -> Case:
    """Return a case of x, gamma and dy."""
    inputs = dict(zip(("x", "gamma", "dy"), arrays, strict=True))
    return Case(RMS_NORM, name, arrays[0].dtype.name, inputs, eps, **fields)


def norm(
    name: NormName | SpatialName,
    *,
    gain: Gain = "plain",
    beta: bool | None = None,
    parameters: str = "",
    result: str = "",
    sum: Sum = "rounded",  # noqa: A002 (public name)
    eps: float | None = None,
    width: int | None = None,
    quant: Quant | None = None,
    **grouped: Unpack[GroupedOptions],
) -> Norm:
    """Return an operation for `Subject`: a norm as kernels ship it.

    Parameters
    ----------
    name : str
        ``layer_norm``, ``rms_norm``, ``add_layer_norm`` or ``add_rms_norm``. The latter two add a
        residual first: ``forward(x, residual, gamma, ..., eps) -> (y, sum, saved)`` and
        ``backward(dy, dsum, saved) -> (dx, dresidual, dgamma, ...)``, where dsum is the gradient
        of the sum. Also ``group_norm`` and ``instance_norm``, for x of shape (N, C, ...).
    gain : str
        ``plain``: a column is multiplied by gamma. ``zero-centred``: by 1 + gamma.
    beta : bool, optional
        Whether beta is added; by default, True for layer norm.
    parameters : str
        The type of gamma and beta, such as ``float32``; by default, that of x.
    result : str
        The type of y; by default, that of x.
    sum : str
        ``rounded``: the sum is normalized as it is returned. ``unrounded``: before it is rounded
        to a type of 16 bits.
    eps : float, optional
        The only eps of a kernel that does not take another: all cases have it, in float32. With 0,
        no row is constant or zero.
    width : int, optional
        The most elements of a row that a kernel takes; wider cases are left out.
    quant : Quant, optional
        How y is quantized: ``forward(x, gamma, ..., eps)`` then returns codes, and what `Quant`
        says. There is no backward pass.
    **grouped
        `groups`, `heads`, `gate`, `modulate`, `variance`, `divisor`, `gamma`, `over`, `axes` and
        `channels`, of grouped, gated and modulated norms: see `GroupedNorm`.

    Returns
    -------
    Norm
        The same object for the same arguments.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> tv.norm("add_rms_norm", gain="zero-centred", parameters="float32").title
    'residual add and RMS normalization, zero-centred gain, float32 parameters'
    """
    if unknown := grouped.keys() - {*grouped_norms.OPTIONS}:
        raise TypeError(
            f"{sorted(unknown)[0]} is no option of an operation: expected any of "
            f"{', '.join(sorted(OPTIONS | {'quant', *grouped_norms.OPTIONS}))}"
        )
    options = tuple(sorted(grouped.items()))
    return _norm(name, gain, beta, parameters, result, sum, (eps, width), quant, options)


@cache  # the cases of an operation are made once
def _norm(
    name: NormName | SpatialName,
    gain: Gain,
    beta: bool | None,
    parameters: str,
    result: str,
    sum_: Sum,
    limits: tuple[float | None, int | None],
    quant: Quant | None,
    grouped: tuple[tuple[str, Any], ...],
) -> Norm:
    known = (*NAMES, *grouped_norms.SPATIAL)
    if name not in known:
        close = "".join(f": did you mean {each}?" for each in get_close_matches(name, known, 1))
        raise ValueError(f"operation must be one of {', '.join(known)}; got {name!r}{close}")
    eps, width = limits
    options: dict[str, Any] = {
        "gain": gain, "beta": beta, "parameters": parameters, "result": result, "eps": eps,
        "width": width,
    }  # fmt: skip
    if grouped or name in grouped_norms.SPATIAL:
        if quant is not None:
            raise ValueError(f"quant={quant.type} is not for grouped, gated or modulated norms")
        return GroupedNorm(name, **dict(grouped), **options, sum=sum_)
    name = cast(NormName, name)
    if quant is not None:
        if limits != (None, None):
            raise ValueError(f"quant={quant.type} has neither eps= nor width=")
        return QuantizedNorm(name, quant, **options, sum=sum_)
    made = Norm(name, **options, sum=sum_)
    return made if made.is_variant else OPERATIONS[name]


def as_operation(operation: Operation | str) -> Operation:
    """Return an operation that may be given as text."""
    return parse_operation(operation) if isinstance(operation, str) else operation


def parse_operation(spec: str, default: Operation = LAYER_NORM) -> Operation:
    """Return the operation of a specification such as ``add_rms_norm,gain=zero-centred``.

    Without a name, change options of the default.
    """
    name, *settings = spec.split(",")
    options: dict[str, Any] = {
        key: value for key, _, value in (each.partition("=") for each in settings)
    }
    beta = {"true": True, "false": False}
    known = OPTIONS | QUANT_OPTIONS | {*grouped_norms.OPTIONS}
    if not spec or not options.keys() <= known or options.get("beta", "true") not in beta:
        raise ValueError(
            "operation must be a name such as add_rms_norm, followed by any of "
            ",gain=zero-centred ,beta=false ,parameters=float32 ,result=float32 "
            ",sum=unrounded ,eps=1e-6 ,width=4096; of grouped, gated and modulated norms "
            f"{' '.join(f',{name}=' for name in grouped_norms.OPTIONS)}; and, for quantized "
            "results, ,quant=e4m3fn with "
            f"{' '.join(f',{name}=' for name in sorted(QUANT_OPTIONS - {'quant'}))}; got {spec!r}"
        )
    if not name and isinstance(default, Norm):
        name, options = default.name, {**default.options, **options}
    if "beta" in options:
        options["beta"] = beta[options["beta"]]
    if "eps" in options:
        options["eps"] = _number("eps", options["eps"])
    for key in ("groups", "heads", "axes", "width"):
        if key in options:
            options[key] = _count(key, options[key])
    if "gamma" in options:
        if options["gamma"] not in beta:
            raise ValueError(f"gamma must be true or false; got {options['gamma']!r}")
        options["gamma"] = beta[options["gamma"]]
    of_quant = {key: options.pop(key) for key in [*options] if key in QUANT_OPTIONS}
    if of_quant and "quant" not in of_quant:
        raise ValueError(f"{', '.join(of_quant)} needs quant=, such as quant=e4m3fn; got {spec!r}")
    if of_quant:
        options["quant"] = quant_from(of_quant)
    return norm(cast(NormName, name), **options)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{name} must be a number such as 1e-6; got {text!r}") from error


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**20:
        raise ValueError(f"{name} must be a whole number above 0; got {text!r}")
    return int(text)
