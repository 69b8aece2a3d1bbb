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
from dataclasses import dataclass
from typing import Any

import numpy as np

from truenorm.verify.formulas.answers import Given
from truenorm.verify.formulas.arithmetic import Axes, Floats, Mask, count_along, result_of
from truenorm.verify.formulas.functions import FUNCTIONS
from truenorm.verify.formulas.graph import SUMS, Node, needed
from truenorm.verify.types import FORMATS, Array, Float64s, unit_roundoff


@dataclass(frozen=True)
class Sized:
    """Numbers with their natural scales."""

    values: Float64s
    scale: Float64s

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.values.shape


def _rounded(values: Float64s, moved: Float64s) -> Sized:
    """Return a result that is rounded once itself."""
    return Sized(values, moved + np.abs(values))


class FirstOrder(Floats):
    """Arrays of `Sized`."""

    @staticmethod
    def of(values: Float64s) -> Sized:
        """Return exact numbers."""
        return Sized(np.asarray(values), np.zeros(1))

    @staticmethod
    def add(x: Sized, y: Sized) -> Sized:
        """Add."""
        return _rounded(x.values + y.values, x.scale + y.scale)

    @staticmethod
    def sub(x: Sized, y: Sized) -> Sized:
        """Subtract."""
        return _rounded(x.values - y.values, x.scale + y.scale)

    @staticmethod
    def mul(x: Sized, y: Sized) -> Sized:
        """Multiply."""
        moved = x.scale * np.abs(y.values) + y.scale * np.abs(x.values)
        return _rounded(x.values * y.values, moved)

    @staticmethod
    def div(x: Sized, y: Sized) -> Sized:
        """Divide."""
        values = x.values / y.values
        return _rounded(values, (x.scale + np.abs(values) * y.scale) / np.abs(y.values))

    @staticmethod
    def over(x: Sized, count: int) -> Sized:
        """Divide by an integer."""
        return _rounded(x.values / count, x.scale / count)

    @staticmethod
    def abs(x: Sized) -> Sized:
        """Return magnitudes."""
        return Sized(np.abs(x.values), x.scale)

    @classmethod
    def sum(cls, x: Sized, axes: Axes) -> Sized:
        """Sum along axes, which stay."""
        terms = np.broadcast_to(x.scale, x.shape) + np.abs(x.values)
        kept = {"axis": axes, "keepdims": True}
        return Sized(x.values.sum(**kept), terms.sum(**kept))  # type: ignore[call-overload]

    @staticmethod
    def largest(x: Sized, axes: Axes) -> Sized:
        """Return the largest element along axes, which stay."""
        scale = np.broadcast_to(x.scale, x.shape).max(axis=axes, keepdims=True)
        return Sized(x.values.max(axis=axes, keepdims=True), scale)

    @staticmethod
    def inverse_root(x: Sized) -> Sized:
        """Return 1/sqrt(x)."""
        r = 1 / np.sqrt(x.values)
        return Sized(r, x.scale * r / (2 * np.abs(x.values)) + 2 * r)

    @staticmethod
    def function(name: str, x: Sized) -> Sized:
        """Return a function of each number; kernels compute it of a rounded number."""
        function = FUNCTIONS[name]
        values, slope = function.floats(x.values), np.abs(function.slope(x.values))
        moved = slope * (x.scale + np.abs(x.values))
        # The slope at infinity is 0, or infinite where the result is.
        return _rounded(values, np.where(np.isinf(x.values), 0.0, moved))

    @staticmethod
    def compare(x: Sized, y: Sized, how: str) -> Sized:
        """Return 1 where a comparison is true, else 0."""
        return FirstOrder.of(Floats.compare(x.values, y.values, how))

    @staticmethod
    def is_true(condition: Sized) -> Mask:
        """Return where a condition is 1."""
        return condition.values > 0.5

    @staticmethod
    def where(mask: Mask, x: Sized, y: Sized) -> Sized:
        """Select numbers."""
        return Sized(np.where(mask, x.values, y.values), np.where(mask, x.scale, y.scale))

    @staticmethod
    def map(x: Sized, change: Callable[[Array], Array]) -> Sized:
        """Reshape or select."""
        return Sized(change(x.values), change(np.broadcast_to(x.scale, x.shape)))


def is_centring(node: Node) -> bool:
    """Return True for numbers minus their mean."""
    return node.op == "sub" and node.args[1].op == "mean" and node.args[1].args[0] is node.args[0]


def _centred(x: Sized, mean: Sized, axes: Axes) -> Sized:
    """Return deviations, whose errors are relative to the root of their mean square."""
    values = x.values - mean.values
    spread = np.sqrt((values**2).mean(axis=axes, keepdims=True))
    return _rounded(values, x.scale + spread)


@np.errstate(all="ignore")
def natural_scales(
    outputs: Mapping[str, Node], given: Given, dtype: str, power: int
) -> dict[str, Sized]:
    """Return the outputs with their natural scales, for rows of a type."""
    unit = unit_roundoff(dtype)
    least = 2.0 ** FORMATS[dtype].quantum / unit
    flushed = 2.0 ** (-1022 if dtype == "float64" else -126) / unit
    values: dict[Node, Any] = {}
    for node in needed(*outputs.values()):
        args = [values[each] for each in node.args]
        if is_centring(node) and not power:
            values[node] = _centred(args[0], args[1], node.args[1].settings[0])
        else:
            values[node] = result_of(node, args, FirstOrder, given)
        if node.op == "given" or node.op in FUNCTIONS:
            more = least if node.op == "given" else flushed
            values[node] = Sized(values[node].values, values[node].scale + more)
    return {
        name: Sized(values[node].values, values[node].scale + least)
        for name, node in outputs.items()
    }


def terms_of(node: Node, given: Given) -> int:
    """Return the most numbers that are summed on the way to a result."""
    shape = np.broadcast_shapes(*(each.shape for each in given.values()))
    sums = [each.settings[0] for each in needed(node) if each.op in SUMS]
    along = {axes: count_along(shape, axes) for axes in sums}
    return max(1, sum(along.values()))
