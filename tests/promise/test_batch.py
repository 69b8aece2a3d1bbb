"""The bits of a row depend on that row: not on others, nor on their order, nor on blocks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from promise.families import DTYPES, Case, usual_case
from promise.judging import both_passes, bytes_of
from truenorm.kernels.reference import narrow


@pytest.fixture(params=DTYPES, ids=str)
def case(request: pytest.FixtureRequest, of_norm: Callable[[Case], Case]) -> Case:
    """Rows that kernels take eight at a time, and four more."""
    return of_norm(usual_case("normal", 12, 67, request.param))


@pytest.mark.parametrize("rounding", ["correct", "fast"])
def test_rows_alone_and_together(case: Case, rounding: str, backend: str) -> None:
    y, dx, _, _ = both_passes(case, backend, rounding)
    for cut in range(1, 12):
        for part in (slice(0, cut), slice(cut, None)):
            found = both_passes(case.rows(part), backend, rounding)
            assert bytes_of(*found[:2]) == bytes_of(y[part], dx[part])


def test_order_of_the_rows(case: Case, backend: str) -> None:
    """Dgamma and dbeta too: a correctly rounded sum has no order."""
    y, dx, *sums = both_passes(case, backend)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(12)
        found = both_passes(case.rows(order), backend)
        assert bytes_of(*found) == bytes_of(y[order], dx[order], *sums)


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
        case = Case("far apart", x, np.ones(5), np.ones(5), dy, 1e-5)
        together = both_passes(case, "reference")
        monkeypatch.setattr("truenorm.kernels.reference.sweep.PAIR_BLOCK", 5)
        assert bytes_of(*together) == bytes_of(*both_passes(case, "reference"))
