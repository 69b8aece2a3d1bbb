"""What a demonstration found: plain data, as JSON and back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np

from truenorm.demo.algorithms import Error, contestants, errors_of, rounded_answer, run
from truenorm.tools import strict_json
from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress, with_callback
from truenorm.verify.operation import Case
from truenorm.verify.operations import layer_norm_case
from truenorm.verify.types import FORMATS, Float64s, unit_roundoff


@dataclass(frozen=True)
class Curve:
    """The error of one output of one algorithm, at each offset of a sweep."""

    algorithm: str
    output: str
    relative: list[float]  # over the natural scale of the output; NaN where the result has a NaN
    ulp: list[float]  # in units in the last place of the exact answer
    slope: float  # the power of the condition number with which it grows; 0 where it does not


@dataclass(frozen=True)
class Sweep:
    """All curves of a type, whose unit roundoff is u."""

    dtype: str
    u: float
    offsets: list[float]
    curves: list[Curve]

    def of(self, output: str) -> dict[str, Curve]:
        """Return the curves of an output by algorithm; not every algorithm has every output."""
        return {curve.algorithm: curve for curve in self.curves if curve.output == output}


@dataclass(frozen=True)
class Instability:
    """What goes wrong, on which row, and why."""

    name: str
    dtype: str
    row: str  # as a person writes it
    why: str
    remedy: str
    output: str = "y"  # where it is seen
    digits: int = 4  # as many as are worth looking at


@dataclass(frozen=True, kw_only=True)
class NamedRow(Instability):
    """An instability, and what each algorithm returns for the row that triggers it."""

    exact: list[float]  # the exact answer, rounded once; the first few elements of it
    returned: dict[str, list[float]]  # by algorithm


@dataclass(frozen=True)
class Report:
    """Sweeps over the offset, and named rows."""

    machine: dict[str, str]
    size: int
    rows: int
    eps: float
    seed: int
    sweeps: list[Sweep]
    named: list[NamedRow]


def from_json(text: str) -> Report:
    """Return the report that was written as strict JSON."""
    found = strict_json.loads(text)
    for sweep in found["sweeps"]:
        sweep["curves"] = [Curve(**curve) for curve in sweep["curves"]]
    found["sweeps"] = [Sweep(**sweep) for sweep in found["sweeps"]]
    found["named"] = [NamedRow(**row) for row in found["named"]]
    return Report(**found)


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


SweptType = Literal["float32", "float64"]
DTYPES: tuple[SweptType, ...] = get_args(SweptType)
"""The types that are swept. Named rows are there for float16 as well."""
ROWS = 6
EPS = 1e-5

Errors = dict[tuple[str, str], list[Error]]
"""At each offset, by algorithm and output."""


def demonstrate(
    dtypes: Sequence[str] = DTYPES,
    *,
    size: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Measure every algorithm against exact integers.

    Parameters
    ----------
    dtypes : sequence of str
        Of `DTYPES`. With all of them come the named rows of every type.
    size : int
        D, the number of elements of a row; at least 2.
    seed : int
        Of the rows' noise.
    progress : callable, optional
        Is told how many offsets are done, of how many, and what comes next.

    Returns
    -------
    Report

    Examples
    --------
    >>> report = demonstrate(["float32"], size=3)
    >>> report.sweeps[0].offsets[-1]
    10000000.0
    """
    jobs = [(dtype, *each) for dtype in dtypes for each in enumerate(offsets(dtype))]
    found: dict[str, Errors] = {dtype: {} for dtype in dtypes}
    for dtype, place, offset in with_callback(
        jobs, progress, lambda job: f"{job[0]}, offset {job[2]:g}"
    ):
        case = _case(dtype, offset, size, [seed, place])
        for name in contestants(dtype):
            for output, error in errors_of(case, run(name, case)).items():
                found[dtype].setdefault((name, output), []).append(error)
    if progress is not None:
        progress(len(jobs), len(jobs), "named rows")
    every = set(dtypes) == set(DTYPES)
    named = [tried(each) for each in TRIGGERS if every or each.dtype in dtypes]
    sweeps = [_sweep(dtype, errors) for dtype, errors in found.items()]
    machine = describe("truenorm", "numpy", "python", "machine", "date")
    return Report(machine, size, ROWS, EPS, seed, sweeps, named)


def offsets(dtype: str) -> list[float]:
    """Return half-decades from 1 on, until neighbouring numbers of the type are 1 apart.

    Examples
    --------
    >>> offsets("float32")[-3:]
    [1000000.0, 3160000.0, 10000000.0]
    """
    last = int(2 * FORMATS[dtype].precision * math.log10(2))
    return [float(f"{10 ** (half / 2):.3g}") for half in range(last + 1)]


def _case(dtype: str, offset: float, size: int, seed: Sequence[int]) -> Case:
    """Return rows of standard deviation 1 around the offset; no parameter is special."""
    random = np.random.default_rng(seed)
    x = offset + random.standard_normal((ROWS, size))
    dy = 0.5 + random.standard_normal((ROWS, size))
    gamma = 1.0 + 0.5 * random.standard_normal(size)
    beta = random.standard_normal(size)
    x, gamma, beta, dy = (each.astype(dtype) for each in (x, gamma, beta, dy))
    return layer_norm_case(f"{dtype}-offset-{offset:g}", (x, gamma, beta, dy), EPS)


def _sweep(dtype: str, found: Errors) -> Sweep:
    """Arrange the errors as curves, of four digits."""
    kappas, u = offsets(dtype), unit_roundoff(dtype)
    curves = []
    for (name, output), errors in found.items():
        relative, ulp = (
            [float(f"{value:.4g}") for value in values] for values in zip(*errors, strict=True)
        )
        curves.append(Curve(name, output, relative, ulp, slope(kappas, relative, u)))
    return Sweep(dtype, u, kappas, curves)


def slope(kappas: Sequence[float], relative: Sequence[float], u: float) -> float:
    """Fit the power of kappa: over errors that are above 16 u and still below 1/8, if they grow.

    Examples
    --------
    >>> slope([1, 10, 100, 1000], [1e-7, 1e-5, 1e-3, 1e-1], 6e-8)
    2.0
    """
    within = [
        (math.log10(kappa), math.log10(error))
        for kappa, error in zip(kappas, relative, strict=True)
        if 16 * u < error < 0.125
    ]
    if len(within) < 3:
        return 0.0
    x, y = np.array(within).T
    return round(float(np.polyfit(x, y, 1)[0]), 2)
