"""Natural scales of a formula, by a running error analysis to first order.

The scale of a step is how far roundings of relative size u of all steps before it, and of itself,
move it, divided by u: the sizes of steps times their derivatives. Three rules go beyond that.

- A mean that is subtracted from the numbers it is the mean of has an error relative to the
  deviations, at power 0: a good algorithm sums deviations. At power 1 the formula counts as it
  stands, with an error relative to the numbers.
- Underflow counts at inputs, at results and in functions, whose small results a kernel may flush
  to zero.
- The error of a sum is that of one rounding of each term: how it grows with the number of terms is
  a factor of the judge.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from truenorm.verify.formulas.answers import Given
from truenorm.verify.formulas.arithmetic import Axes, count_along, result_of
from truenorm.verify.formulas.functions import FUNCTIONS
from truenorm.verify.formulas.graph import SUMS, Node, needed
from truenorm.verify.formulas.running_error import Erring, RunningErrors
from truenorm.verify.types import FORMATS, unit_roundoff


def is_centring(node: Node) -> bool:
    """Return True for numbers minus their mean."""
    return node.op == "sub" and node.args[1].op == "mean" and node.args[1].args[0] is node.args[0]


def _centred(x: Erring, mean: Erring, axes: Axes) -> Erring:
    """Return deviations, whose errors are relative to the root of their mean square."""
    values = x.values - mean.values
    spread = np.sqrt((values**2).mean(axis=axes, keepdims=True))
    return Erring(values, x.error + spread + np.abs(values))


@np.errstate(all="ignore")
def natural_scales(
    outputs: Mapping[str, Node],
    given: Given,
    dtype: str,
    power: int,
    change: Callable[[Node, list[Any], Any], Any] = lambda _, __, number: number,
) -> dict[str, Erring]:
    """Return the outputs with their natural scales, for rows of a type; steps may be changed."""
    unit = unit_roundoff(dtype)
    least = 2.0 ** FORMATS[dtype].quantum / unit
    flushed = 2.0 ** (-1022 if dtype == "float64" else -126) / unit
    values: dict[Node, Any] = {}
    for node in needed(*outputs.values()):
        args = [values[each] for each in node.args]
        if is_centring(node) and not power:
            values[node] = _centred(args[0], args[1], node.args[1].settings[0])
        else:
            values[node] = result_of(node, args, RunningErrors, given)
        values[node] = change(node, args, values[node])
        if node.op == "given" or node.op in FUNCTIONS:
            more = least if node.op == "given" else flushed
            values[node] = Erring(values[node].values, values[node].error + more)
    return {
        name: Erring(values[node].values, values[node].error + least)
        for name, node in outputs.items()
    }


def terms_of(node: Node, given: Given) -> int:
    """Return the most numbers that are summed on the way to a result."""
    shape = np.broadcast_shapes(*(each.shape for each in given.values()))
    sums = [each.settings[0] for each in needed(node) if each.op in SUMS]
    along = {axes: count_along(shape, axes) for axes in sums}
    return max(1, sum(along.values()))
