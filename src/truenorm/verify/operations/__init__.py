"""The operations of the judge: layer norm, RMSNorm and their variants."""

from functools import cache
from typing import Any, cast

from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations.norms import NAMES, Gain, Norm, NormName, Sum
from truenorm.verify.types import Array

__all__ = ["LAYER_NORM", "NAMES", "OPERATIONS", "RMS_NORM", "norm", "parse_operation"]

LAYER_NORM = Norm("layer_norm")
RMS_NORM = Norm("rms_norm")
OPERATIONS: dict[str, Norm] = {each.name: each for each in (LAYER_NORM, RMS_NORM)}
"""The plain norms, by name."""
EXTENSIONS = LAYER_NORM.extensions
"""What is judged only if a subject claims it, by name."""
OUTPUTS = tuple(each.name for each in LAYER_NORM.outputs)
OPTIONS = {"gain", "beta", "parameters", "result", "sum"}


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
    name: NormName,
    *,
    gain: Gain = "plain",
    beta: bool | None = None,
    parameters: str = "",
    result: str = "",
    sum: Sum = "rounded",  # noqa: A002 (public name)
) -> Norm:
    """Return an operation for `Subject`: a norm as kernels ship it.

    Parameters
    ----------
    name : str
        ``layer_norm``, ``rms_norm``, ``add_layer_norm`` or ``add_rms_norm``. The latter two add a
        residual first: ``forward(x, residual, gamma, ..., eps) -> (y, sum, saved)`` and
        ``backward(dy, dsum, saved) -> (dx, dresidual, dgamma, ...)``, where dsum is the gradient
        of the sum.
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
    return _norm(name, gain, beta, parameters, result, sum)


@cache  # the cases of an operation are made once
def _norm(
    name: NormName, gain: Gain, beta: bool | None, parameters: str, result: str, sum_: Sum
) -> Norm:
    made = Norm(name, gain=gain, beta=beta, parameters=parameters, result=result, sum=sum_)
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
    if not spec or not options.keys() <= OPTIONS or options.get("beta", "true") not in beta:
        raise ValueError(
            "operation must be a name such as add_rms_norm, followed by any of "
            ",gain=zero-centred ,beta=false ,parameters=float32 ,result=float32 and "
            f",sum=unrounded; got {spec!r}"
        )
    if not name and isinstance(default, Norm):
        name, options = default.name, {**default.options, **options}
    if "beta" in options:
        options["beta"] = beta[options["beta"]]
    return norm(cast(NormName, name), **options)
