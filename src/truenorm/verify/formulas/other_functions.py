"""Functions that kernels compute in place of those of a formula."""

from collections.abc import Callable
from typing import Any

import numpy as np

TWO_OVER_PI = 2 / np.pi
Function = Callable[[Any], Any]
OTHER_FUNCTIONS: dict[str, tuple[tuple[str, str, Function], ...]] = {
    "exp": (("base-2", "{!r} has the base 2", np.exp2),),
    "log": (
        ("base-2", "{!r} has the base 2", np.log2),
        ("log-of-1-plus", "{!r} is log(1 + x)", np.log1p),
    ),
    "tanh": (("sigmoid", "{!r} is a sigmoid", lambda x: 1 / (1 + np.exp(-x))),),
    "sigmoid": (
        ("tanh", "{!r} is a tanh", np.tanh),
        (
            "hard-sigmoid-6",
            "{!r} is a hard sigmoid, clip(x/6 + 1/2, 0, 1)",
            lambda x: np.clip(x / 6 + 0.5, 0, 1),
        ),
        (
            "hard-sigmoid-5",
            "{!r} is a hard sigmoid, clip(x/5 + 1/2, 0, 1)",
            lambda x: np.clip(x / 5 + 0.5, 0, 1),
        ),
        (
            "sigmoid-by-tanh",
            "{!r} is computed as tanh(x/2)/2 + 1/2 in float32",
            lambda x: (np.tanh(x.astype(np.float32) / 2) / 2 + np.float32(0.5)).astype(np.float64),
        ),
    ),
    "erf": (
        (
            "erf-by-tanh",
            "{!r} is approximated by tanh",
            lambda x: np.tanh(np.sqrt(2 * TWO_OVER_PI) * (x + 2 * 0.044715 * x**3)),
        ),
        (
            "erf-by-sigmoid",
            "{!r} is approximated by a sigmoid",
            lambda x: np.tanh(0.851 * np.sqrt(2) * x),
        ),
    ),
    "abs": (("no-magnitude", "the magnitude is not taken in {!r}", lambda x: x),),
}
"""By step: other functions of its argument, each with the name and the words of its cause."""
