"""Shapes of one's own are called twice: what the second call returns is looked at, too."""

from collections.abc import Callable

import numpy as np
import pytest

import truenorm.verify as tv
from truenorm.verify.types import Array
from verify.own.kernels import subject


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (lambda y: y[:-1], r"y is shape \(39, 64\) when called again"),
        (lambda _: None, "y is None when called again"),
        (lambda y: y.astype(np.float64), "y has different bits when the call is repeated"),
    ],
    ids=["a row is lost", "None", "float64"],
)
def test_what_the_second_call_returns_is_looked_at(
    of: Callable[[Array], Array | None], said: str
) -> None:
    right, case = subject(), tv.case_of_shape((40, 64))
    calls: list[Array] = []

    def forward(*given: Array) -> Array | None:
        assert right.forward is not None
        calls.append(right.forward(*given)[0])
        return calls[0] if len(calls) == 1 else of(calls[0])

    with pytest.raises(AssertionError, match=said):
        tv.check(tv.Subject(forward), case)
