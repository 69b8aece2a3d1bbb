"""Load a subject from a target string: ``file.py:name`` or ``torch:package.module.function``."""

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from truenorm.tools.arguments import require_type
from truenorm.tools.user_files import NotThereError, resolved, run_file, split_target
from truenorm.verify.running.functions import function_subject, imported_subject
from truenorm.verify.subject import Subject, SubjectSpec

TORCH = "torch"
"""In place of a file, in the spec of a kernel of PyTorch."""
PREFIX = f"{TORCH}:"
SUBJECT = "subject"
"""The name in a file, unless a target has one."""
HINT = """write a subject with a function that takes and returns NumPy arrays:

    import truenorm.verify as tv
    def forward(x, gamma, eps):  # layer_norm: (x, gamma, beta, eps)
        return ...               # y, of the shape and the type of x
    subject = tv.Subject(forward, operation="rms_norm", dtypes=["float32"])
"""


def load(target: str, operation: str = "", dtypes: Sequence[str] = ()) -> Subject:
    """Execute a file and return the subject in it, or one that calls a function in it.

    Parameters
    ----------
    target : str
        ``file.py:name``, or ``file.py`` for the name ``subject``; or
        ``torch:package.module.function`` for a kernel of PyTorch.
    operation : str
        The operation, such as ``rms_norm``; by default, that of the subject. A function has none.
    dtypes : sequence of str
        The types of a function; by default float32, on tensors also bfloat16.
    """
    require_type("target", target, str, "text such as 'file.py:name'")
    return load_with_spec(target, operation, dtypes)[0]


def load_with_spec(
    target: str, operation: str = "", dtypes: Sequence[str] = ()
) -> tuple[Subject, SubjectSpec]:
    """Return the subject of a target, and its spec."""
    file, name = file_and_name(target)
    if file == TORCH:
        try:
            subject = _load_torch(name, operation)
        except ValueError as error:
            raise NotThereError(str(error)) from error
    else:
        subject = _load_file(Path(file), name, operation, dtypes)
    return subject, subject.spec(file, name, operation)


def _load_file(path: Path, name: str, operation: str, dtypes: Sequence[str]) -> Subject:
    """Execute a file and return the subject of a name in it."""
    module = run_file(path)
    subject = getattr(module, name, None)
    if isinstance(subject, Subject):
        if not operation:
            return subject
        try:
            return subject.with_operation(operation)
        except ValueError as error:
            raise NotThereError(str(error)) from error
    if not callable(subject):
        names = [key for key, value in vars(module).items() if _is_kernel(value, module)]
        available = f"it has {', '.join(names)}" if names else f"it defines none: {HINT}"
        raise NotThereError(f"{path.name} has no subject or function {name!r}; {available}")
    return _load_function(subject, operation, f"{path.name}:{name}", dtypes)


def _is_kernel(value: Any, module: ModuleType) -> bool:
    """Return True for a subject, or a function that the module defines."""
    defined = getattr(value, "__module__", "") == module.__name__
    return isinstance(value, Subject) or (callable(value) and defined)


def _load_function(
    function: Callable[..., Any], operation: str, target: str, dtypes: Sequence[str]
) -> Subject:
    if not operation:
        raise NotThereError(
            f"{target} is a function: give --operation rms_norm, or another of layer_norm, "
            "add_layer_norm, add_rms_norm; or --formula"
        )
    try:
        return function_subject(function, operation, target.rpartition(":")[2], dtypes)
    except ValueError as error:
        raise NotThereError(f"{target} cannot be called:\n{error}\n{HINT}") from error


def dotted_path(target: str) -> str:
    """Return the path of ``torch:package.module.function``, or nothing for a file."""
    return target.removeprefix(PREFIX) if target.startswith(PREFIX) else ""


def file_and_name(target: str) -> tuple[str, str]:
    """Return the absolute file and the name of a target, or ``torch`` and a dotted path.

    Examples
    --------
    >>> file_and_name("torch:torch.nn.functional.rms_norm")
    ('torch', 'torch.nn.functional.rms_norm')
    """
    if dotted := dotted_path(target):
        return TORCH, dotted
    file, name = split_target(target, SUBJECT)
    return str(resolved(file)), name


def _load_torch(path: str, operation: str) -> Subject:
    """Return the subject of a dotted path."""
    if not operation:
        raise ValueError(
            f"what {path} computes is not known: give --operation rms_norm, or another of "
            "layer_norm, add_layer_norm, add_rms_norm"
        )
    return imported_subject(_import_path(path), operation, path)


def _import_path(path: str) -> Any:
    """Import the longest prefix that is a module, and return the attribute that follows it."""
    parts = path.split(".")
    if not all(part.isidentifier() for part in parts) or len(parts) < 2:
        raise ValueError(f"{PREFIX}{path} is no path such as {PREFIX}package.module.function")
    # Last: a file called numpy.py in the current folder must not shadow the package.
    sys.path.append(str(Path.cwd()))
    value: Any = importlib.import_module(_longest_module(parts))
    for position in range(value.__name__.count(".") + 1, len(parts)):
        if not hasattr(value, parts[position]):
            raise ValueError(f"{'.'.join(parts[:position])} has no {parts[position]!r}")
        value = getattr(value, parts[position])
    return value


def _longest_module(parts: list[str]) -> str:
    for count in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:count])
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as missing:
            # A dependency that is missing is another error.
            if missing.name is None or not f"{name}.".startswith(f"{missing.name}."):
                raise
        else:
            return name
    raise ValueError(f"there is no module {parts[0]!r}: is it installed in this environment?")
