"""What the rounding tests of the fused backend are given, held against exact fractions.

For a process in which Numba compiles nothing: there functions can be replaced by others that note
their arguments.
"""
# ruff: noqa: T201
# It prints how much of each bound was needed.

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

import truenorm as tn
from exact_row import exact_dgamma, exact_dx, exact_y
from kernels.calls import each_family
from promise.families import Case
from truenorm.kernels.fused.compiled.narrow import dx as narrow_backward
from truenorm.kernels.fused.compiled.narrow import forward as narrow_forward
from truenorm.kernels.fused.compiled.pairs import backward as pair_backward
from truenorm.kernels.fused.compiled.pairs import columns as pair_columns
from truenorm.kernels.fused.compiled.pairs import forward as pair_forward
from truenorm.kernels.fused.compiled.pairs import rounding as pair_rounding

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
PAIR_MODULES = (pair_rounding, pair_backward, pair_columns, pair_forward)


class Bracket(NamedTuple):
    """Where a result must lie."""

    low: Fraction
    high: Fraction

    def needed(self, exact: Fraction) -> float:
        """Return how far from the middle a number lies, as a share of the bound."""
        half = (self.high - self.low) / 2
        off = abs(exact - (self.high + self.low) / 2)
        return float(off / half) if half else float(off != 0) * 1e300


Seen = dict[str, list[Any]]


def record() -> Seen:
    """Note what each rounding test is given from now on, by module and function."""
    seen: Seen = defaultdict(list)

    def noting(name: str, original: Any) -> Any:
        def noted(*arguments: Any) -> Any:
            seen[name].append([float(value) for value in arguments[:-1]])
            return original(*arguments)

        return noted

    for name, module in {
        "narrow_forward": narrow_forward,
        "narrow_backward": narrow_backward,
        "pair_columns": pair_columns,
    }.items():
        module.encode = noting(name, module.encode)  # type: ignore[attr-defined]
    for name in ("ends", "scaled_ends"):
        function = noting("pairs", getattr(pair_rounding, name))
        for module in PAIR_MODULES:
            if hasattr(module, name):
                setattr(module, name, function)
    return seen


def of_level_1(values: list[list[float]]) -> list[Bracket]:
    """Return what both ends, one after the other, make."""
    numbers = [Fraction(value[0]) for value in values]
    return [Bracket(*ends) for ends in zip(numbers[::2], numbers[1::2], strict=True)]


def of_pairs(values: list[list[float]]) -> list[Bracket]:
    """Return what pairs, bounds and for some powers of two make."""
    found = []
    for high, low, bound, *exponent in values:
        scale = Fraction(2) ** int(exponent[0]) if exponent else Fraction(1)
        middle, half = Fraction(high) + Fraction(low), Fraction(bound)
        found.append(Bracket((middle - half) * scale, (middle + half) * scale))
    return found


def brackets(seen: Seen, case: Case) -> dict[str, list[Bracket]]:
    """Do both passes, and return what the first tests of y, dx and dgamma were given."""
    x, eps = case.x, case.eps
    count, size = x.size, x.shape[1]
    seen.clear()
    tn.layer_norm(x, case.gamma, case.beta, eps=eps, backend="fused")
    if x.dtype == FLOAT32:
        found = {"y": of_level_1(seen["narrow_forward"][: 2 * count])}
    else:
        # Where some elements need a power of two, they are tested again.
        found = {"y": of_pairs(seen["pairs"] if len(seen["pairs"]) == count else [])}
    _, saved = tn.layer_norm_forward(x, case.gamma, None, eps=eps, backend="fused")
    seen.clear()
    tn.layer_norm_backward(case.dy, saved, backend="fused")
    tested = of_pairs(seen["pairs"])
    if x.dtype == FLOAT32:  # what is refused comes later
        return found | {
            "dx": of_level_1(seen["narrow_backward"][: 2 * count]),
            "dgamma": of_level_1(seen["pair_columns"][: 2 * size]),
        }
    return found | {"dx": tested[:count], "dgamma": tested[count:]}


def flat(rows: Iterable[Iterable[Fraction]]) -> list[Fraction]:
    return [value for row in rows for value in row]


def main(name: str, every: int) -> None:
    """Print output, elements and the largest share of a bound that was needed, for a type.

    Of all cases one in so many; there are three of each family.
    """
    seen, dtype = record(), np.dtype(name)
    worst: dict[str, tuple[float, str]] = {}
    checked: dict[str, int] = defaultdict(int)
    for case in islice(each_family(dtype, 3, 3, 67, 140), 0, None, every):
        if case.has_constant_rows:
            continue
        found = brackets(seen, case)
        gamma, beta = case.parameters
        exact = {
            "y": flat(exact_y(case.x, gamma, beta, case.eps)),
            "dx": flat(exact_dx(case.x, gamma, case.dy, case.eps)),
            "dgamma": exact_dgamma(case.x, case.dy, case.eps),
        }
        for output, values in exact.items():
            if len(found[output]) != len(values):
                continue  # some other test came between
            for bracket, value in zip(found[output], values, strict=True):
                needed = bracket.needed(value), str(case)
                worst[output] = max(worst.get(output, (0.0, "")), needed)
                checked[output] += 1
    for output, (share, name) in worst.items():
        print(output, checked[output], share, name)
