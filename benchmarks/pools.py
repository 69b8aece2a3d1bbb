"""``python -m benchmarks.pools``: the hand-off to another thread, by three thread pools.

Compares the helpers of the C core with OpenMP and, if its sources are named, with pthreadpool.
"""
# ruff: noqa: T201
# A command prints its result.

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.timing import heading, machine

__all__ = ["main"]

PROGRAM = Path(__file__).with_name("pools.c")
NATIVE = Path(__file__).parent.parent / "src/truenorm/kernels/native"
COLUMNS = ("back to back", "after 5 ms", "idle CPU in 100 ms", "two callers", "works after fork")


def compile_pool(folder: Path, pool: int, sources: Sequence[Path], options: Sequence[str]) -> Path:
    """Compile the program for a pool, and return it."""
    program = folder / f"pool{pool}"
    files = [PROGRAM, *sources]
    command = ["gcc", "-std=gnu11", "-O2", f"-DPOOL={pool}", f"-I{NATIVE}", *options]
    subprocess.run(
        [*command, *map(str, files), "-lpthread", "-lm", "-o", str(program)], check=True
    )
    return program


def pthreadpool(folder: Path, fxdiv: Path) -> tuple[list[Path], list[str]]:
    """Return the sources of pthreadpool, and the options that they need."""
    names = ("pthreads.c", "fastpath.c", "portable-api.c", "memory.c", "legacy-api.c")
    found = [folder / "src" / name for name in names]
    options = [f"-I{folder / 'include'}", f"-I{folder / 'src'}", f"-I{fxdiv / 'include'}"]
    return [each for each in found if each.exists()], [*options, "-DPTHREADPOOL_USE_FUTEX=1"]


def main(argv: list[str] | None = None) -> int:
    """Print medians over several runs, the pools in turns."""
    described = argparse.ArgumentParser(prog="python -m benchmarks.pools", description=__doc__)
    described.add_argument("--runs", type=int, default=7)
    described.add_argument("--pthreadpool", type=Path, help="a checkout of google/pthreadpool")
    described.add_argument("--fxdiv", type=Path, help="a checkout of FXdiv, which it needs")
    arguments = described.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = {
            "helpers of the C core": compile_pool(folder, 0, [NATIVE / "threads.c"], []),
            "OpenMP (libgomp)": compile_pool(folder, 1, [], ["-fopenmp"]),
        }
        if arguments.pthreadpool:
            sources, options = pthreadpool(arguments.pthreadpool, arguments.fxdiv)
            programs["pthreadpool"] = compile_pool(folder, 2, sources, options)
        lines: dict[str, list[list[float]]] = {each: [] for each in programs}
        for _ in range(arguments.runs):
            for each, program in programs.items():
                done = subprocess.run([program], capture_output=True, text=True, check=True)
                lines[each].append([float(number) for number in done.stdout.split()])
    print(heading(machine(packages=())))
    print(f"{'microseconds':24s}" + "".join(f"{column:>20s}" for column in COLUMNS))
    for each, runs in lines.items():
        *times, works = (median(column) for column in zip(*runs, strict=True))
        row = "".join(f"{time:20.1f}" for time in times)
        print(f"{each:24s}{row}{'yes' if works else 'no':>20s}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
