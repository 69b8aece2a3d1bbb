"""Demonstrate numerical stability: what each way to normalize a row loses, and on which rows.

Algorithms run in the type of x and are compared with exact integers: over a sweep of the mean, and
on named rows that trigger one instability each. docs/learn/stability.md shows the output, and
``python -m benchmarks.figures stability`` draws it.
"""

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from benchmarks.common import RESULTS, options, progress
from truenorm import textbook, variance_forms
from truenorm.api.layer_norm import layer_norm_backward, layer_norm_forward
from truenorm.exact import ExactRow, round_ratio, scaled_integers
from truenorm.textbook import FloatArray
from truenorm.tools import strict_json
from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress, with_callback
from truenorm.tools.rich_tables import rich_table
from truenorm.tools.text import number
from truenorm.verify.operation import Case
from truenorm.verify.operations import layer_norm_case
from truenorm.verify.oracle import expected
from truenorm.verify.types import FORMATS, Float64s, ulps_of, unit_roundoff

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTPUTS = ("variance", "y", "dx", "dgamma")
NAMES = (*OUTPUTS, "dbeta")


Results = dict[str, FloatArray]
"""The results of an algorithm by output, with dbeta; truenorm returns no variance."""


def _rounded(exact: Iterable[Fraction], x: FloatArray) -> FloatArray:
    """Round exact numbers correctly to the type of x."""
    target = FORMATS[x.dtype.name]
    numbers = [round_ratio(*each.as_integer_ratio(), target) for each in exact]
    return np.array(numbers).astype(x.dtype)


def _variances(x: FloatArray) -> list[Fraction]:
    """Return the exact variance of each row: w of (D4) without eps."""
    roots = [ExactRow(row, 0.0).root for row in x.astype(np.float64).tolist()]
    return [Fraction(root.numerator, root.denominator) for root in roots]


@cache
def exact_answer(case: Case, output: str) -> tuple[Float64s, Float64s, Float64s, Float64s]:
    """Return the exact answer rounded once, its ulp, the remainder in ulp, and its natural scale.

    The natural scale of y is |gamma|(|xhat| + rho) + |beta|, with those of dx and dgamma in
    `truenorm.verify.norms.scales`. That of a variance is the variance.
    """
    if output != "variance":
        known = expected(case)
        ulps, remainders = known.ulps[output], known.remainders[output]
        return known.wide[output], ulps, remainders, known.scale(output)
    exact = _variances(case.x)
    wide: Float64s = _rounded(exact, case.x).astype(np.float64)
    ulps = ulps_of(wide, case.dtype)
    terms = zip(exact, wide.tolist(), ulps.tolist(), strict=True)
    remainders = np.array(
        [float((each - Fraction(near)) / Fraction(ulp)) for each, near, ulp in terms]
    )
    return wide, ulps, remainders, np.array([float(each) for each in exact])


def errors_of(case: Case, results: Results) -> dict[str, tuple[float, float]]:
    """Return the largest error of each output, relative to its natural scale and in ulp."""
    errors = {}
    for output in (each for each in OUTPUTS if each in results):
        wide, ulps, remainders, scale = exact_answer(case, output)
        with np.errstate(all="ignore"):
            in_ulp = np.abs((results[output].astype(np.float64) - wide) / ulps - remainders)
            relative = np.where(in_ulp == 0, 0.0, in_ulp * ulps / scale)
        errors[output] = float(relative.max()), float(in_ulp.max())  # max() propagates NaN
    return errors


TEXTBOOK = "two-pass (textbook)"
IN_FLOAT64 = "textbook in float64 then cast"
OURS = "truenorm"

Moments = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""Takes rows; returns them centred (D2), and their variances (D3)."""


def _with_variance(variance: Callable[[FloatArray], FloatArray]) -> Moments:
    """Return moments with a mean in the type of x, and a formula for the variance."""
    return lambda x: (x - x.mean(axis=-1, keepdims=True), variance(x))


def _welford(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Centre by the running mean of Welford's update."""
    mean = np.zeros_like(x[..., 0])
    for count, column in enumerate(np.moveaxis(x, -1, 0), start=1):
        mean = mean + (column - mean) / count
    return x - mean[..., np.newaxis], variance_forms.welford(x)


def _exact_then_rounded(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Round the exact mean and variance once: the best mean that is one number of the type."""
    rows = [scaled_integers(row) for row in x.astype(np.float64).tolist()]
    means = _rounded((Fraction(sum(each), len(each) << k) for each, k in rows), x)
    return x - means[..., np.newaxis], _rounded(_variances(x), x)


def _pair_mean(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Represent the mean by two numbers: its rounding error is the mean of the remainders.

    (E1) of docs/inside/error-analysis.md, in the type itself: x - high is exact where they are
    close.
    """
    remainders = x - x.mean(axis=-1, keepdims=True)
    centred = remainders - remainders.mean(axis=-1, keepdims=True)
    return centred, (centred * centred).mean(axis=-1)


MOMENTS: dict[str, Moments] = {
    "one-pass": _with_variance(variance_forms.one_pass),
    "Welford": _welford,
    TEXTBOOK: _with_variance(variance_forms.two_pass),
    "corrected two-pass": _with_variance(variance_forms.corrected_two_pass),
    "rounded exact mean": _exact_then_rounded,
    "pair mean": _pair_mean,
}
ALGORITHMS: tuple[str, ...] = (*MOMENTS, IN_FLOAT64, OURS)
"""From the worst to the best, where the mean is far from zero."""


def contestants(dtype: str) -> tuple[str, ...]:
    """Return the algorithms of a type: there is no wider type than float64."""
    return tuple(name for name in ALGORITHMS if name != IN_FLOAT64 or dtype != "float64")


def run(name: str, case: Case) -> Results:
    """Run one of `ALGORITHMS`, forward and backward."""
    inputs: list[Any] = [case.x, case.gamma, case.beta, case.dy]
    if name == OURS:
        # The reference backend needs no C core and has the same bits.
        by: dict[str, Any] = {"backend": "reference"}
        y, saved = layer_norm_forward(*inputs[:3], eps=case.eps, rounding="correct", **by)
        gradients: Any = layer_norm_backward(case.dy, saved, **by)
        return dict(zip(NAMES[1:], (y, *gradients), strict=True))
    wide = name == IN_FLOAT64
    x, gamma, beta, dy = (each.astype(np.float64) for each in inputs) if wide else inputs
    with np.errstate(all="ignore"):  # overflow is part of the demonstration
        centred, variance = MOMENTS[TEXTBOOK if wide else name](x)
        rstd = (1 / np.sqrt(variance + case.eps))[..., np.newaxis]  # (D4)
        xhat = centred * rstd  # (D5)
        y = gamma * xhat + beta  # (D6)
        gradients = textbook.backward(dy, textbook.Saved(xhat, rstd, gamma))
        arrays = (each.astype(case.x.dtype) for each in (variance, y, *gradients))
        return dict(zip(NAMES, arrays, strict=True))


@dataclass(frozen=True)
class Curve:
    """The error of one output of one algorithm, at each offset of a sweep."""

    algorithm: str
    output: str
    relative: list[float]  # to the natural scale of the output; NaN where the result has a NaN
    ulp: list[float]  # in units in the last place of the exact answer
    slope: float  # the power of the condition number with which it grows, or 0


@dataclass(frozen=True)
class Sweep:
    """All curves of a type with unit roundoff u."""

    dtype: str
    u: float
    offsets: list[float]
    curves: list[Curve]

    def of(self, output: str) -> dict[str, Curve]:
        """Return the curves of an output by algorithm."""
        return {curve.algorithm: curve for curve in self.curves if curve.output == output}


SHOWN = 4
"""Elements of a result in the report: longer rows are constant."""


@dataclass(frozen=True)
class NamedRow:
    """An instability: a row that shows it, cause and remedy, and the results of each algorithm.

    gamma is 1, beta 0, and dy 0 by default.
    """

    name: str
    dtype: str
    row: str  # as text
    why: str
    remedy: str
    x: list[float]
    dy: list[float] = field(default_factory=list)
    eps: float = 1e-5
    times: int = 1  # the row is repeated
    output: str = "y"  # the output that shows it
    digits: int = 4  # to print
    exact: list[float] = field(default_factory=list)  # rounded once; the first few elements
    returned: dict[str, list[float]] = field(default_factory=dict)  # the same, by algorithm

    def case(self) -> Case:
        """Return its case."""
        size = len(self.x)
        rows = (self.x, self.dy or [0.0] * size)
        x, dy = (np.tile(np.array(row, self.dtype), (self.times, 1)) for row in rows)
        gamma, beta = np.ones(size, self.dtype), np.zeros(size, self.dtype)
        return layer_norm_case(self.name, (x, gamma, beta, dy), self.eps, repeats=self.times)

    def run(self) -> "NamedRow":
        """Return it with the results of each algorithm."""
        case = self.case()
        results = {name: run(name, case).get(self.output) for name in contestants(self.dtype)}
        first = {
            name: each.astype(np.float64).ravel()[:SHOWN].tolist()
            for name, each in [*results.items(), ("", exact_answer(case, self.output)[0])]
            if each is not None
        }
        return replace(self, exact=first.pop(""), returned=first)


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
    """Return a report that was written as strict JSON."""
    report = strict_json.loads(text)
    for sweep in report["sweeps"]:
        sweep["curves"] = [Curve(**curve) for curve in sweep["curves"]]
    report["sweeps"] = [Sweep(**sweep) for sweep in report["sweeps"]]
    report["named"] = [NamedRow(**row) for row in report["named"]]
    return Report(**report)


WIDER = "squares in a wider type, or the row scaled by a power of two, and eps with it"
PAIR = "the mean as a pair of numbers"
CLOSED = "dx = r (eps/w) (g1 - g2)/2 for D = 2; for others, twice the precision"
TWO_PASSES = "two passes, or Welford's update"
CARRIED = "a sum that carries its rounding errors along"

# fmt: off
TRIGGERS: tuple[NamedRow, ...] = (
    NamedRow("one-pass cancellation", "float32", "[40000, 40001, 40002, 40003]",
        "mean(x²) and mean² agree in the 7 digits that float32 has; rounding is left",
        TWO_PASSES, x=[40000, 40001, 40002, 40003]),
    NamedRow("negative variance", "float32", "[40000, 40001, 40002, 40003]",
        "its root is NaN; clamping it at 0 hides that, and the variance stays wrong",
        TWO_PASSES, x=[40000, 40001, 40002, 40003], output="variance"),
    NamedRow("rounded mean", "float32", "1e7 + [0, 1, 1]",
        "the mean is 10000000.67, and float32 numbers near it lie 1 apart",
        PAIR, x=[1e7, 1e7 + 1, 1e7 + 1]),
    NamedRow("variance of a rounded mean", "float32", "1e7 + [0, 1, 1]",
        "an error d of the mean adds d²; without that it is right, and y still wrong",
        PAIR, x=[1e7, 1e7 + 1, 1e7 + 1], output="variance"),
    NamedRow("saved mean", "float32", "1e7 + [0, 1, 1], dy = [1, 1, 1]",
        "a mean that is exact and then saved in one float32 spoils xhat in backward",
        PAIR + ", in what forward saves as well",
        x=[1e7, 1e7 + 1, 1e7 + 1], dy=[1, 1, 1], output="dgamma"),
    NamedRow("one ulp off", "float32", "[0.1, 0.1, 0.1 + ulp], eps = 0",
        "the mean lies between two neighbouring numbers: rounded, it is one of them",
        PAIR, x=[0.1, 0.1, float(np.nextafter(np.float32(0.1), np.float32(1)))], eps=0.0),
    NamedRow("constant 1234", "float32", "[1234] * 100",
        "the squares add up to more than 24 bits hold: the variance is negative",
        TWO_PASSES, x=[1234] * 100),
    NamedRow("constant 12345.67", "float32", "[12345.67] * 3",
        "the sum is rounded, the mean is not the number itself, and eps does not hide it",
        PAIR + ", or recognise a constant row", x=[12345.67] * 3),
    NamedRow("squares overflow", "float32", "[-1e20, 0, 1e20]",
        "1e40 is beyond float32: the variance is infinite, and 1/sqrt(inf) makes zeros",
        WIDER, x=[-1e20, 0, 1e20]),
    NamedRow("squares vanish", "float32", "[-1e-30, 0, 1e-30], eps = 0",
        "1e-60 is below the smallest float32: the variance is 0",
        WIDER, x=[-1e-30, 0, 1e-30], eps=0.0),
    NamedRow("subnormal", "float32", "[1, 2, 4] * 2^-149",
        "the mean is 2.33 of the smallest number; the 0.33 that rounding leaves is none",
        WIDER, x=[2.0**-149, 2.0**-148, 2.0**-147]),
    NamedRow("alternating", "float32", "[1e8, 1, -1e8, 1]",
        "1e8 + 1 is 1e8: the first 1 is lost, the mean is 0.25 instead of 0.5",
        CARRIED, x=[1e8, 1, -1e8, 1]),
    NamedRow("two elements", "float32", "[-1, 1], dy = [1, 0], eps = 1e-10",
        "g - mean(g) and xhat mean(g xhat) agree but for eps/w",
        CLOSED, x=[-1, 1], dy=[1, 0], output="dx", eps=1e-10),
    NamedRow("gradient of y.sum()", "float32", "[0.1, 0.2, 0.4], dy = [0.1, 0.1, 0.1]",
        "g is constant, dx exactly 0; a mean of equal numbers need not be that number",
        "recognise a constant g: no rounded sum is certain to be 0",
        x=[0.1, 0.2, 0.4], dy=[0.1, 0.1, 0.1], output="dx"),
    NamedRow("eps vanishes", "float16", "[0, 0, 0], eps = 1e-12",
        "the smallest float16 is 6e-8, so eps becomes 0, and y is 0/0",
        "eps, w and r in a wider type than the data", x=[0, 0, 0], eps=1e-12),
    NamedRow("squares overflow", "float16", "[-300, 0, 300]",
        "90000 is beyond float16, which ends at 65504",
        WIDER, x=[-300, 0, 300]),
    NamedRow("long sum", "float16", "4096 rows [0, 0], dy = [1, 1]",
        "2048 + 1 is 2048 in float16: the sum over rows stops growing",
        "partial sums in a wider type, combined in a fixed tree",
        x=[0, 0], dy=[1, 1], output="dbeta", times=4096),
    NamedRow("one-pass cancellation", "float64", "1e9 + [0, 1, 2, 3, 4]",
        "mean(x²) and mean² agree in all 16 digits",
        TWO_PASSES, x=[1e9, 1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 4], output="variance"),
    NamedRow("rounded mean", "float64", "1e12 + [0, 0.001, 0.001]",
        "the mean is off by its last bit, 6e-5, where the spread is 5e-4",
        PAIR, x=[1e12, 1e12 + 0.001, 1e12 + 0.001]),
    NamedRow("squares overflow", "float64", "[-1e200, 0, 1e200]",
        "1e400 is beyond float64",
        "the row scaled by a power of two, and eps with it: there is no wider type",
        x=[-1e200, 0, 1e200]),
    NamedRow("alternating", "float64", "[1e16, 1, -1e16, 1]",
        "1e16 + 1 is 1e16: the first 1 is lost, the mean is 0.25 instead of 0.5",
        CARRIED, x=[1e16, 1, -1e16, 1]),
    NamedRow("two elements", "float64", "[-1, 1], dy = [1, 0], eps = 1e-10",
        "the same; of 16 digits, 10 cancel",
        CLOSED, x=[-1, 1], dy=[1, 0], output="dx", eps=1e-10, digits=12),
)
# fmt: on


DTYPES = ("float32", "float64")
"""The types of sweeps. Named rows exist for float16, too."""
ROWS = 6
EPS = 1e-5


def demonstrate(
    dtypes: Sequence[str] = DTYPES,
    *,
    size: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Measure every algorithm against exact integers, on rows of `size` elements.

    With all types of `DTYPES`, the report has the named rows of every type. `progress` is called
    with the number of finished offsets, the number of all, and the next one.

    Examples
    --------
    >>> report = demonstrate(["float32"], size=3)
    >>> report.sweeps[0].offsets[-1]
    10000000.0
    """
    jobs = [(dtype, *each) for dtype in dtypes for each in enumerate(offsets(dtype))]
    errors: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for dtype, place, offset in with_callback(
        jobs, progress, lambda job: f"{job[0]}, offset {job[2]:g}"
    ):
        case = _case(dtype, offset, size, [seed, place])
        for name in contestants(dtype):
            for output, error in errors_of(case, run(name, case)).items():
                errors.setdefault((dtype, name, output), []).append(error)
    if progress is not None:
        progress(len(jobs), len(jobs), "named rows")
    every = set(dtypes) == set(DTYPES)
    named = [each.run() for each in TRIGGERS if every or each.dtype in dtypes]
    sweeps = {each: Sweep(each, unit_roundoff(each), offsets(each), []) for each in dtypes}
    for (dtype, name, output), pairs in errors.items():
        parts = zip(*pairs, strict=True)
        relative, ulp = ([float(f"{value:.4g}") for value in part] for part in parts)
        sweep = sweeps[dtype]
        power = slope(sweep.offsets, relative, sweep.u)
        sweep.curves.append(Curve(name, output, relative, ulp, power))
    machine = describe("truenorm", "numpy", "python", "machine", "date")
    return Report(machine, size, ROWS, EPS, seed, [*sweeps.values()], named)


def offsets(dtype: str) -> list[float]:
    """Return half-decades from 1 to where neighbouring numbers of the type are 1 apart."""
    last = int(2 * FORMATS[dtype].precision * math.log10(2))
    return [float(f"{10 ** (half / 2):.3g}") for half in range(last + 1)]


def _case(dtype: str, offset: float, size: int, seed: Sequence[int]) -> Case:
    """Return rows of standard deviation 1 around the offset."""
    random = np.random.default_rng(seed)
    x = offset + random.standard_normal((ROWS, size))
    dy = 0.5 + random.standard_normal((ROWS, size))
    gamma = 1.0 + 0.5 * random.standard_normal(size)
    beta = random.standard_normal(size)
    x, gamma, beta, dy = (each.astype(dtype) for each in (x, gamma, beta, dy))
    return layer_norm_case(f"{dtype}-offset-{offset:g}", (x, gamma, beta, dy), EPS)


def slope(kappas: Sequence[float], relative: Sequence[float], u: float) -> float:
    """Fit the power of kappa to the errors between 16 u and 1/8; return 0 for fewer than three.

    Examples
    --------
    >>> slope([1, 10, 100, 1000], [1e-7, 1e-5, 1e-3, 1e-1], 6e-8)
    2.0
    """
    pairs = zip(kappas, relative, strict=True)
    within = [(kappa, error) for kappa, error in pairs if 16 * u < error < 0.125]
    if len(within) < 3:
        return 0.0
    x, y = np.log10(within).T
    return round(float(np.polyfit(x, y, 1)[0]), 2)


COLUMNS = 8
"""Offsets that fit on a line."""
MIDDLE = {"float32": 1e4, "float64": 1e8}
"""The offset at which all outputs are compared: it costs half of the digits."""
NO_DIGITS, HALF = 0.5, 0.6
"""Fewer correct digits than the first are red, a smaller share than the second yellow."""


def show_demonstration(report: Report, console: Console, output: str = "y") -> None:
    """Print a report: one output against the offset, all outputs at one offset, named rows."""
    rows = f"{report.rows} rows of D = {report.size} with standard deviation 1"
    console.print(Text(f"\n{rows}; gamma, beta, dy random; eps {report.eps:g}"))
    console.print(Text(", ".join(f"{name} {text}" for name, text in report.machine.items())))
    for sweep in report.sweeps:
        show_digits(sweep, output, console)
        show_at(sweep, MIDDLE[sweep.dtype], console)
    console.print(Text("\nEach instability, with a row that triggers it", style="bold"))
    for row in report.named:
        show_row(row, console)


def show_digits(sweep: Sweep, output: str, console: Console) -> None:
    """Print the correct decimal digits of an output as the offset grows."""
    full = -math.log10(sweep.u)
    decades = [k for k, each in enumerate(sweep.offsets) if math.log10(each).is_integer()]
    places = decades[:: math.ceil(len(decades) / COLUMNS)]
    powers = [_power(sweep.offsets[k]) for k in places]
    table = rich_table("l" + "r" * (len(powers) + 1), ["mean/std", *powers, "slope"])
    for name, curve in sweep.of(output).items():
        cells = [_digits(curve.relative[k], full) for k in places]
        table.add_row(name, *cells, f"{curve.slope:.1f}")
    title = f"\n{sweep.dtype}, {output}: correct digits, of {full:.1f}, as mean/std grows"
    console.print(Text(title, style="bold"))
    console.print(table)
    console.print(Text("slope: the power of mean/std with which the error grows", style="dim"))


def _power(offset: float) -> str:
    """Return a power of ten as 1e4."""
    return f"1e{round(math.log10(offset))}"


def _digits(relative: float, full: float) -> Text:
    """Return the number of correct digits, or the error itself if it is not finite."""
    if not math.isfinite(relative):
        return Text(f"{relative}", style="bold red")
    digits = max(0.0, -math.log10(relative)) if relative else full
    style = "red" if digits < NO_DIGITS else "yellow" if digits < HALF * full else "green"
    return Text(f"{digits:.1f}", style=style)


def show_at(sweep: Sweep, offset: float, console: Console) -> None:
    """Print the errors of all outputs at one offset."""
    place = sweep.offsets.index(offset)
    table = rich_table("l" + "r" * (len(OUTPUTS) + 1), ["error in u", *OUTPUTS, "y in ulp"])
    for name, y in sweep.of("y").items():
        curves = [sweep.of(output).get(name) for output in OUTPUTS]
        errors = [number(each.relative[place] / sweep.u) if each else "-" for each in curves]
        table.add_row(name, *errors, number(y.ulp[place]))
    title = f"\n{sweep.dtype}, mean/std = {_power(offset)}: errors, in units of u = {sweep.u:.1e}"
    console.print(Text(title, style="bold"))
    console.print(table)
    note = "relative to the natural scale of each output; truenorm returns no variance"
    console.print(Text(note, style="dim"))


def show_row(row: NamedRow, console: Console) -> None:
    """Print the results for a named row, with algorithms that agree on one line."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, values in {"": row.exact, **row.returned}.items():
        texts = tuple(f"{value + 0.0:.{row.digits}g}" for value in values)
        groups.setdefault(texts, []).append(name)
    table = rich_table("l" + "r" * len(row.exact) + "w")
    for texts, names in groups.items():
        mark, style = ("exact", "green") if "" in names else ("", "red")
        listed = ", ".join(filter(None, names))
        if len(names) - ("" in names) > len(ALGORITHMS) // 2:
            listed = "truenorm and all others" if OURS in names else "all others"
        table.add_row(mark, *(Text(text, style=style) for text in texts), listed)
    console.print(
        Text.assemble(f"\n{row.dtype}  ", (row.name, "bold"), f": {row.output} of {row.row}")
    )
    for part in (table, Text(row.why, "dim"), Text(f"remedy: {row.remedy}", "dim")):
        console.print(Padding.indent(part, 2))


# Colours of Okabe and Ito, which remain distinct for the colour-blind; markers do so in grey.
LINES: dict[str, dict[str, Any]] = {
    "one-pass": {"color": "#b84a00", "marker": "v", "ms": 6},
    "Welford": {"color": "#a06a00", "marker": "D", "ms": 5, "ls": "-."},
    "two-pass (textbook)": {"color": "#0072b2", "marker": "o", "ms": 7, "mfc": "white"},
    "corrected two-pass": {"color": "#2a7fb0", "marker": "x", "ms": 6, "ls": "--"},
    "rounded exact mean": {"color": "#6f6f6f", "marker": "+", "ms": 7, "ls": ":"},
    "pair mean": {"color": "#007a5a", "marker": "s", "ms": 5},
    "textbook in float64 then cast": {
        "color": "#a8508a", "marker": "o", "ms": 9, "mfc": "white", "ls": "none",
    },
    "truenorm": {"color": "#000000", "marker": ".", "ms": 7},
}  # fmt: skip
SHORT = {IN_FLOAT64: "float64, then cast"}
"""Names in pictures, where they differ."""
FAINT = "#b0b0b0"
TOP = 30.0
"""Larger errors, and those that are not finite, are drawn here."""


def draw(
    sweeps: Sequence[Sweep],
    outputs: Sequence[str] = OUTPUTS,
    algorithms: Sequence[str] = ALGORITHMS,
) -> "Figure":
    """Draw a column for each type and a row for each output, with a name beside each line."""
    from matplotlib.figure import Figure

    size = (5.6 * len(sweeps), 0.5 + 3.1 * len(outputs))
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    shape = len(outputs), len(sweeps)
    grid = figure.subplots(*shape, squeeze=False, subplot_kw={"facecolor": "white"})
    for row, output in zip(grid, outputs, strict=True):
        for axes, sweep in zip(row, sweeps, strict=True):
            _panel(axes, sweep, output, algorithms)
    for axes in grid[-1]:
        axes.set_xlabel("κ = mean / standard deviation", fontsize=12)
    return figure


def _panel(axes: "Axes", sweep: Sweep, output: str, algorithms: Sequence[str]) -> None:
    """Draw the errors of an output, and u times powers of the offset."""
    from matplotlib.ticker import NullLocator

    from benchmarks.picture import name_ends

    last = sweep.offsets[-1]
    axes.set_title(f"error of {output}, {sweep.dtype}", loc="left", fontsize=13)
    axes.set(xscale="log", yscale="log", xlim=(0.7, last * 1.3), ylim=(sweep.u / 10, TOP * 2))
    axes.tick_params(labelsize=11)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(color=FAINT, linewidth=0.5, alpha=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    axes.axhspan(1.0, TOP * 2, color="#f2f2f2", linewidth=0)
    shift: dict[str, Any] = {"textcoords": "offset points", "fontsize": 11}
    axes.annotate("no digit left", (1.0, 1.0), (0, 4), va="bottom", **shift)
    for power, name in ((1, "u·κ"), (2, "u·κ²")):
        end = min(last, (0.7 / sweep.u) ** (1 / power))
        axes.plot([1, end], [sweep.u, sweep.u * end**power], ":", color=FAINT, lw=1.2, zorder=1)
        middle = end**0.75
        axes.annotate(name, (middle, sweep.u * middle**power), (6, -16), **shift)
    ends = {}
    for algorithm, curve in sweep.of(output).items():
        if algorithm in algorithms:
            style = LINES[algorithm]
            errors = [error if error < TOP else TOP for error in curve.relative]
            axes.plot(sweep.offsets, errors, label=algorithm, lw=1.6, zorder=3, **style)
            name = SHORT.get(algorithm, algorithm)
            if errors[-1] == TOP:
                name += f": {number(curve.relative[-1])}"
            ends[name] = (errors[-1], style["color"])
    name_ends(axes, ends)


FILES = (RESULTS / "stability.json",)


def main(argv: list[str] | None = None) -> int:
    """Measure, write the results and print them."""
    parser = options("stability", str(__doc__).partition("\n")[0], output=FILES[0])
    parser.add_argument("--result", choices=OUTPUTS, default="y", help="whose digits are shown")
    arguments = parser.parse_args(argv)
    report = demonstrate(progress=progress("stability"))
    strict_json.write(report, arguments.output)
    show_demonstration(report, Console(highlight=False), arguments.result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
