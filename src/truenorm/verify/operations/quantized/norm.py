"""Norms whose results are quantized, as operations of the judge."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from truenorm.verify.enclosures import enclose_forward
from truenorm.verify.operation import (
    Case,
    Clues,
    Hypothesis,
    Input,
    Operation,
    Output,
    Quantization,
    RecipeResult,
    Results,
)
from truenorm.verify.operations.exact import round_sum
from truenorm.verify.operations.norms import Norm, NormName
from truenorm.verify.operations.quantized.answers import QuantizedExpected, QuantizedScales
from truenorm.verify.operations.quantized.cases import PARTIAL_GROUPS, quantized_cases
from truenorm.verify.operations.quantized.hypotheses import find_cause
from truenorm.verify.operations.quantized.quant import Quant
from truenorm.verify.operations.quantized.recipes import (
    recipe_results,
    recipes_of,
    way_results,
)
from truenorm.verify.operations.quantized.summary import summarize
from truenorm.verify.operations.recipes import shows_recipe
from truenorm.verify.operations.scales import NormScales
from truenorm.verify.types import Float64s


def refuse_quantized(operation: Operation, what: str) -> None:
    """Raise ValueError for a quantized norm, whose codes depend on the returned scales."""
    if isinstance(operation, QuantizedNorm):
        raise ValueError(f"{what} needs a norm without quant=; got {operation.spec}")


class QuantizedNorm(Norm):
    """Codes of y = gain*c/sqrt(mean(c^2) + eps) + beta, forward only.

    Parameters
    ----------
    name : str
        As for `Norm`.
    quant : Quant
        How y is quantized.
    options
        Those of `Norm` but `result`.
    """

    expected_type = QuantizedExpected

    def __init__(self, name: NormName, quant: Quant, **options: Any) -> None:
        super().__init__(name, **options)
        if self.result_type:
            raise ValueError(
                f"result={self.result_type} and quant={quant.type} exclude each other"
            )
        self.quant = quant
        self.plain = Norm(name, **options)
        self.options = {**self.options, **quant.options}
        self.variant = f"{self.variant},{','.join(map('='.join, quant.options.items()))}"
        self.case_file, self.folder, self.predictors = "", None, {}
        self.recipe_names = recipes_of(self)
        self.inputs = (
            *(each for each in self.inputs if each.role != "gradient"),
            *([Input(quant.setting, "setting")] if quant.setting else []),
        )
        self.outputs = (
            Output("codes", like="x"),
            *([Output("scale", like="x")] if quant.scale_type else []),
            *([Output("amax", like="gamma")] if quant.amax else []),
            *([Output("sum", like="x")] if self.adds else []),
        )
        self.extensions = (
            {PARTIAL_GROUPS: f"the last group of a row has fewer than {quant.group} elements"}
            if quant.group and quant.code.name != "e2m1"
            else {}
        )
        self.not_for_commands = frozenset(self.extensions)

    @property
    def title(self) -> str:  # type: ignore[override]
        """The name for people, with its options."""
        texts = [f"quantized to {self.quant.type}"]
        texts += [
            {"amax": "with amax"}.get(name, f"{name} {text}")
            for name, text in self.quant.options.items()
            if name != "quant"
        ]
        return ", ".join([self.plain.title, *texts])

    def type_of(self, output: str, like: str) -> str:
        """Return the type of an output, given that of the input it is like."""
        types = {
            "codes": self.quant.code.name,
            "scale": self.quant.scale_type,
            "amax": "float32",
        }
        return types.get(output, like)

    def result_shapes(self, output: str, rows: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the shapes that a result may have, given that of x."""
        *leading, size = rows
        if output == "codes" and self.quant.code.name == "e2m1":
            return (*leading, -(-size // 2)), rows
        if output == "scale":
            groups = self.quant.groups(size)
            return ((*leading, groups), *([] if groups > 1 else [tuple(leading)]))
        return ((1,), ()) if output == "amax" else (rows,)

    def cases(self, dtype: str, level: str, seed: int = 0) -> Iterator[Case]:
        """Yield families of a seed, then cases that do not depend on it."""
        self.check_type(dtype)
        yield from quantized_cases(self, dtype, level, seed)

    def exact(self, case: Case) -> dict[str, Float64s]:
        """Return y as enclosures, r and xhat of each row and, if there is one, the sum."""
        once = case.part(slice(case.shape[0] // case.repeats))
        balls = enclose_forward(once)
        rows, y = self.normalized(once), balls["y"]
        # As in `truenorm.verify.operations.exact`: beside an infinite element xhat is 0.
        infinite, nan = (
            np.asarray(each(rows)).any(axis=1, keepdims=True) for each in (np.isinf, np.isnan)
        )
        is_zero = infinite & ~nan & np.isfinite(rows) & (not self.centred)
        beta = case.inputs.get("beta")
        shift = 0.0 if beta is None else beta.astype(np.float64)
        arrays = {
            "y": np.where(is_zero, shift, y.high),
            "radius": np.where(is_zero, 0.0, y.radius),
            **{
                name: np.nan_to_num(balls[name].high, posinf=0, neginf=0) for name in ("r", "xhat")
            },
        }
        if self.adds:
            arrays["sum"] = round_sum(once.x, once.residual)
        return arrays

    def scales(self, case: Case, exact: Mapping[str, Float64s]) -> QuantizedScales:  # type: ignore[override]
        """Return the natural scales."""
        return QuantizedScales(NormScales(case, exact, self), self.quant, case.shape[1])

    def recipes(self, case: Case, results: Results) -> dict[str, RecipeResult]:
        """Return the codes by every recipe, for ordinary rows of a type of 16 bits."""
        if not shows_recipe(case.dtype) or case.family != "normal":
            return {}
        return recipe_results(self, case, results)

    def ways(self, case: Case, results: Results) -> dict[str, RecipeResult]:
        """Return the codes by every way to scale, for rows that are made for it."""
        if not shows_recipe(case.dtype) or case.family != "ways":
            return {}
        return way_results(self, case, results)

    def quantization(self, runs: Sequence[tuple[Case, Results]]) -> Quantization | None:
        """Summarize the codes and the scales of one type."""
        return summarize(self, runs)

    def inner_roundings(self, dtype: str) -> dict[str, Any]:  # noqa: ARG002 (of the interface)
        """Return nothing: recipes have all roundings that are looked for."""
        return {}

    def backward_recipes(self, case: Case, output: str) -> dict[str, RecipeResult]:  # noqa: ARG002 (of the interface)
        """Return nothing: there is no backward pass."""
        return {}

    def find_cause(
        self,
        output: str,
        runs: Sequence[tuple[Case, Results]],
        *,
        special: bool = False,
    ) -> tuple[str, int]:
        """Return the hypothesis about codes and scales whose bits the results have."""
        return find_cause(self, output, runs, special=special)

    def hypotheses(self, output: str) -> dict[str, Hypothesis]:  # noqa: ARG002 (of the interface)
        """Return nothing: see `find_cause`."""
        return {}

    def clues(self, output: str) -> Clues:  # noqa: ARG002 (of the interface)
        """Return no clues."""
        return Clues()
