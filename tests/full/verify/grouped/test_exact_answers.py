"""Exact answers of grouped norms are those of decimal numbers, also where sums are ties."""

import itertools

import numpy as np
import pytest

from shared.verify.grouped.decimals import Decimals
from shared.verify.grouped.kernels import Array
from shared.verify.grouped.planted import grouped
from truenorm.verify.formulas import answers
from truenorm.verify.formulas.balls import Ball, RoundedBall, round_ball
from truenorm.verify.norms.norm import require_norm
from truenorm.verify.operation import Case, shape_of_layout
from truenorm.verify.oracle import compute_exact
from truenorm.verify.types import dtype_of

SLOW = pytest.mark.slow(reason="decimals of many cases take minutes")

TYPES = ("float32", "bfloat16", "float64", "float16")
GROUPED = (
    ("group_norm,groups=8", "as-24x25"),
    ("group_norm,groups=3,gain=zero-centred", "as-6x16"),
    ("instance_norm", "as-6x35"),
    ("layer_norm,groups=2", "96"),
    ("rms_norm,groups=4", "96"),
    ("rms_norm,heads=6", "as-6x32"),
    ("rms_norm,over=channels", "as-24x16"),
    ("layer_norm,modulate=sample,gamma=false", "as-3x61"),
    ("rms_norm,modulate=row", "61"),
    ("rms_norm,variance=3/4", "96"),
    ("rms_norm,over=channels,variance=1/3", "as-6x16"),
    ("add_layer_norm,groups=2", "66"),
)
GATED = (
    ("rms_norm,gate=silu", "61"),
    ("rms_norm,gate=sigmoid", "61"),
    ("rms_norm,groups=2,gate=silu-first", "62"),
    ("rms_norm,groups=2,gate=sigmoid-first", "62"),
    ("group_norm,groups=3,gate=self", "as-6x10"),
    ("layer_norm,gate=silu", "61"),
    ("layer_norm,gate=sigmoid-first", "61"),
    ("rms_norm,modulate=row,gate=silu", "61"),
)


def random_case(spec: str, layout: str, dtype: str, rows: int, seed: int = 0) -> Case:
    """Return a case with gates from nearly 0 to nearly 1."""
    norm, kind = grouped(spec), dtype_of(dtype)
    random = np.random.default_rng(seed)
    shaped = layout.startswith("as-")
    size = int(np.prod(shape_of_layout(layout))) if shaped else int(layout)
    layout = layout if shaped else "rows"
    width = norm.geometry_of(size, layout).width
    inputs: dict[str, Array | None] = {}
    for name, role in norm.inputs:
        shape = {"parameter": (width,)}.get(role, (rows, size))
        shape = (rows, width) if name in ("scale", "shift") else shape
        numbers = random.normal(size=shape) * 1.5 + 0.5
        if name == "z":
            numbers = random.normal(size=shape) * np.resize([3, 1, 9, 1e-3], (rows, 1))
            numbers[0, :4] = 0, -0.0, 10, -10
        inputs[name] = numbers.astype(kind)
    eps = float(np.float32(1e-5))
    return Case(norm, "random", dtype, inputs, eps, layout=layout)


def decimal_results(case: Case) -> dict[str, Array]:
    norm = require_norm(case.operation, "a test")
    given = {
        name: case.in_layout(array) if name in case.rows else array
        for name, array in case.inputs.items()
        if array is not None
    }
    return Decimals(norm).results(given, case.eps)


def count_equal(case: Case) -> int:
    """Compare all outputs of a case; return how many numbers are equal."""
    exact, right = compute_exact(case), decimal_results(case)
    count = 0
    for output, values in right.items():
        answer = exact[output][..., 0].reshape(values.shape)
        np.testing.assert_array_equal(answer, values, f"{output} of {case.operation.spec}")
        count += values.size
    return count


@pytest.mark.parametrize(("norms", "least"), [(GROUPED, 3000), (GATED, 1800)])
def test_answers_are_those_of_decimals(norms: tuple[tuple[str, str], ...], least: int) -> None:
    kinds = itertools.cycle(TYPES)
    assert sum(count_equal(random_case(*one, next(kinds), 1)) for one in norms) > least


@SLOW
@pytest.mark.parametrize("kind", TYPES)
def test_many_answers(kind: str) -> None:
    every = [random_case(*one, kind, 4, 1) for one in GROUPED + GATED]
    assert sum(map(count_equal, every)) > 10_000


def _undecided(ball: Ball, kind: str) -> RoundedBall:
    rounded = round_ball(ball, kind)
    return rounded._replace(low=rounded.value, high=rounded.value + rounded.ulps)


@pytest.mark.parametrize(("spec", "layout"), [*GROUPED, *GATED])
def test_exactly(spec: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the balls, fractions and arbs decide all numbers."""
    if layout == "as-24x25":
        layout = "as-24x5"
    case = random_case(spec, layout, "float32", 1, seed=2)
    monkeypatch.setattr(answers, "round_ball", _undecided)
    count_equal(case)


def two_columns(gate: str, rows: list[tuple[float, float]], dtype: str = "float32") -> Case:
    """Return a case whose x is 1, without eps: r is 1, and dgamma is the sum of dy*s(z)."""
    kind = dtype_of(dtype)
    z = np.array([[each, each] for each, _ in rows], kind)
    dy = np.array([[each, 1.0] for _, each in rows], kind)
    ones = np.ones(z.shape, kind)
    inputs: dict[str, Array | None] = {"x": ones, "z": z, "gamma": ones[0], "dy": dy}
    return Case(grouped(f"rms_norm,gate={gate}"), "tie", dtype, inputs, 0.0)


HALF_ULP = 2.0**-24
HAIR = [(2.0**-60, 2.0**-40), (0.0, -(2.0**-40))]
"""The sum is 2^-40*(s(2^-60) - 1/2), about 2^-102."""


@pytest.mark.parametrize(
    "z", [0.7, 0.1257302210933933, 0.6404226504432821, -1.2654214710460525, 2.5, 5.1]
)
def test_ties_of_sums(z: float) -> None:
    """s(z) + s(-z) is 1, and s(0) is 1/2."""
    tie = [(z, HALF_ULP), (-z, HALF_ULP), (0.0, 2.0)]
    for rows, right in (
        ([(z, 1.0), (-z, 1.0)], 1.0),
        (tie, 1.0),
        ([*tie, (0.0, 4 * HALF_ULP)], 1.0 + 4 * HALF_ULP),  # the even one is above
        ([*tie, *HAIR], 1.0 + 2 * HALF_ULP),
        ([*tie, *((z, -dy) for z, dy in HAIR)], 1.0),
    ):
        case = two_columns("sigmoid", rows)
        assert compute_exact(case)["dgamma"][0, 0] == right
        # Repeated rows are counted by a factor.
        assert compute_exact(case.tiled(2))["dgamma"][0, 0] == 2 * right


def test_zero_dx_of_a_gate() -> None:
    """If z, gamma and dy are constant, g is in proportion to x."""
    case = two_columns("silu", [(1.0, 1.0)])
    assert (compute_exact(case)["dx"][..., 0] == 0).all()


@pytest.mark.parametrize("gate", ["silu-first", "sigmoid-first"])
@pytest.mark.parametrize("above", [0.0, 2.0**-60, -(2.0**-60)])
def test_last_precision(gate: str, above: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum that is undecided at the last precision is a tie, or one of its two neighbours."""
    # z and x are constant, so xhat is 1 and dgamma the sum of dy.
    case = two_columns(gate, [(0.7, 1.0), (0.7, HALF_ULP), (0.7, above)])
    right = 1.0 + 2 * HALF_ULP * (above > 0)
    assert compute_exact(case)["dgamma"][0, 0] == right
    monkeypatch.setattr(answers, "FIRST_BITS", 64)
    monkeypatch.setattr(answers, "MOST_BITS", 64)
    assert abs(compute_exact(case)["dgamma"][0, 0] - right) <= 2 * HALF_ULP
