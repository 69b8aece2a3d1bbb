"""The way of a sum is found from the results of norms that take their sums as packages do.

Kernels add in loops, with vectors of lanes. Their errors are measured in float64: least squares
give the error of the factor 1/sqrt(...) and the shift by the mean to about u/sqrt(D).
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest

from truenorm.verify.sums import LEAST_DRIFT, Drift, Fit, Way, fit, ways
from truenorm.verify.types import Array, Float64s, dtype_of

MAGNITUDES = (0.3, 0.45, 0.7, 0.9, 1.1, 1.3)
WIDTHS = (1024, 16384, 65000)
EPS = 2.0**-20
UNIT = 2.0**-24
WAYS = [*ways("float32")]


class Rows(NamedTuple):
    """Rows of one magnitude each about an offset, with random signs; g has two values in a row."""

    x: Array
    gamma: Array
    g: Array

    @classmethod
    def of(cls, size: int, offset: float) -> "Rows":
        random = np.random.default_rng(size)
        signs = np.where(random.permutation(size) % 2, 1.0, -1.0)
        column = np.array(MAGNITUDES)[:, np.newaxis]
        gamma = random.uniform(0.5, 2.0, size)
        arrays = (column * (offset + signs), gamma, column * (0.7 + 0.9 * signs))
        return cls(*(each.astype(np.float32) for each in arrays))


def in_lanes(lanes: int, terms: Array) -> Array:
    """Sum the last axis as a loop over vectors does."""
    total = np.zeros((*terms.shape[:-1], lanes), terms.dtype)
    whole = terms.shape[-1] - terms.shape[-1] % lanes
    for start in range(0, whole, lanes):
        total = total + terms[..., start : start + lanes]
    total[..., : terms.shape[-1] - whole] += terms[..., whole:]
    while total.shape[-1] > 1:
        half = total.shape[-1] // 2
        total = total[..., :half] + total[..., half:]
    return total


def in_float64(lanes: int, terms: Array) -> Array:  # noqa: ARG001 (the number of lanes)
    return np.asarray(terms.sum(axis=-1, keepdims=True, dtype=np.float64).astype(terms.dtype))


def wide(array: Array) -> Float64s:
    return array.astype(np.float64)


def statistics(rows: Rows) -> tuple[Float64s, Float64s, Float64s]:
    """Return mean, deviations and 1/sqrt(...) of each row."""
    x = wide(rows.x)
    mean = x.mean(axis=1, keepdims=True)
    return mean, x - mean, 1 / np.sqrt((x - mean).var(axis=1, keepdims=True) + EPS)


def fitted(error: Float64s, *terms: Float64s) -> Float64s:
    """Return the multiples of terms in each row of errors."""
    basis = [np.stack([np.broadcast_to(t, error.shape)[k] for t in terms], 1) for k in range(6)]
    return np.array(
        [np.linalg.lstsq(b, e, rcond=None)[0] for b, e in zip(basis, error, strict=True)]
    )


Sum = Callable[[Array], Array]


def squares(size: int, total: Sum) -> Drift:
    """Return the errors of 1/sqrt(...) in the y of an RMSNorm."""
    rows = Rows.of(size, 0.0)
    x, f = rows.x, np.float32
    y = x * (f(1) / np.sqrt(total(x * x) / f(size) + f(EPS))) * rows.gamma
    r = 1 / np.sqrt((wide(x) ** 2).mean(axis=1, keepdims=True) + EPS)

    def predicted(way: Way) -> Float64s:
        w = way.sum(x * x)[:, np.newaxis] / size
        return np.asarray((1 / np.sqrt(w + EPS) / r - 1) / UNIT)

    return Drift(fitted(wide(y) / rows.gamma - wide(x) * r, wide(x) * r) / UNIT, predicted)


def mean(size: int, total: Sum) -> Drift:
    """Return the shift of the y of a layer norm whose squares are summed in the same way."""
    rows = Rows.of(size, 3.0)
    x, f = rows.x, np.float32
    c = x - total(x) / f(size)
    y = c * (f(1) / np.sqrt(total(c * c) / f(size) + f(EPS))) * rows.gamma
    right, d, r = statistics(rows)
    scale, shift = fitted(wide(y) / rows.gamma - d * r, d * r, np.ones(1)).T[..., np.newaxis]

    def predicted(way: Way) -> Float64s:
        return np.asarray((way.sum(x)[:, np.newaxis] / size - right) / right / UNIT)

    return Drift(-shift / (1 + scale) / r / right / UNIT, predicted)


def one_pass(size: int, total: Sum) -> Drift:
    """Return the errors of 1/sqrt(...) in the y of a layer norm that sums x and x^2 at once."""
    rows = Rows.of(size, 1.0)
    x, f = rows.x, np.float32
    m = total(x) / f(size)
    y = (x - m) * (f(1) / np.sqrt(total(x * x) / f(size) - m * m + f(EPS))) * rows.gamma
    _, d, r = statistics(rows)
    scale = fitted(wide(y) / rows.gamma - d * r, d * r, np.ones(1))[:, :1]

    def predicted(way: Way) -> Float64s:
        m, w = (way.sum(each)[:, np.newaxis] / size for each in (x, x * x))
        return (1 / np.sqrt(w - m * m + EPS) / r - 1) / UNIT

    return Drift(scale / UNIT, predicted)


def backward(size: int, total: Sum) -> tuple[Drift, Drift]:
    """Return the errors of mean(g) and mean(g*x) in the dx of a layer norm."""
    rows, f = Rows.of(size, 0.0), np.float32
    x, g = rows.x, rows.g
    right_mean, d, r = statistics(rows)
    xhat, rstd = ((x - right_mean) * r).astype(f), r.astype(f)
    of_g, of_gx = total(g) / f(size), total(g * x) * rstd / f(size)
    dx = rstd * (g - of_g - xhat * of_gx)
    exact = [wide(g).mean(axis=1, keepdims=True), (wide(g) * d).mean(axis=1, keepdims=True) * r]
    error = wide(dx) / r - (wide(g) - exact[0] - d * r * exact[1])
    first, second = -fitted(error, np.ones(1), d * r).T[..., np.newaxis]
    most = np.abs(wide(g)).max(axis=1, keepdims=True)

    def of_mean(way: Way) -> Float64s:
        return np.asarray((way.sum(g)[:, np.newaxis] / size - exact[0]) / most / UNIT)

    def of_product(way: Way) -> Float64s:
        return np.asarray((way.sum(g * x)[:, np.newaxis] * r / size - exact[1]) / most / UNIT)

    return Drift(first / most / UNIT, of_mean), Drift(second / most / UNIT, of_product)


def columns(size: int, total: Sum) -> Drift:
    """Return the errors of the dbeta of `size` rows."""
    terms = np.broadcast_to(np.array(MAGNITUDES, np.float32)[:, np.newaxis], (6, size))
    right = wide(terms).sum(axis=1)

    def predicted(way: Way) -> Float64s:
        return np.asarray((way.sum(terms) / right - 1) / UNIT)

    return Drift((wide(total(terms))[:, 0] / right - 1) / UNIT, predicted)


SUMS: dict[str, Callable[[int, Sum], Drift]] = {
    "squares": squares,
    "mean": mean,
    "one pass": one_pass,
    "mean(g)": lambda size, total: backward(size, total)[0],
    "mean(g*x)": lambda size, total: backward(size, total)[1],
    "dbeta": columns,
}


def packages() -> Iterator[tuple[str, int, str]]:
    """Yield how released packages take their sums, by measurement."""
    for name in ("squares", "mean"):
        yield "openvino, ncnn", 16, name
        yield "paddle", 8, name
        yield "mlx, tract", 1, name
    yield "ONNX Runtime", 8, "squares"
    yield "opencv", 1, "one pass"
    yield "torch", 8, "mean(g)"
    yield "torch", 8, "mean(g*x)"
    yield "torch, paddle, mlx, keras", 1, "dbeta"


def found(name: str, total: Sum) -> list[Fit]:
    return fit([SUMS[name](size, total) for size in WIDTHS], WAYS)


@pytest.mark.parametrize(("package", "lanes", "name"), [*packages()])
def test_the_way_of_a_package_is_found(package: str, lanes: int, name: str) -> None:
    fits = found(name, lambda terms: in_lanes(lanes, terms))
    assert {(each.way.lanes, each.way.block) for each in fits} == {(lanes, 0)}, package
    ratios = [each.ratio for each in fits]
    assert min(ratios) >= 0.995, ratios
    assert max(ratios) <= 1.002, ratios


@pytest.mark.parametrize("name", SUMS)
def test_an_accurate_sum_has_no_way(name: str) -> None:
    assert found(name, lambda terms: in_float64(1, terms)) == []


def test_errors_that_are_not_finite_have_no_way() -> None:
    infinite = np.array([np.inf, np.nan])
    assert fit([Drift(infinite, lambda _: infinite)], WAYS) == []


def test_a_way_that_is_not_tried_is_not_named() -> None:
    """Lanes of 3 have a drift between those of 2 and 4."""
    assert found("squares", lambda terms: in_lanes(3, terms)) == []
    drift = SUMS["squares"](16384, lambda terms: in_lanes(3, terms)).observed
    assert np.abs(drift).max() > LEAST_DRIFT


def test_one_width_is_not_enough() -> None:
    """16 lanes of 1024 terms, and blocks of 1024 that are added by halves, have the same drift."""
    drift = SUMS["squares"](16384, lambda terms: in_lanes(16, terms))
    assert len({each.way.words for each in fit([drift], WAYS)}) > 1


def one_after_the_other(terms: list[float], kind: str) -> float:
    total = np.zeros(1, dtype_of(kind))
    for each in terms:
        total = (total + np.asarray([each], total.dtype)).astype(total.dtype)
    return float(total[0])


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("size", [64, 67, 1000])
@pytest.mark.parametrize("way", [
    Way(), Way(lanes=2), Way(lanes=16), Way(block=16), Way(block=1), Way(once=True),
], ids=str)  # fmt: skip
def test_a_sum_is_that_of_loops(way: Way, size: int, kind: str) -> None:
    random = np.random.default_rng(size)
    rows = random.uniform(0.5, 1, (2, size)).astype(dtype_of(kind))
    expected = []
    for row in rows.astype(np.float64).tolist():
        if way.once:
            parts = [[math.fsum(row)]]
        elif way.block:
            parts = [row[k : k + way.block] for k in range(0, size, way.block)]
        else:
            parts = [row[k :: way.lanes] for k in range(way.lanes)]
        sums = [one_after_the_other(part, kind) for part in parts]
        while len(sums) > 1:
            sums += [0.0] * (len(sums) % 2)
            pairs = zip(sums[::2], sums[1::2], strict=True)
            sums = [one_after_the_other([*pair], kind) for pair in pairs]
        expected.append(one_after_the_other(sums, kind))
    assert way._replace(kind=kind).sum(rows).tolist() == expected


@pytest.mark.parametrize("size", [67, 1024])
def test_one_rounding_is_not_called_lanes(size: int) -> None:
    """NumPy adds float16 in float32; in short rows, 64 lanes have almost its result."""
    terms = np.random.default_rng(size).normal(size=(4, size))
    terms[:, :2] = 9000, -6000
    narrow = terms.astype(np.float16)

    def predicted(way: Way) -> Float64s:
        return np.asarray((way.sum(narrow) - wide(narrow).sum(axis=1)) * 2**11)

    drift = Drift(
        (narrow.sum(axis=1).astype(np.float64) - wide(narrow).sum(axis=1)) * 2**11, predicted
    )
    assert fit([drift], ways("float16"))[0].way.words == "exactly and rounded to float16"


def test_a_fused_sum_rounds_no_term() -> None:
    """In float16, 2048 + 0.75 is 2048; 2048 + 1.4 is 2050 unless 1.4 is rounded up to a tie."""
    terms = np.array([[2048.0, 1.0001]])
    assert Way("float16", fused=True).sum(terms).tolist() == [2050.0]
    assert Way("float16").sum(terms).tolist() == [2048.0]
    assert np.isnan(Way("float16", fused=True).sum(np.ones((1, 8193)))).all()


def test_a_narrow_sum_overflows() -> None:
    assert np.isinf(Way("float16").sum(np.full((1, 1024), 400.0))).all()
    assert np.isfinite(Way("bfloat16").sum(np.full((1, 1024), 400.0))).all()
