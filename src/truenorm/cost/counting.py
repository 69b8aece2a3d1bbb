"""FLOPs, bytes and memory of a list of operations: each through memory, or all on the chip."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from truenorm.cost.program import Operation

__all__ = ["Sizes", "Step", "on_chip", "through_memory"]

ROWS = (
    *("mean", "hi", "lo", "var", "rstd", "mean_g", "mean_gxhat"),
    *("(mean square)", "(mean product)"),
)
COLUMNS = ("gamma", "beta", "dgamma", "dbeta")
SHARES = ("dgamma_shares", "dbeta_shares")


class Step(NamedTuple):
    """One operation and its cost.

    Attributes
    ----------
    equation : str
        Its number in docs/derivation.md.
    name : str
        The operation as the code writes it.
    flops : int
        Floating-point operations; a root and a division count as one each.
    bytes_read, bytes_written : int
        What crosses the bus to memory.
    alive : int
        Bytes that exist while it runs, beyond the arguments of the pass.
    """

    equation: str
    name: str
    flops: int
    bytes_read: int
    bytes_written: int
    alive: int


class Sizes(NamedTuple):
    """How large each named array is.

    `wide` is how many bytes the numbers have of which there is one a row, and the shares.
    """

    rows: int
    width: int
    itemsize: int
    wide: int
    shares: int = 0

    def elements(self, name: str) -> int:
        """Return how many numbers an array has."""
        if name in ROWS:
            return self.rows
        if name in COLUMNS:
            return self.width
        return (self.shares if name in SHARES else self.rows) * self.width

    def bytes(self, name: str) -> int:
        """Return how many bytes an array has."""
        return self.elements(name) * (self.wide if name in ROWS + SHARES else self.itemsize)

    def total(self, names: Collection[str]) -> int:
        """Return how many bytes some arrays have together."""
        return sum(map(self.bytes, names))

    def flops(self, operation: Operation) -> int:
        """Return one for each element of the largest operand, and a mean's division."""
        largest = max(map(self.elements, (*operation.reads, operation.writes)))
        division = self.elements(operation.writes) if operation.kind == "mean" else 0
        return operation.times * largest + division


def through_memory(operations: Sequence[Operation], sizes: Sizes) -> tuple[Step, ...]:
    """Count what NumPy does: every operation reads its operands and writes its result."""
    found = []
    for operation, alive in zip(operations, _alive(operations, sizes), strict=True):
        # A mean reads and writes its sums once more, to divide them.
        again = sizes.bytes(operation.writes) if operation.kind == "mean" else 0
        read = operation.times * sizes.total(operation.reads) + again
        written = operation.times * sizes.bytes(operation.writes) + again
        found.append(_step(operation, sizes, read, written, alive))
    return tuple(found)


def on_chip(
    operations: Sequence[Operation], sizes: Sizes, results: Collection[str], scratch: int
) -> tuple[Step, ...]:
    """Count a sweep that has its temporaries in registers or in a cache, `scratch` bytes of it.

    Arguments are read from memory when they are first needed, results are written once. Shares
    are written by one block of rows and read when all are done: they are both.
    """
    found = []
    here: set[str] = set()
    stored = {each.writes for each in operations} & {*results, *SHARES}
    alive = sizes.total(stored) + scratch
    for operation in operations:
        read = sizes.total([name for name in operation.reads if name not in here])
        written = sizes.bytes(operation.writes) if operation.writes in stored else 0
        found.append(_step(operation, sizes, read, written, alive))
        here.update({*operation.reads, operation.writes}.difference(SHARES))
    return tuple(found)


def _step(operation: Operation, sizes: Sizes, read: int, written: int, alive: int) -> Step:
    return Step(operation.equation, operation.code, sizes.flops(operation), read, written, alive)


def _alive(operations: Sequence[Operation], sizes: Sizes) -> Iterator[int]:
    """Yield how many bytes exist while each operation runs, beyond the arguments."""
    last_use = {name: place for place, each in enumerate(operations) for name in each.reads}
    existing: dict[str, int] = {}
    for place, operation in enumerate(operations):
        existing[operation.writes] = sizes.bytes(operation.writes)
        yield sum(existing.values())
        for name in operation.reads:
            if name.startswith("(") and last_use[name] == place:
                del existing[name]
