"""The processor: what it can do, and in which state this process has it."""

import struct

import numpy as np

from truenorm.doctor.report import Line, Section
from truenorm.ops.environment import check_arithmetic

__all__ = ["processor"]

# Kept in a list, so that the interpreter computes with them now and not when it compiles.
_ONE, _LARGE, _HALF_ULP = [1.0, 2.0**1000, 2.0**-53]
_SMALLEST_NORMAL, _SMALLEST = [2.0**-1022, 5e-324]


def processor() -> Section:
    """Return its vector instructions and how it rounds."""
    remedy = _remedy()
    # A comparison would take a subnormal operand as zero, too: the bits of the result tell.
    results = "kept" if any(struct.pack("d", _SMALLEST_NORMAL / 2)) else "flushed to zero"
    operands = "kept" if _SMALLEST * _LARGE != 0 else "taken as zero"
    return Section(
        "Processor",
        (
            *_features(),
            *_compiled_for(),
            Line("subnormal results", results, remedy if results != "kept" else ""),
            Line("subnormal operands", operands, remedy if operands != "kept" else ""),
            Line("rounding mode", _mode(), remedy if _mode() != "to nearest" else ""),
        ),
    )


def _remedy() -> str:
    """Return what the operation itself says of this arithmetic."""
    try:
        check_arithmetic()
    except RuntimeError as refused:
        return str(refused)
    return ""


def _mode() -> str:
    """Return the direction in which sums are rounded."""
    up, down = _ONE + _HALF_ULP > _ONE, -_ONE - _HALF_ULP < -_ONE
    if up or down:
        return "up" if up else "down"
    # 1 + 3/2 ulp is above the middle only if the sum is not cut off.
    return "to nearest" if _ONE + 3 * _HALF_ULP > _ONE + 2 * _HALF_ULP else "toward zero"


def _features() -> list[Line]:
    """Return the vector instructions that NumPy found."""
    found = np.show_config(mode="dicts").get("SIMD Extensions", {})
    names = [*found.get("baseline", []), *found.get("found", [])]
    missing = ", ".join(found.get("not found", []))
    return [Line("features", ", ".join(names) + (f"; not {missing}" if missing else ""))]


def _compiled_for() -> list[Line]:
    """Return the processor that compiled kernels are made for."""
    try:
        from llvmlite import binding  # type: ignore[import-untyped]
    except ImportError:
        return []
    return [Line("kernels are for", binding.get_host_cpu_name())]
