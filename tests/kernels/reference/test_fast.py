"""Fast mode is another way of computing; that it keeps its bounds is in promise/."""

from typing import Any

import numpy as np
import pytest

import truenorm as tn


def test_fast_mode_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it correct mode in disguise, the bits would agree everywhere."""
    random = np.random.default_rng(0)
    x = random.standard_normal((64, 1024)).astype(np.float32)

    def no_level_1(*_: Any) -> Any:
        raise AssertionError("correct mode was used")

    monkeypatch.setattr("truenorm.kernels.reference.narrow.forward", no_level_1)
    tn.layer_norm(x, rounding="fast", backend="reference")
