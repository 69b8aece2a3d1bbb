"""Backends whose rounding tests are too weak: with a share of their bounds."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from truenorm.kernels.reference import columns, tier1, tier2

__all__ = ["bounds_of_core_divided", "divide_bounds"]


def divide_bounds(monkeypatch: pytest.MonkeyPatch, share: int) -> None:
    """Divide the bounds of the reference, until the patch is undone."""
    rounded = columns.BoundedSum.rounded

    def smaller_sum(self: columns.BoundedSum, target: Any) -> Any:
        self._bound = self._bound / share
        return rounded(self, target)

    def smaller(test: Any) -> Any:
        return lambda z, bound, *rest: test(z, bound / share, *rest)

    for level in (tier1, tier2):
        monkeypatch.setattr(level, "rounding_test", smaller(level.rounding_test))
    monkeypatch.setattr(columns.BoundedSum, "rounded", smaller_sum)


@contextmanager
def bounds_of_core_divided(share: int) -> Iterator[None]:
    """Divide the bounds of the C core."""
    from truenorm.kernels.native import _core

    _core.scale_bounds(1 / share)
    try:
        yield
    finally:
        _core.scale_bounds(1.0)
