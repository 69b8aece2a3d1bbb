"""What is known of a planted bug."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from truenorm.verify.subject import Subject
from verify.planted.base import Kernel


@dataclass(frozen=True)
class PlantedBug:
    """A wrong subject, and what the judge has to say of it where that is plain beforehand.

    `grades` has by output the grade that it deserves; `verdict` is the line of the judge's
    verdicts that fails, or nothing where the grades say all.
    """

    subject: Subject
    grades: Mapping[str, str]
    verdict: str


def plant(
    kernel: Kernel,
    name: str,
    *,
    dtypes: Collection[str] = ("float32",),
    also: Collection[str] = (),
    verdict: str = "",
    **grades: str,
) -> PlantedBug:
    """Make a subject of a wrong kernel, whose docstring says what is wrong."""
    subject = Subject(
        kernel.forward, kernel.backward, name=name, dtypes=list(dtypes), also=list(also)
    )
    return PlantedBug(subject, grades, verdict)
