"""Whether answers of the judge are what ball arithmetic says."""

from collections.abc import Mapping

import numpy as np

from promise.oracle import bits
from truenorm.verify.oracle import Expected
from truenorm.verify.types import Array


def assert_rounded_once(found: Expected, answers: Mapping[str, Array | None]) -> None:
    """Hold every result against the right one, and what its rounding left over against half."""
    for output, right in answers.items():
        value = found.values[output]
        if right is None or value is None:
            assert value is None
            assert right is None
        else:
            same = (bits(value) == bits(right)) | (np.isnan(value) & np.isnan(right))
            assert same.all(), output
            assert (np.abs(found.remainders[output]) <= 0.5).all()
