"""Hand-written pairs of forward and backward with typical mistakes, and demands on verdicts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm as tn
from truenorm.gradient_check import GradientCheck, Verdict

Array = NDArray[Any]
Gradients = Sequence[Array]
PASS, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE
EPS = 1e-5
ELEMENT = "one element"
GROSS = ("sign", "factor", "reversed", "term missing")


def demand(
    verdict: Verdict, forward: Any, backward: Any, inputs: Any, **options: Any
) -> GradientCheck:
    """Check a pair, and return the result if it has the right verdict."""
    result = tn.gradcheck(forward, backward, inputs, **options)
    assert result.verdict is verdict, str(result)
    return result


def forbid(verdict: Verdict, forward: Any, backward: Any, inputs: Any, **options: Any) -> None:
    """Check a pair for which one verdict would be false; INCONCLUSIVE is allowed."""
    result = tn.gradcheck(forward, backward, inputs, **options)
    assert result.verdict is not verdict, str(result)


@dataclass(frozen=True)
class Pair:
    """A forward, its backward, and the shapes of their inputs.

    `missing` is a backward without one of its terms, and `at_fault` the input whose gradient is
    then wrong. `analytic` is True if a complex step applies.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Gradients]
    missing: Callable[..., Gradients]
    shapes: Sequence[tuple[int, ...]]
    at_fault: int = 0
    analytic: bool = True
    inputs: list[Array] = field(init=False)

    def __post_init__(self) -> None:
        """Draw the inputs."""
        object.__setattr__(self, "inputs", data(*self.shapes))


def data(*shapes: tuple[int, ...], seed: int = 1) -> list[Array]:
    """Draw read-only arrays of the shapes from N(0, 1)."""
    random = np.random.default_rng(seed)
    arrays = [np.asarray(random.standard_normal(shape)) for shape in shapes]
    for array in arrays:
        array.setflags(write=False)
    return arrays


def with_mistake(pair: Pair, name: str, which: int) -> Callable[..., Gradients]:
    """Return the backward of a pair with a mistake in one gradient."""
    if name == "term missing":
        return pair.missing

    def backward(*arguments: Array) -> Gradients:
        gradients = [np.array(gradient) for gradient in pair.backward(*arguments)]
        wrong = gradients[which]
        if name == ELEMENT:
            wrong[last(wrong)] *= 1 + 1e-10
        else:
            changed = {"sign": -wrong, "factor": 2 * wrong, "reversed": wrong.T[::-1].T}
            gradients[which] = changed[name]
        return gradients

    return backward


def last(array: Array) -> tuple[int, ...]:
    return tuple(length - 1 for length in array.shape)


def tanh_backward(dy: Array, x: Array) -> Array:
    return np.asarray(dy * (1 - np.tanh(x) ** 2))


def softmax(x: Array) -> Any:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def softmax_backward(dy: Array, x: Array) -> Gradients:
    y = softmax(x)
    return (y * (dy - (dy * y).sum(axis=-1, keepdims=True)),)


def log_sum_exp(x: Array) -> Any:
    top = x.max(axis=-1, keepdims=True)
    return np.log(np.exp(x - top).sum(axis=-1, keepdims=True)) + top


def log_sum_exp_backward(dy: Array, x: Array) -> Gradients:
    return (dy * softmax(x),)


GELU = (2 / np.pi) ** 0.5


def gelu(x: Array) -> Any:
    return 0.5 * x * (1 + np.tanh(GELU * (x + 0.044715 * x**3)))


def gelu_backward(dy: Array, x: Array, inner: float = 0.044715) -> Gradients:
    t = np.tanh(GELU * (x + 0.044715 * x**3))
    slope = GELU * (1 + 3 * inner * x**2)
    return (dy * 0.5 * (1 + t + x * (1 - t**2) * slope),)


def rms_norm(x: Array, gamma: Array) -> Any:
    return gamma * x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPS)


def rms_norm_backward(dy: Array, x: Array, gamma: Array, term: float = 1.0) -> Gradients:
    rstd = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPS)
    xhat, g = rstd * x, dy * gamma
    dx = rstd * (g - term * xhat * (g * xhat).mean(axis=-1, keepdims=True))
    return dx, (dy * xhat).sum(axis=0)


def linear(x: Array, weight: Array, bias: Array) -> Array:
    return x @ weight + bias


def linear_backward(dy: Array, x: Array, weight: Array, bias: Array) -> Gradients:
    assert bias.shape == dy.shape[1:]
    return dy @ weight.T, x.T @ dy, dy.sum(axis=0)


def convolution(x: Array, kernel: Array) -> Any:
    length = x.shape[-1] - kernel.size + 1
    total = kernel[0] * x[..., :length]
    for k in range(1, kernel.size):
        total = total + kernel[k] * x[..., k : k + length]
    return total


def convolution_backward(dy: Array, x: Array, kernel: Array) -> Gradients:
    length = dy.shape[-1]
    dx, dkernel = np.zeros_like(x), np.zeros_like(kernel)
    for k in range(kernel.size):
        dx[..., k : k + length] += kernel[k] * dy
        dkernel[k] = (dy * x[..., k : k + length]).sum()
    return dx, dkernel


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    """Compute the textbook formula, with which the package's backward is compared."""
    y, _ = tn.textbook.forward(x, gamma, beta)
    return y


def layer_norm_backward(dy: Array, x: Array, gamma: Array, beta: Array) -> Gradients:
    _, saved = tn.layer_norm_forward(x, gamma, beta)
    dx, dgamma, dbeta = tn.layer_norm_backward(dy, saved)
    assert dgamma is not None
    assert dbeta is not None
    return dx, dgamma, dbeta


def without_the_mean(dy: Array, x: Array, gamma: Array, beta: Array) -> Gradients:
    dx, *others = layer_norm_backward(dy, x, gamma, beta)
    rstd = 1 / np.sqrt(x.var(axis=-1, keepdims=True) + EPS)
    return dx + rstd * (dy * gamma).mean(axis=-1, keepdims=True), *others


def weighted_l1(x: Array, weight: Array) -> Array:
    return weight * np.abs(x)


def weighted_l1_backward(dy: Array, x: Array, weight: Array) -> Gradients:
    return dy * weight * np.sign(x), dy * np.abs(x)


def forgetful(backward: Callable[..., Gradients], which: int, factor: float) -> Any:
    """Return a backward that leaves out a share of one gradient's last column."""

    def wrong(*arguments: Array) -> Gradients:
        gradients = [np.array(gradient) for gradient in backward(*arguments)]
        gradients[which][..., -1] *= factor
        return gradients

    return wrong


PAIRS = {
    "softmax": Pair(softmax, softmax_backward, lambda dy, x: (dy * softmax(x),), [(2, 4)]),
    "GELU": Pair(gelu, gelu_backward, lambda dy, x: gelu_backward(dy, x, 0.0), [(2, 3)]),
    "RMSNorm": Pair(
        rms_norm,
        rms_norm_backward,
        lambda dy, x, gamma: rms_norm_backward(dy, x, gamma, 0.0),
        [(2, 4), (4,)],
    ),
    "linear": Pair(
        linear,
        linear_backward,
        lambda dy, x, weight, bias: (*linear_backward(dy, x, weight, bias)[:2], dy[0]),
        [(2, 3), (3, 3), (3,)],
        at_fault=2,
    ),
    "log-sum-exp": Pair(
        log_sum_exp, log_sum_exp_backward, lambda dy, x: (dy * np.exp(x),), [(2, 4)]
    ),
    "convolution": Pair(
        convolution,
        convolution_backward,
        forgetful(convolution_backward, 0, 0.0),
        [(2, 5), (3,)],
    ),
    "layer norm": Pair(
        layer_norm, layer_norm_backward, without_the_mean, [(2, 5), (5,), (5,)]
    ),
    "weighted L1": Pair(
        weighted_l1,
        weighted_l1_backward,
        lambda dy, x, weight: (dy * weight, dy * np.abs(x)),
        [(4,), (4,)],
        analytic=False,
    ),
}  # fmt: skip
