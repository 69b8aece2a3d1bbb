"""Errors in the middle of a call: the next one is as if nothing had been."""

from typing import Any

import numpy as np
import pytest

import truenorm as tn
from promise.checking import BACKENDS, both_passes, bytes_of
from promise.families import DTYPES, usual_case
from truenorm import threads
from truenorm.api.backends import backend_named

pytestmark = pytest.mark.skipif("native" not in BACKENDS, reason="needs the C core")

CHANGED = "x changed since the forward pass"
LARGE = (1200, 257)  # elements enough for several threads


class BlockError(Exception):
    """Of nobody else."""


class TestErrors:
    @pytest.fixture(autouse=True)
    def pool(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threads, "_pool", threads._Pool())

    @pytest.mark.parametrize("error", [BlockError, KeyboardInterrupt, MemoryError])
    @pytest.mark.parametrize("number", [0, 1])
    @pytest.mark.parametrize("level", ["CorrectForward", "CorrectBackward"])
    def test_in_a_block(
        self,
        monkeypatch: pytest.MonkeyPatch,
        level: str,
        number: int,
        error: type[BaseException],
    ) -> None:
        from truenorm.kernels.native import blocks

        case = usual_case("normal", *LARGE, np.float32)
        expected = bytes_of(*both_passes(case, "reference"))
        kind = getattr(blocks, level)
        original = kind.compute
        begun: list[int] = []

        def failing(*arguments: Any) -> Any:
            begun.append(1)
            if len(begun) == 1 + number:
                raise error
            return original(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(type(backend_named("native")), "core", None)  # the driver's blocks
            patched.setattr(blocks, "BLOCK", 2**16)
            patched.setattr(kind, "compute", failing)
            with pytest.raises(error):
                both_passes(case, "native", threads=3)
        assert len(begun) > number
        for count in (1, 2, 4):
            assert bytes_of(*both_passes(case, "native", threads=count)) == expected

    @pytest.mark.parametrize("rounding", ["correct", "fast"])
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_x_changed_in_any_row(self, dtype: np.dtype[Any], rounding: str) -> None:
        """Whoever sees it, the caller is told; and once it is mended, all is well."""
        case = usual_case("normal", *LARGE, dtype)
        x, dy = case.x.copy(), case.dy
        _, saved = tn.layer_norm_forward(
            x, *case.parameters, backend="native", rounding=rounding, threads=3
        )
        expected = tn.layer_norm_backward(dy, saved, backend="native", threads=3)
        for row in (0, 400, 500, 799, 801, len(x) - 1):
            kept = x[row, 7]
            x[row, 7] += dtype.type(3)
            with pytest.raises(RuntimeError, match=CHANGED):
                tn.layer_norm_backward(dy, saved, backend="native", threads=3)
            x[row, 7] = kept
        found = tn.layer_norm_backward(dy, saved, backend="native", threads=3)
        assert bytes_of(*found) == bytes_of(*expected)
