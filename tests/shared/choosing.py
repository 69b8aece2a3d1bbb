"""Choose the parameters of a test that run in the gate; the others are slow."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def slow_unless(
    chosen: Callable[[Any], bool], parameters: Iterable[Any], *, reason: str
) -> list[Any]:
    """Return parameters of a test; those that are not chosen are marked slow.

    A parameter is a value, a tuple of values for several names, or a `pytest.param`.
    """
    slow = pytest.mark.slow(reason=reason)
    return [_marked(each, () if chosen(each) else (slow,)) for each in parameters]


def _marked(parameter: Any, marks: Sequence[pytest.MarkDecorator]) -> Any:
    if isinstance(parameter, ParameterSet):
        return parameter._replace(marks=[*parameter.marks, *marks])
    values = parameter if type(parameter) is tuple else (parameter,)
    return pytest.param(*values, marks=marks)


def few(parameters: Iterable[Any], *, reason: str, count: int = 3) -> list[Any]:
    """Return parameters of a test; all but some, spread evenly, are marked slow."""
    every = list(parameters)
    last = len(every) - 1
    places = {round(last * k / max(count - 1, 1)) for k in range(count)}
    chosen = {id(every[place]) for place in places if 0 <= place <= last}
    return slow_unless(lambda each: id(each) in chosen, every, reason=reason)
