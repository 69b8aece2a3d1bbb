"""Layer normalization and its relatives, as the judge sees them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from truenorm.verify.cases.families import extensions, hard, ordinary, sweeps
from truenorm.verify.cases.midpoints import next_to_midpoints
from truenorm.verify.cases.named import named_cases
from truenorm.verify.operation import Case, Hypothesis, Input, Operation, Output, RecipeResult
from truenorm.verify.operations.definition import NormScales, extensions_of, not_for_commands
from truenorm.verify.operations.exact import exact_answers, predictors_of
from truenorm.verify.operations.hypotheses import hypotheses_of
from truenorm.verify.operations.recipes import recipe_names, recipe_results, shows_recipe
from truenorm.verify.operations.variants import adapt_case
from truenorm.verify.oracle import load_or_compute
from truenorm.verify.types import FORMATS, Float64s

NormName = Literal["layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm"]
Gain = Literal["plain", "zero-centred"]
Sum = Literal["rounded", "unrounded"]
NAMES, GAINS, SUMS = get_args(NormName), get_args(Gain), get_args(Sum)

OPERATIONS = Path(__file__).parent


class Norm(Operation):
    """y = gain*c/sqrt(mean(c^2) + eps), with beta if there is one, and its gradients.

    Parameters
    ----------
    name : str
        ``layer_norm`` and ``add_layer_norm`` subtract the mean of a row, ``rms_norm`` and
        ``add_rms_norm`` do not. Those that add normalize the sum of x and of a residual, and
        return it as well: it is the next residual. Their backward pass is given the gradient
        that arrives there, dsum, beside dy, and returns that of both summands.
    gain : str
        The factor of a column: gamma itself, if ``plain``; 1 + gamma, if ``zero-centred``.
    beta : bool, optional
        Whether there is one; by default, where the mean is subtracted.
    parameters, result : str
        The type of gamma and beta, and that of y; by default, that of x.
    sum : str
        What is normalized: the sum as it is returned, ``rounded`` to the type of x, or, for
        types of 16 bits, the ``unrounded`` one.
    """

    shared_sources = tuple(
        OPERATIONS / f"{name}.py" for name in ("exact", "definition", "norms", "variants")
    )

    def __init__(
        self,
        name: NormName = "layer_norm",
        *,
        gain: Gain = "plain",
        beta: bool | None = None,
        parameters: str = "",
        result: str = "",
        sum: Sum = "rounded",  # noqa: A002 (so it is called everywhere)
    ) -> None:
        for given, known, what in (
            (name, NAMES, "operation"),
            (gain, GAINS, "gain"),
            (sum, SUMS, "sum"),
            (parameters, ("", *FORMATS), "parameters"),
            (result, ("", *FORMATS), "result"),
        ):
            if given not in known:
                these = ", ".join(each for each in known if each)
                raise ValueError(f"{what} is {given!r}; it is one of {these}")
        self.name = name
        self.gain: str = gain
        self.sum: str = sum
        self.adds = name.startswith("add_")
        if sum != "rounded" and not self.adds:
            raise ValueError(f"sum is {sum!r}; {name} adds nothing: give add_{name}")
        base = name.removeprefix("add_")
        self.centred = base == "layer_norm"
        has_beta = self.centred if beta is None else beta
        self.parameters: tuple[str, ...] = ("gamma", "beta") if has_beta else ("gamma",)
        self.parameter_type, self.result_type = parameters, result
        chosen = {
            "gain": gain if gain != "plain" else "",
            "beta": "" if beta in (None, self.centred) else str(beta).lower(),
            "parameters": parameters,
            "result": result,
            "sum": sum if sum != "rounded" else "",
        }
        self.options = {key: value for key, value in chosen.items() if value}
        self.variant = ",".join(["add" if self.adds else "", *map("=".join, self.options.items())])
        self.case_file = f"{base}/cases.toml"
        self.folder = OPERATIONS / base
        self.predictors = predictors_of(self)
        self.recipe_names = recipe_names(self)
        self.inputs, self.outputs = self._signature()
        self.extensions = extensions_of(self)
        self.not_for_commands = not_for_commands(self)

    def _signature(self) -> tuple[tuple[Input, ...], tuple[Output, ...]]:
        """Return what goes in, and what comes out."""
        summand = [Input("residual", "data")] if self.adds else []
        arriving = [Input("dsum", "gradient")] if self.adds else []
        inputs = (
            Input("x", "data"),
            *summand,
            *(Input(name, "parameter") for name in self.parameters),
            Input("dy", "gradient"),
            *arriving,
        )
        outputs = (
            Output("y", like="x"),
            *([Output("sum", like="x")] if self.adds else []),
            Output("dx", like="x", backward=True),
            *([Output("dresidual", like="x", backward=True)] if self.adds else []),
            *(Output(f"d{name}", like=name, backward=True) for name in self.parameters),
        )
        return inputs, outputs

    @property
    def title(self) -> str:  # type: ignore[override]
        """What it is called, and in what it differs."""
        base = "layer normalization" if self.centred else "RMS normalization"
        said = {"beta": "with beta" if "beta" in self.parameters else "without beta"}
        said |= {key: f"{self.options.get(key)} {key}" for key in ("gain", "parameters", "sum")}
        said["result"] = f"y in {self.result_type}"
        parts = [("residual add and " if self.adds else "") + base]
        return ", ".join([*parts, *(said[key] for key in self.options)])

    @property
    def condition(self) -> str:  # type: ignore[override]
        """What kappa is, as a formula."""
        row = "x + residual" if self.adds else "x"
        return f"rms({row})/sqrt(var + eps)" if self.centred else "1"

    @property
    def condition_description(self) -> str:  # type: ignore[override]
        """What kappa is, in a sentence."""
        if not self.centred:
            return "κ is 1: no mean is subtracted, so that no row is harder than another."
        row = "x + residual" if self.adds else "x"
        return f"κ = rms({row})/√(var + ε) says how much of a row is mean."

    @property
    def spec(self) -> str:
        """Its name and its options, as one word."""
        return ",".join([self.name, *map("=".join, self.options.items())])

    @property
    def is_variant(self) -> bool:
        """Whether it is more than a layer or RMS normalization as such."""
        return self.variant != ""

    def type_of(self, output: str, like: str) -> str:
        """Return the type of a result; that of y may be declared."""
        return self.result_type if output == "y" and self.result_type else like

    def cases(self, dtype: str, level: str, seed: int = 0) -> Iterator[Case]:
        """Yield families, of a seed, and what no seed changes: named ones, and near midpoints."""
        if self.sum == "unrounded" and FORMATS[dtype].precision > 11:
            raise ValueError(f"an unrounded sum is for types of 16 bits, and not for {dtype}")
        if self.is_variant:
            plain = self._plain
            yield from (
                adapt_case(self, each)
                for each in plain.cases(dtype, level, seed)
                if self._has(each)
            )
            return
        yield from ordinary(self, dtype, level, seed)
        if self.centred:  # else a large mean is nothing special
            yield from sweeps(self, dtype, level, seed)
        yield from hard(self, dtype, level, seed)
        yield from next_to_midpoints(self, dtype, level, centred=self.centred)
        yield from named_cases(self, dtype)
        yield from extensions(self, dtype, seed)

    @cached_property
    def _plain(self) -> "Norm":
        """The norm whose cases and answers it takes over."""
        return Norm("layer_norm" if self.centred else "rms_norm")

    def _has(self, plain: Case) -> bool:
        """Tell whether a case of the plain operation is one of this one."""
        return plain.needs <= self.extensions.keys()

    def normalized(self, case: Case) -> Float64s:
        """Return the rows that are normalized, in float64."""
        if not self.adds:
            rows: Float64s = case.x.astype(np.float64)
        elif self.sum == "rounded":
            rows = (case.x + case.residual).astype(np.float64)
        else:
            rows = case.x.astype(np.float64) + case.residual.astype(np.float64)
        return rows

    def recipes(self, case: Case) -> dict[str, RecipeResult]:
        """Return y of ordinary rows of a type of 16 bits, by every recipe."""
        if not shows_recipe(case.dtype) or case.family != "normal":
            return {}
        return recipe_results(self, case)

    def hypotheses(self, output: str) -> dict[str, Hypothesis]:
        """Return what comes out if one step is done otherwise."""
        return hypotheses_of(self, output)

    def exact(self, case: Case) -> dict[str, Float64s]:
        """Return the results, and of each row r and xhat."""
        if self.variant != "add":
            return exact_answers(case, self)
        # What does not depend on how the row came about may be kept already.
        plain = self._plain
        inputs = {name: case.inputs[name] for name in (*self.parameters, "dy")}
        rows = {"x": np.asarray(case.x + case.residual), **inputs}
        known = load_or_compute(replace(case, operation=plain, inputs=rows), plain.exact)
        del known["dx"]
        return exact_answers(case, self, known)

    def scales(self, case: Case, exact: Mapping[str, Float64s]) -> NormScales:
        """Return the natural scales."""
        return NormScales(case, exact, self)
