"""A character transformer of two layers, trained in NumPy; its layer norms are truenorm's.

``python examples/transformer.py`` checks the gradients, trains with one thread, then with two, and
says whether the bits are the same. Every backward pass is written by hand.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import truenorm as tn

Array = NDArray[Any]
Parameters = dict[str, Array]
Backward = Callable[[Array], Array]

TEXT = (
    "the mean of a row is subtracted, the row is divided by its deviation, and then it is scaled "
    "and shifted. what was added to the mean of the row is gone, and so is what it was multiplied "
    "by. so the gradient of the row has no part along the ones and none along the row itself. "
) * 4
LETTERS = sorted(set(TEXT))
LAYERS, WIDTH, HEADS, LENGTH, BATCH = 2, 32, 2, 32, 16


def parameters(kind: "type[Model]", dtype: Any, width: int = WIDTH) -> Parameters:
    """Draw the parameters: small weights, gamma = 1, beta = 0."""
    random = np.random.default_rng(0)

    def weight(*shape: int) -> Array:
        return np.asarray(random.standard_normal(shape) / np.sqrt(shape[0]), dtype)

    found = {"letters": weight(len(LETTERS), width), "places": weight(LENGTH, width)}
    for layer in range(LAYERS):
        for name, (height, breadth) in kind.WEIGHTS.items():
            found[f"{layer}.{name}"] = weight(height * width, breadth * width)
        for name in ("join", "narrow"):  # what is added to x
            found[f"{layer}.{name}"] /= LAYERS
    for norm in [f"{layer}.{part}" for layer in range(LAYERS) for part in "ab"] + ["last"]:
        for name, value in kind.NORM.items():
            found[f"{norm}.{name}"] = np.full(width, value, dtype)
    return found | {"guess": weight(width, len(LETTERS))}


class Model:
    """The forward pass; each step leaves behind how its gradient goes back."""

    WEIGHTS: ClassVar = {"attend": (1, 3), "join": (1, 1), "widen": (1, 4), "narrow": (4, 1)}
    """Of a layer: their shapes, in widths."""
    NORM: ClassVar = {"gamma": 1.0, "beta": 0.0}
    """Of a norm: what its parameters begin with."""

    def __init__(self, p: Parameters, threads: int | None = None) -> None:
        self.p, self.threads = p, threads
        self.gradients: Parameters = {}

    def norm(self, name: str, x: Array) -> tuple[Array, Backward]:
        """Normalize; this is the only step that is not written out here."""
        gamma, beta = self.p[f"{name}.gamma"], self.p[f"{name}.beta"]
        y, saved = tn.layer_norm_forward(x, gamma, beta, threads=self.threads)

        def backward(dy: Array) -> Array:
            gradient = tn.layer_norm_backward(dy, saved, threads=self.threads)
            self.gradients[f"{name}.gamma"] = np.asarray(gradient.dgamma)
            self.gradients[f"{name}.beta"] = np.asarray(gradient.dbeta)
            return gradient.dx

        return y, backward

    def linear(self, name: str, x: Array) -> tuple[Array, Backward]:
        """Multiply by a weight."""
        w = self.p[name]

        def backward(dy: Array) -> Array:
            rows = x.reshape(-1, x.shape[-1])
            self.gradients[name] = rows.T @ dy.reshape(-1, dy.shape[-1])
            return dy @ w.T

        return x @ w, backward

    def attention(self, layer: int, x: Array) -> tuple[Array, Backward]:
        """Let each place look at those before it."""
        batch, length, width = x.shape
        depth = width // HEADS
        qkv, back_to_x = self.linear(f"{layer}.attend", x)
        split = qkv.reshape(batch, length, 3, HEADS, depth).transpose(2, 0, 3, 1, 4)
        q, k, v = split
        scale = float(1 / np.sqrt(depth))
        scores = scale * (q @ k.swapaxes(-1, -2))
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        seen = (weights @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
        y, back_to_seen = self.linear(f"{layer}.join", seen)

        def backward(dy: Array) -> Array:
            heads = (batch, length, HEADS, depth)
            dseen = back_to_seen(dy).reshape(heads).transpose(0, 2, 1, 3)
            dweights = dseen @ v.swapaxes(-1, -2)
            dot = (dweights * weights).sum(axis=-1, keepdims=True)
            dscores = scale * weights * (dweights - dot)
            split = (dscores @ k, dscores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ dseen)
            dqkv = np.stack(split).transpose(1, 3, 0, 2, 4).reshape(qkv.shape)
            return back_to_x(dqkv)

        return y, backward

    def feed_forward(self, layer: int, x: Array) -> tuple[Array, Backward]:
        """Widen, bend by tanh, narrow."""
        wide, back_to_x = self.linear(f"{layer}.widen", x)
        bent = np.tanh(wide)
        y, back_to_bent = self.linear(f"{layer}.narrow", bent)
        return y, lambda dy: back_to_x(back_to_bent(dy) * (1 - bent * bent))

    def embed(self, given: NDArray[np.intp]) -> tuple[Array, Callable[[Array], None]]:
        """Look up letters and places."""
        x = self.p["letters"][given] + self.p["places"][: given.shape[1]]

        def backward(dx: Array) -> None:
            gradient = {name: np.zeros_like(self.p[name]) for name in ("letters", "places")}
            np.add.at(gradient["letters"], given, dx)
            gradient["places"][: given.shape[1]] = dx.sum(axis=0)
            self.gradients |= gradient

        return x, backward

    def guess(self, x: Array, wanted: NDArray[np.intp]) -> tuple[float, Callable[[], Array]]:
        """Return how badly each next letter is guessed."""
        scores, back_to_x = self.linear("guess", x)
        scores = scores - scores.max(axis=-1, keepdims=True)
        log_odds = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
        picked = np.take_along_axis(log_odds, wanted[..., None], axis=-1)

        def backward() -> Array:
            dscores = np.exp(log_odds)
            dscores[(*np.indices(wanted.shape), wanted)] -= 1
            return back_to_x(dscores / dscores.dtype.type(wanted.size))

        return float(-picked.mean()), backward

    def loss(self, text: NDArray[np.intp]) -> tuple[float, Callable[[], Parameters]]:
        """Return the loss of some sequences, and the way to the gradients."""
        x, back_to_letters = self.embed(text[:, :-1])
        way: list[Backward] = []
        for layer in range(LAYERS):
            for norm, step in (("a", self.attention), ("b", self.feed_forward)):
                normal, back_norm = self.norm(f"{layer}.{norm}", x)
                y, back_step = step(layer, normal)
                x = x + y
                way.append(_around(back_step, back_norm))
        x, back_norm = self.norm("last", x)
        loss, back_guess = self.guess(x, text[:, 1:])

        def backward() -> Parameters:
            dx = back_norm(back_guess())
            for back in reversed(way):
                dx = back(dx)
            back_to_letters(dx)
            return self.gradients

        return loss, backward


def _around(step: Backward, norm: Backward) -> Backward:
    """Return the way back through x + step(norm(x))."""
    return lambda dx: dx + norm(step(dx))


def batches(steps: int) -> Iterator[NDArray[np.intp]]:
    """Yield pieces of the text, the same ones on every run."""
    numbers = np.array([LETTERS.index(letter) for letter in TEXT])
    random = np.random.default_rng(1)
    for _ in range(steps):
        starts = random.integers(0, len(numbers) - LENGTH, BATCH)
        yield numbers[starts[:, None] + np.arange(LENGTH)]


class Adam:
    """The parameters, and what Adam remembers of their gradients."""

    def __init__(self, p: Parameters) -> None:
        self.p = p
        self.first, self.second = ({name: np.zeros_like(w) for name, w in p.items()} for _ in "12")

    def step(self, number: int, gradients: Parameters) -> None:
        """Go one step down."""
        for name, g in gradients.items():
            self.first[name] = first = 0.9 * self.first[name] + 0.1 * g
            self.second[name] = second = 0.99 * self.second[name] + 0.01 * g * g
            size = np.sqrt(second / (1 - 0.99**number)) + 1e-8
            self.p[name] = self.p[name] - 3e-3 * (first / (1 - 0.9**number)) / size


def train(kind: type[Model], steps: int, threads: int) -> tuple[list[float], Parameters]:
    """Train in float32; return the losses and the parameters."""
    adam = Adam(parameters(kind, np.float32))
    losses = []
    for step, text in enumerate(batches(steps), start=1):
        loss, backward = kind(adam.p, threads).loss(text)
        adam.step(step, backward())
        losses.append(loss)
    return losses, adam.p


def check(kind: type[Model]) -> tn.GradientCheck:
    """Hold gradients in float64, all as one vector, against differences of the loss."""
    start = parameters(kind, np.float64, width=8)
    ends = np.cumsum([each.size for each in start.values()])
    text = next(batches(1))[:2, :7]

    def model(vector: Array) -> Model:
        pieces = zip(start.items(), np.split(vector, ends[:-1]), strict=True)
        return kind({name: piece.reshape(like.shape) for (name, like), piece in pieces})

    def forward(vector: Array) -> Array:
        return np.array(model(vector).loss(text)[0])

    def backward(dy: Array, vector: Array) -> tuple[Array]:
        gradients = model(vector).loss(text)[1]()
        return (np.concatenate([dy * gradients[name].ravel() for name in start]),)

    vector = np.concatenate([each.ravel() for each in start.values()])
    return tn.dot_test(forward, backward, [vector], method="central")


def main(kind: type[Model], description: str) -> int:
    """Check, train twice, compare."""
    described = argparse.ArgumentParser(description=description.split("\n")[0])
    described.add_argument("--steps", type=int, default=150, help="of training, each time")
    steps = described.parse_args().steps
    checked = check(kind)
    print(f"gradient check: {checked.verdict}, relative error {checked.error:.1e}")
    found = {}
    for threads in (1, 2):
        start = time.perf_counter()
        losses, found[threads] = train(kind, steps, threads)
        taken = time.perf_counter() - start
        print(f"threads {threads}: loss {losses[0]:.3f} -> {losses[-1]:.3f} in {taken:.1f} s")
    same = all(found[1][name].tobytes() == found[2][name].tobytes() for name in found[1])
    print(f"the same bits: {'yes' if same else 'no'}")
    return 0 if checked and same and losses[-1] < 0.7 * losses[0] else 1


if __name__ == "__main__":
    raise SystemExit(main(Model, __doc__ or ""))
