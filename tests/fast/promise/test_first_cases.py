"""The promise: the first hard cases of each type and output, and fast mode on one case.

`full/promise` has all of them.
"""

from itertools import islice
from typing import Any

import numpy as np
import pytest

from shared.promise.bounds import FastBounds
from shared.promise.cached_cases import cached_cases
from shared.promise.checking import BACKENDS, both_passes, on_each_set
from shared.promise.digests import assert_digest
from shared.promise.families import DTYPES, usual_case
from shared.promise.hard_cases import OUTPUTS, hard_elements


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("output", OUTPUTS)
def test_first_cached_cases(output: str, dtype: np.dtype[Any]) -> None:
    for case, expected in islice(cached_cases(output, dtype), 2):
        assert hard_elements(case, output)
        assert_digest(case, output, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fast_mode_of_a_width_that_no_vector_divides(dtype: np.dtype[Any]) -> None:
    case = usual_case("offset", 3, 67, dtype)
    bounds = FastBounds(case)
    for backend in BACKENDS:
        for name, results in on_each_set(backend, both_passes, case, backend, "fast").items():
            violations = bounds.violations(results)
            assert not violations, (name, violations[:5])
