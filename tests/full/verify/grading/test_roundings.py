"""Roundings on the way that no recipe has, and those of backward, are named by the bits."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import truenorm.verify as tv
from shared.verify.honest import HONEST, ordinary_report, over_rows, pairwise, quiet, wide
from truenorm.verify.report.html import to_html
from truenorm.verify.types import Array

LAYER_NORM, RMS_NORM = tv.norm("layer_norm"), tv.norm("rms_norm")
DTYPES = [
    "bfloat16",
    pytest.param("float16",
        marks=pytest.mark.slow(reason="a verdict of a second type takes as long as the first")),
]  # fmt: skip
FLOAT32_GAMMA = tv.norm("rms_norm", parameters="float32")


class Rounding(NamedTuple):
    """A norm in float32 in which one step, or two, are rounded to the type of x."""

    steps: tuple[str, ...]
    backward_only: bool = False

    def step(self, name: str, values: Array, like: Array) -> Array:
        return wide(values.astype(like.dtype)) if name in self.steps else values

    def statistics(self, x: Array, eps: float, *, centred: bool) -> tuple[Array, Array]:
        rows, size = wide(x), self.step("D", np.full(1, x.shape[-1], np.float32), x)
        mean = np.zeros((len(rows), 1), np.float32)
        if centred:
            mean = self.step("mean", pairwise(self.step("x/D", rows / size, x)), x)
        c = rows - mean
        w = self.step("w", pairwise(self.step("squares", c * c, x)) / size, x)
        return mean, self.step("r", 1 / np.sqrt(w + np.float32(eps)), x)

    def forward(self, x: Array, gamma: Array, *others: Any) -> tuple[Array, Any]:
        *beta, eps = others
        mean, r = self.statistics(x, eps, centred=bool(beta))
        exact = Rounding(()).statistics(x, eps, centred=bool(beta))
        saved = (wide(x) - mean) * r, r, gamma, beta
        if self.backward_only:
            mean, r = exact
        gain = self.step("gamma", wide(gamma), x)
        if "x*gain" in self.steps:
            y = self.step("x*gain", wide(x) * gain, x) * r
        else:
            y = self.step("xhat", (wide(x) - mean) * r, x) * gain
        return (y + wide(beta[0]) if beta else y).astype(x.dtype), saved

    def backward(self, dy: Array, saved: Any) -> tuple[Array, ...]:
        xhat, r, gamma, beta = saved
        g, size = wide(dy) * wide(gamma), np.float32(dy.shape[-1])
        dx = g - xhat * (pairwise(g * xhat) / size)
        if beta:
            dx = dx - pairwise(g) / size
        dgamma = over_rows(wide(dy) * xhat).astype(gamma.dtype)
        dbeta = [over_rows(wide(dy)).astype(each.dtype) for each in beta]
        return (r * dx).astype(dy.dtype), dgamma, *dbeta


def report_of(kernel: Rounding, operation: tv.Norm, dtype: str) -> tv.Report:
    forward, backward = quiet(kernel.forward), quiet(kernel.backward)
    subject = tv.Subject(forward, backward, dtypes=[dtype], operation=operation)
    if not kernel.backward_only:
        subject = of_y(lambda *inputs: forward(*inputs)[0], operation, dtype)
    return ordinary_report(subject, widest=1100)  # exact answers of wider rows take seconds


def of_y(forward: Callable[..., Any], operation: tv.Norm, dtype: str) -> tv.Subject:
    return tv.Subject(forward, dtypes=[dtype], operation=operation)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("operation", "steps", "words"), [
    (RMS_NORM, ["r"], "rstd is rounded to {T}, and the rest follows late"),
    (RMS_NORM, ["r", "xhat"], "rstd is rounded to {T}, and the rest follows early"),
    (RMS_NORM, ["w"], "the mean square is rounded to {T}, and the rest follows late"),
    (RMS_NORM, ["x*gain"], "x*gain is rounded to {T}, and the rest follows late"),
    (FLOAT32_GAMMA, ["gamma"], "gamma is rounded to {T}, and the rest follows late"),
    (FLOAT32_GAMMA, ["gamma", "xhat"], "gamma is rounded to {T}, and the rest follows early"),
    (LAYER_NORM, ["r"], "rstd is rounded to {T}, and the rest follows late"),
    (LAYER_NORM, ["mean", "r"], "the mean and rstd are rounded to {T}, and the rest"),
    (LAYER_NORM, ["x/D"], "x/D is rounded to {T}, and the rest"),
])  # fmt: skip
def test_rounding_is_named(operation: tv.Norm, steps: list[str], words: str, dtype: str) -> None:
    """It is no finding."""
    report = report_of(Rounding(tuple(steps)), operation, dtype)
    (recipe,) = report.recipes
    assert recipe.name == ""
    assert recipe.explanation.startswith(words.format(T=dtype))
    assert recipe.explanation.endswith("(matches the bits of y)")
    assert report.findings == ()


@pytest.mark.parametrize("operation", [RMS_NORM, LAYER_NORM], ids=["rms_norm", "layer_norm"])
def test_a_size_of_16_bits_is_named(operation: tv.Norm) -> None:
    """257 becomes 256 in bfloat16, which no error shows: y is off by half an ulp at most."""
    report = report_of(Rounding(("D",)), operation, "bfloat16")
    (recipe,) = report.recipes
    assert (recipe.name, report.findings) == ("", ())
    assert recipe.explanation == "D is rounded to bfloat16 (matches the bits of y)"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("operation", "steps", "name"), [
    (RMS_NORM, ["r"], "rstd"),
    (LAYER_NORM, ["r"], "rstd"),
    (LAYER_NORM, ["mean"], "the mean"),
    (LAYER_NORM, ["mean", "r"], "the mean and rstd"),
])  # fmt: skip
def test_saved_statistics_of_backward(
    operation: tv.Norm, steps: list[str], name: str, dtype: str
) -> None:
    report = report_of(Rounding(tuple(steps), backward_only=True), operation, dtype)
    assert [each.name for each in report.recipes] == ["late"]
    assert {each.output: each.explanation for each in report.backward_recipes} == {
        output: f"backward computes {output} from {name} rounded to {dtype}"
        for output in ("dx", "dgamma")
    }


def test_what_was_tried_is_counted() -> None:
    """Every hundredth element is one ulp larger, which nothing explains."""

    def forward(x: Array, gamma: Array, eps: float) -> Array:
        y = Rounding(()).forward(x, gamma, eps)[0]
        y.reshape(-1)[::100] = np.nextafter(y.reshape(-1)[::100], np.asarray(np.inf, y.dtype))
        return y

    report = ordinary_report(of_y(quiet(forward), RMS_NORM, "bfloat16"))
    (recipe,) = report.recipes
    assert (recipe.name, recipe.explanation) == ("", "")
    assert recipe.tried > 50
    text = f"note: none of {recipe.tried} roundings and hypotheses has the bits of y"
    assert text in to_html(report)


@pytest.mark.parametrize(("wrong", "name"), [(3, "late"), (30, "")])
def test_share_of_a_recipe(wrong: int, name: str) -> None:
    """Of some 65,000 elements, three may be wrong, and thirty may not."""
    left = wrong

    def forward(x: Array, gamma: Array, eps: float) -> Array:
        nonlocal left
        y = Rounding(()).forward(x, gamma, eps)[0]
        some = min(left, y.size)
        y.reshape(-1)[:some] *= 2
        left -= some
        return y

    report = ordinary_report(of_y(quiet(forward), RMS_NORM, "bfloat16"))
    assert [each.name for each in report.recipes] == [name]


def test_undecided_elements_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a noise of none, a kernel in float32 loses its recipe."""
    subject = HONEST["Welford one by one"].subject("float16")
    assert [each.name for each in ordinary_report(subject).recipes] == ["late"]
    monkeypatch.setattr("truenorm.verify.norms.recipes.float32_noise", lambda _: 0.0)
    assert [each.name for each in ordinary_report(subject).recipes] == [""]
