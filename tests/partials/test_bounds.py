"""The bound of the terms' rounding test holds, is needed, and guards rows near to midpoints."""

import numpy as np
import pytest

from partials.batches import partial_of
from partials.definition import Expected
from programs import run_python
from promise.judging import BACKENDS

pytest.importorskip("numba")


def _lines(call: str) -> dict[str, list[str]]:
    code = f"from partials import factors; factors.{call}"
    lines = [line.split(maxsplit=3) for line in run_python(code, NUMBA_DISABLE_JIT="1")]
    return {name: rest for name, *rest in lines}


@pytest.mark.parametrize(
    ("sizes", "least"),
    [
        ("3, 67", 1 / 64),
        pytest.param("1, 2, 5, 64, 129, 1000", 1 / 64, marks=pytest.mark.slow),
        # Bounds of long sums have more room, since their errors do not all add up.
        pytest.param("8009,", 2.0**-12, marks=pytest.mark.slow),
    ],
)
def test_exact_terms_lie_within_the_bound(sizes: str, least: float) -> None:
    """And a 64th of the bound would not do: a bound too small by that is seen here."""
    lines = _lines(f"check_bounds({sizes})")
    assert list(lines) == ["share"], lines  # no unit is another than the definition's
    count, share, *case = lines["share"]
    assert int(count) > 40
    assert least < float(share) < 0.9, case


def test_rows_are_taken_back_without_a_trace() -> None:
    lines = _lines("check_undoing()")
    assert list(lines) == ["undone"], lines
    assert int(lines["undone"][0]) > 3


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_terms_near_midpoints_are_rounded_correctly(backend: str) -> None:
    from partials.factors import midpoint_cases

    for case in midpoint_cases(20, 2.0**-30):
        assert partial_of(case, backend).tobytes() == Expected(case).to_bytes()


@pytest.mark.slow
def test_a_bound_too_small_rounds_some_of_them_wrongly() -> None:
    assert _lines("check_midpoints(1.0)")["wrong"] == ["80", "0"]
    assert int(_lines("check_midpoints(64.0)")["wrong"][1]) > 0


def test_the_search_for_midpoints_finds_the_first() -> None:
    from partials.midpoints import first_within

    random = np.random.default_rng(2)
    for _ in range(500):
        modulus = int(random.integers(2, 200))
        a, low, width = (int(random.integers(1, modulus)) for _ in range(3))
        high = min(low + width // 4, modulus - 1)
        hits = [m for m in range(modulus) if low <= a * m % modulus <= high]
        assert first_within(a, modulus, low, high) == (hits[0] if hits else None)
