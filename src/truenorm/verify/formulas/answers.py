"""Exact answers of a formula: balls for all elements, then exact numbers or arbs.

Rows are independent. So is any other axis along which a result needs no sum; elements that balls
leave undecided are computed again with their part of the rows alone.

Where an input is not finite, a result is that of IEEE 754 in float64, with one rule: NaN stands
for an infinity that comes through a sum, such as the gradient of a row whose dy is infinite. In a
sum over rows, finite terms count. A result without a value, such as 0/0, is NaN.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.formulas.arithmetic import (
    Arbs,
    Balls,
    Exact,
    Floats,
    IrrationalError,
    Roots,
    Special,
    Values,
    along,
    evaluate,
    round_arb,
)
from truenorm.verify.formulas.balls import Ball, round_ball
from truenorm.verify.formulas.functions import FUNCTIONS, flint
from truenorm.verify.formulas.graph import REDUCTIONS, Node, mixed_axes, needed
from truenorm.verify.oracle import round_exactly
from truenorm.verify.types import FORMATS, Array, Float64s, ulps_of

Given = Mapping[str, Float64s]
Mask = NDArray[np.bool_]
FIRST_BITS, MOST_BITS, DEFINED_BITS = 256, 2**14, 2**10
"""Precision of arbs: it is multiplied by four until a rounding is decided. A number that is
undecided at the last is taken for a tie, as sums over rows may be. For gradients of a gate before
the norm this is not proven: their answer may be the other neighbour of the tie. A number that is
not finite with `DEFINED_BITS` has no value."""


class Answers:
    """Rounded results of a formula, with remainders; computes all results once.

    Attributes
    ----------
    balls : dict of Node to Ball
        Enclosures of all steps; inputs that are not finite are zeros.
    special : dict of Node to ndarray
        See `Special`; empty if all inputs are finite.
    unproven : int
        How many numbers were taken for ties.
    """

    @np.errstate(all="ignore")  # an overflow makes a radius infinite or NaN
    def __init__(self, outputs: Mapping[str, Node], given: Given, repeats: int = 1) -> None:
        self._unchanged = given
        self.given = {name: np.where(np.isfinite(v), v, 0.0) for name, v in given.items()}
        self.outputs, self.repeats, self.unproven = outputs, repeats, 0
        self.balls = evaluate(outputs.values(), Balls, self.given)
        self.special: Values = {}
        self.floats: Values = {}
        if not all(np.isfinite(each).all() for each in given.values()):
            self.special = evaluate(outputs.values(), Special, given)
            self.floats = evaluate(outputs.values(), Floats, given)

    def float64(self, name: str) -> Float64s:
        """Return a step in float64; zeros where it is not finite, or depends on such an input."""
        node = self.outputs[name]
        values = np.nan_to_num(self.balls[node].high, nan=0.0, posinf=0.0, neginf=0.0)
        return np.where(self.special[node] > 0, 0.0, values) if self.special else values

    @np.errstate(all="ignore")
    def rounded(self, name: str, kind: str) -> Float64s:
        """Return the values of an output and their remainders in ulp, along a last axis."""
        node = self.outputs[name]
        return self._sums(node, kind) if node.op == "sum" else self._elements(node, kind)

    def _elements(self, node: Node, kind: str) -> Float64s:
        pairs, is_open = _rounded(self.balls[node], kind)
        if self.special:
            special, values = (
                np.broadcast_to(each[node], is_open.shape) for each in (self.special, self.floats)
            )
            values = np.where(np.isinf(values) & (special == 2), np.nan, values)
            _set(pairs, special > 0, values)
            is_open &= special == 0
            # Such as the softmax of a row with minus infinity.
            depends = (special > 0) & np.isfinite(values) & (values != 0)
            self._set_exactly(pairs, node, depends, kind, self._unchanged)
        self._set_exactly(pairs, node, is_open, kind, self.given)
        return pairs

    def _set_exactly(
        self, pairs: Float64s, node: Node, is_open: Mask, kind: str, inputs: Given
    ) -> None:
        """Set some elements to exact numbers or arbs, rounded."""
        if not is_open.any():
            return
        part = _Part(node, is_open)
        given = {name: part.of(each) for name, each in inputs.items()}

        def compute(arithmetic: type[Floats]) -> Any:
            return arithmetic.map(evaluate([node], arithmetic, given)[node], part.wanted)

        pairs.reshape(-1, 2)[part.places] = self._exactly(node, compute, kind, 0)

    def _sums(self, node: Node, kind: str) -> Float64s:
        """Return rounded sums; those over rows count repeated rows."""
        (terms,), (axes,) = node.args, node.settings
        repeats = self.repeats if 0 in axes else 1
        summed = Balls.sum(self._with_special(terms, Balls, self.balls[terms]), axes)
        if repeats & (repeats - 1):
            summed = summed * Ball.of(np.full(1, float(repeats)))
        else:  # without an error
            summed = summed.map(lambda each: each * repeats)
        pairs, is_open = _rounded(summed, kind)
        if self.special:
            values = Floats.sum(self.floats[terms], axes) * repeats
            _set(pairs, ~np.isfinite(values), values)
            is_open &= np.isfinite(values)
        if is_open.any():
            columns = np.flatnonzero(is_open)

            def compute(arithmetic: type[Floats]) -> Any:
                exact = evaluate([terms], arithmetic, self.given)[terms]
                exact = self._with_special(terms, arithmetic, exact)
                return arithmetic.map(exact, lambda each: along(each, axes)[:, columns])

            pairs.reshape(-1, 2)[columns] = self._exactly(terms, compute, kind, repeats)
        return pairs

    def _with_special(self, node: Node, arithmetic: type[Floats], numbers: Any) -> Any:
        """Return numbers with those of float64 where an input is not finite."""
        if not self.special or not self.special[node].any():
            return numbers
        special, values = self.special[node] > 0, self.floats[node]
        of_float64 = arithmetic.of(np.where(special & np.isfinite(values), values, 0.0) + 0.0)
        return arithmetic.where(special, of_float64, numbers)

    def _exactly(
        self, node: Node, compute: Callable[[type[Floats]], Any], kind: str, repeats: int
    ) -> Float64s:
        """Return rounded numbers, or sums of columns that are repeated."""
        if _has_exact_numbers(node):
            with suppress(IrrationalError):
                roots: Roots = compute(Exact)
                numbers = roots.column_sums(repeats) if repeats else roots.exact()
                return round_exactly(numbers, FORMATS[kind])
        module, target, bits = flint(), FORMATS[kind], FIRST_BITS
        pairs = np.full((0, 2), np.nan)
        while bits <= MOST_BITS and (np.isnan(pairs[:, 0]).any() or not pairs.size):
            with module.ctx.workprec(bits):
                arbs = compute(Arbs)
                arbs = arbs.sum(axis=0) * repeats if repeats else arbs
                pairs = pairs if pairs.size else np.full((len(arbs), 2), np.nan)
                if bits > DEFINED_BITS and not any(each.is_finite() for each in arbs):
                    break
                for place in np.flatnonzero(np.isnan(pairs[:, 0])).tolist():
                    value = round_arb(arbs[place], target)
                    if value is None and bits == MOST_BITS:
                        value = round_arb(arbs[place], target, is_last=True)
                        self.unproven += value is not None
                    if value is not None:
                        pairs[place] = value, _remainder(arbs[place], value, kind)
            bits *= 4
        return pairs


class _Part:
    """The part of the rows that elements of a result depend on.

    It is selected along axes without sums: the first axis of an array is then that of the
    selected places.
    """

    def __init__(self, node: Node, chosen: Mask) -> None:
        summed = {axis for each in needed(node) for axis in mixed_axes(each)}
        self._free = [axis for axis in range(chosen.ndim) if axis not in summed]
        inner = tuple(summed)
        self._at = np.argwhere(chosen.any(axis=inner, keepdims=True))
        self._chosen = self.of(chosen)
        self.places = self.of(np.arange(chosen.size).reshape(chosen.shape))[self._chosen]

    def of(self, array: Array) -> Array:
        """Return the selected parts of an array, with one element along the other free axes."""
        index: list[Any] = [slice(None)] * array.ndim
        for axis in self._free:
            index[axis] = self._at[:, axis] if array.shape[axis] > 1 else 0 * self._at[:, axis]
        return np.expand_dims(array[tuple(index)], [axis for axis in self._free if axis])

    def wanted(self, array: Array) -> Array:
        """Return the chosen elements of selected parts."""
        return np.broadcast_to(array, self._chosen.shape)[self._chosen]


def _has_exact_numbers(node: Node) -> bool:
    """Return True for at most one root, which no sum mixes with other roots, and no function."""
    steps = needed(node)
    roots = [each for each in steps if each.op == "inverse_root"]
    if len(roots) > 1 or any(each.op in FUNCTIONS for each in steps):
        return False
    after = [each for each in steps if roots and roots[0] in needed(each)]
    summed = {axis for each in after if each.op in REDUCTIONS for axis in each.settings[0]}
    return not roots or summed.isdisjoint(roots[0].axes)


def _rounded(ball: Ball, kind: str) -> tuple[Float64s, Mask]:
    """Return rounded centres with remainders, and where a ball does not decide the rounding."""
    near = round_ball(ball, kind)
    is_open = ~((near.low == near.high) & np.isfinite(ball.radius))
    return np.stack([near.value, near.remainder], axis=-1), is_open


def _set(pairs: Float64s, where: Mask, values: Float64s) -> None:
    """Set values without a remainder."""
    pairs[where] = np.stack([values, np.zeros_like(values)], axis=-1)[where]


def _remainder(exact: Any, value: float, kind: str) -> float:
    """Return how far a number is from its rounding, in ulp."""
    if not np.isfinite(value):
        return 0.0
    ulp = float(ulps_of(np.asarray(value), kind))
    return float((exact - type(exact)(value)) / type(exact)(ulp))
