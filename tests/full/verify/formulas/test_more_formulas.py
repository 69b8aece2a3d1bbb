"""Ten operations that do not ship: honest kernels pass, and a wrong one of each has its cause."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
import truenorm.verify.formulas as f
from shared.verify.causes import assert_true
from shared.verify.formulas import report_of
from truenorm.verify.formulas.operation import FormulaOperation
from truenorm.verify.oracle import expected

PLACES = ("normal-4x17", "normal-4x67", "large-values-4x67", "zeros-4x67", "special-0-6x67")


def along(x: Any) -> Any:
    return x.sum(-1, keepdims=True)


def sink_attention(x: Any, sink: Any) -> Any:
    of_row = f.largest(x)
    top = f.where(sink > of_row, sink, of_row)
    e = f.exp(x - top)
    return e / (f.total(e) + f.exp(sink - top))


def attend(x: Any, sink: Any) -> Any:
    top = np.maximum(x.max(-1, keepdims=True), sink[:, None])
    e = np.exp(x - top)
    return e / (along(e) + np.exp(sink[:, None] - top))


def log_cosh(x: Any, target: Any) -> Any:
    d = abs(x - target)
    return f.mean(d + f.log(1.0 + f.exp(-2.0 * d)) - f.log(2.0))


def log_cosh_loss(x: Any, target: Any) -> Any:
    d = np.abs(x - target)
    return (d + np.log1p(np.exp(-2 * d)) - x.dtype.type(math.log(2))).mean(-1)


def huber(x: Any, target: Any) -> Any:
    d = abs(x - target)
    return f.where(d <= 1.0, 0.5 * d * d, d - 0.5)


def huber_loss(x: Any, target: Any) -> Any:
    d = np.abs(x - target)
    return np.where(d <= 1, 0.5 * d * d, d - 0.5).astype(x.dtype)


def squared_relu(x: Any) -> Any:
    return f.where(x > 0.0, x**2, 0.0)


def softcap(x: Any) -> Any:
    return 30.0 * f.tanh(x / 30.0)


def layer_scale(x: Any, branch: Any, gamma: Any) -> Any:
    return x + gamma * branch


def part_norm(x: Any, gamma: Any, eps: Any) -> Any:
    w = f.mean(f.first(x, 0.25) ** 2)
    return x * f.inverse_root(w + eps) * gamma


def normalize_by_part(x: Any, gamma: Any, eps: float) -> Any:
    part = x[..., : max(1, x.shape[-1] // 4)]
    return x / np.sqrt((part * part).mean(-1, keepdims=True) + x.dtype.type(eps)) * gamma


def logsumexp(x: Any) -> Any:
    top = f.largest(x)
    return top + f.log(f.total(f.exp(x - top)))


def log_of_sum(x: Any) -> Any:
    top = x.max(-1, keepdims=True)
    return (top + np.log(along(np.exp(x - top))))[:, 0]


def polynomial(x: Any) -> Any:
    return 0.5 * x + 0.25 * x**2 - 0.125 * x**3


def weight_norm(v: Any, g: Any) -> Any:
    r = f.inverse_root(f.total(v * v))
    return g * v * r


def weight_norm_of(v: Any, g: Any) -> Any:
    return g[:, None] * v / np.sqrt(along(v * v))


FORMULAS: dict[str, tuple[Callable[[], FormulaOperation], Callable[..., Any]]] = {
    "attention with a sink": (lambda: tv.formula(sink_attention, columns=["sink"]), attend),
    "log-cosh": (lambda: tv.formula(log_cosh, constants=["target"]), log_cosh_loss),
    "Huber": (lambda: tv.formula(huber, constants=["target"]), huber_loss),
    "squared ReLU": (lambda: tv.formula(squared_relu), lambda x: np.maximum(x, 0) ** 2),
    "softcap": (lambda: tv.formula(softcap), lambda x: 30 * np.tanh(x / 30)),
    "LayerScale": (lambda: tv.formula(layer_scale), lambda x, branch, gamma: x + gamma * branch),
    "RMSNorm of a part": (lambda: tv.formula(part_norm), normalize_by_part),
    "logsumexp": (lambda: tv.formula(logsumexp), log_of_sum),
    "a polynomial": (lambda: tv.formula(polynomial), lambda x: x * (0.5 + x * (0.25 - 0.125 * x))),
    "weight norm": (lambda: tv.formula(weight_norm, columns=["g"]), weight_norm_of),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_honest_kernels_pass(name: str) -> None:
    operation, kernel = FORMULAS[name]
    subject = tv.Subject(kernel, operation=operation(), name=name)
    for place in PLACES:
        tv.check(subject, tv.case(f"float32-{place}", operation=subject.operation))


def scaled_weight_norm(v: Any, g: Any) -> Any:
    top = np.abs(v).max(-1, keepdims=True)
    return weight_norm_of(v / np.where(top == 0, 1, top), g)


def test_squares_of_subnormal_rows_underflow() -> None:
    """Without an eps, a kernel that squares such rows divides by 0; the exact answer is 0.036."""
    operation = FORMULAS["weight norm"][0]()
    case = tv.case("float32-subnormal-4x67", operation=operation)
    with pytest.raises(AssertionError, match="is inf, the exact answer"):
        tv.check(tv.Subject(weight_norm_of, operation=operation), case)
    tv.check(tv.Subject(scaled_weight_norm, operation=operation), case)
    wide = weight_norm_of(case.v.astype(np.longdouble), case.g[:, 0].astype(np.longdouble))
    assert wide.astype(np.float32).tolist() == expected(case).wide["y"].tolist()


WRONG: dict[str, tuple[Callable[..., Any], str]] = {
    "attention with a sink": (lambda x, _: attend(x, np.full(len(x), -np.inf, x.dtype)),
        "no-term(exp(sink - top))"),
    "log-cosh": (lambda x, target: log_cosh_loss(x, target) + x.dtype.type(math.log(2)),
        "no-term(log(2))"),
    "Huber": (lambda x,
        target: huber_loss(x, target) + (np.abs(x - target) > 1) * x.dtype.type(0.5),
        "no-term(0.5, d - 0.5)"),
    "squared ReLU": (lambda x: x * x, "always-true(x > 0)"),
    "softcap": (lambda x: 30 * np.tanh(x), "no-factor(30, x/30)"),
    "LayerScale": (lambda x, branch, gamma: gamma * x + branch, "exchanged(x, branch)"),
    "RMSNorm of a part": (lambda x, gamma,
        eps: (x / np.sqrt(along(x * x) / x.shape[-1] + eps).astype(x.dtype) * gamma),
        "all-columns(x)"),
    "logsumexp": (lambda x: np.log(np.exp(x).sum(-1)), "exp-unshifted(top)"),
    "a polynomial": (lambda x: (x * (0.5 + x * (0.25 - 0.125))).astype(x.dtype),
        "exponent(x**3, 2)"),
    "weight norm": (lambda v, _: weight_norm_of(v, np.ones(len(v), v.dtype)), "no-factor(g, g*v)"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_wrong_kernels_have_their_cause(name: str) -> None:
    kernel, cause = WRONG[name]
    report = report_of(tv.Subject(kernel, operation=FORMULAS[name][0](), name=name))
    assert_true(report, [cause], "y")
