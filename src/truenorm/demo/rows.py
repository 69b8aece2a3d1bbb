"""The instabilities of layer normalization, each with a row that triggers it.

The rows are small, so that they can be checked by hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from truenorm.demo.algorithms import contestants, run
from truenorm.demo.errors import rounded_answer
from truenorm.demo.report import Instability, NamedRow
from truenorm.verify.operation import Case
from truenorm.verify.operations.layer_norm import layer_norm_case
from truenorm.verify.types import Float64s

__all__ = ["TRIGGERS", "Trigger", "tried"]

SHOWN = 4
"""So many elements of a result are kept: what is longer is constant."""


@dataclass(frozen=True, kw_only=True)
class Trigger(Instability):
    """An instability and its row x, `times` of it; gamma is 1, beta 0, and dy 0 if not given."""

    x: Sequence[float]
    dy: Sequence[float] = ()
    eps: float = 1e-5
    times: int = 1

    def case(self) -> Case:
        """Return it as a case."""
        size = len(self.x)
        x, dy = (
            np.tile(np.array(row, self.dtype), (self.times, 1))
            for row in (self.x, self.dy or [0.0] * size)
        )
        gamma, beta = np.ones(size, self.dtype), np.zeros(size, self.dtype)
        return layer_norm_case(self.name, (x, gamma, beta, dy), self.eps, repeats=self.times)


def tried(trigger: Trigger) -> NamedRow:
    """Return what each algorithm returns, beside the exact answer."""
    case = trigger.case()
    results = {name: run(name, case) for name in contestants(trigger.dtype)}
    outputs = {name: getattr(each, trigger.output) for name, each in results.items()}
    return NamedRow(
        **{each.name: getattr(trigger, each.name) for each in fields(Instability)},
        exact=_first(rounded_answer(case, trigger.output)),
        returned={
            name: _first(output.astype(np.float64))
            for name, output in outputs.items()
            if output is not None
        },
    )


def _first(values: Float64s) -> list[float]:
    found: list[float] = values.ravel()[:SHOWN].tolist()
    return found


WIDER = "squares in a wider type, or the row scaled by a power of two, and eps with it"
PAIR = "the mean as a pair of numbers"
CLOSED = "dx = r (eps/w) (g1 - g2)/2 for D = 2; for others, twice the precision"
TWO_PASSES = "two passes, or Welford's update"
CARRIED = "a sum that carries its rounding errors along"

# fmt: off
TRIGGERS: tuple[Trigger, ...] = (
    Trigger("one-pass cancellation", "float32", "[40000, 40001, 40002, 40003]",
        "mean(x²) and mean² agree in the 7 digits that float32 has; rounding is left",
        TWO_PASSES, x=[40000, 40001, 40002, 40003]),
    Trigger("negative variance", "float32", "[40000, 40001, 40002, 40003]",
        "its root is NaN; clamping it at 0 hides that, and the variance stays wrong",
        TWO_PASSES, x=[40000, 40001, 40002, 40003], output="variance"),
    Trigger("rounded mean", "float32", "1e7 + [0, 1, 1]",
        "the mean is 10000000.67, and float32 numbers near it lie 1 apart",
        PAIR, x=[1e7, 1e7 + 1, 1e7 + 1]),
    Trigger("variance of a rounded mean", "float32", "1e7 + [0, 1, 1]",
        "an error d of the mean adds d²; without that it is right, and y still wrong",
        PAIR, x=[1e7, 1e7 + 1, 1e7 + 1], output="variance"),
    Trigger("saved mean", "float32", "1e7 + [0, 1, 1], dy = [1, 1, 1]",
        "a mean that is exact and then saved in one float32 spoils xhat in backward",
        PAIR + ", in what forward saves as well",
        x=[1e7, 1e7 + 1, 1e7 + 1], dy=[1, 1, 1], output="dgamma"),
    Trigger("one ulp off", "float32", "[0.1, 0.1, 0.1 + ulp], eps = 0",
        "the mean lies between two neighbouring numbers: rounded, it is one of them",
        PAIR, x=[0.1, 0.1, float(np.nextafter(np.float32(0.1), np.float32(1)))], eps=0.0),
    Trigger("constant 1234", "float32", "[1234] * 100",
        "the squares add up to more than 24 bits hold: the variance is negative",
        TWO_PASSES, x=[1234] * 100),
    Trigger("constant 12345.67", "float32", "[12345.67] * 3",
        "the sum is rounded, the mean is not the number itself, and eps does not hide it",
        PAIR + ", or recognise a constant row", x=[12345.67] * 3),
    Trigger("squares overflow", "float32", "[-1e20, 0, 1e20]",
        "1e40 is beyond float32: the variance is infinite, and 1/sqrt(inf) makes zeros",
        WIDER, x=[-1e20, 0, 1e20]),
    Trigger("squares vanish", "float32", "[-1e-30, 0, 1e-30], eps = 0",
        "1e-60 is below the smallest float32: the variance is 0",
        WIDER, x=[-1e-30, 0, 1e-30], eps=0.0),
    Trigger("subnormal", "float32", "[1, 2, 4] * 2^-149",
        "the mean is 2.33 of the smallest number; the 0.33 that rounding leaves is none",
        WIDER, x=[2.0**-149, 2.0**-148, 2.0**-147]),
    Trigger("alternating", "float32", "[1e8, 1, -1e8, 1]",
        "1e8 + 1 is 1e8: the first 1 is lost, the mean is 0.25 instead of 0.5",
        CARRIED, x=[1e8, 1, -1e8, 1]),
    Trigger("two elements", "float32", "[-1, 1], dy = [1, 0], eps = 1e-10",
        "g - mean(g) and xhat mean(g xhat) agree but for eps/w",
        CLOSED, x=[-1, 1], dy=[1, 0], output="dx", eps=1e-10),
    Trigger("gradient of y.sum()", "float32", "[0.1, 0.2, 0.4], dy = [0.1, 0.1, 0.1]",
        "g is constant, dx exactly 0; a mean of equal numbers need not be that number",
        "recognise a constant g: no rounded sum is certain to be 0",
        x=[0.1, 0.2, 0.4], dy=[0.1, 0.1, 0.1], output="dx"),
    Trigger("eps vanishes", "float16", "[0, 0, 0], eps = 1e-12",
        "the smallest float16 is 6e-8, so eps becomes 0, and y is 0/0",
        "eps, w and r in a wider type than the data", x=[0, 0, 0], eps=1e-12),
    Trigger("squares overflow", "float16", "[-300, 0, 300]",
        "90000 is beyond float16, which ends at 65504",
        WIDER, x=[-300, 0, 300]),
    Trigger("long sum", "float16", "4096 rows [0, 0], dy = [1, 1]",
        "2048 + 1 is 2048 in float16: the sum over rows stops growing",
        "partial sums in a wider type, combined in a fixed tree",
        x=[0, 0], dy=[1, 1], output="dbeta", times=4096),
    Trigger("one-pass cancellation", "float64", "1e9 + [0, 1, 2, 3, 4]",
        "mean(x²) and mean² agree in all 16 digits",
        TWO_PASSES, x=[1e9, 1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 4], output="variance"),
    Trigger("rounded mean", "float64", "1e12 + [0, 0.001, 0.001]",
        "the mean is off by its last bit, 6e-5, where the spread is 5e-4",
        PAIR, x=[1e12, 1e12 + 0.001, 1e12 + 0.001]),
    Trigger("squares overflow", "float64", "[-1e200, 0, 1e200]",
        "1e400 is beyond float64",
        "the row scaled by a power of two, and eps with it: there is no wider type",
        x=[-1e200, 0, 1e200]),
    Trigger("alternating", "float64", "[1e16, 1, -1e16, 1]",
        "1e16 + 1 is 1e16: the first 1 is lost, the mean is 0.25 instead of 0.5",
        CARRIED, x=[1e16, 1, -1e16, 1]),
    Trigger("two elements", "float64", "[-1, 1], dy = [1, 0], eps = 1e-10",
        "the same; of 16 digits, 10 cancel",
        CLOSED, x=[-1, 1], dy=[1, 0], output="dx", eps=1e-10, digits=12),
)
# fmt: on
