"""The bits of a row depend on that row: not on others, nor on their order, nor on blocks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from kinds import BACKENDS_AND_TYPES as KINDS
from promise.families import Case, usual_case
from promise.judging import both_passes, bytes_of
from truenorm.kernels.reference import tier1


def rows_of(dtype: np.dtype[Any]) -> Case:
    """Return rows that kernels take eight at a time, and four more."""
    return usual_case("normal", 12, 67, dtype)


def rows_of_rms_norm(dtype: np.dtype[Any]) -> Case:
    return rows_of(dtype).of_rms_norm()


EACH = [
    *(pytest.param(rows_of, *each.values, id=f"layer_norm-{each.id}") for each in KINDS),
    *(
        pytest.param(rows_of_rms_norm, *each.values, marks=each.marks, id=f"rms_norm-{each.id}")
        for each in KINDS
    ),
]


@pytest.mark.parametrize(("make", "backend", "dtype"), EACH)
@pytest.mark.parametrize("rounding", ["correct", "fast"])
def test_rows_alone_and_together(
    make: Callable[[Any], Case], dtype: np.dtype[Any], rounding: str, backend: str
) -> None:
    case = make(dtype)
    y, dx, _, _ = both_passes(case, backend, rounding)
    for cut in range(1, 12):
        for part in (slice(0, cut), slice(cut, None)):
            found = both_passes(case.rows(part), backend, rounding)
            assert bytes_of(*found[:2]) == bytes_of(y[part], dx[part])


@pytest.mark.parametrize(("make", "backend", "dtype"), EACH)
def test_order_of_the_rows(
    make: Callable[[Any], Case], dtype: np.dtype[Any], backend: str
) -> None:
    """Dgamma and dbeta too: a correctly rounded sum has no order."""
    case = make(dtype)
    y, dx, *sums = both_passes(case, backend)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(12)
        found = both_passes(case.rows(order), backend)
        assert bytes_of(*found) == bytes_of(y[order], dx[order], *sums)


class TestBlocksOfTheReference:
    def test_a_call_can_be_interrupted_between_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
        expected = tn.layer_norm(x, backend="reference")
        monkeypatch.setattr("truenorm.kernels.reference.tier1.BLOCK", 16)
        original, blocks = tier1.forward, []

        def interrupted(*arguments: Any) -> Any:
            blocks.append(1)
            if len(blocks) == 2:
                raise KeyboardInterrupt
            return original(*arguments)

        monkeypatch.setattr(tier1, "forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tn.layer_norm(x, backend="reference")
        assert tn.layer_norm(x, backend="reference").tobytes() == expected.tobytes()

    def test_the_sum_of_two_is_that_of_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Merging the columns of blocks in pairs, at exponents far apart."""
        x = np.random.default_rng(0).standard_normal((4, 5))
        x[2:] *= 1e150
        dy = np.random.default_rng(1).standard_normal((4, 5))
        dy[:2] *= 1e-200
        case = Case("far apart", x, np.ones(5), np.ones(5), dy, 1e-5)
        together = both_passes(case, "reference")
        monkeypatch.setattr("truenorm.kernels.reference.tier1.PAIR_BLOCK", 5)
        assert bytes_of(*together) == bytes_of(*both_passes(case, "reference"))
