"""What the levels have in common: all rows on one thread, in blocks, with scratch."""

from truenorm.kernels.call import Call
from truenorm.kernels.reference.scratch import Scratch
from truenorm.kernels.rows import Range

__all__ = ["BLOCK", "PAIR_BLOCK", "Sweep"]

BLOCK = 2**16
"""Elements of a block: its six temporaries in float64 take 3 MB."""

PAIR_BLOCK = 2**13
"""The same for double-double, which has many temporaries."""


class Sweep:
    """All rows, in blocks of so many elements."""

    threads = 1
    would_compile = False

    def __init__(self, call: Call, elements: int) -> None:
        self.call = call
        self.parts: list[Range] = [(0, call.count)]
        self.rows_at_once = max(1, elements // call.size)
        self.scratch = Scratch()
