"""What ``torch:package.module.function`` names: a kernel of PyTorch, without a file around it."""

import importlib
import sys
from pathlib import Path
from typing import Any

from truenorm.verify.subject import Subject
from truenorm.verify.tensors.pytorch import is_module
from truenorm.verify.tensors.torch_subject import torch_subject
from truenorm.verify.types import FORMATS

__all__ = ["PREFIX", "subject_at"]

PREFIX = "torch:"


def subject_at(path: str, operation: str) -> Subject:
    """Return the subject of a dotted path, which claims every type: who asks says which.

    A class of modules has the form ``module``, everything else is ``functional``.
    """
    if not operation:
        raise ValueError(
            f"what {path} computes is not known: give --operation rms_norm, or another of "
            "layer_norm, add_layer_norm, add_rms_norm"
        )
    found = _imported(path)
    return torch_subject(
        found,
        operation=operation,
        form="module" if is_module(found) else "functional",
        name=path,
        dtypes=list(FORMATS),
    )


def _imported(path: str) -> Any:
    """Import as much of a path as is a module, and look for the rest in it."""
    parts = path.split(".")
    if not all(part.isidentifier() for part in parts) or len(parts) < 2:
        raise ValueError(f"{PREFIX}{path} is no path such as {PREFIX}package.module.function")
    # Last: a file called numpy.py in this folder is not the one that others import.
    sys.path.append(str(Path.cwd()))
    found: Any = importlib.import_module(_longest_module(parts))
    for at in range(found.__name__.count(".") + 1, len(parts)):
        if not hasattr(found, parts[at]):
            raise ValueError(f"{'.'.join(parts[:at])} has no {parts[at]!r}")
        found = getattr(found, parts[at])
    return found


def _longest_module(parts: list[str]) -> str:
    for count in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:count])
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as missing:
            # What a module that is there needs itself is another matter.
            if missing.name is None or not f"{name}.".startswith(f"{missing.name}."):
                raise
        else:
            return name
    raise ValueError(f"there is no module {parts[0]!r}: is it installed in this environment?")
