"""Partials of rows that are longer than a block of any loop over rows."""

import pytest

from shared.programs import run_python
from shared.promise.checking import BACKENDS

LENGTHS = (32767, 32768, 32769, 40000, 300000)
SECONDS = 60
PROGRAM = """
import sys
import numpy as np
import truenorm as tn

size = int(sys.argv[1])
x, dy = np.random.default_rng(size).standard_normal((2, 9, size)).astype(np.float32)
for name in ("layer_norm", "rms_norm"):
    forward = getattr(tn, f"{name}_forward")
    backward = getattr(tn, f"{name}_backward_partial")
    seen = set()
    for backend in ("native", "reference"):
        _, saved = forward(x, x[0], backend=backend)
        dx, partial = backward(dy, saved, backend=backend)
        seen.add((dx.tobytes(), partial.tobytes()))
    print(name, len(seen))
"""


@pytest.mark.skipif("native" not in BACKENDS, reason="needs the C core")
@pytest.mark.parametrize("size", LENGTHS)
def test_long_rows_end_with_the_bytes_of_the_reference(size: int) -> None:
    """Calls run in a process with a time limit: a loop of the C core does not see signals."""
    lines = run_python(PROGRAM, str(size), seconds=SECONDS)
    assert lines == ["layer_norm 1", "rms_norm 1"]
