"""The bits of a row depend on that row: not on others, nor on their order, nor on blocks."""

from typing import Any

import numpy as np
import pytest

import truenorm as tn
from promise.families import DTYPES, Array
from truenorm.kernels.reference import narrow


def bits_of(*arrays: Array | None) -> list[bytes]:
    return [b"" if array is None else np.ascontiguousarray(array).tobytes() for array in arrays]


def both_passes(
    x: Array, gamma: Array, beta: Array, dy: Array, backend: str, rounding: str = "correct"
) -> tuple[Array, Array, Array | None, Array | None]:
    y, saved = tn.layer_norm_forward(x, gamma, beta, rounding=rounding, backend=backend)
    return (y, *tn.layer_norm_backward(dy, saved, backend=backend))


@pytest.fixture(params=DTYPES, ids=str)
def inputs(request: pytest.FixtureRequest) -> tuple[Array, ...]:
    """Rows that kernels take eight at a time, and four more."""
    random = np.random.default_rng(0)
    x, dy = random.standard_normal((2, 12, 67)).astype(request.param)
    gamma, beta = random.standard_normal((2, 67)).astype(request.param)
    return x, gamma, beta, dy


@pytest.mark.parametrize("rounding", ["correct", "fast"])
def test_rows_alone_and_together(inputs: tuple[Array, ...], rounding: str, backend: str) -> None:
    x, gamma, beta, dy = inputs
    y, dx, _, _ = both_passes(x, gamma, beta, dy, backend, rounding)
    for cut in range(1, 12):
        for part in (slice(0, cut), slice(cut, None)):
            y_part, dx_part, _, _ = both_passes(x[part], gamma, beta, dy[part], backend, rounding)
            assert bits_of(y_part, dx_part) == bits_of(y[part], dx[part])


def test_order_of_the_rows(inputs: tuple[Array, ...], backend: str) -> None:
    """Dgamma and dbeta too: a correctly rounded sum has no order."""
    x, gamma, beta, dy = inputs
    y, dx, dgamma, dbeta = both_passes(x, gamma, beta, dy, backend)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(12)
        expected = bits_of(y[order], dx[order], dgamma, dbeta)
        assert bits_of(*both_passes(x[order], gamma, beta, dy[order], backend)) == expected


class TestBlocksOfTheReference:
    def test_a_call_can_be_interrupted_between_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
        expected = tn.layer_norm(x, backend="reference")
        monkeypatch.setattr("truenorm.kernels.reference.sweep.BLOCK", 16)
        original, blocks = narrow.forward, []

        def interrupted(*arguments: Any) -> Any:
            blocks.append(1)
            if len(blocks) == 2:
                raise KeyboardInterrupt
            return original(*arguments)

        monkeypatch.setattr(narrow, "forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tn.layer_norm(x, backend="reference")
        assert tn.layer_norm(x, backend="reference").tobytes() == expected.tobytes()

    def test_the_sum_of_two_is_that_of_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Merging the columns of blocks in pairs, at exponents far apart."""
        x = np.random.default_rng(0).standard_normal((4, 5))
        x[2:] *= 1e150
        dy = np.random.default_rng(1).standard_normal((4, 5))
        dy[:2] *= 1e-200
        together = both_passes(x, np.ones(5), np.ones(5), dy, "reference")
        monkeypatch.setattr("truenorm.kernels.reference.sweep.PAIR_BLOCK", 5)
        apart = both_passes(x, np.ones(5), np.ones(5), dy, "reference")
        assert bits_of(*together) == bits_of(*apart)
