"""Processor time of the judge at the quick level, beyond the calls of the kernel.

``pytest -m slow -s tests/full/verify/quantized/test_time.py`` prints a table.
"""

from time import process_time
from typing import Any

import pytest

import truenorm.verify as tv
from shared.verify.quantized.kernels import Kernel
from truenorm.verify.operations import parse_operation

LARGEST_TIME = 2.0
"""Seconds for a scheme and a type: section 6 of the design of quantized norms."""
SCHEMES = [
    *("e4m3fn", "e4m3fnuz", "e5m2", "int8", "e4m3fn,direction=multiply,amax=true"),
    *("e4m3fn,scale=per-token", "int8,scale=per-token", "e4m3fn,scale=per-128"),
    *("mxfp8", "mxfp4", "nvfp4"),
]
DTYPES = ["float16", "bfloat16", "float32"]


class Timed(Kernel):
    """A kernel that measures its own time."""

    seconds = 0.0

    def __call__(self, *arguments: Any) -> Any:
        """Run forward."""
        start = process_time()
        results = super().__call__(*arguments)
        self.seconds += process_time() - start
        return results


@pytest.mark.slow(reason="times depend on the machine")
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
def test_time_beyond_the_kernel(name: str) -> None:
    print(f"\n{name:36}" + "".join(f"{dtype:>10}" for dtype in DTYPES))  # noqa: T201 (a table for people)
    slowest = 0.0
    for scheme in SCHEMES:
        norm = parse_operation(f"{name},quant={scheme}")
        times = []
        for dtype in DTYPES:
            kernel, start = Timed(norm), process_time()
            tv.verify(kernel.subject(dtype))
            times.append(process_time() - start - kernel.seconds)
        print(f"{scheme:36}" + "".join(f"{each:10.2f}" for each in times))  # noqa: T201
        slowest = max(slowest, *times)
    assert slowest <= LARGEST_TIME
