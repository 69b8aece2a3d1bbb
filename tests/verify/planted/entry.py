"""What is known of a planted bug."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from truenorm.verify.operations import RMS_NORM
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array
from verify.planted.base import Kernel


@dataclass(frozen=True)
class PlantedBug:
    """A wrong subject, and what the judge has to say of it where that is plain beforehand.

    `grades` has by output the grade that it deserves; `verdict` is the line of the judge's
    verdicts that fails, or nothing where the grades say all; `said` stands in a finding.
    """

    subject: Subject
    grades: Mapping[str, str]
    verdict: str
    said: str = ""

    @property
    def kind(self) -> tuple[bool, str, frozenset[str]]:
        """Whether it adds first, whichever norm it is, and what the judge is to say of it."""
        adds = self.subject.operation.name.startswith("add")
        return adds, self.verdict, frozenset(self.grades)


def layer_norm(
    kernel: Kernel, name: str, dtypes: Collection[str], also: Collection[str] = ()
) -> Subject:
    """Make a subject of a kernel."""
    return Subject(kernel.forward, kernel.backward, name, list(dtypes), list(also))


def rms_norm(
    kernel: Kernel, name: str, dtypes: Collection[str], also: Collection[str] = ()
) -> Subject:
    """Make a subject of a kernel, without a mean and without beta."""
    kernel.centred = False

    def forward(x: Array, gamma: Array | None, eps: float) -> tuple[Array, Any]:
        return kernel.forward(x, gamma, None, eps)

    def backward(dy: Array, saved: Any) -> tuple[Array, Array | None]:
        dx, dgamma, _ = kernel.backward(dy, saved)
        return dx, dgamma

    return Subject(
        forward, backward, f"RMSNorm: {name}", list(dtypes), list(also), operation=RMS_NORM
    )


SUBJECTS = {"layer_norm": layer_norm, "rms_norm": rms_norm}


def plant(
    kernel: Kernel,
    name: str,
    *,
    of: str = "layer_norm",
    dtypes: Collection[str] = ("float32",),
    also: Collection[str] = (),
    verdict: str = "",
    **grades: str,
) -> PlantedBug:
    """Make a subject of a wrong kernel, whose docstring says what is wrong."""
    return PlantedBug(SUBJECTS[of](kernel, name, dtypes, also), grades, verdict)
