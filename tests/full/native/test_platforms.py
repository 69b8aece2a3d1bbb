"""The C core on other processors and systems, and under sanitizers: minutes to compile."""

import os
import platform
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import truenorm as tn
from shared.native.building import (
    ROOT,
    SETS,
    SOURCES,
    build_driver,
    build_package,
    compile_all,
    compiler_named,
    program_named,
)
from shared.promise.checking import BACKENDS
from shared.promise.families import cases
from truenorm.api import fast_path
from truenorm.kernels.call import LAYER_NORM, RMS_NORM, Rounding, Settings

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

pytestmark = pytest.mark.slow(
    reason="compiles the core again, for sanitizers and other processors"
)
CENTRED, FAST, HAS_GAMMA, HAS_BETA = 1, 2, 4, 8
FLOAT32 = np.dtype(np.float32)


class Vector(NamedTuple):
    """One case of the driver."""

    x: Any
    dy: Any
    gamma: Any
    beta: Any
    eps: float
    flags: int
    threads: int

    def to_bytes(self, order: str) -> bytes:
        """Return the case as the driver reads it, in its byte order, "<" or ">"."""
        header = struct.pack(f"{order}4qd", *self.x.shape, self.flags, self.threads, self.eps)
        return header + b"".join(each.astype(f"{order}f4").tobytes() for each in self[:4])


def _vectors() -> list[Vector]:
    random = np.random.default_rng(0)
    vectors: list[Vector] = []
    usual = [
        tuple(random.standard_normal(shape).astype(np.float32) for shape in shapes)
        for rows, size in ((1, 1), (2, 2), (3, 7), (9, 100), (17, 513), (200, 300), (3, 9000))
        for shapes in [((rows, size), (rows, size), size, size)]
    ]
    hard = [
        (case.x, case.dy, *case.parameters)
        for case in cases(FLOAT32, 30_000)
        if all(each.dtype == FLOAT32 for each in case.parameters)
    ]
    for arrays in usual + hard:
        x, dy, gamma, beta = (np.ascontiguousarray(each, FLOAT32) for each in arrays)
        for flags in range(16):
            if not flags & FAST or abs(x).max() < 100:
                vectors.append(Vector(x, dy, gamma, beta, 1e-5, flags, 1 + len(vectors) % 4))
    return vectors


def _by_driver(
    command: list[str], vectors: list[Vector], folder: Path, order: str = "<"
) -> list[Any]:
    """Return the ends, y and dx of each case, dgamma and dbeta as the driver computes them."""
    file = folder / "vectors"
    file.write_bytes(b"".join(each.to_bytes(order) for each in vectors))
    command = [*command, "vectors", str(file)]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    results, at = [], 0
    for each in vectors:
        elements, size = each.x.size, each.x.shape[1]
        ends = struct.unpack_from(f"{order}2q", output, at)
        numbers = np.frombuffer(output, f"{order}f4", 2 * elements + 2 * size, at + 16)
        numbers = numbers.astype(FLOAT32)
        at += 16 + numbers.nbytes
        parts = np.split(numbers, [elements, 2 * elements, 2 * elements + size])
        results.append((ends, parts))
    assert at == len(output)
    return results


def _by_module(vector: Vector) -> Any:
    """Return the same by the extension module on this processor."""
    x, dy, gamma, beta, eps, flags, threads = vector
    norm = LAYER_NORM if flags & CENTRED else RMS_NORM
    rounding: Rounding = "fast" if flags & FAST else "correct"
    parameters = (gamma if flags & HAS_GAMMA else None, beta if flags & HAS_BETA else None)
    results = fast_path.forward(
        norm, x, *parameters, -1, eps, rounding, None, "native", threads, None, True
    )
    if results is NotImplemented:
        return (1, 1), ()
    y, saved = results
    settings = Settings(norm, eps, rounding, "native")
    saved = tn.Saved(x, gamma, beta.dtype, (1,), settings, saved.statistics)
    gradients = fast_path.backward(norm, dy, saved, None, "native", threads, None)
    if gradients is NotImplemented:
        return (0, 1), (y.reshape(-1),)
    return (0, 0), (y.reshape(-1), gradients.dx.reshape(-1), gradients.dgamma, gradients.dbeta)


def _scales(vector: Vector) -> list[Any]:
    """Return the magnitudes of the terms of y, dx, dgamma and dbeta; |xhat| is below a root."""
    x, dy, gamma, beta = (np.abs(np.float64(each)) for each in vector[:4])
    centre = vector.x.mean(1, keepdims=True) if vector.flags & CENTRED else 0
    r = 1 / np.sqrt(((vector.x - centre) ** 2).mean(1, keepdims=True) + vector.eps)
    root = np.sqrt(x.shape[1])
    y = gamma.max() * root + beta.max()
    dx = np.broadcast_to(r * (dy * gamma).max(1, keepdims=True) * root, x.shape)
    return [y, dx.reshape(-1), dy.sum(0) * root, dy.sum(0)]


def _compare(vectors: list[Vector], results: list[Any]) -> int:
    """Compare the results with those of the module; return how many have the same bits."""
    same = 0
    for vector, (ends, parts) in zip(vectors, results, strict=True):
        expected_ends, expected = _by_module(vector)
        assert ends == expected_ends, vector
        for k, (one, other) in enumerate(zip(parts, expected, strict=False)):
            if vector.flags & FAST:
                assert np.all(np.abs(one - other) <= 2.0**-16 * _scales(vector)[k]), (k, vector)
            else:
                assert one.tobytes() == other.tobytes(), (k, vector)
                same += 1
    return same


def _emulated(processor: str, order: str, folder: Path) -> int:
    """Compare the results of another processor; return how many have the same bits."""
    compiler = compiler_named(f"{processor}-linux-gnu-gcc")
    emulator = program_named(f"qemu-{processor}", f"qemu-{processor}-static")
    program = build_driver(compiler, folder, "-O3", "-static")
    vectors = _vectors()
    results = _by_driver([emulator, str(program)], vectors, folder, order)
    return _compare(vectors, results)


def test_aarch64(tmp_path: Path) -> None:
    """Correct mode has the bits of x86-64; fast mode sums in another order."""
    assert _emulated("aarch64", "<", tmp_path) > 1000


def test_s390x(tmp_path: Path) -> None:
    """The same on a processor whose numbers start with the most significant byte."""
    assert _emulated("s390x", ">", tmp_path) > 1000


def test_this_processor(tmp_path: Path) -> None:
    """The driver computes the bits of the module."""
    program = build_driver(compiler_named("gcc", "clang"), tmp_path, "-O2")
    vectors = _vectors()
    assert _compare(vectors, _by_driver([str(program)], vectors, tmp_path)) > 1000
    subprocess.run([program, "flush", "4"], check=True)


CONTRACTED = """
#include "core.h"
int main(void) { return kernels_select(NULL) == NULL; }
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names instructions of x86-64")
@pytest.mark.parametrize(("contract", "is_refused"), [("fast", True), ("off", False)])
def test_contraction_is_refused(tmp_path: Path, contract: str, is_refused: bool) -> None:
    """Products and sums that the compiler fuses are seen when an instruction set is chosen."""
    compiler = compiler_named("gcc")
    # With -O1, as the baseline is compiled, gcc contracts only if it is asked to.
    flags = [*SETS["avx2"], "-fexpensive-optimizations", f"-ffp-contract={contract}"]
    objects = compile_all(compiler, tmp_path, *flags)
    source, program = tmp_path / "main.c", tmp_path / "main"
    source.write_text(CONTRACTED, encoding="utf-8")
    subprocess.run(
        [compiler, f"-I{SOURCES}", source, *objects, "-o", program, "-lm", "-lpthread"], check=True
    )
    assert subprocess.run([program], check=False).returncode == is_refused


def test_windows_compiles(tmp_path: Path) -> None:
    """All objects compile without a warning, for every instruction set."""
    compiler = compiler_named("x86_64-w64-mingw32-gcc")
    sets = tuple(SETS)
    assert len(compile_all(compiler, tmp_path, "-O3", sets=sets)) == (5 * 3 + 3) * len(sets) + 2


FUZZ = """
import sys
from full.native import test_entry, test_fuzz

for fuzzer in (test_entry.Fuzzer(int(sys.argv[2])), test_fuzz.Fuzzer(int(sys.argv[2]))):
    fuzzer.run(int(sys.argv[1]))
    assert fuzzer.counts["calls"] >= int(sys.argv[1])
"""


def _run(command: list[str], variables: dict[str, str]) -> str:
    """Return the output of a program that must succeed."""
    completed = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stdout[-10_000:] + completed.stderr[-10_000:]
    return completed.stdout


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Build the core with the address and undefined-behaviour sanitizers; return variables."""
    compiler = compiler_named("gcc")
    flags = ["-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    sources = build_package(compiler, tmp_path_factory.mktemp("sanitized"), *flags)
    command = [compiler, "-print-file-name=libasan.so"]
    runtime = subprocess.check_output(command, text=True).strip()
    if not Path(runtime).is_absolute():
        pytest.skip("needs the libraries of the sanitizers")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(sources), str(ROOT / "tests")]),
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "TRUENORM_TEST_BACKENDS": "native",
    }


@pytest.mark.skipif(sys.platform != "linux", reason="preloads as Linux does")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="builds the sets of x86-64")
class TestSanitizers:
    def test_contract(self, sanitized: dict[str, str]) -> None:
        _run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/fast/api"],
            sanitized,
        )

    @pytest.mark.parametrize("instructions", ["baseline", "avx2", "avx512"])
    def test_hostile_arguments(self, sanitized: dict[str, str], instructions: str) -> None:
        """Python and NumPy allocate by the sanitizer, which detects each overrun."""
        variables = {"TRUENORM_INSTRUCTIONS": instructions, "PYTHONMALLOC": "malloc"}
        command = [sys.executable, "-W", "ignore", "-c", FUZZ, "200000", "1"]
        _run(command, sanitized | variables)

    @pytest.mark.parametrize("forks", ["0", "20"])
    def test_threads(self, tmp_path: Path, forks: str) -> None:
        """There is no data race between callers and helpers, with child processes or without."""
        compiler = compiler_named("clang", "clang-19", "gcc")
        program = build_driver(compiler, tmp_path, "-O1", "-g1", "-fsanitize=thread")
        variables = {**os.environ, "TSAN_OPTIONS": "die_after_fork=0 halt_on_error=1"}
        output = _run([str(program), "threads", "20", "4", forks], variables)
        assert output.endswith(f"{forks} children\n")
