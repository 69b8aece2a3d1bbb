"""docs/gpu-registers.md, from what ``python -m benchmarks.gpu`` wrote."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.compilers import COMPILERS, Use
from benchmarks.gpu.kernels import Subject
from benchmarks.gpu.occupancy import MULTIPROCESSORS, blocks_at_once
from benchmarks.pages import markdown_table

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpu-registers.md"
TITLE = """\
<!-- Written by python -m benchmarks.gpu from benchmarks/results/gpu.json: change that. -->

# Registers of the GPU kernels

What compilers say of the [GPU kernels](gpu-kernel.md) in correct mode, without a GPU: nothing here
is a time. {compilers}; {cpu}, Python {python}, {date}. To all of them a warning is an error, and
contraction is off. `python -m benchmarks.gpu` compiles everything again and writes this page."""
READING = """\
A column for each target has registers a thread, a slash, and what is there at the same time.
For NVIDIA that is blocks a multiprocessor, the least of four numbers: how many registers allow
(65,536; a warp takes those of its 32 threads, rounded up to a multiple of 256), how many threads
allow (2,048; sm_120: 1,536), how many blocks there may be (32; sm_120: 24), and how many shared
memory allows (164, 228, 228 and 100 KB; a block takes 1 KB beside its own). These are of the table
"Technical Specifications per Compute Capability" in NVIDIA's
[CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities);
the multiple of 256 is of `cuda_occupancy.h` in CUDA 13.0.
For AMD it is waves a SIMD, as LLVM says. Bytes in bold are spilled: registers do not suffice.

Not in the tables are {small}, which take at most {registers} registers and spill nothing."""
SMALL = ("widen", "round_dgamma", "round_dbeta")
COUNTED = """\
## Operations in float64

Operations an element, counted in the PTX of nvcc for sm_90: 128 threads have a row of 1,024
elements or one of 2,048, all loops over elements are unrolled, and so the second text has the
operations of eight elements more than the first; an eighth of the difference is the count. What a
row takes once, and exchange between threads, is the same in both and drops out; loads, stores,
signs and moves do not count. Elements are float32: for 16 bits nvcc does not unroll forward."""


def page(report: Mapping[str, Any]) -> str:
    """Return the whole file."""
    where = report["machine"]
    named = " ".join(f"{name} {number}," for name, number in report["versions"].items())
    records = [each for each in report["kernels"] if each["kernel"] not in SMALL]
    parts = [TITLE.format(compilers=named.rstrip(","), **where), _reading(report["kernels"])]
    for compiler in dict.fromkeys(each["compiler"] for each in records):
        for kind in dict.fromkeys((each["dtype"], each["norm"]) for each in records):
            chosen = [
                each
                for each in records
                if each["compiler"] == compiler and (each["dtype"], each["norm"]) == kind
            ]
            parts += [f"## {compiler}: {kind[1]}, {kind[0]}", _table(compiler, chosen)]
    return "\n\n".join([*parts, COUNTED, _counts(report["operations"])]) + "\n"


def _reading(records: Sequence[Mapping[str, Any]]) -> str:
    small = [Use(**each["use"]) for each in records if each["kernel"] in SMALL]
    assert not any(use.spilled for use in small)
    names = f"{', '.join(SMALL[:-1])} and {SMALL[-1]}"
    return READING.format(small=names, registers=max(use.registers for use in small))


def _table(compiler: str, records: Sequence[Mapping[str, Any]]) -> str:
    targets = COMPILERS[compiler].targets
    found: dict[tuple[str, int], dict[str, Use]] = {}
    for each in records:
        uses = found.setdefault((each["kernel"], each["size"]), {})
        uses[each["target"]] = Use(**each["use"])
    kind = records[0]["dtype"], records[0]["norm"]
    rows = []
    for (kernel, size), uses in found.items():
        threads = Subject(kernel, size, *kind).plan.threads
        shared = {str(use.shared): None for use in uses.values()}
        cells = [_cell(uses[each], threads, each) if each in uses else "-" for each in targets]
        rows.append([kernel, str(size), str(threads), "/".join(shared), *cells])
    return markdown_table(["", "D", "threads", "shared, bytes", *targets], rows)


def _cell(use: Use, threads: int, target: str) -> str:
    multiprocessor = MULTIPROCESSORS.get(target)
    at_once = use.waves if multiprocessor is None else blocks_at_once(use, threads, multiprocessor)
    spilled = f", **{use.spilled}**" if use.spilled else ""
    return f"{use.registers} / {at_once}{spilled}"


def _counts(operations: Sequence[Mapping[str, Any]]) -> str:
    groups = list(operations[0]["counts"])
    rows = [
        [
            f"{each['kernel']}, {each['norm']}",
            *(f"{each['counts'][group]:g}" for group in groups),
            f"{sum(each['counts'].values()):g}",
        ]
        for each in operations
    ]
    return markdown_table(["", *groups, "all"], rows)
