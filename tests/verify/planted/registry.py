"""All subjects of the judge's tests: the wrong ones, the fatal ones and the right ones."""

from pathlib import Path

from verify.planted import fatal
from verify.planted.backward_bugs import BACKWARD
from verify.planted.entry import PlantedBug
from verify.planted.forward_bugs import FORWARD
from verify.planted.memory_bugs import MEMORY
from verify.planted.parameter_bugs import PARAMETERS
from verify.planted.property_bugs import PROPERTIES
from verify.planted.right import RIGHT

__all__ = ["FATAL", "PLANTED", "RIGHT", "TARGETS"]

PLANTED: dict[str, PlantedBug] = {
    bug.name: bug for bug in (*FORWARD, *BACKWARD, *PARAMETERS, *PROPERTIES, *MEMORY)
}

_FATAL = {
    "aborts": "The process is aborted at a constant row.",
    "leaves": "The process ends with exit code 0 at a constant row, as if all were well.",
    "hangs": "A call with D = 1 never returns.",
}

FATAL: dict[str, PlantedBug] = {
    subject.name: PlantedBug(subject.name, subject, breaks, {}, "runs")
    for subject, breaks in ((getattr(fatal, name), breaks) for name, breaks in _FATAL.items())
}
"""Never call these in a process that is to live."""

TARGETS: dict[str, str] = {
    getattr(fatal, name).name: f"{Path(fatal.__file__).resolve()}:{name}" for name in _FATAL
}
"""The fatal ones as the judge is given them on its command line."""
