"""What a session of pytest is told: whose place a kernel takes, and where to write what it saw."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from truenorm.verify.audit.kernel import Kernel
from truenorm.verify.audit.planted import CONTROL, planted_kernels
from truenorm.verify.operations import operation_of
from truenorm.verify.operations.norms import Norm

__all__ = ["PLUGIN", "VARIABLE", "Task", "place_of"]

VARIABLE = "TRUENORM_AUDIT"
PLUGIN = "truenorm.pytest_plugin.replaced"


def place_of(target: str) -> tuple[str, str]:
    """Return the module and the name of ``package.module:name``.

    Examples
    --------
    >>> place_of("mypackage.kernels:rms_norm")
    ('mypackage.kernels', 'rms_norm')
    """
    module, colon, name = target.partition(":")
    parts = [*module.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError(f"{target!r} is no place such as mypackage.kernels:rms_norm")
    return module, name


@dataclass(frozen=True)
class Task:
    """One run: of the right kernel, or of a planted one.

    Attributes
    ----------
    replace, backward : str
        ``package.module:name`` of the kernel, and of its backward pass if that is a function.
    operation : str
        What it computes, in words.
    signature : str
        The names of its arguments in order, if they are not its own.
    eps : float, optional
        Where it has none of its own.
    recipe : str
        Where it rounds.
    kernel : str
        The name of the planted kernel.
    folder : str
        Where each process writes what it saw.
    """

    replace: str
    operation: str
    backward: str = ""
    signature: str = ""
    eps: float | None = None
    recipe: str = ""
    kernel: str = CONTROL
    folder: str = ""

    @property
    def norm(self) -> Norm:
        """What the kernel computes."""
        found = operation_of(self.operation)
        assert isinstance(found, Norm)
        return found

    def planted(self) -> Kernel:
        """Return the kernel that takes the place."""
        known = {each.name: each for each in planted_kernels(self.norm, self.recipe)}
        return Kernel(self.norm, known.get(self.kernel), self.recipe)

    def environment(self) -> dict[str, str]:
        """Return the variables by which a session of pytest finds it, and its workers, too."""
        plugins = [os.environ.get("PYTEST_PLUGINS", ""), PLUGIN]
        return {
            VARIABLE: json.dumps(asdict(self)),
            "PYTEST_PLUGINS": ",".join(filter(None, plugins)),
        }

    @classmethod
    def found(cls, environment: Mapping[str, str]) -> "Task":
        """Return the task of this session."""
        return cls(**json.loads(environment[VARIABLE]))

    @property
    def file(self) -> Path:
        """Where this process writes what it saw."""
        return Path(self.folder) / f"{os.getpid()}.json"
