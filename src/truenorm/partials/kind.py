"""What partials must have in common to be merged."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels.call import Settings
from truenorm.kernels.norm import Norm
from truenorm.kernels.storage import format_of
from truenorm.ops.saved import Saved

__all__ = ["Kind"]

FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Kind:
    """Of which norm partials are, over rows of which shape and type, and of which parameters.

    Attributes
    ----------
    norm : Norm
        Whether rows are centred.
    eps : float
        What was added to the variance.
    lengths : tuple of int
        The shape of gamma and beta.
    x, gamma, beta : dtype or None
        Their types; None for a parameter that there is not.
    """

    norm: Norm
    eps: float
    lengths: tuple[int, ...]
    x: np.dtype[Any]
    gamma: np.dtype[Any] | None
    beta: np.dtype[Any] | None

    @classmethod
    def of(cls, saved: Saved) -> "Kind":
        """Return the kind of partials that backward of a call gives; refuse what has none."""
        settings: Settings = saved.settings
        if settings.rounding != "correct":
            raise ValueError(
                "forward was called with rounding='fast', and a partial is exact: call forward "
                "with rounding='correct'"
            )
        gamma = None if saved.gamma is None else saved.gamma.dtype
        x, beta = saved.x.dtype, saved.beta_dtype
        if not (x is gamma is FLOAT32 and (beta is None or beta is FLOAT32)):
            _check_types({"x": x, "gamma": gamma, "beta": beta})
            x = x.newbyteorder("=")
            gamma, beta = (
                None if each is None else each.newbyteorder("=") for each in (gamma, beta)
            )
        lengths = tuple(saved.x.shape[k] for k in saved.axes)
        # Partials with eps = -0.0 merge with those of 0.0, and must have the same bytes.
        return cls(settings.norm, abs(settings.eps), lengths, x, gamma, beta)

    @property
    def size(self) -> int:
        """How many columns there are."""
        return math.prod(self.lengths)

    def target(self, name: str) -> FloatFormat:
        """Return the format of gamma or of beta."""
        found = format_of(getattr(self, name))
        assert found is not None
        return found

    def check_same(self, other: "Kind") -> None:
        """Raise unless partials of the two kinds can be merged."""
        for name in ("norm", "eps", "lengths", "x", "gamma", "beta"):
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                raise ValueError(
                    f"partials of different calls do not merge: {name} is {_word(mine)} here and "
                    f"{_word(its)} there"
                )


def _check_types(types: dict[str, np.dtype[Any] | None]) -> None:
    """Raise TypeError for float64."""
    for name, dtype in types.items():
        if dtype is not None and format_of(dtype) is FLOAT64:
            raise TypeError(
                f"{name} is float64, of which there are no partials: their terms would need "
                "128 bits and more (docs/scale.md). Pass float32 or smaller, or call backward "
                "with all rows at once"
            )


def _word(value: Any) -> Any:
    return value.name if isinstance(value, Norm | np.dtype) else value
