"""Layer normalization and its relatives, as the judge sees them: what they have in common."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from truenorm.verify.cases.extensions import extensions
from truenorm.verify.cases.hard import hard, sweeps
from truenorm.verify.cases.named import named_cases
from truenorm.verify.cases.ordinary import ordinary
from truenorm.verify.operation import Case, Input, Operation, Output
from truenorm.verify.operations.norms.answers import exact_answers
from truenorm.verify.operations.norms.guesses import guesses_of
from truenorm.verify.operations.norms.scales import NormScales
from truenorm.verify.types import Float64s

__all__ = ["Norm"]

IN_NO_FILE = ("ranks", "strides", "float32-parameters")


class Norm(Operation):
    """y = gamma*c/sqrt(mean(c^2) + eps), with beta if there is one, and its gradients.

    Attributes
    ----------
    centred : bool
        Whether c is x - mean(x); otherwise it is x itself.
    parameters : tuple of str
        gamma, or gamma and beta.
    """

    centred: bool
    parameters: tuple[str, ...]
    also_computed_in = (Path(__file__).parent,)

    def __init__(self) -> None:
        given = (Input(name, "parameter") for name in self.parameters)
        self.inputs = (Input("x", "data"), *given, Input("dy", "gradient"))
        gradients = (Output(f"d{name}", like=name, backward=True) for name in self.parameters)
        self.outputs = (
            Output("y", like="x"),
            Output("dx", like="x", backward=True),
            *gradients,
        )
        absent = {
            f"no-{name}": f"{name} is None, and nobody looks at d{name}"
            for name in self.parameters
        }
        all_of_them = " and ".join(self.parameters)
        are = "is" if len(self.parameters) == 1 else "are"
        self.extensions = {
            **absent,
            "ranks": "x has one axis, or three",
            "strides": "x and dy are views with gaps along the last axis",
            "zero-eps": f"eps is 0, and no row is {'constant' if self.centred else 'zero'}",
            "tiny-eps": "eps is a number that float32 does not have",
            "empty": "x has no rows",
            "float32-parameters": f"{all_of_them} {are} float32 whatever x is",
        }
        self.not_in_files = frozenset({*absent, *IN_NO_FILE})
        self.guesses = guesses_of(centred=self.centred)

    def cases(self, dtype: str, level: str) -> Iterator[Case]:
        """Yield families, named cases, and what is judged only where it is asked for."""
        yield from ordinary(self, dtype, level)
        if self.centred:  # else a large mean is nothing special
            yield from sweeps(self, dtype, level)
        yield from hard(self, dtype, level)
        yield from named_cases(self, dtype)
        yield from extensions(self, dtype)

    def exact(self, case: Case) -> dict[str, Float64s]:
        """Return the results, and of each row r and xhat."""
        return exact_answers(case, centred=self.centred)

    def scales(self, case: Case, exact: Mapping[str, Float64s]) -> NormScales:
        """Return the natural scales."""
        return NormScales(case, exact, centred=self.centred)
