"""Both norms as lists of operations on named arrays: what is counted, apart from how.

A name in parentheses is a temporary that Python frees after its last use; the other names are
local variables and stay until the pass returns. Equations are those of docs/derivation.md.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

Keep = Literal["x", "xhat"]


class Operation(NamedTuple):
    """One NumPy operation, or one line of a kernel.

    A "map" computes each element of its result once. A "sum" adds up its operand along some axes,
    and a "mean" divides the sum in place as well. `times` is how many maps of that size follow
    each other in the line.
    """

    equation: str
    code: str
    reads: tuple[str, ...]
    writes: str
    kind: Literal["map", "sum", "mean"] = "map"
    times: int = 1


Operations = tuple[Operation, ...]

FORWARD: Operations = (
    Operation("D1", "mean = x.mean(axis=-1)", ("x",), "mean", "mean"),
    Operation("D2", "centred = x - mean", ("x", "mean"), "centred"),
    Operation("D3", "centred * centred", ("centred",), "(squares)"),
    Operation("D3", "var = (...).mean(axis=-1)", ("(squares)",), "var", "mean"),
    Operation("D4", "rstd = 1 / np.sqrt(var + eps)", ("var",), "rstd", times=3),
    Operation("D5", "xhat = centred * rstd", ("centred", "rstd"), "xhat"),
    Operation("D6", "gamma * xhat", ("gamma", "xhat"), "(scaled)"),
    Operation("D6", "y = (...) + beta", ("(scaled)", "beta"), "y"),
)
"""`truenorm.textbook.forward`, line by line."""

BACKWARD: Operations = (
    Operation("D7", "dbeta = dy.sum(axis=rows)", ("dy",), "dbeta", "sum"),
    Operation("D8", "dy * xhat", ("dy", "xhat"), "(terms)"),
    Operation("D8", "dgamma = (...).sum(axis=rows)", ("(terms)",), "dgamma", "sum"),
    Operation("D9", "g = gamma * dy", ("gamma", "dy"), "g"),
    Operation("D17", "mean_g = g.mean(axis=-1)", ("g",), "mean_g", "mean"),
    Operation("D17", "g * xhat", ("g", "xhat"), "(products)"),
    Operation("D17", "mean_gxhat = (...).mean(axis=-1)", ("(products)",), "mean_gxhat", "mean"),
    Operation("D17", "g - mean_g", ("g", "mean_g"), "(without mean)"),
    Operation("D17", "xhat * mean_gxhat", ("xhat", "mean_gxhat"), "(along xhat)"),
    Operation("D17", "(g - ...) - (xhat * ...)", ("(without mean)", "(along xhat)"), "(inner)"),
    Operation("D17", "dx = rstd * (...)", ("rstd", "(inner)"), "dx"),
)
"""`truenorm.textbook.backward`, line by line."""

REBUILD: Operations = (
    Operation("D2", "centred = x - mean", ("x", "mean"), "centred"),
    Operation("D5", "xhat = centred * rstd", ("centred", "rstd"), "xhat"),
)

# With the mean as a pair, hi + lo: docs/stability.md, "Centring", says what it is for.
CENTRE_BY_PAIR: Operations = (
    Operation("D2", "shifted = x - hi", ("x", "hi"), "shifted"),
    Operation("D2", "centred = shifted - lo", ("shifted", "lo"), "centred"),
)

FUSED_FORWARD: Operations = (
    Operation("D1", "hi = mean(x)", ("x",), "hi", "mean"),
    CENTRE_BY_PAIR[0],
    Operation("D1", "lo = mean(shifted)", ("shifted",), "lo", "mean"),
    CENTRE_BY_PAIR[1],
    *FORWARD[2:],
)
"""A kernel that has the row in registers, so that two more sweeps cost no traffic."""

FUSED_BACKWARD: Operations = (
    Operation("D7", "dbeta_shares = dy.sum(rows)", ("dy",), "dbeta_shares", "sum"),
    BACKWARD[1],
    Operation("D8", "dgamma_shares = (...).sum(rows)", ("(terms)",), "dgamma_shares", "sum"),
    *BACKWARD[3:],
    Operation("D8", "dgamma = dgamma_shares.sum()", ("dgamma_shares",), "dgamma", "sum"),
    Operation("D7", "dbeta = dbeta_shares.sum()", ("dbeta_shares",), "dbeta", "sum"),
)
"""Each block of rows has a share of dgamma and dbeta. The shares are added in a fixed order at the
end, so that bits do not depend on who was first."""


RMS_FORWARD: Operations = (
    Operation("D25", "x * x", ("x",), "(squares)"),
    Operation("D25", "(...).mean(axis=-1)", ("(squares)",), "(mean square)", "mean"),
    Operation("D25", "rstd = 1 / np.sqrt(... + eps)", ("(mean square)",), "rstd", times=3),
    Operation("D26", "xhat = x * rstd", ("x", "rstd"), "xhat"),
    Operation("D27", "y = gamma * xhat", ("gamma", "xhat"), "y"),
)
"""`truenorm.textbook.rms_norm_forward`. There is no mean that would have to be a pair, so that a
kernel does the same."""

ALONG: Operations = (
    BACKWARD[3],
    Operation("D29", "g * xhat", ("g", "xhat"), "(products)"),
    Operation("D29", "(...).mean(axis=-1)", ("(products)",), "(mean product)", "mean"),
    Operation("D29", "xhat * (...)", ("xhat", "(mean product)"), "(along xhat)"),
    Operation("D29", "g - (...)", ("g", "(along xhat)"), "(inner)"),
    Operation("D29", "dx = rstd * (...)", ("rstd", "(inner)"), "dx"),
)
RMS_BACKWARD: Operations = (*BACKWARD[1:3], *ALONG)
"""`truenorm.textbook.rms_norm_backward`, line by line."""

RMS_FUSED_BACKWARD: Operations = (*FUSED_BACKWARD[1:3], *ALONG, FUSED_BACKWARD[-2])


class Program(NamedTuple):
    """Both passes, and what they have if x is kept: statistics of rows, and xhat from them."""

    forward: Operations
    backward: Operations
    statistics: tuple[str, ...]
    rebuild: Operations


class Forms(NamedTuple):
    """A norm in both forms, and what its backward pass returns."""

    textbook: Program
    fused: Program
    gradients: tuple[str, ...]


LAYER_NORM = Forms(
    Program(FORWARD, BACKWARD, ("mean", "rstd"), REBUILD),
    Program(FUSED_FORWARD, FUSED_BACKWARD, ("hi", "lo", "rstd"), (*CENTRE_BY_PAIR, REBUILD[1])),
    ("dx", "dgamma", "dbeta"),
)
RMS_NORM = Forms(
    Program(RMS_FORWARD, RMS_BACKWARD, ("rstd",), RMS_FORWARD[3:4]),
    Program(RMS_FORWARD, RMS_FUSED_BACKWARD, ("rstd",), RMS_FORWARD[3:4]),
    ("dx", "dgamma"),
)


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


Form = Literal["textbook", "blocked", "fused"]


class _Counted:
    """What follows from steps, of one pass or of both."""

    steps: tuple[Step, ...]

    @property
    def flops(self) -> int:
        """Floating-point operations."""
        return sum(step.flops for step in self.steps)

    @property
    def bytes_read(self) -> int:
        """Bytes read from memory."""
        return sum(step.bytes_read for step in self.steps)

    @property
    def bytes_written(self) -> int:
        """Bytes written to memory."""
        return sum(step.bytes_written for step in self.steps)

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """FLOPs for each byte that is moved."""
        return self.flops / self.bytes_moved


@dataclass(frozen=True)
class PassCost(_Counted):
    """What one pass costs.

    Attributes
    ----------
    steps : tuple of Step
        In the order in which they are done.
    one_sweep : bool
        Whether all steps are done while the data are on the chip, so that only the slower of
        memory and arithmetic takes time. If not, that holds for each step by itself.
    """

    steps: tuple[Step, ...]
    one_sweep: bool

    @property
    def peak(self) -> int:
        """The most bytes that exist at once beyond the arguments of the pass, results included."""
        return max(step.alive for step in self.steps)

    def seconds(self, bandwidth: float, flops_rate: float = math.inf) -> float:
        """Return the time by the roofline model, for bytes and FLOPs per second."""
        sweeps = [(self.bytes_moved, self.flops)]
        if not self.one_sweep:
            sweeps = [(step.bytes_read + step.bytes_written, step.flops) for step in self.steps]
        return sum(max(moved / bandwidth, flops / flops_rate) for moved, flops in sweeps)


@dataclass(frozen=True)
class Cost(_Counted):
    """What forward and backward cost together.

    Attributes
    ----------
    shape : tuple of int
        Of x; the last axis is the one that is normalized.
    dtype, form, keep : str
        As `layer_norm_cost`, or `rms_norm_cost`, was asked.
    forward, backward : PassCost
        Each pass by itself.
    kept : int
        Bytes that forward allocates for backward.
    referenced : int
        Bytes of the caller's own arrays, gamma and perhaps x, that are kept alive for backward.
    """

    shape: tuple[int, ...]
    dtype: str
    form: Form
    keep: Keep
    forward: PassCost
    backward: PassCost
    kept: int
    referenced: int

    @property
    def steps(self) -> tuple[Step, ...]:  # type: ignore[override]
        """The steps of both passes."""
        return self.forward.steps + self.backward.steps

    @property
    def passes(self) -> dict[str, PassCost]:
        """Both passes by name."""
        return {"forward": self.forward, "backward": self.backward}

    @property
    def peak(self) -> int:
        """The most bytes that exist at once in either pass beyond the caller's arrays."""
        return max(self.forward.peak, self.kept + self.backward.peak)

    def seconds(self, bandwidth: float, flops_rate: float = math.inf) -> float:
        """Return the time of both passes by the roofline model.

        Parameters
        ----------
        bandwidth : float
            Bytes that the machine moves in a second; `measure_bandwidth` finds out.
        flops_rate : float
            Floating-point operations in a second. Without it, memory alone is counted.

        Returns
        -------
        float
            The time, for arrays that no cache holds.

        Examples
        --------
        >>> from truenorm.cost import layer_norm_cost
        >>> print(f"{layer_norm_cost((8, 1024, 4096)).seconds(bandwidth=20e9):.3f}")
        0.035
        """
        return sum(each.seconds(bandwidth, flops_rate) for each in (self.forward, self.backward))


ITEMSIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}

BLOCK = 2**16
"""Elements of each temporary of the blocked form, as in the reference backend."""

FEWEST_ROWS, MOST_SHARES = 16, 1024
"""Of the fused backward: rows that have a share of dgamma and dbeta together, and how many shares
there are as long as rows are few. It depends on the number of rows alone, and so do the bits."""


def layer_norm_cost(
    shape: Sequence[int], dtype: str = "float32", form: Form = "fused", keep: Keep = "x"
) -> Cost:
    """Count FLOPs, bytes and memory of layer normalization over the last axis.

    Parameters
    ----------
    shape : sequence of int
        The shape of x.
    dtype : str
        "float16", "bfloat16", "float32" or "float64": the type of all arrays. The fused form has
        its statistics and sums in float32 or wider.
    form : str
        "textbook" is `truenorm.textbook`, where every NumPy operation goes through memory.
        "blocked" does the same operations on blocks of rows that stay in a cache. "fused" is one
        kernel a pass that has a row in registers.
    keep : str
        What backward starts from, "x" or "xhat". `truenorm.textbook` keeps xhat; with "x" it is
        computed again.

    Returns
    -------
    Cost
        Step by step and in total.

    Examples
    --------
    >>> from truenorm.cost import layer_norm_cost
    >>> for form in ("textbook", "blocked", "fused"):
    ...     cost = layer_norm_cost((8, 1024, 4096), form=form, keep="xhat")
    ...     print(f"{form:9s}{cost.bytes_moved / 1e6:6.0f} MB {cost.intensity:.2f} FLOPs a byte")
    textbook   4430 MB 0.14 FLOPs a byte
    blocked     805 MB 0.75 FLOPs a byte
    fused       839 MB 0.80 FLOPs a byte
    """
    return _cost(LAYER_NORM, shape, dtype, form, keep)


def rms_norm_cost(
    shape: Sequence[int], dtype: str = "float32", form: Form = "fused", keep: Keep = "x"
) -> Cost:
    """Count FLOPs, bytes and memory of RMSNorm over the last axis.

    Parameters
    ----------
    shape, dtype, form, keep
        As in `layer_norm_cost`.

    Returns
    -------
    Cost
        Step by step and in total.

    Examples
    --------
    One kernel a pass moves what layer norm moves, and computes little more than half as much:

    >>> from truenorm.cost import layer_norm_cost, rms_norm_cost
    >>> layer, rms = (count((8, 1024, 4096)) for count in (layer_norm_cost, rms_norm_cost))
    >>> print(f"{rms.bytes_moved / layer.bytes_moved:.2f} {rms.flops / layer.flops:.2f}")
    0.98 0.56
    """
    return _cost(RMS_NORM, shape, dtype, form, keep)


def _cost(norm: Forms, shape: Sequence[int], dtype: str, form: Form, keep: Keep) -> Cost:
    """Count both passes of a norm."""
    _check(shape, dtype, form, keep)
    rows, width, itemsize = math.prod(shape[:-1]), shape[-1], ITEMSIZES[dtype]
    sizes, program = Sizes(rows, width, itemsize, itemsize), norm.textbook
    if form == "fused":
        program = norm.fused
        rows_of_a_share = max(FEWEST_ROWS, -(-rows // MOST_SHARES))
        sizes = sizes._replace(wide=max(4, itemsize), shares=-(-rows // rows_of_a_share))
    kept: tuple[str, ...] = ("xhat", "rstd")
    backward, referenced = program.backward, ["gamma"]
    if keep == "x":
        kept, backward = program.statistics, program.rebuild + program.backward
        referenced = ["gamma", "x"]
    return Cost(
        tuple(shape),
        dtype,
        form,
        keep,
        _pass(form, program.forward, sizes, results=["y", *kept]),
        _pass(form, backward, sizes, results=norm.gradients),
        kept=sizes.total(kept),
        referenced=sizes.total(referenced),
    )


def _pass(
    form: Form, operations: Sequence[Operation], sizes: Sizes, results: Sequence[str]
) -> PassCost:
    """Count one pass of a form."""
    if form == "textbook":
        return PassCost(through_memory(operations, sizes), one_sweep=False)
    scratch = 0
    if form == "blocked":
        block = sizes._replace(rows=min(sizes.rows, max(1, BLOCK // sizes.width)))
        scratch = max(step.alive for step in through_memory(operations, block))
    return PassCost(on_chip(operations, sizes, results, scratch), one_sweep=True)


def _check(shape: Sequence[int], dtype: str, form: str, keep: str) -> None:
    """Refuse what has no cost, and say what is known."""
    if not shape or min(shape) < 1:
        raise ValueError(
            f"the shape {tuple(shape)} has no elements: every axis needs a length of at least 1"
        )
    for name, value, known in (
        ("dtype", dtype, tuple(ITEMSIZES)),
        ("form", form, get_args(Form)),
        ("keep", keep, get_args(Keep)),
    ):
        if value not in known:
            raise ValueError(f"{name} is {value!r}: choose one of {', '.join(known)}")
