"""What tests of refusals share: small arguments that are right, and places for a wrong one."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from ops.judged import read_only

X = read_only(np.array([[1, 2, 4], [3, 3, 5]], np.float32))
ROW = read_only(np.array([1, 2, 3], np.float32))

Forward = Callable[..., Any]
"""`layer_norm` or `layer_norm_forward`."""


def says(text: str) -> str:
    """Return a pattern for these very words."""
    return re.escape(text)


def assert_refused_everywhere(forward: Forward, value: Any, row: Any, words: str) -> None:
    """Pass a wrong array for x and dy, and a row of it, if there is one, for gamma and beta."""
    saved = tn.layer_norm_forward(X)[1]
    calls: dict[str, Callable[[], Any]] = {
        "x": lambda: forward(value),
        "dy": lambda: tn.layer_norm_backward(value, saved),
    }
    if row is not None:
        calls |= {"gamma": lambda: forward(X, row), "beta": lambda: forward(X, None, row)}
    for name, call in calls.items():
        with pytest.raises(TypeError, match=says(f"{name} {words.replace('{name}', name)}")):
            call()
