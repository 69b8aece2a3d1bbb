"""Pairs of forward and backward drawn by Hypothesis, and errors of a known size in them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st

import truenorm as tn
from shared.gradient_check.pairs import (
    Array,
    rms_norm,
    rms_norm_backward,
    softmax,
    softmax_backward,
)

MethodName = Literal["auto", "jet", "complex", "central"]
Function = Callable[[Any], Any]

SMOOTH: dict[str, tuple[Function, Function]] = {
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "sin": (np.sin, np.cos),
    "exp": (np.exp, np.exp),
    "cube": (lambda x: x**3, lambda x: 3 * x**2),
    "root": (lambda x: np.sqrt(1 + x * x), lambda x: x / np.sqrt(1 + x * x)),
    "logistic": (lambda x: 1 / (1 + np.exp(-x)), lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2),
    "arctan": (np.arctan, lambda x: 1 / (1 + x * x)),
    "line": (lambda x: 3 * x, lambda x: 3 + 0 * x),
}
KINKED: dict[str, tuple[Function, Function]] = {
    "relu": (lambda x: np.where(x > 0, x, 0 * x), lambda x: np.where(x > 0, 1.0, 0.0)),
    "leaky": (lambda x: np.where(x > 0, x, 0.1 * x), lambda x: np.where(x > 0, 1.0, 0.1)),
    "abs": (np.abs, np.sign),
    "bent": (lambda x: x * x + np.abs(x), lambda x: 2 * x + np.sign(x)),
}
MIXING: dict[str, tuple[Function, Callable[[Array, Array], Array]]] = {
    "softmax": (softmax, lambda dy, x: softmax_backward(dy, x)[0]),
    "mean square": (lambda x: (x * x).mean(), lambda dy, x: 2 * dy * x / x.size),
    "RMSNorm": (
        lambda x: rms_norm(x, 1.0),  # type: ignore[arg-type]
        lambda dy, x: rms_norm_backward(np.atleast_1d(dy), x, np.ones(x.shape[-1:]))[0],
    ),
    "running sum": (np.cumsum, lambda dy, _: np.cumsum(dy[::-1])[::-1]),
}
LARGE = 520
"""More elements than any method checks one by one."""


@dataclass(frozen=True, repr=False)
class DrawnPair:
    """A right pair and its input.

    `ordinary` is True if it is smooth, at a scale without loss of digits. `no_derivative` is True
    if it has no derivative at an element of the input.
    """

    name: str
    forward: Callable[[Array], Array]
    backward: Callable[[Array, Array], Array]
    x: Array
    method: MethodName
    seed: int
    ordinary: bool
    no_derivative: bool

    def __repr__(self) -> str:
        return f"{self.name}, {self.method}, seed {self.seed}"

    def check(self, backward: Callable[[Array, Array], Array], method: MethodName) -> Any:
        return tn.gradcheck(self.forward, backward, self.x, method=method, seed=self.seed)


@st.composite
def drawn_pairs(draw: st.DrawFn) -> DrawnPair:
    """Draw a pair: a function, scales of its input and output, a type, a size and a method."""
    kind = draw(st.sampled_from(["smooth", "smooth", "kinked", "mixing"]))
    names: dict[str, list[str]] = {
        "smooth": list(SMOOTH),
        "kinked": list(KINKED),
        "mixing": list(MIXING),
    }
    name = draw(st.sampled_from(names[kind]))
    method: MethodName = draw(st.sampled_from(["auto", "jet", "complex", "central"]))
    size = draw(st.integers(1, 6) | st.sampled_from([7, 97, LARGE]))
    if size == LARGE and method in ("auto", "jet"):
        size = 97  # jets are slow, and check 96 elements one by one
    if size == 97 and method in ("complex", "central"):
        size = 7
    if kind == "mixing":
        size = max(size, 2)  # a softmax of one element is always 1
    dtype = draw(st.sampled_from([np.float64, np.float64, np.float32]))
    input_scale = draw(st.sampled_from([1.0, 1.0, 1e-6, 1e5]))
    output_scale = draw(st.sampled_from([1.0, 1.0, 1e-8, 1e8]))
    offset = draw(st.sampled_from([0.0, 0.0, 0.0, 1.0, 1e4]))
    seed = draw(st.integers(0, 2**32 - 1))
    x = np.random.default_rng([7, seed]).standard_normal(size)
    at_a_kink = kind == "kinked" and draw(st.booleans())
    if at_a_kink:
        x[seed % size] = draw(st.sampled_from([0.0, 1e-300, 1e-13, -1e-10, 1e-6]))
    x = (input_scale * x).astype(dtype)
    forward, backward = _scaled(kind, name, input_scale, output_scale, offset)
    return DrawnPair(
        f"{output_scale:g}*{name}(x/{input_scale:g}) + {offset:g}, {size} of {np.dtype(dtype)}",
        forward,
        backward,
        x,
        method,
        seed,
        ordinary=kind != "kinked" and offset <= 1 and (offset == 0 or output_scale >= 1),
        no_derivative=at_a_kink and not x[seed % size],
    )


def _scaled(
    kind: str, name: str, input_scale: float, output_scale: float, offset: float
) -> tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]:
    if kind == "mixing":
        function, adjoint = MIXING[name]
    else:
        function, slope = (SMOOTH if kind == "smooth" else KINKED)[name]

        def adjoint(dy: Array, x: Array) -> Array:
            return np.asarray(dy * slope(x))

    def forward(x: Array) -> Array:
        return np.asarray(output_scale * function(x / input_scale) + offset)

    def backward(dy: Array, x: Array) -> Array:
        # In float64, rounded once.
        wide = adjoint(dy.astype(np.float64), x.astype(np.float64) / input_scale)
        return (output_scale * wide / input_scale).astype(x.dtype)

    return forward, backward


def spoiled(pair: DrawnPair, tol: float, times: float, how: str) -> Callable[..., Array]:
    """Return a backward with an error of `times` the tolerance in one or two elements."""

    def backward(dy: Array, x: Array) -> Array:
        dx = np.array(pair.backward(dy, x), dtype=np.float64)
        by = times * tol * _unit(pair, dy, x, dx)
        first, second = pair.seed % dx.size, (pair.seed // 7) % dx.size
        dx[first] += by
        if how == "opposite" and second != first:
            dx[second] -= by
        return dx.astype(x.dtype)

    return backward


def _unit(pair: DrawnPair, dy: Array, x: Array, dx: Array) -> float:
    """Return an upper bound of the scale that errors are relative to."""
    if x.size > 96:
        return float(np.linalg.norm(dx)) or 1.0
    shares = np.zeros(x.shape)
    for index in np.ndindex(dy.shape):
        alone = np.zeros(dy.shape)
        alone[index] = dy[index]
        shares += np.abs(pair.backward(alone, x))
    return float(shares.max()) or 1.0
