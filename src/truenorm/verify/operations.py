"""The operations that ship with the judge: layer norm, RMSNorm, and norms made of options."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from truenorm.tools.user_files import NotThereError, failure_text, run_file, split_target
from truenorm.verify.formulas.operation import FormulaOperation, formula
from truenorm.verify.formulas.shipped import SHIPPED
from truenorm.verify.norms.error_patterns import error_patterns_of
from truenorm.verify.norms.exact import answers_of, predictors_of
from truenorm.verify.norms.grouped import causes as causes_of_units
from truenorm.verify.norms.grouped import formulas
from truenorm.verify.norms.grouped import recipes as recipes_of_units
from truenorm.verify.norms.grouped.cases import grouped_cases
from truenorm.verify.norms.grouped.derived import derived_of
from truenorm.verify.norms.grouped.scales import GroupedScales
from truenorm.verify.norms.hypotheses import hypotheses_of, unchanged_of
from truenorm.verify.norms.norm import Judging, Norm
from truenorm.verify.norms.options import OF_UNITS, Gain, NormName, Options, Sum
from truenorm.verify.norms.quant import OPTIONS as OF_QUANT
from truenorm.verify.norms.quant import Quant, quant_from
from truenorm.verify.norms.quantized import recipes as recipes_of_codes
from truenorm.verify.norms.quantized.answers import (
    QuantizedExpected,
    QuantizedScales,
    enclosed_answers,
)
from truenorm.verify.norms.quantized.cases import quantized_cases
from truenorm.verify.norms.quantized.causes import find_cause
from truenorm.verify.norms.quantized.summary import summarize
from truenorm.verify.norms.recipes import (
    backward_results,
    inner_roundings,
    recipe_names,
    recipe_results,
)
from truenorm.verify.norms.scales import NormScales
from truenorm.verify.norms.variants import plain_cases
from truenorm.verify.operation import Case, CodeKnowledge, Knowledge, Operation
from truenorm.verify.types import Array

FOLDER = Path(__file__).parent / "norms"
SOURCES = tuple(
    FOLDER / f"{name}.py" for name in ("exact", "scales", "norm", "options", "variants")
)


def _knowledge(norm: Norm) -> Knowledge:
    return Knowledge(
        recipe_names(norm),
        recipes=partial(recipe_results, norm),
        inner_roundings=partial(inner_roundings, norm),
        backward_recipes=partial(backward_results, norm),
        hypotheses=lambda output: hypotheses_of(norm, output) | derived_of(norm, output),
        unchanged=partial(unchanged_of, norm),
        error_patterns=partial(error_patterns_of, norm),
    )


def _knowledge_of_units(norm: Norm) -> Knowledge:
    return Knowledge(
        recipes_of_units.recipe_names(norm),
        recipes=partial(recipes_of_units.recipe_results, norm),
        hypotheses=partial(causes_of_units.hypotheses_of, norm),
        unchanged=partial(causes_of_units.unchanged_of, norm),
    )


def _knowledge_of_codes(norm: Norm) -> Knowledge:
    return Knowledge(
        recipes_of_codes.recipes_of(norm),
        recipes=partial(recipes_of_codes.recipe_results, norm),
        codes=CodeKnowledge(
            partial(recipes_of_codes.way_results, norm),
            partial(find_cause, norm),
            partial(summarize, norm),
        ),
    )


def _plain(base: str) -> Judging:
    """Return the functions that judge plain norms, and the folder of their cached answers."""
    return Judging(
        plain_cases, answers_of, NormScales, _knowledge, FOLDER / base, SOURCES, predictors_of
    )


OF_NORMS = {True: _plain("layer_norm"), False: _plain("rms_norm")}
"""The functions that judge plain norms, by `Norm.centred`."""
OF_NORMS_OF_UNITS = Judging(
    grouped_cases,
    formulas.exact_answers,
    GroupedScales,
    _knowledge_of_units,
    expected_type=formulas.GroupedExpected,
)
OF_QUANTIZED_NORMS = Judging(
    quantized_cases,
    enclosed_answers,
    QuantizedScales,
    _knowledge_of_codes,
    expected_type=QuantizedExpected,
)


@cache  # the cases of an operation are made once
def norm_of(options: Options) -> Norm:
    """Return the norm with some options: the same object for the same options."""
    plain_name = "layer_norm" if options.centred else "rms_norm"
    if options == Options(plain_name):
        return Norm(options, OF_NORMS[options.centred])
    plain = norm_of(Options(plain_name))
    if not options.has_units and options.quant is None:
        return Norm(options, OF_NORMS[options.centred], plain=plain)
    of_units: dict[str, Any] = {name: getattr(Options, name) for name in OF_UNITS}
    name = options.name if options.adds else plain_name
    base = norm_of(replace(options, name=name, quant=None, **of_units))
    judging = OF_NORMS_OF_UNITS if options.has_units else OF_QUANTIZED_NORMS
    return Norm(options, judging, base, plain)


LAYER_NORM, RMS_NORM = norm_of(Options("layer_norm")), norm_of(Options("rms_norm"))
OPERATIONS: dict[str, Norm] = {each.name: each for each in (LAYER_NORM, RMS_NORM)}
"""The plain norms, by name."""
EXTENSIONS = LAYER_NORM.extensions
"""By name: the meaning of a property that is judged only if a subject claims it."""
OUTPUTS = tuple(each.name for each in LAYER_NORM.outputs)


def layer_norm_case(
    name: str, arrays: tuple[Array, Array | None, Array | None, Array], eps: float, **others: Any
) -> Case:
    """Return a case of x, gamma, beta and dy."""
    inputs = dict(zip(("x", "gamma", "beta", "dy"), arrays, strict=True))
    return Case(LAYER_NORM, name, arrays[0].dtype.name, inputs, eps, **others)


def norm(
    name: NormName,
    *,
    gain: Gain = "plain",
    beta: bool | None = None,
    parameters: str = "",
    result: str = "",
    sum: Sum = "rounded",  # noqa: A002 (public name)
    eps: float | None = None,
    width: int | None = None,
    groups: int = 1,
    heads: int = 0,
    gate: str = "",
    modulate: str = "",
    variance: str = "",
    gamma: bool = True,
    over: str = "row",
    channels: str = "first",
    quant: Quant | None = None,
) -> Norm:
    """Return an operation for `Subject`: a norm as kernels ship it.

    A unit is the part of a row that shares a mean and an r = 1/sqrt(variance + eps). Without an
    option that divides rows, it is a row.

    Parameters
    ----------
    name : str
        ``layer_norm``, ``rms_norm``, ``add_layer_norm`` or ``add_rms_norm``. The latter two add a
        residual first: ``forward(x, residual, gamma, ..., eps) -> (y, sum, saved)`` and
        ``backward(dy, dsum, saved) -> (dx, dresidual, dgamma, ...)``, where dsum is the gradient
        of the sum. Also ``group_norm`` and ``instance_norm``: layer norms of groups of channels
        and of single channels, for x of shape (N, C, ...).
    gain : str
        ``plain``: a column is multiplied by gamma. ``zero-centred``: by 1 + gamma.
    beta : bool, optional
        Whether beta is added; by default, True for layer norm.
    parameters : str
        The type of gamma and beta, such as ``float32``; by default, the type of x.
    result : str
        The type of y; by default, the type of x.
    sum : str
        ``rounded``: the sum is normalized as it is returned. ``unrounded``: before it is rounded
        to a type of 16 bits.
    eps : float, optional
        The only eps of a kernel that does not take another: all cases have it, in float32. With 0,
        no row is constant or zero.
    width : int, optional
        The most elements of a row that a kernel takes; wider cases are left out.
    groups : int
        The number of groups of a row, each of which is a unit. gamma has a number for each column.
    heads : int
        The number of heads of a row, each of which is a unit. gamma has a number for each column
        of a head. x has the shape (N, heads, D).
    gate : str
        ``silu`` and ``sigmoid`` multiply y by a function of z; with ``-first``, x. ``self`` is the
        silu of y.
    modulate : str
        ``sample`` and ``row``: y*(1 + scale) + shift. A sample has one scale for all its units,
        and x has the shape (N, T, D); a row is a unit.
    variance : str
        The part of a unit, from its first column on, that counts for the mean square, as ``3/4``.
    gamma : bool
        Whether there are gamma and beta.
    over : str
        ``row``, or ``channels``: a unit is the channels at one place of x (N, C, ...).
    channels : str
        For group and instance norm. ``first``: x has the shape (N, C, ...); ``last``: (N, ..., C).
    quant : Quant, optional
        How y is quantized: ``forward(x, gamma, ..., eps)`` then returns codes, and the scales that
        `Quant` describes. There is no backward pass.

    Returns
    -------
    Norm
        The same object for the same arguments.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> tv.norm("add_rms_norm", gain="zero-centred", parameters="float32").title
    'residual add and RMS normalization, zero-centred gain, float32 parameters'
    >>> tv.norm("rms_norm", groups=4, gate="silu").title
    'RMS normalization, 4 groups, gate silu'
    """
    return norm_of(
        Options(
            name=name,
            gain=gain,
            beta=beta,
            parameters=parameters,
            result=result,
            sum=sum,
            eps=eps,
            width=width,
            groups=groups,
            heads=heads,
            gate=gate,
            modulate=modulate,
            variance=variance,
            gamma=gamma,
            over=over,
            channels=channels,
            quant=quant,
        )
    )


def as_operation(operation: Operation | str, default: Operation = LAYER_NORM) -> Operation:
    """Return an operation that may be given as text: of a norm, or ``file.py:name``."""
    if not isinstance(operation, str):
        return operation
    if operation in SHIPPED:
        return SHIPPED[operation]()
    if split_target(operation, "formula")[0].suffix == ".py":
        return formula_from(operation)
    return parse_operation(operation, default)


@cache  # the operation of a file is made once
def formula_from(target: str) -> FormulaOperation:
    """Return the operation of ``file.py:name``: a result of `formula`, or a formula."""
    path, name = split_target(target, "formula")
    try:
        module = run_file(path)
    except NotThereError:
        raise
    except Exception as error:  # any exception is the file's
        raise ValueError(f"cannot execute {path}:\n{failure_text(error)}") from error
    value = getattr(module, name, None)
    made = [each for each in vars(module).values() if isinstance(each, FormulaOperation)]
    for each in made:
        if value in (each, each.function) or (value is None and name == each.name):
            return each
    if value is None or not callable(value):
        raise NotThereError(f"{path.name} has no formula {name!r}")
    return formula(value, name=name)


def parse_operation(spec: str, default: Operation = LAYER_NORM) -> Norm:
    """Return the operation of a specification such as ``add_rms_norm,gain=zero-centred``.

    Without a name, change options of the default.
    """
    name, *settings = spec.split(",")
    texts = {key: value for key, _, value in (each.partition("=") for each in settings)}
    known = {each.name for each in fields(Options)} - {"name"} | OF_QUANT
    if not spec or not texts.keys() <= known:
        raise ValueError(
            "operation must be a name such as add_rms_norm, followed by any of "
            ",gain=zero-centred ,beta=false ,parameters=float32 ,result=float32 "
            ",sum=unrounded ,eps=1e-6 ,width=4096; of grouped, gated and modulated norms "
            f"{' '.join(f',{each}=' for each in OF_UNITS)}; and, for quantized "
            "results, ,quant=e4m3fn with "
            f"{' '.join(f',{each}=' for each in sorted(OF_QUANT - {'quant'}))}; got {spec!r}"
        )
    if not name:
        name, _, defaults = default.spec.partition(",")
        texts = dict(each.split("=") for each in defaults.split(",") if each) | texts
    of_quant = {key: texts.pop(key) for key in [*texts] if key in OF_QUANT}
    if of_quant and "quant" not in of_quant:
        raise ValueError(f"{', '.join(of_quant)} needs quant=, such as quant=e4m3fn; got {spec!r}")
    options = {key: PARSED.get(key, _text)(key, text) for key, text in texts.items()}
    quant = quant_from(of_quant) if of_quant else None
    return norm_of(Options(name, **options, quant=quant))


def _text(_: str, text: str) -> str:
    return text


def _flag(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{name} must be true or false; got {text!r}")
    return text == "true"


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{name} must be a number such as 1e-6; got {text!r}") from error


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**20:
        raise ValueError(f"{name} must be a whole number above 0; got {text!r}")
    return int(text)


PARSED: dict[str, Callable[[str, str], Any]] = {
    **dict.fromkeys(("beta", "gamma"), _flag),
    "eps": _number,
    **dict.fromkeys(("groups", "heads", "width"), _count),
}
"""By option: the function that reads the text of its value, if the value is not text."""
