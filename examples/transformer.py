"""A character transformer of two layers, trained in NumPy with layer norms of truenorm.

``python examples/transformer.py`` checks the gradients, trains with one thread and with two, and
compares the bits. Every backward pass is written by hand.
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

    drawn = {"letters": weight(len(LETTERS), width), "places": weight(LENGTH, width)}
    for layer in range(LAYERS):
        for name, (height, breadth) in kind.WEIGHTS.items():
            drawn[f"{layer}.{name}"] = weight(height * width, breadth * width)
        for name in ("join", "narrow"):  # the residual branches
            drawn[f"{layer}.{name}"] /= LAYERS
    for norm in [f"{layer}.{part}" for layer in range(LAYERS) for part in "ab"] + ["last"]:
        for name, value in kind.NORM.items():
            drawn[f"{norm}.{name}"] = np.full(width, value, dtype)
    return drawn | {"guess": weight(width, len(LETTERS))}


class Model:
    """The forward pass; each step returns its backward pass, too."""

    WEIGHTS: ClassVar = {"attend": (1, 3), "join": (1, 1), "widen": (1, 4), "narrow": (4, 1)}
    """Shapes of the weights of a layer, in multiples of the width."""
    NORM: ClassVar = {"gamma": 1.0, "beta": 0.0}
    """Initial values of the parameters of a norm."""

    def __init__(self, p: Parameters, threads: int | None = None) -> None:
        self.p, self.threads = p, threads
        self.gradients: Parameters = {}

    def norm(self, name: str, x: Array) -> tuple[Array, Backward]:
        """Normalize with truenorm."""
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
        """Apply causal self-attention."""
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
        attended = (weights @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
        y, back_to_attended = self.linear(f"{layer}.join", attended)

        def backward(dy: Array) -> Array:
            heads = (batch, length, HEADS, depth)
            dattended = back_to_attended(dy).reshape(heads).transpose(0, 2, 1, 3)
            dweights = dattended @ v.swapaxes(-1, -2)
            dot = (dweights * weights).sum(axis=-1, keepdims=True)
            dscores = scale * weights * (dweights - dot)
            split = (
                dscores @ k,
                dscores.swapaxes(-1, -2) @ q,
                weights.swapaxes(-1, -2) @ dattended,
            )
            dqkv = np.stack(split).transpose(1, 3, 0, 2, 4).reshape(qkv.shape)
            return back_to_x(dqkv)

        return y, backward

    def feed_forward(self, layer: int, x: Array) -> tuple[Array, Backward]:
        """Apply an MLP with tanh."""
        wide, back_to_x = self.linear(f"{layer}.widen", x)
        hidden = np.tanh(wide)
        y, back_to_hidden = self.linear(f"{layer}.narrow", hidden)
        return y, lambda dy: back_to_x(back_to_hidden(dy) * (1 - hidden * hidden))

    def embed(self, text: NDArray[np.intp]) -> tuple[Array, Callable[[Array], None]]:
        """Return the embeddings of letters and positions."""
        x = self.p["letters"][text] + self.p["places"][: text.shape[1]]

        def backward(dx: Array) -> None:
            gradient = {name: np.zeros_like(self.p[name]) for name in ("letters", "places")}
            np.add.at(gradient["letters"], text, dx)
            gradient["places"][: text.shape[1]] = dx.sum(axis=0)
            self.gradients |= gradient

        return x, backward

    def guess(self, x: Array, target: NDArray[np.intp]) -> tuple[float, Callable[[], Array]]:
        """Return the cross entropy of the next letters."""
        scores, back_to_x = self.linear("guess", x)
        scores = scores - scores.max(axis=-1, keepdims=True)
        log_odds = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
        picked = np.take_along_axis(log_odds, target[..., None], axis=-1)

        def backward() -> Array:
            dscores = np.exp(log_odds)
            dscores[(*np.indices(target.shape), target)] -= 1
            return back_to_x(dscores / dscores.dtype.type(target.size))

        return float(-picked.mean()), backward

    def loss(self, text: NDArray[np.intp]) -> tuple[float, Callable[[], Parameters]]:
        """Return the loss of some sequences, and the backward pass."""
        x, back_to_letters = self.embed(text[:, :-1])
        steps: list[Backward] = []
        for layer in range(LAYERS):
            for norm, step in (("a", self.attention), ("b", self.feed_forward)):
                normal, back_norm = self.norm(f"{layer}.{norm}", x)
                y, back_step = step(layer, normal)
                x = x + y
                steps.append(_residual(back_step, back_norm))
        x, back_norm = self.norm("last", x)
        loss, back_guess = self.guess(x, text[:, 1:])

        def backward() -> Parameters:
            dx = back_norm(back_guess())
            for back in reversed(steps):
                dx = back(dx)
            back_to_letters(dx)
            return self.gradients

        return loss, backward


def _residual(step: Backward, norm: Backward) -> Backward:
    """Return the backward pass of x + step(norm(x))."""
    return lambda dx: dx + norm(step(dx))


def batches(steps: int) -> Iterator[NDArray[np.intp]]:
    """Yield parts of the text, the same on every run."""
    numbers = np.array([LETTERS.index(letter) for letter in TEXT])
    random = np.random.default_rng(1)
    for _ in range(steps):
        starts = random.integers(0, len(numbers) - LENGTH, BATCH)
        yield numbers[starts[:, None] + np.arange(LENGTH)]


class Adam:
    """The parameters and their moments."""

    def __init__(self, p: Parameters) -> None:
        self.p = p
        self.first, self.second = ({name: np.zeros_like(w) for name, w in p.items()} for _ in "12")

    def step(self, number: int, gradients: Parameters) -> None:
        """Update the parameters."""
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
    """Compare the float64 gradients, as one vector, with differences of the loss."""
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
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--steps", type=int, default=150, help="of training, each time")
    steps = parser.parse_args().steps
    checked = check(kind)
    print(f"gradient check: {checked.verdict}, relative error {checked.error:.1e}")
    weights = {}
    for threads in (1, 2):
        start = time.perf_counter()
        losses, weights[threads] = train(kind, steps, threads)
        taken = time.perf_counter() - start
        print(f"threads {threads}: loss {losses[0]:.3f} -> {losses[-1]:.3f} in {taken:.1f} s")
    same = all(weights[1][name].tobytes() == weights[2][name].tobytes() for name in weights[1])
    print(f"the same bits: {'yes' if same else 'no'}")
    return 0 if checked and same and losses[-1] < 0.7 * losses[0] else 1


if __name__ == "__main__":
    raise SystemExit(main(Model, __doc__ or ""))
