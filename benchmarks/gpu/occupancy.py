"""How many blocks a multiprocessor of NVIDIA has at the same time."""

from typing import NamedTuple

from benchmarks.gpu.compilers import Use

__all__ = ["MULTIPROCESSORS", "Multiprocessor", "blocks_at_once"]

LANES, REGISTERS_AT_ONCE, SHARED_OF_SYSTEM = 32, 256, 1024
"""Of a warp; registers that it is given at a time; bytes of each block that are not its own."""


class Multiprocessor(NamedTuple):
    """What it has, for all blocks together."""

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
