"""Find the subject in the file that somebody named. The file is executed, as pytest does."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from truenorm.verify.subject import Subject

__all__ = ["NoSubjectError", "load", "split_target"]


class NoSubjectError(ValueError):
    """The file is not there, or has no such subject."""


def split_target(target: str) -> tuple[Path, str]:
    """Return the file and the name of ``file.py:name``; the name is `subject` if it is left out.

    Examples
    --------
    >>> split_target("kernels/mine.py:fast")[1], split_target("mine.py")[1]
    ('fast', 'subject')
    """
    file, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():  # no colon, or that of C:\\folder\\file.py
        file, name = target, "subject"
    return Path(file), name


def load(target: str) -> Subject:
    """Execute a file and return the subject in it.

    Parameters
    ----------
    target : str
        ``file.py:name``, or ``file.py`` for the name ``subject``.
    """
    path, name = split_target(target)
    path = path.resolve()
    if not path.is_file():
        raise NoSubjectError(f"there is no file {path}; give file.py or file.py:subject")
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise NoSubjectError(f"{path} is no Python file; give file.py or file.py:subject")
    module = module_from_spec(spec)
    # As for a script: it finds its neighbours, and what it defines finds its module.
    sys.path.insert(0, str(path.parent))
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not isinstance(found, Subject):
        subjects = [key for key, value in vars(module).items() if isinstance(value, Subject)]
        raise NoSubjectError(
            f"{path.name} has no subject named {name!r}; "
            + (
                f"it has {', '.join(subjects)}"
                if subjects
                else "it defines none: "
                "write subject = truenorm.verify.Subject(forward=..., backward=...)"
            )
        )
    return found
