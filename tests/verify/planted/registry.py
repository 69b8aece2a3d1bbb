"""All subjects of the judge's tests: the wrong ones, the fatal ones and the right ones."""

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from truenorm.verify.subject import Subject
from verify.planted import fatal
from verify.planted.backward_bugs import BACKWARD
from verify.planted.entry import PlantedBug
from verify.planted.forward_bugs import FORWARD
from verify.planted.memory_bugs import MEMORY
from verify.planted.parameter_bugs import PARAMETERS
from verify.planted.property_bugs import PROPERTIES
from verify.planted.relatives.bugs import RELATIVES
from verify.planted.relatives.right import RECIPES_OF_MORE
from verify.planted.right import RIGHT
from verify.planted.rms_norm.bugs import RMS_NORM

__all__ = [
    "CAUSES",
    "FATAL",
    "FEW_ROWS",
    "LEFT_TO_SLOW",
    "MORE_RIGHT",
    "OF_MANY_ROWS",
    "PLANTED",
    "RIGHT",
]

PLANTED: dict[str, PlantedBug] = {
    bug.subject.name: bug
    for bug in (*FORWARD, *BACKWARD, *PARAMETERS, *PROPERTIES, *MEMORY, *RMS_NORM, *RELATIVES)
}

CAUSES: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("causes.toml").read_text(encoding="utf-8")
)
"""For bugs in the arithmetic of results: words of which one stands in each cause that is named."""

_ALIKE = {
    # The gate has another width, number of rows or type with each of these.
    *("wrong at D = 96", "wrong between 2048 and 4096", "wrong between 5000 and 8192"),
    *("last partial block of 64 dropped", "sums without rows beyond 65,535"),
    *("partial sums in float16, of float16", "y is beta where that is large, in 16 bits"),
    # And these it grades without their guard, or one that the same guard finds.
    *("elements beyond 2^24 left out", "places in float32", "dgamma depending on threads"),
    *(f"in-place damage to {name}" for name in ("x", "dy", "gamma", "beta")),
    *("y in a buffer that is used again", "gradients of a stale forward pass"),
    *("backward spends what was saved", "a row depending on its batch"),
}


def _every_other(bugs: Iterable[PlantedBug]) -> Iterator[str]:
    """Yield the second of each kind, the fourth and so on."""
    seen: Counter[object] = Counter()
    for bug in bugs:
        seen[bug.kind] += 1
        if seen[bug.kind] % 2 == 0:
            yield bug.subject.name


LEFT_TO_SLOW = {*_ALIKE, *_every_other((*RMS_NORM, *RELATIVES))}
"""Planted bugs that the gate does not look for one by one."""

OF_MANY_ROWS = {
    *("rows beyond 65,535 skipped", "sums without rows beyond 65,535"),
    "RMSNorm: rows beyond 65,535 skipped",
}
"""Planted bugs that show in cases of very many rows, which take longer than all the rest."""
FEW_ROWS = {bug.subject.name for bug in RELATIVES}
"""Those that are to be found without such cases at the full level as well."""

MORE_RIGHT: dict[str, Subject] = {subject.name: subject for subject in RECIPES_OF_MORE}
"""Beside `RIGHT`, for the slow session."""

FATAL: dict[str, str] = {
    subject.name: f"{Path(fatal.__file__).resolve()}:{name}"
    for name, subject in vars(fatal).items()
    if isinstance(subject, Subject)
}
"""As the judge is given them on its command line: nobody calls these here."""
