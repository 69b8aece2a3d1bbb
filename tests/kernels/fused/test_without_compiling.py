"""With NUMBA_DISABLE_JIT=1 every kernel is the Python it is written in, and gives the same bits.

So a debugger and the measuring of coverage see inside; and where what is compiled has a twin in
Python, the two are held against each other.
"""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from programs import run_python
from promise.families import DTYPES

CODE = "import sys; from kernels.fused.uncompiled import main; main(sys.argv[1])"


def gated(dtype: np.dtype[Any]) -> Any:
    """Leave to the slow session all but float32, which goes through both levels.

    What is compiled of the others is held against the reference in `promise/test_same_bits.py`.
    """
    return pytest.param(dtype, marks=() if dtype.name == "float32" else pytest.mark.slow)


@pytest.mark.parametrize("dtype", [gated(dtype) for dtype in DTYPES], ids=str)
def test_in_python(dtype: np.dtype[Any]) -> None:
    *wrong, count = run_python(CODE, dtype.name, NUMBA_DISABLE_JIT="1", TRUENORM_THREADS="2")
    assert not wrong, "\n".join(wrong[:10])
    assert int(count) > 75
