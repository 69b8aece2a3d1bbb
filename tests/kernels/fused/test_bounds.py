"""The bounds of both levels hold, sums are as deep as they say, and few rows are refused."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from gated import GATED_TYPES
from programs import run_python
from promise.families import usual_case
from promise.judging import both_passes
from truenorm.kernels.fused.backend import FusedBackend
from truenorm.kernels.fused.compiled.narrow import backward as narrow_backward
from truenorm.kernels.fused.compiled.narrow import forward as narrow_forward


# Fractions take their time: of the three cases of a family the gate has one, or two.
@pytest.mark.parametrize(
    ("dtype", "every"),
    [
        ("float32", 2),
        ("float64", 3),
        *(pytest.param(each, 1, marks=pytest.mark.slow) for each in ("float32", "float64")),
    ],
)
def test_exact_results_lie_within_the_bounds(dtype: str, every: int) -> None:
    """Of every family, to 60 digits by way of fractions: y, dx and dgamma of levels 1 and 2."""
    code = (
        "import sys; from kernels.fused.brackets import main; main(sys.argv[1], int(sys.argv[2]))"
    )
    lines = [line.split() for line in run_python(code, dtype, str(every), NUMBA_DISABLE_JIT="1")]
    assert sorted(output for output, *_ in lines) == ["dgamma", "dx", "y"]
    for output, count, share, *case in lines:
        assert int(count) > 3000 // every
        # Neither luck without proof nor a bound without meaning. Level 2 has much room: it
        # counts errors of low parts that hardly ever add up.
        assert 0.005 < float(share) < 0.9, (output, case)


def test_no_term_goes_through_more_additions_than_claimed() -> None:
    code = "from kernels.fused.depths import main; main()"
    lines = run_python(code, NUMBA_DISABLE_JIT="1")
    assert len(lines) > 20
    for size, claimed, *counted in (map(int, line.split()) for line in lines):
        assert counted == [claimed] * 6, size
        assert claimed <= np.log2(size) + 2


ROWS, SIZE = 1000, 4096


@pytest.mark.parametrize("dtype", GATED_TYPES[:3], ids=str)
def test_few_rows_of_normal_data_are_refused(
    dtype: np.dtype[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most one in fifty, though each row has 4096 chances."""
    left: dict[str, list[int]] = {"forward": [], "backward": []}

    def count(kernel: Any, name: str) -> Any:
        def counting(*arguments: Any) -> Any:
            found = kernel(*arguments)
            left[name].append(found[0] if name == "backward" else found)
            return found

        return counting

    monkeypatch.setattr(FusedBackend, "at_once", None)  # the driver asks for the kernels by name
    for module, name in ((narrow_forward, "forward"), (narrow_backward, "backward")):
        monkeypatch.setattr(module, name, count(getattr(module, name), name))
    both_passes(usual_case("normal", ROWS, SIZE, dtype), "fused")
    for name, counts in left.items():
        assert len(counts) > 1, name  # blocks
        assert sum(counts) <= ROWS // 50, name
