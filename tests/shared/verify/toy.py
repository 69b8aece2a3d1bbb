"""A toy operation, y = x - mean(x) along each row, which the judge knows from this file alone."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

import truenorm.verify as tv
from truenorm.exact import scaled_integers
from truenorm.verify.inputs.families import ordinary, sweeps
from truenorm.verify.operation import Case, Input, Operation, Output
from truenorm.verify.oracle import ONE, LinearInRoot, round_exactly
from truenorm.verify.types import FORMATS, Array, Float64s


class Centring(Operation):
    """Its backward pass, dx = dy - mean(dy), does the same to dy; nothing needs to be saved."""

    name, title = "centring", "centring"
    inputs = (Input("x", "data"), Input("dy", "gradient"))
    outputs = (Output("y", like="x"), Output("dx", like="x", backward=True))
    takes_eps = False
    condition = "rms(x)/std(x)"
    condition_description = "κ = rms(x)/std(x) says how much of a row is mean."

    def cases(self, dtype: str, level: str, seed: int = 0) -> Iterable[Case]:
        yield from ordinary(self, dtype, level, seed)
        yield from sweeps(self, dtype, level, seed)

    def exact(self, case: Case) -> dict[str, Float64s]:
        once = len(case.x) // case.repeats
        rows = {"y": case.x[:once], "dx": case.dy[:once]}
        return {output: _centred(each, case.dtype) for output, each in rows.items()}

    def scales(self, case: Case, exact: Mapping[str, Float64s]) -> "CentringScales":
        return CentringScales(case, exact)


def _centred(rows: Array, dtype: str) -> Float64s:
    numbers = []
    for row in rows.astype(np.float64).tolist():
        integers, k = scaled_integers(row)
        size, total = len(row), sum(integers)
        numbers += [LinearInRoot(ONE, 0, size * each - total, size << k) for each in integers]
    return round_exactly(numbers, FORMATS[dtype]).reshape(*rows.shape, 2)


class CentringScales:
    """The size of each element, and of its row."""

    def __init__(self, case: Case, exact: Mapping[str, Float64s]) -> None:
        self._sizes = {name: np.abs(exact[name][..., 0]) for name in ("y", "dx")}
        x = case.x[: len(case.x) // case.repeats].astype(np.float64)
        self.kappa = np.sqrt((x**2).mean(1, keepdims=True)) / x.std(1, keepdims=True)

    def terms(self, output: str) -> int:
        return int(self._sizes[output].shape[1])

    def of(self, output: str, power: int) -> Float64s:
        sizes = self._sizes[output]
        scale: Float64s = (sizes + sizes.mean(1, keepdims=True)) * (1 + self.kappa) ** power
        return scale


CENTRING = Centring()


def centred(rows: Array) -> Array:
    wide = rows.astype(np.float64)
    return np.asarray(wide - wide.mean(axis=-1, keepdims=True), rows.dtype)


def subject_of(forward: Any, backward: Any, name: str) -> tv.Subject:
    return tv.Subject(forward, backward, name=name, operation=CENTRING)


right = subject_of(lambda x: (centred(x), None), lambda dy, _: centred(dy), "right")
in_float32 = subject_of(lambda x: (x - x.mean(-1, keepdims=True), 0), right.backward, "float32")
no_mean_of_dy = subject_of(right.forward, lambda dy, _: dy.copy(), "no mean of dy")
