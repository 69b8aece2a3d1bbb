"""``python -m benchmarks.gpu``: what compilers for GPUs make of the kernels; none is needed here.

It compiles every kernel in correct mode, with those of nvcc, NVRTC and clang that are here, writes
registers, spills, shared memory and operations in float64 to ``results/gpu.json``, and from that
``docs/gpu-registers.md``. NVRTC has an environment of its own, which is made by the command.
"""
# ruff: noqa: T201
# A command prints its result.

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.compilers import COMPILERS, Compiler
from benchmarks.gpu.kernels import NORMS, SIZES, TYPES, Subject, subjects
from benchmarks.gpu.page import PAGE, page
from benchmarks.gpu.ptx import of_an_element
from benchmarks.timing import machine
from truenorm.kernels.gpu.plan import KERNELS, source_of
from truenorm.tools import strict_json
from truenorm.tools.progress import status_line

RESULTS = Path(__file__).resolve().parents[1] / "results" / "gpu.json"
DTYPES = ("float32", "bfloat16")
COUNTED = ("forward", "backward")


def compiled(compilers: Sequence[Compiler], chosen: Sequence[Subject]) -> Iterator[dict[str, Any]]:
    """Yield what each kernel uses on each target."""
    for compiler in compilers:
        for subject in chosen:
            for target in compiler.targets:
                status_line(f"{compiler.name} {target}: {' '.join(map(str, subject))}")
                use = compiler.compile(subject, source_of(subject.kernel), target)
                yield {
                    "compiler": compiler.name,
                    **subject._asdict(),
                    "target": target,
                    "use": use._asdict(),
                }
    status_line()


def counted() -> Iterator[dict[str, Any]]:
    """Yield the operations in float64 of kernels that go over all elements, which are float32.

    nvcc does not unroll forward for 16 bits, so that what it has there cannot be counted so.
    """
    for norm in NORMS:
        for kernel in COUNTED:
            status_line(f"counting {kernel}, {norm}")
            counts = of_an_element(kernel, "float32", norm)
            yield {"kernel": kernel, "norm": norm, "counts": counts}
    status_line()


def as_lines(report: dict[str, Any]) -> str:
    """Return a report as JSON, a line for each kernel."""
    parts = []
    for name, value in report.items():
        each = value if isinstance(value, list) else [value]
        lines = ",\n".join(strict_json.dumps(one, indent=None) for one in each)
        parts.append(f'"{name}": ' + (f"[\n{lines}\n]" if isinstance(value, list) else lines))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(argv: list[str] | None = None) -> int:
    """Compile, and write the file and the page."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description="Compile the GPU kernels and write what they use.",
    )
    described.add_argument("--compilers", nargs="+", choices=COMPILERS, default=list(COMPILERS))
    described.add_argument("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS))
    described.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    described.add_argument("--dtypes", nargs="+", choices=TYPES, default=DTYPES)
    described.add_argument("--output", type=Path, default=RESULTS)
    described.add_argument("--page", action="store_true", help=f"only write {PAGE.name} anew")
    arguments = described.parse_args(argv)
    if not arguments.page:
        versions = {name: COMPILERS[name].version() for name in arguments.compilers}
        if missing := [name for name, number in versions.items() if number is None]:
            print(f"not here: {', '.join(missing)}", file=sys.stderr)
            return 2
        compilers = [COMPILERS[name] for name in arguments.compilers]
        chosen = list(subjects(arguments.kernels, arguments.sizes, arguments.dtypes))
        report = {
            "machine": machine(packages=()),
            "versions": versions,
            "kernels": list(compiled(compilers, chosen)),
            "operations": list(counted()),
        }
        arguments.output.write_text(as_lines(report), encoding="utf-8")
    if arguments.output == RESULTS:
        report = json.loads(RESULTS.read_text(encoding="utf-8"))
        PAGE.write_text(page(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
