"""The cost of layer norm and RMSNorm: FLOPs, bytes, memory, and the time that follows from them.

Three forms are counted step by step: the textbook's, whose every operation goes through memory;
the same in blocks that stay in a cache; and one fused kernel a pass. docs/time-and-memory.md
explains the numbers, and ``truenorm cost`` prints them.

Both norms are lists of operations on named arrays. A name in parentheses is a temporary that
Python frees after its last use; other names are local variables until the pass returns. Equations
are those of docs/derivation.md.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from truenorm.tools.machine import seconds_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "ITEMSIZES",
    "Cost",
    "Form",
    "Keep",
    "PassCost",
    "Step",
    "layer_norm_cost",
    "measure_bandwidth",
    "measure_flops_rate",
    "rms_norm_cost",
]

Form = Literal["textbook", "blocked", "fused"]
Keep = Literal["x", "xhat"]


class Operation(NamedTuple):
    """One NumPy operation, or one line of a kernel.

    A "map" computes each element of its result once. A "sum" reduces its operand along some axes,
    and a "mean" also divides the sum in place. `times` is the number of maps in the line.
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

# The mean is a pair, hi + lo: see docs/stability.md, "Centring".
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
end, so that the bits do not depend on the scheduling."""


RMS_FORWARD: Operations = (
    Operation("D25", "x * x", ("x",), "(squares)"),
    Operation("D25", "(...).mean(axis=-1)", ("(squares)",), "(mean square)", "mean"),
    Operation("D25", "rstd = 1 / np.sqrt(... + eps)", ("(mean square)",), "rstd", times=3),
    Operation("D26", "xhat = x * rstd", ("x", "rstd"), "xhat"),
    Operation("D27", "y = gamma * xhat", ("gamma", "xhat"), "y"),
)
"""`truenorm.textbook.rms_norm_forward`; without a mean, the fused kernel does the same."""

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
    """Both passes; and, if x is saved, the row statistics and how to rebuild xhat from them."""

    forward: Operations
    backward: Operations
    statistics: tuple[str, ...]
    rebuild: Operations


class Forms(NamedTuple):
    """A norm in both forms, and the gradients it returns."""

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

    def bytes(self, name: str) -> int:
        """Return the bytes of an array."""
        return self.elements(name) * (self.wide if name in ROWS + SHARES else self.itemsize)

    def total(self, names: Collection[str]) -> int:
        """Return the bytes of several arrays."""
        return sum(map(self.bytes, names))

    def flops(self, operation: Operation) -> int:
        """Return one FLOP per element of the largest operand, plus the divisions of a mean."""
        largest = max(map(self.elements, (*operation.reads, operation.writes)))
        division = self.elements(operation.writes) if operation.kind == "mean" else 0
        return operation.times * largest + division


def through_memory(operations: Sequence[Operation], sizes: Sizes) -> tuple[Step, ...]:
    """Count operations that each read their operands and write their result, as in NumPy."""
    steps = []
    for operation, alive in zip(operations, _alive(operations, sizes), strict=True):
        # A mean reads and writes its sums once more, to divide them.
        again = sizes.bytes(operation.writes) if operation.kind == "mean" else 0
        read = operation.times * sizes.total(operation.reads) + again
        written = operation.times * sizes.bytes(operation.writes) + again
        steps.append(_step(operation, sizes, read, written, alive))
    return tuple(steps)


def on_chip(
    operations: Sequence[Operation], sizes: Sizes, results: Collection[str], scratch: int
) -> tuple[Step, ...]:
    """Count one sweep with its temporaries in registers or in `scratch` bytes of cache.

    Arguments are read once and results written once. Shares are written by their block of rows and
    read when all blocks are done.
    """
    steps = []
    loaded: set[str] = set()
    stored = {each.writes for each in operations} & {*results, *SHARES}
    alive = sizes.total(stored) + scratch
    for operation in operations:
        read = sizes.total([name for name in operation.reads if name not in loaded])
        written = sizes.bytes(operation.writes) if operation.writes in stored else 0
        steps.append(_step(operation, sizes, read, written, alive))
        loaded.update({*operation.reads, operation.writes}.difference(SHARES))
    return tuple(steps)


def _step(operation: Operation, sizes: Sizes, read: int, written: int, alive: int) -> Step:
    return Step(operation.equation, operation.code, sizes.flops(operation), read, written, alive)


def _alive(operations: Sequence[Operation], sizes: Sizes) -> Iterator[int]:
    """Yield the bytes allocated while each operation runs, beyond the arguments."""
    last_use = {name: place for place, each in enumerate(operations) for name in each.reads}
    existing: dict[str, int] = {}
    for place, operation in enumerate(operations):
        existing[operation.writes] = sizes.bytes(operation.writes)
        yield sum(existing.values())
        for name in operation.reads:
            if name.startswith("(") and last_use[name] == place:
                del existing[name]


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
    """The cost of one pass.

    Attributes
    ----------
    steps : tuple of Step
        In order.
    one_sweep : bool
        True if all steps run while the data are on the chip, so that the slower of memory and
        arithmetic decides the time. Otherwise that holds for each step separately.
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
    """The cost of forward and backward together.

    Attributes
    ----------
    shape : tuple of int
        Of x; the last axis is the one that is normalized.
    dtype, form, keep : str
        The arguments of `layer_norm_cost` or `rms_norm_cost`.
    forward, backward : PassCost
        Each pass.
    kept : int
        Bytes that forward allocates for backward.
    referenced : int
        Bytes of the caller's arrays, gamma and perhaps x, that stay alive for backward.
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
            Bytes that the machine moves in a second; see `measure_bandwidth`.
        flops_rate : float
            Floating-point operations in a second. By default only memory takes time.

        Returns
        -------
        float
            The time, for arrays larger than any cache.

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
"""Of the fused backward: the fewest rows that have a share of dgamma and dbeta in common, and the
most shares. Both depend only on the number of rows, and so do the bits."""


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
    A fused RMSNorm moves as much as layer norm, with little more than half the FLOPs:

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
    """Raise ValueError for an empty shape or an unknown option."""
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
            raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")


ROUNDS = 8
MEGABYTES = 64
ORDER = 1024
"""Of the matrices: large enough that arithmetic limits their product."""


def measure_bandwidth(threads: int = 1) -> float:
    """Measure how many bytes a second a copy reads and writes, on arrays of 64 MB.

    Parameters
    ----------
    threads : int
        Number of threads, each of which copies a part of the array.

    Returns
    -------
    float
        Bytes read plus bytes written, per second, in the best of eight rounds, because other
        programs can only slow a copy down.

    Examples
    --------
    >>> from truenorm.cost import layer_norm_cost, measure_bandwidth
    >>> cost = layer_norm_cost((8, 1024, 4096))
    >>> milliseconds = cost.seconds(measure_bandwidth()) * 1e3
    """
    source = np.ones(MEGABYTES * 10**6 // 4, np.float32)
    target = np.zeros_like(source)  # written once, so that no page is new to the copy
    parts = list(
        zip(np.array_split(target, threads), np.array_split(source, threads), strict=True)
    )
    with ThreadPoolExecutor(threads) as pool:
        seconds = _best(lambda: list(pool.map(lambda part: np.copyto(*part), parts)))
    return 2 * source.nbytes / seconds


def measure_flops_rate(dtype: str = "float32") -> float:
    """Measure how many floating-point operations a second a matrix product reaches.

    Parameters
    ----------
    dtype : str
        "float64", or any other name for float32, in which narrower types are computed.

    Returns
    -------
    float
        FLOPs per second in the best of eight rounds, with the threads of NumPy's BLAS.

    Examples
    --------
    >>> from truenorm.cost import measure_flops_rate
    >>> measure_flops_rate("float32") > 0
    True
    """
    factor = np.ones((ORDER, ORDER), np.float64 if dtype == "float64" else np.float32)
    product = np.empty_like(factor)
    return 2 * ORDER**3 / _best(lambda: np.matmul(factor, factor, out=product))


def _best(work: Callable[[], object]) -> float:
    """Return the shortest of several times, in seconds."""
    return min(seconds_of(work) for _ in range(ROUNDS))


IN_A_CACHE = 32e6
"""Bytes of x below which it may fit in a cache."""


class Machine(NamedTuple):
    """Bytes and FLOPs per second, and their source."""

    bandwidth: float | None
    flops_rate: float
    source: str

    def seconds(self, counted: PassCost | Cost) -> float:
        """Return the predicted time; the bandwidth must be known."""
        assert self.bandwidth is not None
        return counted.seconds(self.bandwidth, self.flops_rate)


def as_data(costs: Sequence[Cost], machine: Machine) -> dict[str, Any]:
    """Return everything, in bytes, FLOPs and seconds."""

    def numbers(counted: PassCost | Cost, *more: str) -> dict[str, Any]:
        names = ("flops", "bytes_moved", "intensity", "peak", *more)
        values = {name: getattr(counted, name) for name in names}
        return values | ({"seconds": machine.seconds(counted)} if machine.bandwidth else {})

    forms = []
    for cost in costs:
        passes = {
            name: numbers(counted, "bytes_read", "bytes_written")
            | {"steps": [step._asdict() for step in counted.steps]}
            for name, counted in cost.passes.items()
        }
        forms.append(vars(cost) | numbers(cost) | passes)
    return {"machine": machine._asdict(), "forms": forms}


class Unit(NamedTuple):
    """A power of 1000, and its letter."""

    size: float
    letter: str

    def text(self, value: float) -> str:
        """Return a number in this unit, and an empty text for 0."""
        return f"{value / self.size:,.1f}" if value else ""


def show_cost(
    title: str, costs: Sequence[Cost], form: Form, machine: Machine, console: "Console"
) -> None:
    """Print the cost of each form, and one of them step by step."""
    (cost,) = (each for each in costs if each.form == form)
    elements = math.prod(cost.shape)
    power = min((len(str(elements)) - 1) // 3, 4)
    unit = Unit(1000.0**power, ("", "k", "M", "G", "T")[power])
    shape = ", ".join(map(str, cost.shape))
    console.print(f"\n[bold]{title} of ({shape}), {cost.dtype}[/]: {elements:,} elements")
    console.print(f"\nThe {form} form step by step, {cost.keep} kept\n")
    console.print(_steps(cost, unit))
    console.print("\nThe three forms\n")
    console.print(_totals(costs, machine, unit))
    console.print()
    for line in _conclusion(costs, machine):
        console.print(line)


def _steps(cost: Cost, unit: Unit) -> "Table":
    from truenorm.tools.rich_tables import rich_table

    byte = f"{unit.letter}B"
    head = ["", "", f"{unit.letter}FLOP", f"{byte} read", f"{byte} written", f"{byte} alive"]
    table = rich_table("llrrrr", head)
    for name, counted in cost.passes.items():
        for step in counted.steps:
            table.add_row(f"({step.equation})", step.name, *map(unit.text, step[2:]))
        sums = (counted.flops, counted.bytes_read, counted.bytes_written, counted.peak)
        table.add_row("", f"{name}: sums, and the peak", *map(unit.text, sums), style="bold")
        if name == "forward":
            table.add_row()
    return table


def _totals(costs: Sequence[Cost], machine: Machine, unit: Unit) -> "Table":
    from truenorm.tools.rich_tables import rich_table

    table = rich_table("ll" + "r" * len(costs), ["", "", *(cost.form for cost in costs)])
    table.add_row("", "saved", *(cost.keep for cost in costs))
    for name in ("forward", "backward"):
        passes = [cost.passes[name] for cost in costs]
        moved = [unit.text(each.bytes_moved) for each in passes]
        table.add_row(name, f"{unit.letter}B moved", *moved)
        table.add_row("", f"{unit.letter}FLOP", *(unit.text(each.flops) for each in passes))
        table.add_row("", "FLOPs per byte", *(f"{each.intensity:.2f}" for each in passes))
        if machine.bandwidth is not None:
            times = [f"{machine.seconds(each) * 1e3:.4g}" for each in passes]
            table.add_row("", "ms, predicted", *times)
    for group, label, name in (
        ("memory", "kept for backward", "kept"),
        ("", "of the caller's kept alive", "referenced"),
        ("", "at the peak of both", "peak"),
    ):
        cells = [unit.text(getattr(cost, name)) for cost in costs]
        table.add_row(group, f"{unit.letter}B {label}", *cells)
    return table


def _conclusion(costs: Sequence[Cost], machine: Machine) -> list[str]:
    """Return what limits the forms, and the rates behind the prediction."""
    intensities = {
        f"{name} {cost.form}": counted.intensity
        for cost in costs
        for name, counted in cost.passes.items()
    }
    most = max(intensities.values())
    if machine.bandwidth is None:
        return [
            f"Memory limits every form on a machine that does more than {most:.2f} FLOPs in the "
            "time it moves a byte.",
            "For a prediction of times add --bandwidth GB/s or --measure.",
        ]
    rates = f"Bandwidth {machine.bandwidth / 1e9:,.1f} GB/s"
    balance = machine.flops_rate / machine.bandwidth
    limit = (
        f"Memory limits every form: none does more than {most:.2f} FLOPs a byte, and this machine "
        f"does {balance:.1f} in the time it moves one."
    )
    if math.isinf(balance):
        limit = "Memory limits every form: arithmetic is taken to cost nothing without --flops."
    else:
        rates += f", {machine.flops_rate / 1e9:,.0f} GFLOP/s"
    if limited := ", ".join(name for name, each in intensities.items() if each > balance):
        limit = (
            f"Arithmetic limits {limited}: this machine does only {balance:.2f} FLOPs in the time "
            "it moves a byte."
        )
    lines = [f"{rates}, {machine.source}.", limit]
    if math.prod(costs[0].shape) * ITEMSIZES[costs[0].dtype] < IN_A_CACHE:
        lines.append("x may fit in a cache, which is faster: read the times as upper limits.")
    return lines
