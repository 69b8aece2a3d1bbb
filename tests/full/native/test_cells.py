"""The cell test of tier 1 for float32 rows: it accepts right results only.

With cells of one bit less, or with its bounds divided by 64, it would not.
"""

import ctypes
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import ctx

from shared.native.building import FLAGS, SETS, SOURCES, compiler_named, run
from shared.promise.checking import BACKENDS, expected_results, on_each_set
from shared.promise.families import Case
from shared.promise.hard_cases import FLOAT32, NEAR, OUTPUTS, PRECISION, RMS_NEAR, Maker, isolated
from shared.promise.oracle import bits

pytestmark = [
    pytest.mark.skipif("native" not in BACKENDS, reason="needs the C core"),
    pytest.mark.skipif(sys.platform == "win32", reason="loads a shared library as Unix does"),
]
CELL = 28
"""Bits of a float64 that a cell has."""
SIZES = (16, 64, 83, 530)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Any]:
    """Compile tier 1 for each instruction set, with cells as they are and twice as wide."""
    folder = tmp_path_factory.mktemp("cells")
    names = [name.split()[1] for name in on_each_set("native", bool)]
    return {
        (name, cell): library(folder, name, cell) for name in names for cell in (CELL, CELL + 1)
    }


def library(folder: Path, instructions: str, cell: int) -> Any:
    compiler = compiler_named("gcc", "clang")
    path = folder / f"{instructions}_{cell}.so"
    source = str(Path(__file__).with_name("cells.c"))
    options = ["-O1", "-fPIC", "-shared", f"-I{SOURCES}", *SETS[instructions]]
    defined = ["-DINSTRUCTIONS=tested", f"-DCELL={cell}"]
    run(compiler, *FLAGS, *options, *defined, source, "-o", str(path), "-lm")
    return ctypes.CDLL(str(path))


def midpoint_cases(output: str, *, centred: bool) -> Iterator[Case]:
    """Yield rows with results next to midpoints, in columns that the cell test takes."""
    near = (NEAR if centred else RMS_NEAR)[output]
    for k, (size, eps, offset) in enumerate(product(SIZES, (1e-5, 1.0), (0.0, 30.0))):
        with ctx.workprec(PRECISION), np.errstate(all="ignore"):
            make = Maker(FLOAT32, FLOAT32, [k, OUTPUTS.index(output)], centred=centred)
            case = near(make, size, eps, offset)
        if output == "y" and centred:  # one hard element a row
            yield isolated(case)
        else:
            yield case if centred else case.as_rms_norm()


def results(core: Any, case: Case, reach: float) -> tuple[Any, Any, Any]:
    """Return y, dx, and which rows of each are decided; `reach` scales the bounds."""
    rows, size = case.x.shape
    gamma, beta = (np.ascontiguousarray(each, np.float32) for each in case.parameters)
    y, dx = np.empty_like(case.x), np.empty_like(case.x)
    saved = np.zeros((rows, 3 if case.centred else 1))
    status = np.zeros((2, rows), np.uint8)

    def pointer(array: Any) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)

    shape = (ctypes.c_int64(rows), ctypes.c_int64(size), ctypes.c_double(case.eps))
    norm = ctypes.c_bool(case.centred), ctypes.c_double(reach)
    x, dy = np.ascontiguousarray(case.x), np.ascontiguousarray(case.dy)
    core.forward_of_rows(
        *map(pointer, (x, gamma, beta)), *shape, *norm, *map(pointer, (y, saved, status[0]))
    )
    core.backward_of_rows(
        *map(pointer, (x, dy, gamma)), *shape, *norm, *map(pointer, (dx, saved, status[1]))
    )
    return y, dx, status == 0


@pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])
@pytest.mark.parametrize("output", ["y", "dx"])
def test_smaller_cells_and_bounds_are_detected(
    output: str, libraries: dict[tuple[str, int], Any], *, centred: bool
) -> None:
    which = ("y", "dx").index(output)
    tried = [(name, cell, 1.0) for name, cell in libraries]
    if centred or output == "dx":  # y of RMSNorm has one bound for both tests
        tried += [(name, CELL, 1 / 64) for name, cell in libraries if cell == CELL]
    wrong = dict.fromkeys(tried, 0)
    for case in midpoint_cases(output, centred=centred):
        expected = expected_results(case, [output])[which]
        assert expected is not None
        for name, cell, reach in wrong:
            *computed, decided = results(libraries[name, cell], case, reach)
            chosen = computed[which]
            if case.columns is not None:
                chosen = chosen[..., list(case.columns)]
            different = (bits(chosen) != bits(expected))[decided[which]]
            wrong[name, cell, reach] += int(different.sum())
    right = {how for how in wrong if how[1:] == (CELL, 1.0)}
    assert all((count == 0) == (how in right) for how, count in wrong.items()), wrong


def undecided(z: Any, bound: Any) -> Any:
    """Return True where both ends of z +- bound are in different cells."""
    return (bits(z - bound) ^ bits(z + bound)) >> CELL != 0


@pytest.mark.parametrize("size", [64, 256, 1024, 4096])
def test_share_that_the_cell_test_leaves(size: int) -> None:
    """Elements of normal rows by (T1) and (T3); docs/inside/engine.md has the table."""
    u, h, random = 2.0**-53, 11 if size <= 512 else 12, np.random.default_rng(size)
    x, dy = random.standard_normal((2, 2**20 // size, size), np.float32).astype(float)
    gamma = 1 + 0.1 * random.standard_normal(size, np.float32).astype(float)
    beta = 0.1 * random.standard_normal(size, np.float32).astype(float)
    low = x.mean(1, keepdims=True)
    v = (x * x).mean(1, keepdims=True) - low * low
    w, s = v + 1e-5, np.sqrt(v + low * low)
    r, of_mean = 1 / np.sqrt(w), (h + 2) * u * s
    of_w = ((h + 6) * u * s * s + 2 * abs(low) * of_mean) / w + u
    of_r = of_w / 2 + 2 * u
    omega = (h + 5) / (2 * np.sqrt(4.25 * (h + 6)))
    y = (x - low) * r * gamma + beta
    reach = 1.01 * (of_r + 6 * u) * (2 * abs(beta) + (omega + np.sqrt(size)) * abs(gamma))
    g = dy * gamma
    a, rms = g.mean(1, keepdims=True), np.sqrt((g * g).mean(1, keepdims=True))
    q = (g * (x - low)).mean(1, keepdims=True) / w
    of_q = (u * rms * ((h + 4) * s + (h + 2) * abs(low)) + of_mean * abs(a)) / w
    of_q += abs(q) * (of_w + u)
    dx = r * (g - a - (x - low) * q)
    of_dx = (h + 5) * u * rms + abs(q) * (of_mean + 6 * u * s)
    of_dx += np.sqrt(size) * rms * (of_r + 3 * u)
    of_dx += np.sqrt(size * v) * (of_q + abs(q) * (of_r + 6 * u))
    shares = {"y": undecided(y, reach), "dx": undecided(dx, 1.01 * r * of_dx)}
    for output, left in shares.items():
        again = left.reshape(-1, min(size, 128)).any(1).mean()
        print(f"{output}, D = {size}: {left.mean():.1e}, columns again {again:.2%}")  # noqa: T201
        assert 0 < left.mean() < 5e-4
        assert again < 0.05
