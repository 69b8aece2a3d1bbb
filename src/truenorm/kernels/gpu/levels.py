"""Forward and backward on a device, as the driver sees them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.backend import Backward, States
from truenorm.kernels.call import Call, Flags
from truenorm.kernels.gpu.plan import Plan
from truenorm.kernels.gpu.sums import Sums
from truenorm.kernels.rows import Range
from truenorm.kernels.storage import Stored

__all__ = ["DeviceBackward", "DeviceForward"]

Float64 = NDArray[np.float64]

ELEMENTS = 2**24
"""Of a block: what is on the device at the same time."""

ROWS = 2**10
"""Rows of a block are a multiple of this, and so of a run: shares do not depend on blocks."""


class _Level:
    """What both passes have in common."""

    threads = 1
    would_compile = False

    def __init__(self, runtime: Any, call: Call) -> None:
        self.runtime, self.call = runtime, call
        self.parts: list[Range] = [(0, call.count)]
        self.rows_at_once = max(1, ELEMENTS // call.size // ROWS) * ROWS
        self._gamma, self._beta = (
            runtime.upload(each.astype(np.float32)) for each in (call.gamma, call.beta)
        )

    def plan_of(self, kernel: str) -> Plan:
        """Return how the rows of the call are laid on threads."""
        call = self.call
        return Plan.of(
            kernel,
            call.size,
            call.target,
            centred=call.norm.centred,
            correct=call.level == "narrow",
        )

    def launch_forward(self, x: Any, y: Any, count: int) -> tuple[Any, Any]:
        """Have y written; return what is kept and what became of rows, all on the device."""
        plan = self.plan_of("forward")
        kept = self.runtime.empty(count * self.call.norm.numbers_kept * 8)
        states = self.runtime.zeros(count)
        self.runtime.launch(
            *("forward", plan, plan.blocks(count)),
            *(x, self._gamma, self._beta, np.float64(self.call.eps)),
            *(y, kept, states, np.int64(count)),
        )
        return kept, states

    def launched_again(
        self, kernel: str, given: tuple[Stored, ...], parameters: tuple[Any, ...], results: Stored
    ) -> Flags:
        """Write results of rows in pairs; return which elements are refused."""
        runtime, count = self.runtime, len(results)
        plan = self.plan_of(kernel)
        on_device, flags = runtime.empty(results.nbytes), runtime.empty(results.size)
        runtime.launch(
            *(kernel, plan, plan.blocks(count), *map(runtime.upload, given), *parameters),
            *(np.float64(self.call.eps), on_device, flags, np.int64(count)),
        )
        refused = np.empty(results.shape, np.bool_)
        runtime.download(on_device, results)
        runtime.download(flags, refused)
        return refused


class DeviceForward(_Level):
    """Level 1, and pairs for what that refuses."""

    def look(self, x: Stored, y: Stored, kept: Float64, states: States) -> bool:
        """Write y, what is kept and what became of each row; return whether some are not done."""
        on_device = self.runtime.empty(y.nbytes)
        found = self.launch_forward(self.runtime.upload(x), on_device, len(x))
        for buffer, into in zip((on_device, *found), (y, kept, states), strict=True):
            self.runtime.download(buffer, into)
        return bool(states.any())

    def look_again(self, x: Stored, _kept: Float64, y: Stored) -> Flags:
        """Do y of rows that were refused in pairs; return which elements still are."""
        parameters = self._gamma, self._beta
        return self.launched_again("forward_again", (x,), parameters, y)


class DeviceBackward(_Level):
    """The same of backward; for columns that it does not know well enough, a host does."""

    lattice = None

    def __init__(self, runtime: Any, call: Call, host: Backward[Any]) -> None:
        super().__init__(runtime, call)
        self.dgamma_again, self.dbeta_again = host.dgamma_again, host.dbeta_again

    def sums(self) -> Sums:
        """Return sums over no rows."""
        return Sums(self.runtime, self.call.size)

    def adopt(self, x: Stored, kept: Float64) -> bool:
        """Find anew what forward keeps; return whether a row does not have the mean it had."""
        found = np.empty_like(kept)
        unused = self.runtime.empty(x.nbytes)
        self.runtime.download(
            self.launch_forward(self.runtime.upload(x), unused, len(x))[0], found
        )
        changed = moved(found, kept)
        kept[...] = found
        return changed

    def look(
        self, dy: Stored, x: Stored, kept: Float64, dx: Stored, sums: Sums, states: States
    ) -> bool:
        """Write dx and what became of rows, and add to the sums; return whether some are left."""
        runtime = self.runtime
        on_device, became = runtime.empty(dx.nbytes), runtime.zeros(len(x))
        given = runtime.upload(dy), runtime.upload(x), runtime.upload(kept)
        self.launch_backward(*given, on_device, sums, became, len(x))
        runtime.download(on_device, dx)
        runtime.download(became, states)
        return bool(states.any())

    def look_again(self, dy: Stored, x: Stored, dx: Stored) -> Flags:
        """Do dx of rows that were refused in pairs; return which elements still are."""
        return self.launched_again("backward_again", (dy, x), (self._gamma,), dx)

    def launch_backward(
        self, dy: Any, x: Any, kept: Any, dx: Any, sums: Sums, states: Any, count: int
    ) -> None:
        """Have dx and states written, and the sums added to, all on the device."""
        runtime, size = self.runtime, self.call.size
        plan, rows = self.plan_of("backward"), np.int64(count)
        runs = plan.runs(count)
        shares, bounds = runtime.empty(runs * size * 16), runtime.empty(runs * size * 4)
        numbers = runtime.empty(0 if plan.sums else count * 24)
        runtime.launch(
            *("backward", plan, plan.blocks(runs), dy, x, self._gamma, kept),
            *(np.float64(self.call.eps), dx, shares, bounds, numbers, states, rows),
        )
        strips = -(-size // plan.threads)
        if not plan.sums:
            runtime.launch(
                "shares", plan, runs * strips, dy, x, kept, numbers, shares, bounds, rows
            )
        runtime.launch("columns", plan, strips, shares, bounds, sums.buffer, np.int64(runs))


def moved(found: Float64, kept: Float64) -> bool:
    """Tell whether a row has another mean, or mean square, than rounding explains."""
    if kept.shape[1] == 1:
        apart, allowed = found - kept, 2.0**-40 * np.abs(found)
    else:
        apart = (found[:, :1] - kept[:, :1]) + (found[:, 1:2] - kept[:, 1:2])
        spread = np.sqrt(np.abs(found[:, 2:])) + np.abs(found[:, 1:2])
        allowed = 2.0**-40 * spread + 2.0**-50 * np.abs(found[:, :1])
    same = (np.abs(apart) <= allowed) | (np.isnan(found[:, :1]) & np.isnan(kept[:, :1]))
    return not bool(same.all())
