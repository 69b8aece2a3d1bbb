"""With the bounds of a backend divided by 64, the hard cases must see it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from programs import TESTS, run_python
from promise.bounds.divided import (
    QUICKLY_COMPILED,
    copied,
    divide_bounds,
    divide_bounds_of_copy,
)
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
    def core(self, request: pytest.FixtureRequest) -> Iterator[Any]:
        """Return the core with an instruction set, its bounds divided by 64."""
        from truenorm.kernels.native import _core

        if _core.select(request.param) != request.param:
            pytest.skip("not an instruction set of this processor")
        _core.scale_bounds(1 / 64)
        yield _core
        _core.scale_bounds(1.0)
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


COUNT = f"""
import sys
import truenorm
from promise.hard_cases import hard_cases
from promise.hard_cases.kept import some_kept
from promise.hard_cases.lonely import lonely_cases
from promise.judging import judge

print(truenorm.__file__)
dtype, norm = sys.argv[1:]
cases = {{output: some_kept(output, dtype, {ELEMENTS}) for output in ("dx", "dgamma")}}
cases["y"] = lonely_cases(some_kept("y", dtype, 10_000), {ELEMENTS // 4})
if norm == "rms_norm":  # whose hard elements of y are alone in their rows as they are
    outputs = ("dx", "dgamma", "y")
    cases = {{each: hard_cases(each, dtype, {ELEMENTS}, centred=False) for each in outputs}}
for output, some in cases.items():
    # Parameters of another type would only be compiled for.
    found = [
        wrong.elements
        for case in some
        if case.gamma.dtype == dtype
        for wrong in judge(case, [output], ["fused"])[1]
    ]
    print(output, sum(found))
"""


def wrong_elements(copy: Path, dtype: str, norm: str, **variables: str) -> dict[str, int]:
    """Let a copy of the package count what it gets wrong, in a process of its own."""
    path = os.pathsep.join([str(copy), str(TESTS)])
    who, *lines = run_python(COUNT, dtype, norm, seconds=1800, PYTHONPATH=path, **variables)
    assert Path(who).parent.parent == copy
    return {output: int(count) for output, count in map(str.split, lines)}


@pytest.mark.slow  # it compiles; and a copy that is as it was computes what hard_cases judges
@pytest.mark.skipif("fused" not in BACKENDS, reason="needs Numba")
class TestOfTheFusedBackend:
    @pytest.fixture
    def copy(self, tmp_path: Path) -> Path:
        return copied(tmp_path)

    # Level 2 counts (n + 1)**2 errors of low parts, which hardly ever add up: of 2**-6 of its
    # bounds nothing is seen, of 2**-8 little.
    @pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
    @pytest.mark.parametrize(("dtype", "share"), [("float32", 64), ("float64", 1024)])
    def test_divided(self, copy: Path, dtype: str, share: int, norm: str) -> None:
        divide_bounds_of_copy(copy, share)
        kept_apart = str(copy.parent / "kept")
        found = wrong_elements(
            copy, dtype, norm, TRUENORM_CACHE_DIR=kept_apart, **QUICKLY_COMPILED
        )
        assert found.keys() == {"y", "dx", "dgamma"}
        assert all(found.values()), found

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_as_they_are(self, copy: Path, dtype: str) -> None:
        """The copy is not wrong for being one. What is compiled already serves it, too."""
        assert wrong_elements(copy, dtype, "layer_norm") == {"y": 0, "dx": 0, "dgamma": 0}
