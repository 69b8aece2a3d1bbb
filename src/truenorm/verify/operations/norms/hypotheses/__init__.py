"""What comes out of a norm if one step of it is done otherwise, in float64."""

from functools import cache, partial

from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.operations.norms.definition import Definition
from truenorm.verify.operations.norms.hypotheses.backward import of_gradients
from truenorm.verify.operations.norms.hypotheses.forward import of_results
from truenorm.verify.operations.norms.hypotheses.layouts import of_layouts
from truenorm.verify.operations.norms.hypotheses.parameters import of_parameters
from truenorm.verify.operations.norms.hypotheses.recalled import of_recalled
from truenorm.verify.operations.norms.hypotheses.statistics import of_statistics
from truenorm.verify.operations.norms.hypotheses.steps import Changes, Steps
from truenorm.verify.types import Float64s

__all__ = ["hypotheses_of"]

OF_A_ROW = frozenset({"rows", "mean", "c", "eps", "w", "r", "xhat"})
OF_DX = OF_A_ROW | {"gain", "dy", "g", "mean_g", "along", "dnorm", "dsum", "dx"}
NEEDED = {
    "y": OF_A_ROW | {"gain", "beta", "y"},
    "sum": frozenset({"sum"}),
    "dx": OF_DX,
    "dresidual": OF_DX | {"dresidual"},
    "dgamma": OF_A_ROW | {"dy", "share", "terms", "dgamma"},
    "dbeta": frozenset({"dy", "share", "dbeta"}),
}
"""By result: the steps that it depends on."""


@cache
def hypotheses_of(norm: Definition, output: str) -> dict[str, Hypothesis]:
    """Return by their words the hypotheses for one result of a norm.

    Those of a row's statistics are there for every result that depends on them.
    """
    tables = {
        "y": (of_statistics, of_results),
        "sum": (of_results,),
        "dx": (of_statistics, of_results, of_gradients, of_recalled),
        "dresidual": (of_statistics, of_results, of_gradients, of_recalled),
        "dgamma": (of_statistics, of_results, of_parameters, of_recalled),
        "dbeta": (of_statistics, of_results, of_parameters),
    }
    found: dict[str, Hypothesis] = {
        words: partial(_done, norm, output, changes)
        for table in tables[output]
        for words, changes in table(norm).items()
        if NEEDED[output] & changes.keys()
    }
    return found | of_layouts(norm, output)


def _done(norm: Definition, output: str, changes: Changes, case: Case) -> Float64s:
    return Steps(norm, case, changes)[output]
