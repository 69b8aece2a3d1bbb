"""The C core under sanitizers: minutes, most of them for the compiler."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from native.building import build_driver, build_package, compiler_named
from promise.checking import BACKENDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="preloads as Linux does"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="builds the sets of x86-64"),
]
if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

ROOT = Path(__file__).parents[2]
FUZZ = """
import sys
from native.hostile import Fuzzer

fuzzer = Fuzzer(int(sys.argv[2]), compared=0.003)
fuzzer.run(int(sys.argv[1]))
print(fuzzer.counts["calls"])
"""


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Build the core with the address and undefined-behaviour sanitizers; return variables."""
    compiler = compiler_named("gcc")
    flags = ["-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    sources = build_package(compiler, tmp_path_factory.mktemp("sanitized"), *flags)
    asked = [compiler, "-print-file-name=libasan.so"]
    runtime = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("needs the runtime of the sanitizers")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(sources), str(ROOT / "tests")]),
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "TRUENORM_TEST_BACKENDS": "native",
    }


def test_contract(sanitized: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/ops"]
    ran = subprocess.run(
        command, cwd=ROOT, env=sanitized, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-10_000:] + ran.stderr[-10_000:]


@pytest.mark.parametrize("instructions", ["baseline", "avx2", "avx512"])
def test_hostile_arguments(sanitized: dict[str, str], instructions: str) -> None:
    """Memory of Python and NumPy is that of the sanitizer, so that each overrun is seen."""
    variables = {"TRUENORM_INSTRUCTIONS": instructions, "PYTHONMALLOC": "malloc"}
    command = [sys.executable, "-W", "ignore", "-c", FUZZ, "200000", "1"]
    ran = subprocess.run(
        command, env=sanitized | variables, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-10_000:] + ran.stderr[-10_000:]
    assert int(ran.stdout) >= 200_000


@pytest.mark.parametrize("forks", ["0", "20"])
def test_threads(tmp_path: Path, forks: str) -> None:
    """No data race between callers and helpers, with children or without."""
    compiler = compiler_named("clang", "clang-19", "gcc")
    program = build_driver(compiler, tmp_path, "-O1", "-g1", "-fsanitize=thread")
    ran = subprocess.run(
        [program, "threads", "20", "4", forks],
        env={**os.environ, "TSAN_OPTIONS": "die_after_fork=0 halt_on_error=1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith(f"{forks} children\n")
