"""The promise next to rounding boundaries: the first cached cases of each type and output.

`full/promise/test_hard_cases.py` has all of them.
"""

from itertools import islice
from typing import Any

import numpy as np
import pytest

from shared.promise.cached_cases import cached_cases
from shared.promise.digests import assert_digest
from shared.promise.families import DTYPES
from shared.promise.hard_cases import OUTPUTS, hard_elements


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("output", OUTPUTS)
def test_first_cached_cases(output: str, dtype: np.dtype[Any]) -> None:
    for case, expected in islice(cached_cases(output, dtype), 2):
        assert hard_elements(case, output)
        assert_digest(case, output, expected)
