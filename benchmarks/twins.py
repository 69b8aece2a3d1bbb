"""``python -m benchmarks.twins``: time calls beside their ordinary twins.

A twin computes the same from plain arrays, without special values. Both take turns; a factor is
the quotient of their shortest times. The report goes to results/twins.json, which
docs/inside/speed.md shows; a test measures again.
"""

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import truenorm as tn
from benchmarks.common import RESULTS, machine, markdown_table, options, publish
from benchmarks.stopwatch import seconds_of
from truenorm.tools.progress import status_line

FILES = (RESULTS / "twins.json",)
LIMIT = 3.0
"""How many times as long as its twin a call may take, unless it waits."""

SHAPES = {"small": (8, 64), "large": (512, 1024)}
ROUNDS = 40
Array = NDArray[Any]
Work = Callable[[], object]


LATER = "one element sends the whole call to the driver, in Python"
CORRECT = "float64 parameters beside narrower rows are computed in correct mode"
GATHERED = "the driver, in Python, gathers blocks of rows"
COPIED = "a plain copy is made first: on one thread, that takes as long as the call"


class Arrays(NamedTuple):
    """The arrays of a call."""

    x: Array
    gamma: Array
    beta: Array
    dy: Array


class Twins(NamedTuple):
    """A call and its twin."""

    name: str
    what: str
    """forward or backward."""

    shape: tuple[int, ...]
    call: Work
    twin: Work
    waits: str = ""
    """Why it may take longer, if it may."""

    def factor(self, rounds: int = ROUNDS) -> float:
        """Return how many times as long as its twin the call takes."""
        shortest = {}
        for name, work in (("call", self.call), ("twin", self.twin)):
            work()
            shortest[name] = seconds_of(work)
        calls = {name: max(1, min(50, int(3e-4 / taken))) for name, taken in shortest.items()}
        for _ in range(rounds):
            for name, work in (("call", self.call), ("twin", self.twin)):
                taken = seconds_of(work, calls[name]) / calls[name]
                shortest[name] = min(shortest[name], taken)
            if shortest["call"] > 1:  # a cliff: one round takes long enough
                break
        return shortest["call"] / shortest["twin"]


def plain(shape: tuple[int, ...], dtype: Any = np.float32, parameters: Any = None) -> Arrays:
    """Return normal numbers: rows of one type, and parameters of the same or another one."""
    random = np.random.default_rng(0)
    x, dy = random.standard_normal((2, *shape)).astype(dtype)
    gamma, beta = random.standard_normal((2, shape[-1])).astype(parameters or dtype)
    return Arrays(x, gamma, beta, dy)


def unaligned(array: Array) -> Array:
    """Return a copy at an odd address."""
    memory = np.empty(array.nbytes + 1, np.uint8)[1:]
    copied = memory.view(array.dtype).reshape(array.shape)
    copied[...] = array
    return copied


def read_only(array: Array) -> Array:
    """Return a copy that cannot be written to."""
    copied = array.copy()
    copied.flags.writeable = False
    return copied


def every_second(array: Array) -> Array:
    """Return a view of every second element of an array."""
    return np.repeat(array, 2, axis=-1)[..., ::2]


def unpickled(array: Array) -> Array:
    """Return an array whose dtype is equal to that of the other, but another object."""
    copied: Array = pickle.loads(pickle.dumps(array))
    return copied


KINDS: dict[str, Callable[[Array], Array]] = {
    "read-only": read_only,
    "unaligned": unaligned,
    "every second element": every_second,
    "other byte order": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "unpickled": unpickled,
    "deep-copied": copy.deepcopy,
}
OF_OTHER_MEMORY = ("unaligned", "every second element", "other byte order")
"""Kinds that are not plain."""


def both(
    name: str,
    shape: tuple[int, ...],
    call: Arrays,
    twin: Arrays,
    given: Mapping[str, Any] | None = None,
    waits: str = "",
    norm: str = "layer_norm",
) -> Iterator[Twins]:
    """Yield the forward and the backward pass of a call."""
    forward = getattr(tn, f"{norm}_forward")
    plainly, backward = getattr(tn, norm), getattr(tn, f"{norm}_backward")
    count = 3 if norm == "layer_norm" else 2
    options = dict(given or {})
    yield Twins(
        name,
        "forward",
        shape,
        partial(plainly, *call[:count], **options),
        partial(plainly, *twin[:count], **options),
        waits,
    )
    saved = [forward(*arrays[:count], **options)[1] for arrays in (call, twin)]
    yield Twins(
        name,
        "backward",
        shape,
        partial(backward, call.dy, saved[0]),
        partial(backward, twin.dy, saved[1]),
        waits,
    )


def along(
    name: str, shape: tuple[int, ...], arrays: Arrays, axis: Any, waits: str = ""
) -> Iterator[Twins]:
    """Yield the passes of a call along some axes; twins are along the last one."""
    twin = plain(shape)
    calls = both(name, shape, arrays, arrays, {"axis": axis}, waits)
    for call, other in zip(calls, both(name, shape, twin, twin), strict=True):
        yield call._replace(twin=other.twin)


def of_types(shape: tuple[int, ...]) -> Iterator[Twins]:
    """Yield calls whose parameters have another type than the rows."""
    narrow = plain(shape)
    gamma, beta = narrow.gamma.astype(np.float64) / 3, narrow.beta.astype(np.float64) / 3
    for name, mixed in {
        "gamma and beta float64": narrow._replace(gamma=gamma, beta=beta),
        "gamma float64": narrow._replace(gamma=gamma),
        "beta float64": narrow._replace(beta=beta),
    }.items():
        yield from both(f"{name}, rows float32", shape, mixed, narrow)
    wide = narrow._replace(gamma=gamma)
    yield from both("gamma float64, rows float32, RMSNorm", shape, wide, narrow, norm="rms_norm")
    fast = {"rounding": "fast"}
    yield from both("gamma float64, rows float32, fast mode", shape, wide, narrow, fast, CORRECT)
    half = plain(shape, np.float16)
    wide = half._replace(gamma=gamma, beta=beta)
    yield from both("gamma and beta float64, rows float16", shape, wide, half)
    double = plain(shape, np.float64)
    narrowed = plain(shape, np.float64, np.float32)
    yield from both("gamma and beta float32, rows float64", shape, narrowed, double)


def of_arrays(shape: tuple[int, ...]) -> Iterator[Twins]:
    """Yield calls with arrays of other kinds."""
    arrays = plain(shape)
    for name, change in KINDS.items():
        waits = COPIED if name in OF_OTHER_MEMORY else ""
        yield from both(f"{name} x and dy", shape, arrays._replace(
            x=change(arrays.x), dy=change(arrays.dy)), arrays, waits=waits)  # fmt: skip
        yield from both(f"{name} parameters", shape, arrays._replace(
            gamma=change(arrays.gamma), beta=change(arrays.beta)), arrays)  # fmt: skip


def of_arguments(shape: tuple[int, ...]) -> Iterator[Twins]:
    """Yield calls with other arguments."""
    arrays = plain(shape)
    three = arrays[:3]
    out = np.empty_like(arrays.x)
    usual = partial(tn.layer_norm, *three)
    yield from along("axis=(-1,)", shape, arrays, (-1,))
    boxed = Arrays(*(a.reshape(*a.shape[:-1], 4, shape[1] // 4) for a in arrays))
    yield from along("axis=(1, 2)", shape, boxed, (1, 2))
    same = arrays.x.copy()
    to_out = partial(tn.layer_norm, *three, out=out)
    in_place = partial(tn.layer_norm, same, *three[1:], out=same)
    yield Twins("out=x", "forward", shape, in_place, to_out)
    apart = unaligned(out)
    yield Twins("unaligned out", "forward", shape, partial(to_out, out=apart), to_out)
    for name, eps in (("eps=1", 1), ("eps=np.float32(1)", np.float32(1))):
        twin = partial(usual, eps=1.0)
        yield Twins(name, "forward", shape, partial(usual, eps=eps), twin)
    if shape == SHAPES["small"]:
        none = arrays._replace(x=arrays.x[:0], dy=arrays.dy[:0])
        one = arrays._replace(x=arrays.x[:1], dy=arrays.dy[:1])
        yield from both("no rows, beside one", shape, none, one)


def of_values(shape: tuple[int, ...]) -> Iterator[Twins]:
    """Yield calls with special values."""
    arrays = plain(shape)
    x = arrays.x.copy()
    x[3, 5] = np.nan
    yield from both("one row with a NaN", shape, arrays._replace(x=x), arrays, waits=LATER)
    x, gamma, beta = arrays.x.copy(), arrays.gamma.copy(), arrays.beta.copy()
    x[3] = np.tile(np.array([1, -1], np.float32), shape[1] // 2)  # w = 9: xhat is 1/3
    gamma[0], beta[0] = 3, 2**-24
    tie = Arrays(x, gamma, beta, arrays.dy)
    yield from both("one exact tie", shape, tie, arrays, {"eps": 8.0}, waits=LATER)
    x, dy = arrays.x.copy(), arrays.dy.copy()
    x[1], dy[1] = x[0], dy[0]
    dy[2:, 7] = 0
    dy[1, 7] = -dy[0, 7]
    cancels = arrays._replace(x=x, dy=dy)
    yield list(both("a column of dgamma that cancels", shape, cancels, arrays, waits=LATER))[1]
    first = Arrays(*(np.ascontiguousarray(a.T) if a.ndim == 2 else a for a in arrays))
    yield from along("axis=0", shape, first, 0, waits=GATHERED)


FAMILIES = (of_types, of_arrays, of_arguments, of_values)


def all_twins() -> Iterator[Twins]:
    """Yield all twins, one after the other, since they hold arrays."""
    for shape in SHAPES.values():
        for family in FAMILIES:
            yield from family(shape)


def page(report: Mapping[str, Any]) -> str:
    """Return the table of a report."""
    names = list(dict.fromkeys(each["name"] for each in report["twins"]))
    cells = {(each["name"], each["what"], tuple(each["shape"])): each for each in report["twins"]}
    why = {each["name"]: each["waits"] for each in report["twins"]}
    columns = [(what, shape) for shape in SHAPES.values() for what in ("forward", "backward")]
    rows = [
        [name, *(_cell(cells.get((name, what, shape))) for what, shape in columns), why[name]]
        for name in names
    ]
    head = ["call", *(f"{what}, {shape[0]}x{shape[1]}" for what, shape in columns), "why"]
    facts = report["machine"]
    where = f"{facts['cpu']}, Python {facts['python']}, NumPy {facts['numpy']}; {facts['date']}."
    return f"{markdown_table(head, rows)}\n\n{where}"


def _cell(each: Mapping[str, Any] | None) -> str:
    return "" if each is None else f"{each['factor']:.{1 if each['factor'] < 10 else 0}f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Time all twins."""
    parser = options("twins", "Time calls beside their ordinary twins.", output=FILES[0])
    output = parser.parse_args(arguments).output
    measured = []
    for each in all_twins():
        status_line(f"{each.name}, {each.what}, {each.shape}")
        factor = each.factor()
        measured.append(
            {
                "name": each.name,
                "what": each.what,
                "shape": list(each.shape),
                "factor": round(factor, 2),
                "waits": each.waits,
            }
        )
    publish({"machine": machine(), "twins": measured}, output, page)


if __name__ == "__main__":
    main()
