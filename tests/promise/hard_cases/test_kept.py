"""The data are what the command makes, and their hashes what the judge says."""

from typing import Any

import numpy as np
import pytest

from promise.families import DTYPES
from promise.formats import bits
from promise.hard_cases import OUTPUTS
from promise.hard_cases.kept import DATA, INPUTS, Kept, kept_cases, right_digest
from promise.hard_cases.making import hard_case

MEGABYTES = 5
# A case near a midpoint, and one on it. The first has parameters of a type of their own.
SAMPLE = {"y": (0, 2), "dx": (0, 2), "dgamma": (0, 2), "dbeta": (0, 1)}
EVERY_64_BITS = np.finfo(np.longdouble).nmant == 63

pytestmark = [
    pytest.mark.parametrize("dtype", DTYPES, ids=str),
    pytest.mark.parametrize("output", OUTPUTS),
]


@pytest.fixture(params=["a sample", pytest.param("all", marks=pytest.mark.slow)])
def chosen(request: pytest.FixtureRequest, output: str, dtype: np.dtype[Any]) -> dict[int, Kept]:
    """Return cases by number."""
    kept = dict(enumerate(kept_cases(output, dtype)))
    return kept if request.param == "all" else {k: kept[k] for k in SAMPLE[output]}


def test_judged_anew(chosen: dict[int, Kept], output: str) -> None:
    for case, right in chosen.values():
        assert right_digest(case, output) == right


@pytest.mark.skipif(not EVERY_64_BITS, reason="made on machines with a longdouble of 64 bits")
def test_made_anew(chosen: dict[int, Kept], output: str, dtype: np.dtype[Any]) -> None:
    for k, (case, _) in chosen.items():
        made = hard_case(output, dtype, k)
        assert (case.name, case.eps, case.columns) == (made.name, made.eps, made.columns)
        for name in INPUTS[output]:
            here, there = getattr(case, name), getattr(made, name)
            assert (here.dtype, here.shape) == (there.dtype, there.shape)
            assert bits(here).tobytes() == bits(there).tobytes(), name


def test_they_are_small(output: str, dtype: np.dtype[Any]) -> None:
    assert (DATA / f"{dtype.name}-{output}.npz").is_file()
    assert sum(path.stat().st_size for path in DATA.iterdir()) <= MEGABYTES * 2**20
