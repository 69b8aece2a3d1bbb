"""What the levels have in common: how rows are parted, and what kernels are told of a call."""

from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.backend import States
from truenorm.kernels.call import Call, Flags
from truenorm.kernels.fused.blocks import Coded, coded, row_ranges, rows_of_block, threads_for
from truenorm.kernels.fused.parameters import Parameters, as_given, without
from truenorm.kernels.fused.scratch import scratch
from truenorm.kernels.rounding import canonical_nan
from truenorm.kernels.rows import Range, blocks_of
from truenorm.kernels.storage import Stored

__all__ = ["ForwardSweep", "Sweep"]

Float64 = NDArray[np.float64]


class Sweep:
    """A sweep over all rows of a call: a part for each thread, since sums of a part are long.

    Attributes
    ----------
    centred : True or None
        As kernels are told. To Numba None is a type: what is not done for a norm is not compiled.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.threads = threads_for(call.count * call.size, call.threads)
        self.rows_at_once = rows_of_block(call.size)
        self.centred: Literal[True] | None = True if call.norm.centred else None
        self.parts = row_ranges(call.count, call.size, self.threads)

    @property
    def would_compile(self) -> bool:
        """Whether a second look means compiling: not by what the first look is made of too."""
        return False

    @cached_property
    def given_gamma(self) -> Coded:
        """As kernels that do not need it in float64 read gamma."""
        return as_given(self.call, (self.call.of_gamma,), self.call.gamma)[0]

    def first_look_back(
        self,
        kernel: Any,
        dy: Stored,
        x: Stored,
        kept: Float64,
        dx: Stored,
        sums: Any,
        states: States,
    ) -> int:
        """Have a kernel of backward do a block; return how many rows are not done."""
        found = kernel(
            self.coded(dy),
            self.coded(x),
            kept,
            self.given_gamma,
            self.call.eps,
            self.centred,
            self.coded(dx),
            sums.array,
            states,
            scratch(),
        )
        return sums.note(len(x), found)  # type: ignore[no-any-return]

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
    def given(self) -> list[Coded]:
        """As kernels that do not need them in float64 read gamma and beta."""
        call = self.call
        values = without(self._special, call.gamma, call.beta)
        return as_given(call, (call.of_gamma, call.of_beta), *values)

    def first_look(self, kernel: Any, x: Stored, y: Stored, kept: Float64, states: States) -> int:
        """Have a kernel of forward do a block; return how many rows are not done."""
        left: int = kernel(
            self.coded(x),
            *self.given,
            self.call.eps,
            self.centred,
            self.coded(y),
            kept,
            states,
            scratch(),
        )
        return left

    @cached_property
    def parameters(self) -> Parameters:
        """What double-double needs of the parameters: most calls do without."""
        return Parameters.of(self.call, self._special)
