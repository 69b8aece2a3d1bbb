"""``python -m benchmarks.gpu``: resources of the GPU kernels, by compilers; no GPU is needed.

It compiles every kernel in correct mode by nvcc, NVRTC and clang, and writes registers, spills,
shared memory and float64 operations to results/gpu.json, which docs/inside/gpu-registers.md shows.
NVRTC gets an environment of its own. ``--instructions`` prints the counts of
`benchmarks.roofline` instead: the instructions of an element in machine code for sm_90, by nvcc
and cuobjdump.
"""

import ctypes
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.common import RESULTS, coloured, machine, markdown_table, options, read_results
from benchmarks.environments import FOLDER, Peer, python_for
from truenorm.exact import BFLOAT16, FLOAT16, FLOAT32
from truenorm.kernels.gpu.plan import KERNELS, Plan, source_of
from truenorm.tools.progress import status_line

FILES = (RESULTS / "gpu.json",)
SIZES = (64, 256, 1024, 4096, 8192, 16384)
TYPES = {each.name: each for each in (FLOAT32, FLOAT16, BFLOAT16)}
NORMS = {"layer norm": True, "RMSNorm": False}


class Subject(NamedTuple):
    """A kernel in correct mode, for rows of one length and type."""

    kernel: str
    size: int
    dtype: str
    norm: str

    @property
    def plan(self) -> Plan:
        """The layout of rows on threads."""
        return Plan.of(
            self.kernel, self.size, TYPES[self.dtype], centred=NORMS[self.norm], correct=True
        )


def subjects(
    kernels: Sequence[str], sizes: Sequence[int], dtypes: Sequence[str]
) -> Iterator[Subject]:
    """Yield the kernels that are launched: `run_sums` only where backward has no sums."""
    for subject in map(Subject._make, product(kernels, sizes, dtypes, NORMS)):
        if subject.kernel != "run_sums" or not subject.plan.sums_in_registers:
            yield subject


def defines(plan: Plan) -> list[str]:
    """Return the constants of a plan as compiler options."""
    return [f"-D{name}={value}" for name, value in plan.macros.items()]


NVIDIA = ("sm_80", "sm_90", "sm_100", "sm_120")
AMD = ("gfx90a", "gfx942")

NVCC = ("nvcc", "-fmad=false", "-Werror", "all-warnings")
CLANG = (
    *("clang-19", "-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-nostdinc"),
    *("-O3", "-ffp-contract=off", "-Wall", "-Werror", "-DBARE_HIP", "-S"),
)
NVRTC = Peer("nvrtc", "nvrtc", ("nvidia-cuda-nvrtc==13.4.92",))
"""Only a library; it needs no driver."""


class Use(NamedTuple):
    """Registers and spilled bytes of a thread, and shared bytes of a block."""

    registers: int
    spilled: int
    shared: int
    waves: int | None = None
    """AMD only: waves of a SIMD at the same time, as LLVM reports."""


class Compiler(NamedTuple):
    """A compiler and its targets."""

    name: str
    targets: tuple[str, ...]
    version: Callable[[], str | None]
    """None if it is not installed."""
    compile: Callable[[Subject, str, str], Use]
    """Takes a subject, its source and a target; a warning is an error."""


def is_installed(name: str) -> bool:
    """Return True if a compiler can be used without installing anything."""
    if name == "NVRTC":
        return (FOLDER / NVRTC.environment / "installed.txt").exists()
    return COMPILERS[name].version() is not None


def by_nvcc(subject: Subject, source: str, target: str) -> Use:
    """Compile to machine code."""
    flags = ("-cubin", f"-arch={target}", "-Xptxas", "-v")
    messages, _ = _compile((*NVCC, *flags), source, subject.plan)
    return _of_ptxas(subject.kernel, messages)


def ptx_of(source: str, plan: Plan, target: str) -> str:
    """Return the PTX of nvcc."""
    return _compile((*NVCC, "-ptx", f"-arch={target}"), source, plan)[1]


def by_clang(subject: Subject, source: str, target: str) -> Use:
    """Compile to assembly, where LLVM reports the resources after each kernel."""
    _, text = _compile((*CLANG, f"--offload-arch={target}"), source, subject.plan)
    report = text.partition(f"\n{subject.kernel}:")[2].partition("; -- End function")[2]
    return Use(
        registers=_number(r"; TotalNumVgprs: (\d+)", report),
        spilled=_number(r"; ScratchSize: (\d+)", report),
        shared=_number(r"; LDSByteSize: (\d+)", report),
        waves=_number(r"; Occupancy: (\d+)", report),
    )


def by_nvrtc(subject: Subject, source: str, target: str) -> Use:
    """Compile to machine code at run time."""
    library = _nvrtc()
    assert library is not None
    program = ctypes.c_void_p()
    flags = [f"--gpu-architecture={target}", "--fmad=false", "--ptxas-options=-v"]
    flags += defines(subject.plan)
    encoded = (ctypes.c_char_p * len(flags))(*(each.encode() for each in flags))
    _check(
        library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"a.cu", 0, None, None)
    )
    failed = library.nvrtcCompileProgram(program, len(flags), encoded)
    size = ctypes.c_size_t()
    _check(library.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
    log = ctypes.create_string_buffer(size.value)
    _check(library.nvrtcGetProgramLog(program, log))
    _check(library.nvrtcDestroyProgram(ctypes.byref(program)))
    messages = log.value.decode()
    if failed or "warning" in messages:
        raise RuntimeError(messages)
    return _of_ptxas(subject.kernel, messages)


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"NVRTC ended with {code}")


def _of_ptxas(kernel: str, messages: str) -> Use:
    """Parse the messages of ptxas about one kernel."""
    _, _, report = messages.partition(f"Compiling entry function '{kernel}'")
    report = report.partition("Compiling")[0]
    shared = re.search(r"(\d+) bytes smem", report)
    return Use(
        registers=_number(r"Used (\d+) registers", report),
        spilled=_number(r"(\d+) bytes spill stores", report),
        shared=int(shared[1]) if shared else 0,
    )


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    if match is None:
        raise RuntimeError(f"expected {pattern} in:\n{text}")
    return int(match[1])


def _compile(
    command: Sequence[str], source: str, plan: Plan, shown_by: Sequence[str] = ("cat",)
) -> tuple[str, str]:
    """Compile a source; return the compiler's messages and its output as a program shows it."""
    with TemporaryDirectory() as folder:
        file, output = Path(folder) / "a.cu", Path(folder) / "a.out"
        file.write_text(source, encoding="utf-8")
        run = [*command, *defines(plan), str(file), "-o", str(output)]
        process = subprocess.run(run, capture_output=True, text=True, check=False)
        messages = process.stdout + process.stderr
        if process.returncode:
            raise RuntimeError(messages)
        shown = subprocess.check_output([*shown_by, str(output)], text=True, errors="replace")
        return messages, shown


def _version(program: str, pattern: str) -> str | None:
    if shutil.which(program) is None:
        return None
    text = subprocess.check_output([program, "--version"], text=True)
    match = re.search(pattern, text)
    assert match is not None, text
    return match[1]


@cache
def _nvrtc() -> Any:
    """Return the library; create its environment if necessary."""
    home = python_for(NVRTC).parents[1]
    files = sorted(home.glob("lib/python*/site-packages/nvidia/*/lib/libnvrtc.so.*"))
    return ctypes.CDLL(str(files[0])) if files else None


def _nvrtc_version() -> str | None:
    library = _nvrtc()
    if library is None:
        return None
    numbers = ctypes.c_int(), ctypes.c_int()
    _check(library.nvrtcVersion(*map(ctypes.byref, numbers)))
    return ".".join(str(each.value) for each in numbers)


COMPILERS = {
    each.name: each
    for each in (
        Compiler("nvcc", NVIDIA, lambda: _version("nvcc", r"V([\d.]+)"), by_nvcc),
        Compiler("NVRTC", NVIDIA, _nvrtc_version, by_nvrtc),
        Compiler("clang", AMD, lambda: _version("clang-19", r"version ([\d.]+)"), by_clang),
    )
}


GROUPS = {
    **dict.fromkeys(("add", "sub", "mul", "fma"), "sums and products"),
    **dict.fromkeys(("div", "sqrt"), "quotients and roots"),
    **dict.fromkeys(("setp", "min", "max"), "comparisons"),
    "cvt": "conversions",
}
"""Groups of PTX instructions; signs and moves are not counted."""
PTX = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z]+)((?:\.\w+)*\.f64\b[.\w]*)", re.MULTILINE)
ITEMS, TEAM = 8, 128


def count_ptx(ptx: str) -> Counter[str]:
    """Count the float64 operations of each group in the text."""
    return Counter(GROUPS[name] for name, _ in PTX.findall(ptx) if name in GROUPS)


def operations_per_element(kernel: str, dtype: str, norm: str) -> dict[str, float]:
    """Return operations an element, from threads with `ITEMS` and twice as many elements."""
    counts = []
    for size in (ITEMS * TEAM, 2 * ITEMS * TEAM):
        plan = Subject(kernel, ITEMS * TEAM, dtype, norm).plan._replace(size=size)
        assert plan.team == TEAM
        counts.append(count_ptx(ptx_of(source_of(kernel), plan, "sm_90")))
    few, many = counts
    return {group: (many[group] - few[group]) / ITEMS for group in dict.fromkeys(GROUPS.values())}


SASS = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?\s*([A-Z0-9_.]+)", re.MULTILINE)
FLOAT64 = ("DADD", "DMUL", "DFMA", "DSETP")
CONVERSIONS = ("F2F", "F2I", "I2F")
EASY = {
    "return !CORRECT && s.v > low && s.v < high && s.w < high;": "return 1;",
    "square > 7.888609052210118e-31 &&": "1;",
    "square < 1.2676506002282294e+30; /* 2**-100, 2**100 */": "",
}
"""Edits that make fast mode use float32 for every row, so that the other path is not compiled."""


def count_instructions(code: str) -> Counter[str]:
    """Count instructions of each kind in the output of cuobjdump."""
    counts: Counter[str] = Counter()
    for name in SASS.findall(code):
        kind, _, how = name.partition(".")
        counts["float64"] += kind in FLOAT64
        counts["conversions"] += kind in CONVERSIONS and "64" in how
        counts["instructions"] += kind != "NOP"
    return counts


def machine_code(kernel: str, plan: Plan) -> str:
    """Return the machine code of a kernel as text."""
    source = source_of(kernel)
    if not plan.correct:
        for old, new in EASY.items():
            source = source.replace(old, new)
    flags = (*NVCC[:2], "-w", "-cubin", "-arch=sm_90")
    return _compile(flags, source, plan, ("cuobjdump", "-sass"))[1]


def instruction_table() -> str:
    """Return the instructions of an element, by mode, kernel and type of layer norm."""
    size, rows = ITEMS * TEAM, []
    for mode, kernel, dtype in product(
        ("correct", "fast"), ("forward", "backward"), ("float32", "bfloat16")
    ):
        correct = mode == "correct"
        plan = Plan.of(
            kernel, size, TYPES[dtype], centred=True, correct=correct, standalone=not correct
        )
        few, many = (
            count_instructions(machine_code(kernel, plan._replace(size=each)))
            for each in (size, 2 * size)
        )
        per_element = [f"{(many[name] - few[name]) / ITEMS:.1f}" for name in many]
        rows.append([f"{mode} {kernel}, {dtype}", *per_element])
    return markdown_table(["", "float64", "conversions", "instructions"], rows)


LANES, REGISTERS_AT_ONCE, SHARED_OF_SYSTEM = 32, 256, 1024
"""Lanes of a warp; the unit in which it gets registers; bytes of a block that the system uses."""


class Multiprocessor(NamedTuple):
    """Resources for all blocks together."""

    threads: int
    blocks: int
    shared: int
    registers: int = 65536


MULTIPROCESSORS = {
    "sm_80": Multiprocessor(2048, 32, 164 * 1024),
    "sm_90": Multiprocessor(2048, 32, 228 * 1024),
    "sm_100": Multiprocessor(2048, 32, 228 * 1024),
    "sm_120": Multiprocessor(1536, 24, 100 * 1024),
}
"""By "Technical Specifications per Compute Capability" of the CUDA C++ Programming Guide."""


def blocks_at_once(use: Use, threads: int, of: Multiprocessor) -> int:
    """Return the blocks of so many threads that registers, threads and shared memory allow."""
    warps = -(-threads // LANES)
    of_warp = -(-use.registers * LANES // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
    return min(
        of.registers // of_warp // warps,
        of.threads // (warps * LANES),
        of.blocks,
        of.shared // (use.shared + SHARED_OF_SYSTEM),
    )


SUMMARY_SIZES = (1024, 4096, 8192, 16384)
SUMMARY = """\
{spilling} of {compiled:,} compiled kernels spill registers to memory{where}.
A cell is the largest number of registers of a thread, over all targets, norms and types.
The most bytes that a thread spills follow, if any."""
TABLES = """\
Not in the table are {small}, which take at most {registers} registers and spill nothing.
A dash means that the kernel is not launched for rows of this length.
Compiled on {date} by {compilers}, on {cpu}, Python {python}.

## All kernels

A cell has the registers of a thread, a slash, and the number of blocks or waves at the same time.
Spilled bytes follow, if any.
For NVIDIA, the second number counts blocks on a multiprocessor, the least of four limits:

- registers: 65,536; a warp takes those of its 32 threads, rounded up to a multiple of 256
- threads: 2,048, on sm_120 1,536
- blocks: 32, on sm_120 24
- shared memory: 164, 228, 228 and 100 KB; a block takes 1 KB beside its own

The limits are from "Technical Specifications per Compute Capability" in NVIDIA's
[CUDA C++ Programming Guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities).
The multiple of 256 is from `cuda_occupancy.h` in CUDA 13.0.
For AMD it is waves on a SIMD, as LLVM reports."""
SMALL = ("widen", "round_dgamma", "round_dbeta")
COUNTED = """\
## Operations in float64

Operations for each element, counted in the PTX of nvcc for sm_90.
128 threads have a row of 1,024 elements or one of 2,048, and all loops over elements are unrolled.
So the longer text has the operations of eight more elements; the count is an eighth of those.
Work for a row and exchange between threads are the same in both, and are not counted.
Loads, stores, signs and moves do not count.
Elements are float32: for 16 bits nvcc does not unroll forward."""


def page(report: Mapping[str, Any]) -> str:
    """Return a summary, a collapsed table for each compiler, type and norm, and the counts."""
    records = [each for each in report["kernels"] if each["kernel"] not in SMALL]
    parts = [*_summary(report, records)]
    for compiler in dict.fromkeys(each["compiler"] for each in records):
        for kind in dict.fromkeys((each["dtype"], each["norm"]) for each in records):
            chosen = [
                each
                for each in records
                if each["compiler"] == compiler and (each["dtype"], each["norm"]) == kind
            ]
            title = f"<details><summary>{compiler}: {kind[1]}, {kind[0]}</summary>"
            parts += [title, _table(compiler, chosen), "</details>"]
    return "\n\n".join([*parts, COUNTED, _counts(report["operations"])]) + "\n"


def _summary(report: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the number of kernels that spill, the largest uses, and what the table leaves out."""
    small = [Use(**each["use"]) for each in report["kernels"] if each["kernel"] in SMALL]
    assert not any(use.spilled for use in small)
    spilling = [each for each in records if each["use"]["spilled"]]
    where = {f"{each['kernel']} by {each['compiler']}, D = {each['size']}" for each in spilling}
    yield SUMMARY.format(
        spilling=len(spilling),
        compiled=len(report["kernels"]),
        where=f": {'; '.join(sorted(where))}" if where else "",
    )
    uses: dict[tuple[str, str], dict[int, list[Use]]] = {}
    for each in records:
        by_size = uses.setdefault((each["kernel"], each["compiler"]), {})
        by_size.setdefault(each["size"], []).append(Use(**each["use"]))
    rows = []
    for kernel in dict.fromkeys(kernel for kernel, _ in uses):
        name = kernel
        for compiler in (each for each in COMPILERS if (kernel, each) in uses):
            cells = (_largest(uses[kernel, compiler].get(size, ())) for size in SUMMARY_SIZES)
            rows.append([name, compiler, *cells])
            name = ""  # only in the first row
    yield markdown_table(["kernel", "compiler", *(f"D = {size}" for size in SUMMARY_SIZES)], rows)
    yield TABLES.format(
        small=f"{', '.join(SMALL[:-1])} and {SMALL[-1]}",
        registers=max((use.registers for use in small), default=0),  # a partial run may have none
        compilers=", ".join(f"{name} {number}" for name, number in report["versions"].items()),
        **report["machine"],
    )


def _largest(uses: Sequence[Use]) -> str:
    """Return the most registers and the most spilled bytes of some kernels."""
    if not uses:
        return "-"
    registers, spilled = max(use.registers for use in uses), max(use.spilled for use in uses)
    return coloured(f"{registers}, spills {spilled}", "fail") if spilled else str(registers)


def _table(compiler: str, records: Sequence[Mapping[str, Any]]) -> str:
    targets = COMPILERS[compiler].targets
    by_kernel: dict[tuple[str, int], dict[str, Use]] = {}
    for each in records:
        uses = by_kernel.setdefault((each["kernel"], each["size"]), {})
        uses[each["target"]] = Use(**each["use"])
    kind = records[0]["dtype"], records[0]["norm"]
    rows = []
    for (kernel, size), uses in by_kernel.items():
        threads = Subject(kernel, size, *kind).plan.threads
        shared = {str(use.shared): None for use in uses.values()}
        cells = [_cell(uses[each], threads, each) if each in uses else "-" for each in targets]
        rows.append([kernel, str(size), str(threads), "/".join(shared), *cells])
    return markdown_table(["", "D", "threads", "shared, bytes", *targets], rows)


def _cell(use: Use, threads: int, target: str) -> str:
    multiprocessor = MULTIPROCESSORS.get(target)
    at_once = use.waves if multiprocessor is None else blocks_at_once(use, threads, multiprocessor)
    cell = f"{use.registers} / {at_once}"
    return coloured(f"{cell}, spills {use.spilled}", "fail") if use.spilled else cell


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


def resources(compilers: Sequence[Compiler], chosen: list[Subject]) -> Iterator[dict[str, Any]]:
    """Yield the resources of each kernel on each target."""
    for compiler in compilers:
        for subject, target in product(chosen, compiler.targets):
            status_line(f"{compiler.name} {target}: {' '.join(map(str, subject))}")
            use = compiler.compile(subject, source_of(subject.kernel), target)._asdict()
            place = {"compiler": compiler.name, **subject._asdict(), "target": target}
            yield {**place, "use": use}
    status_line()


def operations() -> Iterator[dict[str, Any]]:
    """Yield the float64 operations of kernels that read all elements, which are float32.

    nvcc does not unroll forward for 16 bits, so that its operations cannot be counted.
    """
    for norm, kernel in product(NORMS, ("forward", "backward")):
        status_line(f"counting {kernel}, {norm}")
        counts = operations_per_element(kernel, "float32", norm)
        yield {"kernel": kernel, "norm": norm, "counts": counts}
    status_line()


def as_lines(report: Mapping[str, Any]) -> str:
    """Return a report as JSON with a line for each kernel."""
    parts = []
    for name, value in report.items():
        lines = ",\n".join(map(json.dumps, value if isinstance(value, list) else [value]))
        parts.append(f'"{name}": ' + (f"[\n{lines}\n]" if isinstance(value, list) else lines))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(argv: list[str] | None = None) -> int:
    """Compile, save and print."""
    parser = options("gpu", "Compile the GPU kernels and report what they use.", output=FILES[0])
    add = parser.add_argument
    add("--compilers", nargs="+", choices=COMPILERS, default=list(COMPILERS))
    add("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS))
    add("--sizes", type=int, nargs="+", default=SIZES)
    add("--dtypes", nargs="+", choices=TYPES, default=("float32", "bfloat16"))
    add("--instructions", action="store_true", help="count machine instructions")
    arguments = parser.parse_args(argv)
    if arguments.instructions:
        print(instruction_table())
        return 0
    versions = {name: COMPILERS[name].version() for name in arguments.compilers}
    if missing := [name for name, number in versions.items() if number is None]:
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
        return 2
    compilers = [COMPILERS[name] for name in arguments.compilers]
    chosen = list(subjects(arguments.kernels, arguments.sizes, arguments.dtypes))
    report = {
        "machine": machine(packages=()),
        "versions": versions,
        "kernels": list(resources(compilers, chosen)),
        "operations": list(operations()),
    }
    arguments.output.write_text(as_lines(report), encoding="utf-8")
    print(page(read_results(arguments.output)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
