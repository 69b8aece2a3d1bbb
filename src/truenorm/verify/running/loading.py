"""What ``torch:package.module.function`` names: a kernel of PyTorch, without a file around it."""

import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from truenorm.verify.running.pytorch import is_module
from truenorm.verify.running.torch_subject import torch_subject
from truenorm.verify.subject import Subject
from truenorm.verify.types import FORMATS

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


class NotThereError(ValueError):
    """The file is not there, or what was asked for is not in it."""


def split_target(target: str, default: str = "subject") -> tuple[Path, str]:
    """Return the file and the name of ``file.py:name``, or a name for one that is left out.

    Examples
    --------
    >>> split_target("kernels/mine.py:fast")[1], split_target("mine.py")[1]
    ('fast', 'subject')
    """
    file, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():  # no colon, or that of C:\\folder\\file.py
        file, name = target, default
    return Path(file), name


def dotted_path(target: str) -> str:
    """Return the path of ``torch:package.module.function``; nothing if it is a file.

    Examples
    --------
    >>> dotted_path("torch:torch.nn.functional.rms_norm"), dotted_path("torch_check.py:mine")
    ('torch.nn.functional.rms_norm', '')
    """
    return target.removeprefix(PREFIX) if target.startswith(PREFIX) else ""


def file_and_name(target: str, folder: str | Path = "") -> tuple[str, str]:
    """Return the absolute file and the name of a target, or ``torch`` and a dotted path.

    Examples
    --------
    >>> file_and_name("torch:torch.nn.functional.rms_norm")
    ('torch', 'torch.nn.functional.rms_norm')
    """
    if dotted := dotted_path(target):
        return PREFIX.rstrip(":"), dotted
    file, name = split_target(target)
    return str((folder / file).resolve()), name


def executed(path: Path) -> ModuleType:
    """Execute a file as a script would be, and return what it defines."""
    path = path.resolve()
    if not path.is_file():
        raise NotThereError(f"there is no file {path}; give file.py or file.py:name")
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise NotThereError(f"{path} is no Python file; give file.py or file.py:name")
    module = module_from_spec(spec)
    # As for a script: it finds its neighbours, and what it defines finds its module.
    sys.path.insert(0, str(path.parent))
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def load(target: str, operation: str = "") -> Subject:
    """Execute a file and return the subject in it.

    Parameters
    ----------
    target : str
        ``file.py:name``, or ``file.py`` for the name ``subject``; or
        ``torch:package.module.function``, which is no file and names a kernel of PyTorch.
    operation : str
        What it is taken for, such as ``rms_norm``; by default, what it says itself.
    """
    if dotted := dotted_path(target):
        try:
            return subject_at(dotted, operation)
        except ValueError as refused:
            raise NotThereError(str(refused)) from refused
    path, name = split_target(target)
    module = executed(path)
    found = getattr(module, name, None)
    if not isinstance(found, Subject):
        subjects = [key for key, value in vars(module).items() if isinstance(value, Subject)]
        raise NotThereError(
            f"{path.name} has no subject named {name!r}; "
            + (
                f"it has {', '.join(subjects)}"
                if subjects
                else "it defines none: "
                "write subject = truenorm.verify.Subject(forward=..., backward=...)"
            )
        )
    return found.with_operation(operation) if operation else found
