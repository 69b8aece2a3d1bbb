"""What tests of refusals share: small arguments that are right, and words to be found."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ops.judged import read_only

X = read_only(np.array([[1, 2, 4], [3, 3, 5]], np.float32))
ROW = read_only(np.array([1, 2, 3], np.float32))

Forward = Callable[..., Any]
"""`layer_norm` or `layer_norm_forward`."""


def says(text: str) -> str:
    """Return a pattern for these very words."""
    return re.escape(text)
