"""Check a pair of forward and backward that a file defines."""

import traceback
from pathlib import Path
from typing import Any

from truenorm.gradient_check.checker import MethodName, gradcheck
from truenorm.gradient_check.result import GradientCheck
from truenorm.tools.user_files import (
    PACKAGE,
    NotThereError,
    failure_text,
    run_file,
    split_target,
)

Pair = tuple[Any, Any, Any]
"""A forward pass, its backward pass, and the inputs to check them at."""


class CannotCheckError(Exception):
    """The file or one of its functions failed, or an argument is not valid."""


def check_target(
    target: str, *, method: MethodName, tol: float | None, probes: int, seed: int
) -> GradientCheck:
    """Check the pair of ``file.py:name``; raise CannotCheckError if that is not possible."""
    try:
        forward, backward, inputs = load_pair(target)
        return gradcheck(
            forward, backward, inputs, method=method, tol=tol, probes=probes, seed=seed
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the user's code may fail in any way, and may exit
        raise CannotCheckError(_message_of(error)) from error


def load_pair(target: str) -> Pair:
    """Execute the file of a target and return its pair."""
    path, name = split_target(target, default="pair")
    pairs: dict[str, Pair] = {
        key: value
        for key, value in vars(run_file(path)).items()
        if isinstance(value, tuple) and len(value) == 3 and all(map(callable, value[:2]))
    }
    if name not in pairs:
        example = f"write {name} = forward, backward, [input, ...]"
        hint = f"it has {', '.join(pairs)}" if pairs else example
        raise NotThereError(f"{path.name} has no pair named {name!r}; {hint}")
    return pairs[name]


def _message_of(error: BaseException) -> str:
    """Return the message of an error raised here, or the lines of the user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    if Path(frames[-1].filename).is_relative_to(PACKAGE):
        return str(error)
    return f"the file failed:\n{failure_text(error)}"
