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


def assert_made(kept: Kept, output: str, dtype: np.dtype[Any], k: int) -> None:
    made = hard_case(output, dtype, k)
    assert (kept.case.name, kept.case.eps) == (made.name, made.eps)
    assert kept.case.columns == made.columns
    for name in INPUTS[output]:
        here, there = getattr(kept.case, name), getattr(made, name)
        assert (here.dtype, here.shape) == (there.dtype, there.shape)
        assert bits(here).tobytes() == bits(there).tobytes(), name


def test_a_sample_is_judged_anew(output: str, dtype: np.dtype[Any]) -> None:
    kept = list(kept_cases(output, dtype))
    for k in SAMPLE[output]:
        assert right_digest(kept[k].case, output) == kept[k].digest


@pytest.mark.slow
def test_all_are_judged_anew(output: str, dtype: np.dtype[Any]) -> None:
    for case, right in kept_cases(output, dtype):
        assert right_digest(case, output) == right


@pytest.mark.skipif(not EVERY_64_BITS, reason="made on machines with a longdouble of 64 bits")
class TestMaking:
    def test_a_sample(self, output: str, dtype: np.dtype[Any]) -> None:
        kept = list(kept_cases(output, dtype))
        for k in SAMPLE[output]:
            assert_made(kept[k], output, dtype, k)

    @pytest.mark.slow
    def test_all(self, output: str, dtype: np.dtype[Any]) -> None:
        for k, kept in enumerate(kept_cases(output, dtype)):
            assert_made(kept, output, dtype, k)


def test_they_are_small(output: str, dtype: np.dtype[Any]) -> None:
    assert (DATA / f"{dtype.name}-{output}.npz").is_file()
    assert sum(path.stat().st_size for path in DATA.iterdir()) <= MEGABYTES * 2**20
