"""``python -m benchmarks.gpu.machine_code``: instructions that GPU kernels take for an element.

It compiles layer norm for sm_90 by nvcc, reads the machine code by cuobjdump, which comes with the
same toolkit, and prints what docs/gpu-kernel.md and `benchmarks.roofline` say. No GPU is needed.
"""
# ruff: noqa: T201
# A command prints its result.

import re
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.gpu.compilers import NVCC
from benchmarks.gpu.kernels import TYPES, defines
from benchmarks.pages import markdown_table
from truenorm.kernels.gpu.plan import Plan, source_of

__all__ = ["count"]

ITEMS, SIZE = 8, 1024
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?\s*([A-Z0-9_.]+)", re.MULTILINE)
FLOAT64 = ("DADD", "DMUL", "DFMA", "DSETP")
CONVERSIONS = ("F2F", "F2I", "I2F")
EASY = {
    "return !CORRECT && s.v > low && s.v < high && s.w < high;": "return 1;",
    "square > 7.888609052210118e-31 &&": "1;",
    "square < 1.2676506002282294e+30; /* 2**-100, 2**100 */": "",
}
"""What makes float32 do for every row of fast mode, so that the other way is not compiled."""


def count(code: str) -> Counter[str]:
    """Return how many instructions of each kind the text of cuobjdump has, each once."""
    found: Counter[str] = Counter()
    for name in INSTRUCTION.findall(code):
        kind, _, how = name.partition(".")
        found["instructions"] += kind != "NOP"
        found["float64"] += kind in FLOAT64
        found["conversions"] += kind in CONVERSIONS and "64" in how
    return found


def compiled(kernel: str, plan: Plan) -> str:
    """Return the machine code of a kernel, as text."""
    source = source_of(kernel)
    if not plan.correct:
        for old, new in EASY.items():
            source = source.replace(old, new)
    with TemporaryDirectory() as folder:
        given, made = Path(folder) / "a.cu", Path(folder) / "a.cubin"
        given.write_text(source, encoding="utf-8")
        options = ["-w", "-cubin", "-arch=sm_90", *defines(plan)]
        subprocess.run([NVCC[0], NVCC[1], *options, str(given), "-o", str(made)], check=True)
        command = ["cuobjdump", "-sass", str(made)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def of_an_element(kernel: str, dtype: str, *, correct: bool) -> list[str]:
    """Return what a thread with twice as many elements has more, divided by them."""
    plan = Plan.of(
        kernel, SIZE, TYPES[dtype], centred=True, correct=correct, standalone=not correct
    )
    few, many = (count(compiled(kernel, plan._replace(size=size))) for size in (SIZE, 2 * SIZE))
    names = ("float64", "conversions", "instructions")
    return [f"{(many[name] - few[name]) / ITEMS:.1f}" for name in names]


def main() -> int:
    """Count and print."""
    rows = [
        [
            f"{'correct' if correct else 'fast'} {kernel}, {dtype}",
            *of_an_element(kernel, dtype, correct=correct),
        ]
        for correct, kernel, dtype in product(
            (True, False), ("forward", "backward"), ("float32", "bfloat16")
        )
    ]
    print(markdown_table(["", "float64", "conversions", "instructions"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
