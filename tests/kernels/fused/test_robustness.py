"""Many callers at once, and errors in the middle of a call."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

import truenorm as tn
from gated import GATED_TYPES
from promise.families import DTYPES, usual_case
from promise.judging import both_passes, bytes_of
from truenorm import threads
from truenorm.kernels.fused.backend import FusedBackend
from truenorm.kernels.fused.narrow import NarrowBackward, NarrowForward

CHANGED = "x changed since the forward pass"
LARGE = (1200, 257)  # elements enough for several threads


class TestManyCallers:
    """Of sixteen threads, with shapes and types of their own, each gets the right bits."""

    SHAPES = ((1, 1), (3, 5), (40, 67), (9, 4096), (600, 129), (70_000, 1))

    @pytest.mark.parametrize(
        ("seconds", "dtypes"), [(2, DTYPES[1:]), pytest.param(10, DTYPES, marks=pytest.mark.slow)]
    )
    def test_for_a_while(self, seconds: float, dtypes: Sequence[Any]) -> None:
        choices = [(*shape, dtype) for shape in self.SHAPES for dtype in dtypes]
        some = [usual_case("normal", *choice) for choice in choices]
        expected = [bytes_of(*both_passes(case, "reference")) for case in some]
        # All is compiled now.
        assert [bytes_of(*both_passes(case, "fused")) for case in some] == expected
        end = time.monotonic() + seconds

        def call(number: int) -> int:
            random = np.random.default_rng(number)
            calls = 0
            while not calls or time.monotonic() < end:
                k, count = int(random.integers(len(some))), int(random.integers(1, 5))
                found = bytes_of(*both_passes(some[k], "fused", threads=count))
                assert found == expected[k], (some[k].name, count)
                calls += 1
            return calls

        with ThreadPoolExecutor(16) as pool:
            calls = list(pool.map(call, range(16), timeout=60 + seconds))
        assert all(calls)


class BlockError(Exception):
    """Of nobody else."""


class TestErrors:
    """Whatever goes wrong in one call, the next one is as if nothing had been."""

    @pytest.fixture(autouse=True)
    def pool(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threads, "_pool", threads._Pool())
        monkeypatch.setattr(FusedBackend, "at_once", None)  # the driver's blocks

    @pytest.mark.parametrize("error", [BlockError, KeyboardInterrupt, MemoryError])
    @pytest.mark.parametrize("number", [0, 1])
    @pytest.mark.parametrize("level", [NarrowForward, NarrowBackward])
    def test_in_a_block(
        self,
        monkeypatch: pytest.MonkeyPatch,
        level: Any,
        number: int,
        error: type[BaseException],
    ) -> None:
        case = usual_case("normal", *LARGE, np.float32)
        expected = bytes_of(*both_passes(case, "reference"))
        original = level.look
        begun: list[int] = []

        def failing(*arguments: Any) -> Any:
            begun.append(1)
            if len(begun) == 1 + number:
                raise error
            return original(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(level, "look", failing)
            with pytest.raises(error):
                both_passes(case, "fused", threads=3)
        assert len(begun) > number
        for count in (1, 2, 4):
            assert bytes_of(*both_passes(case, "fused", threads=count)) == expected

    @pytest.mark.parametrize("rounding", ["correct", "fast"])
    @pytest.mark.parametrize("dtype", GATED_TYPES, ids=str)
    def test_x_changed_in_any_row(self, dtype: np.dtype[Any], rounding: str) -> None:
        """Whoever sees it, the caller is told; and once it is mended, all is well."""
        case = usual_case("normal", *LARGE, dtype)
        x, dy = case.x.copy(), case.dy
        _, saved = tn.layer_norm_forward(
            x, *case.parameters, backend="fused", rounding=rounding, threads=3
        )
        expected = tn.layer_norm_backward(dy, saved, backend="fused", threads=3)
        for row in (0, 400, 500, 799, 801, len(x) - 1):
            kept = x[row, 7]
            x[row, 7] += dtype.type(3)
            with pytest.raises(RuntimeError, match=CHANGED):
                tn.layer_norm_backward(dy, saved, backend="fused", threads=3)
            x[row, 7] = kept
        found = tn.layer_norm_backward(dy, saved, backend="fused", threads=3)
        assert bytes_of(*found) == bytes_of(*expected)
