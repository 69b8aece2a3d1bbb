"""Layer normalization, as the judge sees it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from truenorm.verify.cases.extensions import extensions
from truenorm.verify.cases.hard import hard, sweeps
from truenorm.verify.cases.named import named_cases
from truenorm.verify.cases.ordinary import ordinary
from truenorm.verify.operation import Case, Input, Operation, Output
from truenorm.verify.operations.layer_norm.answers import exact_answers
from truenorm.verify.operations.layer_norm.guesses import GUESSES
from truenorm.verify.operations.layer_norm.scales import LayerNormScales
from truenorm.verify.types import Array, Float64s

__all__ = ["EXTENSIONS", "LAYER_NORM", "OUTPUTS", "LayerNorm", "layer_norm_case"]


EXTENSIONS = {
    "no-gamma": "gamma is None, and nobody looks at dgamma",
    "no-beta": "beta is None, and nobody looks at dbeta",
    "ranks": "x has one axis, or three",
    "strides": "x and dy are views with gaps along the last axis",
    "zero-eps": "eps is 0, and no row is constant",
    "tiny-eps": "eps is a number that float32 does not have",
    "empty": "x has no rows",
    "float32-parameters": "gamma and beta are float32 whatever x is",
}
"""What is judged only where a subject asks for it, by name."""


class LayerNorm(Operation):
    """y = gamma*(x - mean)/sqrt(var + eps) + beta, and its gradients."""

    name = "layer_norm"
    title = "layer normalization"
    inputs = (
        Input("x", "data"),
        Input("gamma", "parameter"),
        Input("beta", "parameter"),
        Input("dy", "gradient"),
    )
    outputs = (
        Output("y", like="x"),
        Output("dx", like="x", backward=True),
        Output("dgamma", like="gamma", backward=True),
        Output("dbeta", like="beta", backward=True),
    )
    condition = "rms(x)/sqrt(var + eps)"
    condition_says = "κ = rms(x)/√(var + ε) says how much of a row is mean."
    extensions = EXTENSIONS
    not_in_files = frozenset({"no-gamma", "no-beta", "ranks", "strides", "float32-parameters"})
    case_file = "layer_norm/cases.toml"
    folder = Path(__file__).parent
    guesses = GUESSES

    def cases(self, dtype: str, level: str) -> Iterator[Case]:
        """Yield families, named cases, and what is judged only where it is asked for."""
        yield from ordinary(self, dtype, level)
        yield from sweeps(self, dtype, level)
        yield from hard(self, dtype, level)
        yield from named_cases(self, dtype)
        yield from extensions(self, dtype)

    def exact(self, case: Case) -> dict[str, Float64s]:
        """Return the results, and of each row r and xhat."""
        return exact_answers(case)

    def scales(self, case: Case, exact: Mapping[str, Float64s]) -> LayerNormScales:
        """Return the natural scales."""
        return LayerNormScales(case, exact)


LAYER_NORM = LayerNorm()
OUTPUTS = tuple(each.name for each in LAYER_NORM.outputs)


def layer_norm_case(
    name: str,
    arrays: tuple[Array, Array | None, Array | None, Array],
    eps: float,
    **about: Any,
) -> Case:
    """Return a case of x, gamma, beta and dy."""
    inputs = dict(zip(("x", "gamma", "beta", "dy"), arrays, strict=True))
    return Case(LAYER_NORM, name, arrays[0].dtype.name, inputs, eps, **about)
