"""The equations of docs/learn/derivation.md in exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shared.exact_row import ExactRow, Vector, dot, fractions
from truenorm import textbook

NUMBERS = st.floats(-1e6, 1e6, width=32).map(Fraction)
EPSILONS = st.sampled_from([0.0, 5e-324, 1e-5, 1.0, 1e300]).map(Fraction)


@st.composite
def rows(draw: st.DrawFn, vectors: int = 1) -> tuple[ExactRow, *tuple[Vector, ...]]:
    """Draw a row, and vectors of its length."""
    size = draw(st.integers(1, 9))
    vector = st.lists(NUMBERS, min_size=size, max_size=size)
    row = ExactRow.of(draw(vector), draw(EPSILONS))
    assume(row.w > 0)
    return (row, *(draw(vector) for _ in range(vectors)))


@given(rows())
def test_three_forms_of_dx_agree(drawn: tuple[ExactRow, Vector]) -> None:
    row, g = drawn
    by_steps = row.dx_step_by_step(g)
    assert by_steps == row.dx_compact(g)
    assert by_steps == [dot(list(column), g) for column in zip(*row.jacobian(), strict=True)]


@given(rows(vectors=2))
def test_dot_test_is_exact(drawn: tuple[ExactRow, Vector, Vector]) -> None:
    row, t, u = drawn
    assert dot(row.tangent(t), u) == dot(t, row.dx_compact(u))


@given(rows())
def test_jacobian_removes_constants_and_most_of_xhat(drawn: tuple[ExactRow, Vector]) -> None:
    row, g = drawn
    eps = row.w - dot(row.c, row.c) / len(row.c)
    assert sum(row.dx_compact(g)) == 0  # (D21)
    assert row.dx_compact([Fraction(1)] * len(g)) == [0] * len(g)  # (D21)
    assert row.dx_compact(row.c) == [eps / row.w * c for c in row.c]  # (D22)
    if len(g) == 2:
        assert row.dx_compact(g)[0] == eps / row.w * (g[0] - g[1]) / 2  # (D24)


@given(rows(), NUMBERS, st.integers(1, 1000))
def test_symmetries(drawn: tuple[ExactRow, Vector], shift: Fraction, scale: int) -> None:
    row, g = drawn
    eps = row.w - dot(row.c, row.c) / len(row.c)
    shifted = ExactRow.of([c + shift for c in row.c], eps)
    assert shifted == row  # (D23), first
    scaled = ExactRow.of([c * scale for c in row.c], eps * scale**2)
    assert scaled.w == row.w * scale**2  # so r is divided by scale, and with it xhat unchanged
    assert scaled.dx_compact(g) == row.dx_compact(g)  # times r: (D23), third


@given(rows(vectors=2))
def test_rms_norm(drawn: tuple[ExactRow, Vector, Vector]) -> None:
    """Dx is the transpose of the tangent, and scales the part parallel to x by eps/w."""
    layer_norm, t, g = drawn
    eps = layer_norm.w - dot(layer_norm.c, layer_norm.c) / len(layer_norm.c)
    row = ExactRow.of(t, eps, centred=False)
    assume(row.w > 0)
    change = layer_norm.c
    assert dot(row.tangent_uncentred(change), g) == dot(change, row.dx_uncentred(g))  # (D30)
    assert row.dx_uncentred(row.c) == [eps / row.w * c for c in row.c]  # (D31)
    if len(g) == 1:
        assert row.dx_uncentred(g) == [eps / row.w * g[0]]  # (D32)


@pytest.mark.parametrize("seed", range(5))
def test_difference_quotients_tend_to_the_jacobian_vector_product(seed: int) -> None:
    """Compare central differences of the float64 forward pass along t with the exact J t.

    The error of a central difference is K*h^2 + O(h^4): a quarter at half the step. An error
    in J would not decrease.
    """
    random = np.random.default_rng(seed)
    x, t = random.standard_normal((2, 17))
    row = ExactRow.of(fractions(x), Fraction(1e-5))
    exact = [float(row.rstd() * value) for value in row.tangent(fractions(t))]

    def error(h: float) -> NDArray[np.float64]:
        above, _ = textbook.forward(x + h * t, np.ones(17), np.zeros(17))
        below, _ = textbook.forward(x - h * t, np.ones(17), np.zeros(17))
        return np.asarray((above - below) / (2 * h) - exact, dtype=np.float64)

    coarse, fine = error(2.0**-8), error(2.0**-9)
    assert np.abs(coarse - 4 * fine).max() <= 1e-2 * np.abs(coarse).max()
