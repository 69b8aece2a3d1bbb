"""Terms next to midpoints are rounded correctly, and the search for them finds the first."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest

from partials.batches import partial_of
from partials.definition import Expected
from partials.midpoints import first_within, near_midpoints
from promise.checking import BACKENDS
from promise.families import Case


def midpoint_cases(rows: int, within: float) -> Iterator[Case]:
    """Yield so many rows of both norms, each as a case, with terms near to midpoints."""
    for centred in (True, False):
        random = np.random.default_rng(8)
        found = near_midpoints(random, 11, within, centred=centred)
        for x, dy in islice(found, rows):
            gamma = np.ones(11, np.float32)
            yield Case("midpoint", x[None], gamma, None, dy[None], 1e-5, centred=centred)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_terms_near_midpoints_are_rounded_correctly(backend: str) -> None:
    for case in midpoint_cases(20, 2.0**-30):
        assert partial_of(case, backend).tobytes() == Expected(case).to_bytes()


def test_the_search_for_midpoints_finds_the_first() -> None:
    random = np.random.default_rng(2)
    for _ in range(500):
        modulus = int(random.integers(2, 200))
        a, low, width = (int(random.integers(1, modulus)) for _ in range(3))
        high = min(low + width // 4, modulus - 1)
        hits = [m for m in range(modulus) if low <= a * m % modulus <= high]
        assert first_within(a, modulus, low, high) == (hits[0] if hits else None)
