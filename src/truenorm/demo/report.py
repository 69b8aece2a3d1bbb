"""What a demonstration found, and how it is kept: as JSON, and back."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from truenorm.tools import strict_json

__all__ = ["Curve", "NamedRow", "Report", "Sweep", "from_json", "to_json"]


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

    def curve(self, algorithm: str, output: str) -> Curve | None:
        """Return a curve, or None where an algorithm has no such output."""
        for curve in self.curves:
            if (curve.algorithm, curve.output) == (algorithm, output):
                return curve
        return None


@dataclass(frozen=True)
class NamedRow:
    """An instability, and what each algorithm returns for the row that triggers it.

    Attributes
    ----------
    name : str
    dtype : str
    row : str
        The row, as a person writes it.
    output : str
    digits : int
        As many as are worth looking at.
    why, remedy : str
    exact : list of float
        The exact answer, rounded once; the first few elements of it.
    returned : dict of str to list of float
        By algorithm.
    """

    name: str
    dtype: str
    row: str
    output: str
    digits: int
    why: str
    remedy: str
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


def to_json(report: Report) -> str:
    """Return a report as strict JSON: numbers that are not finite become strings."""
    return strict_json.dumps(asdict(report))


def from_json(text: str) -> Report:
    """Return the report that `to_json` wrote."""
    found = json.loads(text)
    sweeps = [_sweep(each) for each in found.pop("sweeps")]
    named = [_named_row(each) for each in found.pop("named")]
    return Report(**found, sweeps=sweeps, named=named)


def _numbers(values: list[float | str]) -> list[float]:
    return [float(value) for value in values]


def _sweep(found: dict[str, Any]) -> Sweep:
    curves = [
        Curve(
            **{
                **each,
                "relative": _numbers(each["relative"]),
                "ulp": _numbers(each["ulp"]),
            }
        )
        for each in found["curves"]
    ]
    return Sweep(**{**found, "curves": curves})


def _named_row(found: dict[str, Any]) -> NamedRow:
    returned = {name: _numbers(values) for name, values in found["returned"].items()}
    return NamedRow(**{**found, "exact": _numbers(found["exact"]), "returned": returned})
