"""The data reach the last level, which comes after all others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from promise.families import DTYPES
from promise.formats import FORMATS
from truenorm.kernels import integers
from truenorm.warmup.rows import all_kinds

NORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], int]] = {
    "layer_norm": (tn.layer_norm_forward, tn.layer_norm_backward, 3),
    "rms_norm": (tn.rms_norm_forward, tn.rms_norm_backward, 2),
}
"""Both passes, and how many arrays the first one takes."""
SETTLED = {"settle_y", "settle_dx", "column_sums"}


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the names of what was settled in integers."""
    found: set[str] = set()

    def noted(name: str) -> Callable[..., Any]:
        original = getattr(integers, name)

        def settle(*given: Any) -> Any:
            found.add(name)
            return original(*given)

        return settle

    for name in SETTLED:
        monkeypatch.setattr(integers, name, noted(name))
    return found


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_refused(settled: set[str], dtype: np.dtype[Any], norm: str) -> None:
    forward, backward, arrays = NORMS[norm]
    for given in all_kinds(dtype, [dtype]):
        if given.x.size <= 1000:  # the others are ordinary
            _, saved = forward(*given[:arrays], eps=given.eps, backend="reference")
            backward(given.dy, saved, backend="reference")
    assert settled == SETTLED


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_extremes(dtype: np.dtype[Any]) -> None:
    """The largest numbers beside the smallest, in the same sums; and what is no number."""
    slopes = [each.dy.astype(np.float64) for each in all_kinds(dtype, [dtype])]
    for is_special in (np.isinf, np.isnan):
        assert any(is_special(dy).any() for dy in slopes)
    finite = [np.abs(dy[np.isfinite(dy) & (dy != 0)]) for dy in slopes]
    smallest = 2.0 ** FORMATS[dtype].quantum
    assert any(each.min() == smallest and each.max() > 2.0**13 for each in finite)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_types(dtype: np.dtype[Any]) -> None:
    kinds = list(all_kinds(dtype, DTYPES))
    assert {(each.x.dtype, each.dy.dtype) for each in kinds} == {(dtype, dtype)}
    for parameters in ([each.gamma for each in kinds], [each.beta for each in kinds]):
        assert {each.dtype for each in parameters if each is not None} == {*DTYPES}
