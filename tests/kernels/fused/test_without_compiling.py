"""With NUMBA_DISABLE_JIT=1 every kernel is the Python it is written in, and gives the same bits.

So a debugger and the measuring of coverage see inside; and where what is compiled has a twin in
Python, the two are held against each other.
"""

import pytest

pytest.importorskip("numba")

from programs import run_python

CODE = "from kernels.fused.uncompiled import main; main()"


def test_in_python() -> None:
    *wrong, count = run_python(CODE, NUMBA_DISABLE_JIT="1", TRUENORM_THREADS="2")
    assert not wrong, "\n".join(wrong[:10])
    assert int(count) > 300
