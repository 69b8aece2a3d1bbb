"""Right subjects, of which the judge must find nothing to say."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import truenorm as tn
from truenorm import textbook
from truenorm.verify import EXTENSIONS
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array
from verify.planted.base import Kernel
from verify.planted.entry import layer_norm
from verify.planted.exact_subject import ExactKernel
from verify.planted.relatives.right import RECIPES
from verify.planted.rms_norm.right import RMS_NORM
from verify.planted.wide import WideKernel

HALVES, WIDE = ["float16", "bfloat16"], ["float32", "float64"]
NARROW = [*HALVES, "float32"]
EVERYTHING = list(EXTENSIONS)
CLAIMS = {"correct": EVERYTHING, "fast": [each for each in EVERYTHING if each != "idle-rows"]}
"""By rounding: sums that are not exact are cut where the rows are."""
PARAMETERS_GIVEN = [each for each in EXTENSIONS if each not in ("no-gamma", "no-beta")]

Function = Callable[..., Any]


def _of_truenorm(rounding: str, backend: str | None) -> tuple[Function, Function]:
    def forward(
        x: Array, gamma: Array | None, beta: Array | None, eps: float
    ) -> tuple[Array, Any]:
        return tn.layer_norm_forward(x, gamma, beta, eps=eps, rounding=rounding, backend=backend)

    return forward, partial(tn.layer_norm_backward, backend=backend)


def _textbook_forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Any]:
    with np.errstate(all="ignore"):
        x64, gamma64, beta64 = (each.astype(np.float64) for each in (x, gamma, beta))
        y, saved = textbook.forward(x64, gamma64, beta64, eps)
        return y.astype(x.dtype), (saved, gamma.dtype, beta.dtype)


def _textbook_backward(dy: Array, kept: Any) -> tuple[Array, Array, Array]:
    saved, of_gamma, of_beta = kept
    with np.errstate(all="ignore"):
        dx, dgamma, dbeta = textbook.backward(dy.astype(np.float64), saved)
        return dx.astype(dy.dtype), dgamma.astype(of_gamma), dbeta.astype(of_beta)


_SUBJECTS = [
    layer_norm(Kernel(), "the base", NARROW, EVERYTHING),
    layer_norm(WideKernel(), "the base for float64", ["float64"], EVERYTHING),
    *(
        Subject(*_of_truenorm(rounding, backend), f"truenorm, {name}", dtypes, CLAIMS[rounding])
        for rounding in ("correct", "fast")
        for backend, name, dtypes in (
            (None, rounding, WIDE),
            (None, f"{rounding}, 16 bits", HALVES),
            ("reference", f"{rounding}, NumPy", ["float16"]),
        )
    ),
    Subject(
        _textbook_forward,
        _textbook_backward,
        name="textbook in float64, then cast",
        dtypes=NARROW,
        also=PARAMETERS_GIVEN,
    ),
    layer_norm(ExactKernel(), "exact", ["float32"]),
    *RMS_NORM,
    *RECIPES,
]

RIGHT: dict[str, Subject] = {subject.name: subject for subject in _SUBJECTS}
