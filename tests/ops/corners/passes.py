"""Both passes over small arrays written by hand, and comparison with results written by hand."""

from typing import Any

import numpy as np

from ops.judged import BFLOAT16, Array, Inputs, both_passes
from promise.oracle import FORMATS, bits

NAN_BITS = {
    np.dtype(np.float16): 0x7E00,
    BFLOAT16: 0x7FC0,
    np.dtype(np.float32): 0x7FC00000,
    np.dtype(np.float64): 0x7FF8 << 48,
}


class Passes:
    """Both passes over values that are exact in the type, with gamma 1, beta 0 and dy 1."""

    def __init__(self, backend: str, rounding: str, dtype: np.dtype[Any]) -> None:
        self.backend, self.rounding, self.dtype = backend, rounding, dtype
        form = FORMATS[dtype]
        self.smallest, self.largest = (
            float(np.array([pattern], form.storage).view(dtype).astype(np.float64)[0])
            for pattern in (1, form.infinity - 1)
        )

    def of(self, values: Any) -> Array:
        array = np.asarray(values)
        if array.dtype == self.dtype:
            return array
        with np.errstate(all="ignore"):
            return array.astype(self.dtype)

    def __call__(
        self, x: Any, gamma: Any = 1.0, beta: Any = 0.0, dy: Any = 1.0, eps: float = 1e-5
    ) -> tuple[Array, ...]:
        x = self.of(x)
        scale, shift = (np.broadcast_to(self.of(p), x.shape[-1:]) for p in (gamma, beta))
        inputs = Inputs(x, scale, shift, np.broadcast_to(self.of(dy), x.shape), -1, eps)
        results = both_passes(inputs, self.backend, self.rounding)
        return tuple(result for result in results if result is not None)

    def assert_is(self, result: Array, values: Any) -> None:
        """Compare bits; NaN stands for its one form, and -0.0 is not 0.0."""
        right = np.broadcast_to(np.asarray(values, np.float64), result.shape)
        wanted = np.where(np.isnan(right), NAN_BITS[self.dtype], bits(self.of(right)))
        assert result.dtype == self.dtype
        assert (bits(result) == wanted).all(), (result, right)
