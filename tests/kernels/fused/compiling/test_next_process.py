"""The next process finds what was compiled, unless a source has changed."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("numba")

from programs import run_python

HELPER = """
from truenorm.kernels.fused.compiling import compiled, kernel

@compiled
def scaled(x):
    return {} * x
"""
# It inlines a helper, has an intrinsic, allocates and raises.
KERNEL = """
import numpy as np
from numba import types
from numba.extending import intrinsic
from helper import kernel, scaled

@intrinsic
def fma(typing, x, y, z):
    def code(context, builder, signature, args):
        return builder.fma(*args)
    return types.float64(types.float64, types.float64, types.float64), code

@kernel(_nrt=True)
def lost(x):
    if not x.size:
        raise ValueError("nothing")
    result = np.empty_like(x)
    for i in range(x.size):
        result[i] = fma(scaled(x[i]), x[i], -(scaled(x[i]) * x[i])) * 2.0**60
    return result

@kernel(_nrt=True)
def lost_and_one(x):
    return lost(x) + 1
"""
IMPORTS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np
from truenorm.kernels.fused import compiling
sys.path.insert(0, sys.argv[1])
compiling.SOURCES = Path(sys.argv[1])
compiling.IMPORTED = compiling._digest()
from kernel import lost, lost_and_one
"""
# 2 (1 + 2**-30)**2 loses 2 * 2**-60 when it is rounded.
CALL = """
try:
    lost(np.zeros(0))
except ValueError:
    print(lost(np.array([1 + 2.0**-30])), sum(lost.stats.cache_hits.values()))
"""
CALLS_AT_ONCE = """
with ThreadPoolExecutor(4) as pool:
    data = [np.array([1 + 2.0**-30], dtype) for dtype in 2 * ("f4", "f8")]
    print(*pool.map(lost, data))
"""
NUMBER = """
import os
from numba.core.bytecode import FunctionIdentity
from truenorm.kernels.fused import compiling
if child := os.fork():
    os.waitpid(child, 0)
print(FunctionIdentity.from_function(lambda: None).unique_id, flush=True)
os._exit(0)
"""


THE_OTHER = """
print(lost_and_one(np.array([1 + 2.0**-30])), len(lost_and_one.stats.cache_hits))
"""
LINKED = """
x = np.array([1 + 2.0**-30])
print(lost(x), len(lost.stats.cache_hits), lost_and_one(x), len(lost_and_one.stats.cache_hits))
"""


def write(root: Path, factor: float) -> None:
    (root / "sources").mkdir(exist_ok=True)
    (root / "sources" / "kernel.py").write_text(KERNEL, encoding="utf-8")
    (root / "sources" / "helper.py").write_text(HELPER.format(factor), encoding="utf-8")


def run(root: Path, code: str = CALL) -> str:
    (printed,) = run_python(
        IMPORTS + code,
        str(root / "sources"),
        TRUENORM_CACHE_DIR=str(root / "kept"),
        PYTHONDONTWRITEBYTECODE="1",  # of files that change within a second
    )
    return printed


def test_it_finds_what_was_compiled(tmp_path: Path) -> None:
    write(tmp_path, 2.0)
    assert [run(tmp_path), run(tmp_path)] == ["[2.] 0", "[2.] 1"]
    write(tmp_path, 3.0)
    assert run(tmp_path) == "[3.] 0"


def test_several_at_once(tmp_path: Path) -> None:
    """Processes of several threads that compile for two types."""
    write(tmp_path, 2.0)
    with ThreadPoolExecutor(2) as pool:
        printed = {*pool.map(run, [tmp_path] * 2, [CALLS_AT_ONCE] * 2)}
    assert printed == {"[0.] [2.] [0.] [2.]"}
    (kept,) = (tmp_path / "kept").iterdir()
    # One file for each kernel and type, and nothing half-written.
    names = sorted(path.name.split("-")[0] for path in kept.iterdir())
    assert names == 2 * ["lost"]


def test_kernels_that_call_others(tmp_path: Path) -> None:
    """One may be compiled into another after it was loaded as machine code alone."""
    write(tmp_path, 2.0)
    run(tmp_path)
    assert run(tmp_path, LINKED) == "[2.] 1 [3.] 0"
    assert run(tmp_path, LINKED) == "[2.] 1 [3.] 1"


@pytest.mark.slow
def test_kernels_that_are_loaded_for_others(tmp_path: Path) -> None:
    """What one calls is found while it is compiled, and is then a part of it."""
    write(tmp_path, 2.0)
    run(tmp_path)
    assert [run(tmp_path, THE_OTHER), run(tmp_path, THE_OTHER)] == ["[3.] 0", "[3.] 1"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_functions_are_numbered_apart() -> None:
    """One name would stand for two functions where what two processes compiled meets."""
    numbers = [int(line) for _ in range(2) for line in run_python(NUMBER)]
    apart = [abs(a - b) for k, a in enumerate(numbers) for b in numbers[:k]]
    assert len(numbers) == 4
    assert min(apart) > 10**4
