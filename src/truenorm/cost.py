"""The cost of layer norm and RMSNorm: FLOPs, bytes, memory, and the time that follows from them.

Three forms are counted step by step: the textbook's, whose every operation goes through memory;
the same in blocks that stay in a cache; and one fused kernel a pass. docs/learn/time-and-memory.md
explains the numbers.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from truenorm.tools.arguments import require_choice, require_shape

Form = Literal["textbook", "blocked", "fused"]
Keep = Literal["x", "xhat"]

# One operation a line: the programs that have it, its equation in docs/learn/derivation.md, what
# it computes, the arrays that it reads and writes, and its code. The programs are t, the lines of
# truenorm.textbook; f, the fused kernel; and r, the operations of either that backward repeats to
# rebuild xhat if x was saved. A number counts operations for each element; "mean" is a sum,
# divided in place. A name in parentheses is a temporary that Python frees after its last use;
# other names are local variables until the pass returns.
#
# The fused kernel has the mean as a pair, hi + lo (docs/learn/stability.md, "Centring"). Each of
# its blocks of rows has a share of dgamma and dbeta; the shares are added in a fixed order at the
# end, so that the bits do not depend on the scheduling.
PROGRAMS = {
    "layer_norm forward": """
        t   D1  mean x                   mean          mean = x.mean(axis=-1)
        tr  D2  1    x,mean              centred       centred = x - mean
        f   D1  mean x                   hi            hi = mean(x)
        fr  D2  1    x,hi                shifted       shifted = x - hi
        f   D1  mean shifted             lo            lo = mean(shifted)
        fr  D2  1    shifted,lo          centred       centred = shifted - lo
        tf  D3  1    centred             (squares)     centred * centred
        tf  D3  mean (squares)           var           var = (...).mean(axis=-1)
        tf  D4  3    var                 rstd          rstd = 1 / np.sqrt(var + eps)
        tfr D5  1    centred,rstd        xhat          xhat = centred * rstd
        tf  D6  1    gamma,xhat          (scaled)      gamma * xhat
        tf  D6  1    (scaled),beta       y             y = (...) + beta""",
    "layer_norm backward": """
        t   D7  1    dy                  dbeta         dbeta = dy.sum(axis=rows)
        f   D7  1    dy                  dbeta_shares  dbeta_shares = dy.sum(rows)
        tf  D8  1    dy,xhat             (terms)       dy * xhat
        t   D8  1    (terms)             dgamma        dgamma = (...).sum(axis=rows)
        f   D8  1    (terms)             dgamma_shares dgamma_shares = (...).sum(rows)
        tf  D9  1    gamma,dy            g             g = gamma * dy
        tf  D17 mean g                   mean_g        mean_g = g.mean(axis=-1)
        tf  D17 1    g,xhat              (products)    g * xhat
        tf  D17 mean (products)          mean_gxhat    mean_gxhat = (...).mean(axis=-1)
        tf  D17 1    g,mean_g            (less-mean)   g - mean_g
        tf  D17 1    xhat,mean_gxhat     (along)       xhat * mean_gxhat
        tf  D17 1    (less-mean),(along) (inner)       (g - ...) - (xhat * ...)
        tf  D17 1    rstd,(inner)        dx            dx = rstd * (...)
        f   D8  1    dgamma_shares       dgamma        dgamma = dgamma_shares.sum()
        f   D7  1    dbeta_shares        dbeta         dbeta = dbeta_shares.sum()""",
    "rms_norm forward": """
        tf  D25 1    x                   (squares)     x * x
        tf  D25 mean (squares)           (mean)        (...).mean(axis=-1)
        tf  D25 3    (mean)              rstd          rstd = 1 / np.sqrt(... + eps)
        tfr D26 1    x,rstd              xhat          xhat = x * rstd
        tf  D27 1    gamma,xhat          y             y = gamma * xhat""",
    "rms_norm backward": """
        tf  D8  1    dy,xhat             (terms)       dy * xhat
        t   D8  1    (terms)             dgamma        dgamma = (...).sum(axis=rows)
        f   D8  1    (terms)             dgamma_shares dgamma_shares = (...).sum(rows)
        tf  D9  1    gamma,dy            g             g = gamma * dy
        tf  D29 1    g,xhat              (products)    g * xhat
        tf  D29 mean (products)          (mean)        (...).mean(axis=-1)
        tf  D29 1    xhat,(mean)         (along)       xhat * (...)
        tf  D29 1    g,(along)           (inner)       g - (...)
        tf  D29 1    rstd,(inner)        dx            dx = rstd * (...)
        f   D8  1    dgamma_shares       dgamma        dgamma = dgamma_shares.sum()""",
}
ROWS = ("mean", "hi", "lo", "var", "rstd", "mean_g", "mean_gxhat", "(mean)")
COLUMNS = ("gamma", "beta", "dgamma", "dbeta")
SHARES = ("dgamma_shares", "dbeta_shares")
GRADIENTS = ("dx", "dgamma", "dbeta")

ITEMSIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
BLOCK = 2**16
"""Elements of each temporary of the blocked form, as in the reference backend."""
FEWEST_ROWS, MOST_SHARES = 16, 1024
"""Of the fused backward: the fewest rows that have a share of dgamma and dbeta in common, and the
most shares. Both depend only on the number of rows, and so do the bits."""


class Operation(NamedTuple):
    """A line of `PROGRAMS`."""

    equation: str
    times: int
    is_mean: bool
    reads: list[str]
    writes: str
    code: str


def operations(name: str, programs: str) -> list[Operation]:
    """Return the operations of a pass that belong to all of these programs."""
    lines = [line.split(maxsplit=5) for line in PROGRAMS[name].split("\n")[1:]]
    return [
        Operation(
            equation, int(kind.replace("mean", "1")), kind == "mean", reads.split(","), *rest
        )
        for of, equation, kind, reads, *rest in lines
        if set(programs) <= set(of)
    ]


class Step(NamedTuple):
    """One operation and its cost."""

    equation: str  # of docs/learn/derivation.md
    name: str  # the operation as the code writes it
    flops: int  # a root and a division count as one each
    bytes_read: int  # from memory
    bytes_written: int  # to memory
    alive: int  # bytes that exist while it runs, beyond the arguments of the pass


class Sizes(NamedTuple):
    """The sizes of named arrays; row statistics and shares have `wide` bytes a number."""

    rows: int
    width: int
    itemsize: int
    wide: int
    shares: int = 0

    def elements(self, name: str) -> int:
        """Return the number of elements of an array."""
        if name in ROWS:
            return self.rows
        if name in COLUMNS:
            return self.width
        return (self.shares if name in SHARES else self.rows) * self.width

    def bytes(self, *names: str) -> int:
        """Return the bytes of some arrays."""
        return sum(
            self.elements(name) * (self.wide if name in ROWS + SHARES else self.itemsize)
            for name in names
        )

    def step(self, operation: Operation, read: int, written: int, alive: int) -> Step:
        """Return a step: one FLOP per element of the largest array, and divisions of a mean."""
        largest = max(map(self.elements, (*operation.reads, operation.writes)))
        divisions = self.elements(operation.writes) if operation.is_mean else 0
        flops = operation.times * largest + divisions
        return Step(operation.equation, operation.code, flops, read, written, alive)


def _through_memory(operations: Sequence[Operation], sizes: Sizes) -> tuple[Step, ...]:
    """Count operations that each read their operands and write their result, as in NumPy."""
    last_use = {name: place for place, each in enumerate(operations) for name in each.reads}
    existing: dict[str, int] = {}
    steps = []
    for place, each in enumerate(operations):
        result = existing[each.writes] = sizes.bytes(each.writes)
        again = result if each.is_mean else 0  # the sums are read and written to be divided
        read, written = each.times * sizes.bytes(*each.reads), each.times * result
        steps.append(sizes.step(each, read + again, written + again, sum(existing.values())))
        for name in each.reads:
            if name.startswith("(") and last_use[name] == place:
                del existing[name]
    return tuple(steps)


def _on_chip(
    operations: Sequence[Operation], sizes: Sizes, results: Collection[str], scratch: int
) -> tuple[Step, ...]:
    """Count one sweep with its temporaries in registers or in `scratch` bytes of cache.

    Arguments are read once and results written once. Shares are written by their block of rows and
    read when all blocks are done.
    """
    loaded: set[str] = set()
    stored = {each.writes for each in operations} & {*results, *SHARES}
    alive = sizes.bytes(*stored) + scratch
    steps = []
    for each in operations:
        read = sizes.bytes(*(name for name in each.reads if name not in loaded))
        written = sizes.bytes(each.writes) if each.writes in stored else 0
        steps.append(sizes.step(each, read, written, alive))
        loaded |= {*each.reads, each.writes}.difference(SHARES)
    return tuple(steps)


class _Counted:
    """Totals over the steps of one pass, or of both."""

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
        """FLOPs per byte moved."""
        return self.flops / self.bytes_moved


@dataclass(frozen=True)
class PassCost(_Counted):
    """The cost of one pass, step by step and in total.

    `one_sweep` is True if all steps run while the data are on the chip, so that the slower of
    memory and arithmetic decides the time. Otherwise that holds for each step separately.
    """

    steps: tuple[Step, ...]
    one_sweep: bool

    @property
    def peak(self) -> int:
        """The most bytes that exist at once beyond the arguments of the pass, results included."""
        return max(step.alive for step in self.steps)

    def seconds(self, bandwidth: float, flops_rate: float = math.inf) -> float:
        """Return the time by the roofline model, for arrays beyond any cache.

        `bandwidth` is in bytes per second. Without a rate of FLOPs only memory takes time.
        """
        sweeps = [(self.bytes_moved, self.flops)]
        if not self.one_sweep:
            sweeps = [(step.bytes_read + step.bytes_written, step.flops) for step in self.steps]
        return sum(max(moved / bandwidth, flops / flops_rate) for moved, flops in sweeps)


@dataclass(frozen=True)
class Cost(_Counted):
    """The cost of forward and backward together, and of each."""

    shape: tuple[int, ...]  # of x
    dtype: str
    form: Form
    keep: Keep
    forward: PassCost
    backward: PassCost
    kept: int  # bytes that forward allocates for backward
    referenced: int  # bytes of the caller's arrays, gamma and perhaps x, kept alive for backward

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
        """Return the time of both passes; see `PassCost.seconds`."""
        return sum(each.seconds(bandwidth, flops_rate) for each in self.passes.values())


def layer_norm_cost(
    shape: Sequence[int], dtype: str = "float32", form: Form = "fused", keep: Keep = "x"
) -> Cost:
    """Count FLOPs, bytes and memory of layer normalization over the last axis.

    Parameters
    ----------
    shape : sequence of int
        The shape of x.
    dtype : str
        "float16", "bfloat16", "float32" or "float64": the type of all arrays. The fused form keeps
        statistics and sums in float32 or wider.
    form : str
        "textbook" is `truenorm.textbook`, where every NumPy operation goes through memory.
        "blocked" runs the same operations on blocks of rows that stay in a cache. "fused" is one
        kernel a pass with a row in registers.
    keep : str
        The array saved for backward, "x" or "xhat". `truenorm.textbook` saves xhat; with "x" it is
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
    return _cost("layer_norm", shape, dtype, form, keep)


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
    A fused RMSNorm moves as much as layer norm, with little more than half the FLOPs:

    >>> from truenorm.cost import layer_norm_cost, rms_norm_cost
    >>> layer, rms = (count((8, 1024, 4096)) for count in (layer_norm_cost, rms_norm_cost))
    >>> print(f"{rms.bytes_moved / layer.bytes_moved:.2f} {rms.flops / layer.flops:.2f}")
    0.98 0.56
    """
    return _cost("rms_norm", shape, dtype, form, keep)


def _cost(norm: str, shape: Sequence[int], dtype: str, form: Form, keep: Keep) -> Cost:
    """Count both passes of a norm."""
    require_shape(shape)
    if not shape or min(shape) < 1:
        raise ValueError(
            f"the shape {tuple(shape)} has no elements: every axis needs a length of at least 1"
        )
    for option, value, known in (
        ("dtype", dtype, tuple(ITEMSIZES)),
        ("form", form, get_args(Form)),
        ("keep", keep, get_args(Keep)),
    ):
        require_choice(option, value, known)
    rows, itemsize = math.prod(shape[:-1]), ITEMSIZES[dtype]
    sizes, program = Sizes(rows, shape[-1], itemsize, itemsize), "t"
    if form == "fused":
        program, rows_of_a_share = "f", max(FEWEST_ROWS, -(-rows // MOST_SHARES))
        sizes = sizes._replace(wide=max(4, itemsize), shares=-(-rows // rows_of_a_share))
    forward, backward = (operations(f"{norm} {each}", program) for each in ("forward", "backward"))
    kept, referenced = {"xhat", "rstd"}, ["gamma"]
    if keep == "x":
        rebuild = operations(f"{norm} forward", program + "r")
        read = {name for each in rebuild for name in each.reads}
        kept, referenced = read - {"x", *(each.writes for each in rebuild)}, ["gamma", "x"]
        backward = rebuild + backward
    passes = (_pass(form, forward, sizes, ["y", *kept]), _pass(form, backward, sizes, GRADIENTS))
    memory = sizes.bytes(*kept), sizes.bytes(*referenced)
    return Cost(tuple(shape), dtype, form, keep, *passes, *memory)


def _pass(
    form: Form, operations: Sequence[Operation], sizes: Sizes, results: Sequence[str]
) -> PassCost:
    """Count one pass of a form."""
    if form == "textbook":
        return PassCost(_through_memory(operations, sizes), one_sweep=False)
    scratch = 0
    if form == "blocked":
        block = sizes._replace(rows=min(sizes.rows, max(1, BLOCK // sizes.width)))
        scratch = max(step.alive for step in _through_memory(operations, block))
    return PassCost(_on_chip(operations, sizes, results, scratch), one_sweep=True)
