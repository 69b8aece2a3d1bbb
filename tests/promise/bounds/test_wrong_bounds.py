"""With the bounds of a backend divided by 64, the hard cases must see it."""

from collections.abc import Iterator

import numpy as np
import pytest

from promise.bounds.divided import bounds_of_core_divided, divide_bounds
from promise.hard_cases import hard_cases
from promise.hard_cases.kept import some_kept
from promise.judging import BACKENDS, judge

ELEMENTS = 2000


class TestOfTheReference:
    @pytest.fixture(autouse=True)
    def bounds_divided_by_64(self, monkeypatch: pytest.MonkeyPatch) -> None:
        divide_bounds(monkeypatch, 64)

    @pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
    @pytest.mark.parametrize("output", ["y", "dx", "dgamma"])
    def test_in(self, output: str, dtype: type[np.floating], *, centred: bool) -> None:
        made = hard_cases(output, dtype, ELEMENTS, centred=False)
        found = [
            wrong
            for case in (some_kept(output, dtype, ELEMENTS) if centred else made)
            for wrong in judge(case, [output], ["reference"])[1]
        ]
        assert found


@pytest.mark.skipif("native" not in BACKENDS, reason="needs the C core")
class TestOfTheNativeBackend:
    @pytest.fixture(params=["baseline", "avx2", "avx512"])
    def core(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """Select an instruction set, and divide the bounds by 64."""
        from truenorm.kernels.native import _core

        if _core.select(request.param) != request.param:
            pytest.skip("not an instruction set of this processor")
        with bounds_of_core_divided(64):
            yield
        _core.select(None)

    @pytest.mark.usefixtures("core")
    @pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])
    @pytest.mark.parametrize("output", ["y", "dx", "dgamma"])
    def test_in(self, output: str, *, centred: bool) -> None:
        made = hard_cases(output, np.float32, ELEMENTS, centred=False)
        found = [
            wrong
            for case in (some_kept(output, "float32", ELEMENTS) if centred else made)
            for wrong in judge(case, [output], ["native"])[1]
        ]
        assert found

    @pytest.mark.usefixtures("core")
    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_in_y_of_16_bits(self, dtype: str) -> None:
        """The bound (C5) of float32 arithmetic; the others are those of float32 rows."""
        found = [
            wrong
            for case in some_kept("y", dtype, ELEMENTS)
            for wrong in judge(case, ["y"], ["native"])[1]
        ]
        assert found
