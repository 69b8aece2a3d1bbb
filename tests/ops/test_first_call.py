"""The first call on float32 imports what it needs, and no more: half of it would be imports."""

import pytest

from programs import run_python
from promise.checking import BACKENDS

NOT_NEEDED = (
    "logging",
    "importlib.resources",
    "pathlib",
    "truenorm.kernels.driver",
    "truenorm.kernels.gpu",
    "truenorm.kernels.native.blocks",
    "truenorm.api.run",
)
FIRST_CALL = """
import sys
import numpy as np
import truenorm as tn

before = set(sys.modules)
x = np.ones((3, 5), np.float32)
y, saved = tn.layer_norm_forward(x, x[0], x[0], backend="native")
tn.layer_norm_backward(x, saved, backend="native")
print(*sorted(set(sys.modules) - before), sep="\\n")
"""


@pytest.mark.skipif("native" not in BACKENDS, reason="needs the C core")
def test_imports() -> None:
    imported = run_python(FIRST_CALL)
    assert "truenorm.kernels.native._core" in imported
    assert [name for name in imported if name.startswith(NOT_NEEDED)] == []
