"""Enclosures: ball arithmetic contains the exact results, and its radii are small."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.formulas.balls import Ball
from truenorm.verify.norms.enclosures import answers_by_enclosure, enclose
from truenorm.verify.operations import parse_operation
from truenorm.verify.oracle import compute_exact, output_types
from truenorm.verify.types import FORMATS, ulps_of

OPERATIONS = ("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm,gain=zero-centred")


def fractions(ball: Ball) -> list[tuple[Fraction, Fraction]]:
    """Return middle and radius of each."""
    parts = (ball.high.ravel(), ball.low.ravel(), ball.radius.ravel())
    return [
        (Fraction(high) + Fraction(low), Fraction(radius))
        for high, low, radius in zip(*parts, strict=True)
    ]


def drawn(seed: int, count: int = 300) -> Ball:
    random = np.random.default_rng(seed)
    high = random.normal(size=(count, 1)) * 2.0 ** random.integers(-40, 40, (count, 1))
    return Ball(
        high, high * random.uniform(-(2.0**-54), 2.0**-54, (count, 1)), np.zeros_like(high)
    )


def test_each_operation_is_within_its_radius() -> None:
    a, b = drawn(1), drawn(2)
    cancels = np.arange(300)[:, None] % 3 == 0
    b = Ball(np.where(cancels, -a.high, b.high), np.where(cancels, a.low / 3, b.low), b.radius)
    pairs = list(zip(fractions(a), fractions(b), strict=True))
    for found, right in (
        (a + b, [x + y for (x, _), (y, _) in pairs]),
        (a - b, [x - y for (x, _), (y, _) in pairs]),
        (a * b, [x * y for (x, _), (y, _) in pairs]),
        (a.over(7), [x / 7 for (x, _), _ in pairs]),
        (a.sum(0), [sum((x for (x, _), _ in pairs), Fraction(0))]),
    ):
        for (middle, radius), exact in zip(fractions(found), right, strict=True):
            assert abs(middle - exact) <= radius
        sizes = np.abs(a.high).sum() * np.maximum(1.0, np.abs(b.high).max())
        assert (found.radius <= 2.0**-95 * sizes).all()


def test_sums_without_lows_are_exact() -> None:
    """So enclosures decide ties of a sum of two rows."""
    numbers = drawn(4)
    found = Ball.of(numbers.high) + Ball.of(numbers.high[::-1])
    assert not found.radius.any()
    ends = numbers.high.ravel().tolist()
    right = [Fraction(a) + Fraction(b) for a, b in zip(ends, ends[::-1], strict=True)]
    assert [middle for middle, _ in fractions(found)] == right
    assert (found + found).radius.all()


SLOW = pytest.mark.slow(reason="integers of long rows take seconds")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        # The gate has each operation and each type.
        pytest.param(name, dtype, marks=() if k == m else SLOW)
        for k, name in enumerate(OPERATIONS)
        for m, dtype in enumerate(FORMATS)
    ],
)
def test_answers_by_enclosure_are_those_of_integers(name: str, dtype: str) -> None:
    """Values have the same bits, ties of sums included."""
    operation = parse_operation(name)
    for case in (
        tv.case(f"{dtype}-normal-2x768", operation=operation),
        tv.case(f"{dtype}-normal-2x5120", operation=operation).part(slice(0, 1)),
    ):
        found, exact = answers_by_enclosure(case), compute_exact(case)
        assert found is not None
        assert found.keys() == exact.keys()
        for output in output_types(case):
            np.testing.assert_array_equal(found[output][..., 0], exact[output][..., 0])
            np.testing.assert_allclose(found[output][..., 1], exact[output][..., 1], 0, 2.0**-29)


def test_an_undecided_answer_is_computed_in_integers() -> None:
    """A tie of y, which no ball decides."""
    tie = tv.case("float32-exact-tie")
    assert answers_by_enclosure(tie) is None
    found = compute_exact(replace(tie, enclosed=True))
    exact = compute_exact(tie)
    assert all(np.array_equal(found[name], exact[name]) for name in exact)


@pytest.mark.parametrize("dtype", FORMATS)
def test_enclosures_decide_all_wide_cases(dtype: str) -> None:
    suite = [case for case in tv.cases(dtype) if case.enclosed]
    assert {1536, 2048, 2560, 4096, 5120, 7168, 8192, 20480} <= {c.shape[1] for c in suite}
    assert all(answers_by_enclosure(case) is not None for case in suite)


def test_an_inverse_root_is_within_its_radius() -> None:
    a = drawn(3) * drawn(3)
    for (w, _), (middle, radius) in zip(
        fractions(a), fractions(Ball(a.high, a.low, 0 * a.high).inverse_root()), strict=True
    ):
        assert middle > radius
        assert (middle - radius) ** 2 * w <= 1 <= (middle + radius) ** 2 * w
        assert radius <= middle * Fraction(2) ** -98
    zero = Ball.of(np.zeros((1, 1)))
    with np.errstate(all="ignore"):
        assert np.isnan(zero.inverse_root().radius).all()


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("words", OPERATIONS)
def test_the_answers_of_integers_are_in_the_balls(words: str, dtype: str) -> None:
    """The rest of an answer is known to a rounding in float64; of float64 it has own digits."""
    case = tv.case_of_shape((3, 67), dtype, operation=parse_operation(words))
    exact, balls = compute_exact(case), enclose(case)
    for output, kind in output_types(case).items():
        ball = balls[output]
        value, rest = exact[output][..., 0], exact[output][..., 1]
        ulps = ulps_of(value, kind)
        off = np.abs(((ball.high - value) + ball.low) - rest * ulps)
        known = 2.0**-52 * (ulps if kind == "float64" else np.abs(value))
        assert (off <= ball.radius + known).all(), output
        assert (ball.radius <= 2.0**-90 * (1 + np.abs(ball.high))).all(), output


def test_a_large_mean_is_no_matter() -> None:
    """Of float64 rows around 1e9, where plain float64 has no digit of what is asked left."""
    x = 1e9 + np.random.default_rng(0).normal(size=(2, 50))
    case = tv.case_from({"x": x})
    exact, ball = compute_exact(case)["y"], enclose(case)["y"]
    off = np.abs(
        ((ball.high - exact[..., 0]) + ball.low)
        - exact[..., 1] * ulps_of(exact[..., 0], "float64")
    )
    assert (off <= ball.radius + 2.0**-104 * np.abs(ball.high)).all()
    assert (ball.radius < 1e-18).all()
