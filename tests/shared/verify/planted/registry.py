"""All subjects of the judge's tests: planted bugs, fatal ones and correct ones."""

import tomllib
from pathlib import Path

from shared.verify.planted import fatal
from shared.verify.planted.backward import BACKWARD, PARAMETERS
from shared.verify.planted.behaviour import INVARIANCE, MEMORY, PROPERTIES
from shared.verify.planted.forward import FORWARD
from shared.verify.planted.kernels import PlantedBug
from shared.verify.planted.right import RECIPES_OF_MORE
from shared.verify.planted.rms_norm import RMS_NORM
from shared.verify.planted.variant_bugs import VARIANTS
from truenorm.verify.subject import Subject

PLANTED: dict[str, PlantedBug] = {
    bug.subject.name: bug
    for bug in (
        *(*FORWARD, *BACKWARD, *PARAMETERS, *PROPERTIES, *INVARIANCE, *MEMORY),
        *(*RMS_NORM, *VARIANTS),
    )
}

CAUSES: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("causes.toml").read_text(encoding="utf-8")
)
"""By bug: ids of which each finding with a cause has one; none where no cause is named."""


FIRST_OF_KIND = {bug.kind: name for name, bug in reversed(PLANTED.items())}.values()
"""The first bug of each kind: what the judge is to say of it."""

OF_MANY_ROWS = {
    *("rows beyond 65,535 skipped", "sums without rows beyond 65,535"),
    "RMSNorm: rows beyond 65,535 skipped",
}
"""Planted bugs that show in cases of very many rows, which take longer than all the rest."""
FEW_ROWS = {bug.subject.name for bug in VARIANTS}
"""Those that are to be results without such cases at the full level as well."""

MORE_RIGHT: dict[str, Subject] = {subject.name: subject for subject in RECIPES_OF_MORE}
"""Beside `RIGHT`, for the slow session."""

FATAL: dict[str, str] = {
    subject.name: f"{Path(fatal.__file__).resolve()}:{name}"
    for name, subject in vars(fatal).items()
    if isinstance(subject, Subject)
}
"""As on the judge's command line: these are not called here."""
