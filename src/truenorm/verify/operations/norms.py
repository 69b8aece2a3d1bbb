"""Layer norm, RMSNorm and their variants as operations of the judge."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from truenorm.verify.cases.families import (
    EPSILONS,
    extensions,
    hard,
    ordinary,
    sweeps,
    to_float32,
)
from truenorm.verify.cases.midpoints import NEXT_TO_MIDPOINTS, next_to_midpoints
from truenorm.verify.cases.named import named_cases
from truenorm.verify.enclosures import answers_by_enclosure
from truenorm.verify.operation import (
    Case,
    Clues,
    Hypothesis,
    Input,
    Operation,
    Output,
    RecipeResult,
    Results,
    RoundedResult,
)
from truenorm.verify.operations.clues import clues_of
from truenorm.verify.operations.exact import exact_answers, predictors_of
from truenorm.verify.operations.hypotheses import hypotheses_of
from truenorm.verify.operations.recipes import (
    backward_results,
    inner_roundings,
    recipe_names,
    recipe_results,
    shows_recipe,
)
from truenorm.verify.operations.scales import NormScales
from truenorm.verify.operations.variants import adapt_case
from truenorm.verify.oracle import load_or_compute
from truenorm.verify.types import FORMATS, Array, Float64s

NormName = Literal["layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm"]
Gain = Literal["plain", "zero-centred"]
Sum = Literal["rounded", "unrounded"]
NAMES, GAINS, SUMS = get_args(NormName), get_args(Gain), get_args(Sum)

OPERATIONS = Path(__file__).parent
SMALLEST_WITHOUT_EPS = 2.0**-50
SHAPES_AND_LAYOUTS = ("ranks", "strides", "padded-rows", "layouts-of-gradients")


class Norm(Operation):
    """y = gain*c/sqrt(mean(c^2) + eps) + beta, and its gradients.

    Parameters
    ----------
    name : str
        ``layer_norm`` and ``add_layer_norm`` subtract the mean of a row, ``rms_norm`` and
        ``add_rms_norm`` do not. Those that add normalize the sum of x and a residual, and also
        return it. Their backward pass takes dsum, the gradient of that sum, beside dy, and
        returns the gradients of both summands.
    gain : str
        The factor of a column: gamma itself, if ``plain``; 1 + gamma, if ``zero-centred``.
    beta : bool, optional
        Whether beta is added; by default, True if the mean is subtracted.
    parameters, result : str
        The type of gamma and beta, and that of y; by default, that of x.
    sum : str
        The sum that is normalized: ``rounded`` to the type of x, as it is returned, or, for types
        of 16 bits, ``unrounded``.
    eps : float, optional
        The only eps of the kernel, which does not take another: that of all cases, in float32.
    width : int, optional
        The most elements of a row that the kernel takes; wider cases are left out.
    """

    shared_sources = tuple(
        OPERATIONS / f"{name}.py" for name in ("exact", "scales", "norms", "variants")
    )

    def __init__(
        self,
        name: NormName = "layer_norm",
        *,
        gain: Gain = "plain",
        beta: bool | None = None,
        parameters: str = "",
        result: str = "",
        sum: Sum = "rounded",  # noqa: A002 (public name)
        eps: float | None = None,
        width: int | None = None,
    ) -> None:
        for argument, value, choices in (
            ("operation", name, NAMES),
            ("gain", gain, GAINS),
            ("sum", sum, SUMS),
            ("parameters", parameters, ("", *FORMATS)),
            ("result", result, ("", *FORMATS)),
        ):
            if value not in choices:
                names = ", ".join(filter(None, choices))
                raise ValueError(f"{argument} must be one of {names}; got {value!r}")
        if eps is not None and not 0 <= eps < math.inf:
            raise ValueError(f"eps must be a finite number, 0 or above; got {eps}")
        self.name = name
        self.eps, self.width = eps, width
        self.gain: str = gain
        self.sum: str = sum
        self.adds = name.startswith("add_")
        self.rounded_once = frozenset({"sum"} if self.adds else ())
        if sum != "rounded" and not self.adds:
            raise ValueError(f"sum={sum!r} needs add_{name}: {name} adds nothing")
        base = name.removeprefix("add_")
        self.centred = base == "layer_norm"
        has_beta = self.centred if beta is None else beta
        self.parameters: tuple[str, ...] = ("gamma", "beta") if has_beta else ("gamma",)
        self.parameter_type, self.result_type = parameters, result
        options = {
            "gain": gain if gain != "plain" else "",
            "beta": "" if beta in (None, self.centred) else str(beta).lower(),
            "parameters": parameters,
            "result": result,
            "sum": sum if sum != "rounded" else "",
            "eps": "" if eps is None else repr(float(eps)),
            "width": "" if width is None else str(width),
        }
        self.options = {key: value for key, value in options.items() if value}
        self.variant = ",".join(["add" if self.adds else "", *map("=".join, self.options.items())])
        self.case_file = f"{base}/cases.toml"
        self.folder = OPERATIONS / base
        self.predictors = predictors_of(self)
        self.recipe_names = recipe_names(self)
        self.inputs, self.outputs = self._signature()
        self.extensions = self._extensions()
        self.not_for_commands = frozenset(
            [
                *SHAPES_AND_LAYOUTS,
                "float32-parameters",
                *(f"no-{each}" for each in self.parameters),
            ]
        )

    def _signature(self) -> tuple[tuple[Input, ...], tuple[Output, ...]]:
        """Return the inputs and the outputs."""
        adds = self.adds
        inputs = (
            Input("x", "data"),
            *([Input("residual", "data")] if adds else []),
            *(Input(name, "parameter") for name in self.parameters),
            Input("dy", "gradient"),
            *([Input("dsum", "gradient")] if adds else []),
        )
        outputs = (
            Output("y", like="x"),
            *([Output("sum", like="x")] if adds else []),
            Output("dx", like="x", backward=True),
            *([Output("dresidual", like="x", backward=True)] if adds else []),
            *(Output(f"d{name}", like=name, backward=True) for name in self.parameters),
        )
        return inputs, outputs

    def _extensions(self) -> dict[str, str]:
        """Return the extensions and their meaning."""
        rows = " and ".join(each.name for each in self.inputs if each.role != "parameter")
        gradients = "dy or dsum has" if self.adds else "dy has"
        sums = " and ".join(f"d{name}" for name in self.parameters)
        are = "is" if len(self.parameters) == 1 else "are"
        extensions = {
            **{f"no-{name}": f"{name} is None; d{name} is ignored" for name in self.parameters},
            "ranks": "x has one axis, or three",
            "strides": f"{rows} are views with gaps along the last axis",
            "padded-rows": f"{rows} are views with gaps between rows, as slices of a wider array",
            "layouts-of-gradients": f"{gradients} another memory layout than x, or is read-only",
            "idle-rows": f"rows whose dy is zero change no bit of {sums}",
            "zero-eps": f"eps is 0, and no row is {'constant' if self.centred else 'zero'}",
            "tiny-eps": "eps is a number that float32 does not have",
            "empty": "x has no rows",
        }
        if not self.parameter_type:
            names = " and ".join(self.parameters)
            extensions["float32-parameters"] = f"{names} {are} float32 whatever x is"
        return extensions

    @property
    def title(self) -> str:  # type: ignore[override]
        """The name for people, with its options."""
        base = "layer normalization" if self.centred else "RMS normalization"
        texts = {"beta": "with beta" if "beta" in self.parameters else "without beta"}
        texts |= {key: f"{self.options.get(key)} {key}" for key in ("gain", "parameters", "sum")}
        texts |= {"result": f"y in {self.result_type}", "eps": f"eps {self.options.get('eps')}"}
        texts["width"] = f"at most {self.width} wide"
        name = ("residual add and " if self.adds else "") + base
        return ", ".join([name, *(texts[key] for key in self.options)])

    @property
    def condition(self) -> str:  # type: ignore[override]
        """The formula of kappa."""
        row = "x + residual" if self.adds else "x"
        return f"rms({row})/sqrt(var + eps)" if self.centred else "1"

    @property
    def condition_description(self) -> str:  # type: ignore[override]
        """A sentence about kappa."""
        if not self.centred:
            return "κ is 1: no mean is subtracted, so that no row is harder than another."
        row = "x + residual" if self.adds else "x"
        return f"κ = rms({row})/√(var + ε) says how much of a row is mean."

    @property
    def spec(self) -> str:
        """The name and the options that are not defaults, joined by commas."""
        return ",".join([self.name, *map("=".join, self.options.items())])

    @property
    def is_variant(self) -> bool:
        """True unless it is plain layer norm or RMSNorm."""
        return self.variant != ""

    def type_of(self, output: str, like: str) -> str:
        """Return the type of an output, given that of the input it is like."""
        return self.result_type if output == "y" and self.result_type else like

    def cases(self, dtype: str, level: str, seed: int = 0) -> Iterator[Case]:
        """Yield families of a seed, then cases that do not depend on it."""
        self.check_type(dtype)
        if self.is_variant:
            for case in self._plain.cases(dtype, level, seed):
                if case.needs <= self.extensions.keys():
                    yield from self.within_limits(adapt_case(self, case))
            return
        yield from ordinary(self, dtype, level, seed)
        if self.centred:  # else a large mean is not hard
            yield from sweeps(self, dtype, level, seed)
        yield from hard(self, dtype, level, seed)
        yield from next_to_midpoints(self, dtype, level, centred=self.centred)
        yield from named_cases(self, dtype)
        yield from extensions(self, dtype, seed)

    def within_limits(self, case: Case) -> Iterator[Case]:
        """Yield a case with the only eps of the kernel, unless it is about another or too wide.

        If eps is 0, leave out rows that are constant or zero, or whose squares vanish in float32.
        """
        if self.width is not None and case.shape[1] > self.width:
            return
        if self.eps is None:
            yield case
            return
        eps = to_float32(self.eps)
        moved = eps != EPSILONS[0] and case.family == NEXT_TO_MIDPOINTS
        if case.eps != EPSILONS[0] or moved:
            return
        units = self.units(case).astype(np.float64)
        with np.errstate(all="ignore"):
            sizes = np.ptp(units, axis=-1) if self.centred else np.abs(units).max(axis=-1)
        if eps or not np.any(sizes < SMALLEST_WITHOUT_EPS):
            yield replace(case, eps=eps)

    def units(self, case: Case) -> Array:
        """Return x as units: the parts of a row that share a mean and an r; here, rows."""
        rows: Array = case.x
        return rows

    def check_type(self, dtype: str) -> None:
        """Raise ValueError for a type that an option excludes."""
        if self.sum == "unrounded" and FORMATS[dtype].precision > 11:
            raise ValueError(f"sum='unrounded' needs a type of 16 bits; got {dtype}")

    @cached_property
    def _plain(self) -> "Norm":
        """The plain norm whose cases and answers a variant uses."""
        return Norm("layer_norm" if self.centred else "rms_norm")

    def normalized(self, case: Case) -> Float64s:
        """Return the rows that are normalized, in float64."""
        if not self.adds:
            rows: Float64s = case.x.astype(np.float64)
        elif self.sum == "rounded":
            rows = (case.x + case.residual).astype(np.float64)
        else:
            rows = case.x.astype(np.float64) + case.residual.astype(np.float64)
        return rows

    def recipes(self, case: Case, results: Results) -> dict[str, RecipeResult]:  # noqa: ARG002 (quantized norms use it)
        """Return y by every recipe, for ordinary rows of a type of 16 bits."""
        if not shows_recipe(case.dtype) or case.family != "normal":
            return {}
        return recipe_results(self, case)

    def inner_roundings(self, dtype: str) -> dict[str, RoundedResult]:
        """Return y with roundings that no recipe has, by a clause for them."""
        return inner_roundings(self, dtype)

    def backward_recipes(self, case: Case, output: str) -> dict[str, RecipeResult]:
        """Return dx or dgamma by every recipe of backward, for the cases of `recipes`."""
        if not shows_recipe(case.dtype) or case.family != "normal":
            return {}
        return backward_results(self, case, output)

    def hypotheses(self, output: str) -> dict[str, Hypothesis]:
        """Return an output as it would be if one step were wrong, by the text of that step."""
        return hypotheses_of(self, output)

    def clues(self, output: str) -> Clues:
        """Return clues to wrong results that no hypothesis explains as a whole."""
        return clues_of(self, output)

    def exact(self, case: Case) -> dict[str, Float64s]:
        """Return all outputs, and r and xhat of each row."""
        if case.enclosed and (answers := answers_by_enclosure(case)) is not None:
            return answers
        if self.variant != "add":
            return exact_answers(case, self)
        # Only dx depends on dsum; the other answers of the plain norm may be cached.
        inputs = {name: case.inputs[name] for name in (*self.parameters, "dy")}
        rows = {"x": np.asarray(case.x + case.residual), **inputs}
        plain = replace(case, operation=self._plain, inputs=rows)
        known = load_or_compute(plain, self._plain.exact)
        del known["dx"]
        return exact_answers(case, self, known)

    def scales(self, case: Case, exact: Mapping[str, Float64s]) -> NormScales:
        """Return the natural scales."""
        return NormScales(case, exact, self)
