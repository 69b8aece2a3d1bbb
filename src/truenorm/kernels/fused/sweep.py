"""What the levels have in common: how rows are parted, and what kernels are told of a call."""

from functools import cached_property
from typing import Literal

import numpy as np

from truenorm.kernels.call import Call, Flags
from truenorm.kernels.fused.blocks import Coded, coded, row_ranges, rows_of_block, threads_for
from truenorm.kernels.fused.parameters import Parameters
from truenorm.kernels.rounding import canonical_nan
from truenorm.kernels.rows import Range, blocks_of
from truenorm.kernels.storage import Stored

__all__ = ["ForwardSweep", "Sweep"]


class Sweep:
    """A sweep over all rows of a call: a part for each thread, since sums of a part are long.

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
        self.parts = row_ranges(call.count, call.size, self.threads)

    @property
    def would_compile(self) -> bool:
        """Whether a second look means compiling: not by what the first look is made of too."""
        return False

    def coded(self, stored: Stored) -> Coded:
        """Return rows as kernels take them."""
        return coded(stored, self.call.target)

    def no_rows(self) -> Stored:
        """Return rows as a call has them, but none of them."""
        return np.empty((0, self.call.size), canonical_nan(self.call.target).dtype)

    def every_block(self) -> list[Range]:
        """Return the blocks of all rows: whoever is free takes the next."""
        return list(blocks_of((0, self.call.count), self.rows_at_once)) or [(0, 0)]


class ForwardSweep(Sweep):
    """One that sums nothing, in parts of one block each, with the parameters of the call."""

    def __init__(self, call: Call, special: Flags) -> None:
        super().__init__(call)
        self.parts = self.every_block()
        self._special = special

    @cached_property
    def parameters(self) -> Parameters:
        """What double-double needs of the parameters: most calls do without."""
        return Parameters.of(self.call, self._special)
