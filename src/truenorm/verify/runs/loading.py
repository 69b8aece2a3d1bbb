"""Find the subject that somebody named: by a path, or in a file, which is executed."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from truenorm.verify.subject import Subject
from truenorm.verify.tensors.dotted import PREFIX, subject_at

__all__ = ["NotThereError", "dotted_path", "executed", "load", "split_target"]


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
    return found.taken_for(operation) if operation else found
