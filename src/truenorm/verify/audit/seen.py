"""What a run of tests showed a kernel: calls, types, and how far it was from the right one."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from truenorm.verify.types import Float64s

__all__ = ["Seen", "merged", "read"]


@dataclass
class Seen:
    """A run of tests, as the replaced kernel saw it.

    Attributes
    ----------
    imported : bool
        Whether the module of the kernel was.
    calls, backwards : int
        Of forward, and of backward.
    dtypes : list of str
        The types of x, in the order in which they came.
    largest : dict of str to list of float
        By result, the largest difference from the right one, and the largest number of that.
    failed : str
        The first test that failed.
    raised : str
        What was wrong with a call that is no fault of the kernel.
    arguments, results : list of str
        What calls were given, and which of their results were replaced, as the judge names them.
    """

    imported: bool = False
    calls: int = 0
    backwards: int = 0
    dtypes: list[str] = field(default_factory=list)
    largest: dict[str, list[float]] = field(default_factory=dict)
    failed: str = ""
    raised: str = ""
    arguments: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    def had(self, arguments: Iterable[str], results: Iterable[str]) -> None:
        """Note what a call was given, and which of its results were replaced."""
        self.arguments += [name for name in arguments if name not in self.arguments]
        self.results += [name for name in results if name not in self.results]

    def differs(self, output: str, values: Float64s, right: Float64s) -> None:
        """Note how far a result is from the right one: what is not finite there is infinitely."""
        if not values.size:
            return
        away = np.abs(values - right)
        same = (values == right) | (np.isnan(values) & np.isnan(right))
        far = np.where(same, 0.0, np.where(np.isfinite(away), away, np.inf))
        known = self.largest.setdefault(output, [0.0, 0.0])
        size = np.abs(right[np.isfinite(right)]).max(initial=0.0)
        if far.max() > known[0] or not known[1]:
            self.largest[output] = [max(float(far.max()), known[0]), float(size)]

    def write(self, file: Path) -> None:
        """Write it to a file, for another process."""
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")


def read(folder: Path) -> Seen:
    """Return what all processes of a run have written to a folder."""
    files = sorted(folder.glob("*.json"))
    return merged([json.loads(file.read_text(encoding="utf-8")) for file in files])


def merged(told: list[dict[str, Any]]) -> Seen:
    """Return what several processes saw together."""
    total = Seen()
    for each in told:
        total.imported |= each["imported"]
        total.calls += each["calls"]
        total.backwards += each["backwards"]
        total.dtypes += [dtype for dtype in each["dtypes"] if dtype not in total.dtypes]
        for output, (difference, size) in each["largest"].items():
            if [difference, size] > total.largest.get(output, [-1.0, 0.0]):
                total.largest[output] = [difference, size]
        total.failed = total.failed or each["failed"]
        total.raised = total.raised or each["raised"]
        total.had(each["arguments"], each["results"])
    return total
