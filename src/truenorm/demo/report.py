"""What a demonstration found: plain data, as JSON and back."""

from dataclasses import dataclass

from truenorm.tools import strict_json

__all__ = ["Curve", "Instability", "NamedRow", "Report", "Sweep", "from_json"]


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
