"""What a demonstration found: plain data, as JSON and back."""

from dataclasses import dataclass

from truenorm.tools import strict_json

__all__ = ["Curve", "Instability", "NamedRow", "Report", "Sweep", "from_json"]


@dataclass(frozen=True)
class Curve:
    """The error of one output of one algorithm, at each offset of a sweep.

    Attributes
    ----------
    algorithm, output : str
    relative : list of float
        Over the natural scale of the output; NaN where the result has a NaN.
    ulp : list of float
        In units in the last place of the exact answer.
    slope : float
        The power of the condition number with which it grows, or 0 where it does not.
    """

    algorithm: str
    output: str
    relative: list[float]
    ulp: list[float]
    slope: float


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
    """What goes wrong, on which row, and why.

    Attributes
    ----------
    name, dtype : str
    row : str
        The row, as a person writes it.
    why, remedy : str
    output : str
        Where it is seen.
    digits : int
        As many as are worth looking at.
    """

    name: str
    dtype: str
    row: str
    why: str
    remedy: str
    output: str = "y"
    digits: int = 4


@dataclass(frozen=True, kw_only=True)
class NamedRow(Instability):
    """An instability, and what each algorithm returns for the row that triggers it.

    Attributes
    ----------
    exact : list of float
        The exact answer, rounded once; the first few elements of it.
    returned : dict of str to list of float
        By algorithm.
    """

    exact: list[float]
    returned: dict[str, list[float]]


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
