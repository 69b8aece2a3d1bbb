"""Checks of arguments from Python, whose messages are the same everywhere."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any


def require_type(name: str, value: object, kind: Any, expected: str) -> None:
    """Raise TypeError unless an argument is of a type; `expected` describes it in words.

    Examples
    --------
    >>> require_type("seed", "a", Integral, "a whole number")
    Traceback (most recent call last):
        ...
    TypeError: seed must be a whole number; got 'a'
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {expected}; got {value!r}")


def require_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise ValueError unless an argument is one of the choices.

    Examples
    --------
    >>> require_choice("level", "slow", ("quick", "full"))
    Traceback (most recent call last):
        ...
    ValueError: level must be one of quick, full; got 'slow'
    """
    if value not in (known := list(choices)):
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")


def require_shape(shape: object) -> None:
    """Raise TypeError for a shape with other elements than integers; their range is not checked.

    Examples
    --------
    >>> require_shape((2.5, 3))
    Traceback (most recent call last):
        ...
    TypeError: shape must be a list or tuple of whole numbers; got (2.5, 3)
    """
    if not isinstance(shape, Sequence) or not all(isinstance(each, Integral) for each in shape):
        raise TypeError(f"shape must be a list or tuple of whole numbers; got {shape!r}")
