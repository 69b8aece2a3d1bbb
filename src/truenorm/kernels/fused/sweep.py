"""What the levels have in common: how rows are parted, and how kernels are told the norm."""

from typing import Literal

from truenorm.kernels.backend import Range
from truenorm.kernels.call import Call
from truenorm.kernels.fused.blocks import Coded, coded, row_ranges, rows_of_block, threads_for
from truenorm.kernels.storage import Stored
from truenorm.kernels.sweeping import blocks_of

__all__ = ["Sweep"]


class Sweep:
    """A sweep over all rows of a call.

    Attributes
    ----------
    centred : True or None
        As kernels are told. To Numba None is a type: what is not done for a norm is not compiled.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.threads = threads_for(call)
        self.rows_at_once = rows_of_block(call.size)
        self.centred: Literal[True] | None = True if call.norm.centred else None
        self.parts: list[Range] = []

    def coded(self, stored: Stored) -> Coded:
        """Return rows as kernels take them."""
        return coded(stored, self.call.target)

    def every_block(self) -> list[Range]:
        """Return parts of one block each: whoever is free takes the next."""
        return list(blocks_of((0, self.call.count), self.rows_at_once)) or [(0, 0)]

    def one_part_a_thread(self) -> list[Range]:
        """Return as many parts as threads: each has sums of its own, and these are long."""
        return row_ranges(self.call.count, self.call.size, self.threads)
