"""Random calls of the C core with arguments that it must accept, decline or refuse.

`Fuzzer.run` makes calls and compares the outcome of each with the documentation of `module.c`,
which `_is_ordinary` states anew, in terms of NumPy. Of some calls that succeed it compares the
results with the reference.
"""

from array import array
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import truenorm as tn
from truenorm.kernels.native import _core

__all__ = ["Fuzzer"]

SHAPES = ((1, 1), (1, 2), (3, 1), (2, 3), (5, 7), (9, 16), (4, 33), (2, 1, 20), (12,), (300, 2))
SHAPES_OF_SEVERAL_BLOCKS = ((3, 513), (2, 1100), (40, 450), (600, 64))
SHAPES_WITHOUT_ROWS = ((0, 4), (4, 0), ())
SUMS, FAST_SUMS = (5, 6), (2, 4)
"""Numbers a column, of rows of at most float32 and of float64 rows."""
SMALLEST_EPS, LARGEST_EPS = 2.0**-200, 2.0**200
CENTRED, FAST = 1, 2
KINDS = ("f", "e", "H", "d")
"""Formats of float32, float16, the bits of bfloat16, and float64, in the order of `core.h`."""
DTYPES = {"f": np.float32, "e": np.float16, "H": np.uint16, "d": np.float64}
UNITS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52}
USUAL = 8
"""Objects at the beginning of a list that fit, as a rule."""


class Item(NamedTuple):
    """An object to pass, and what a call of it may take it for."""

    value: Any
    kind: str  # "f", "e", "H", "d", "B"; "None"; "" if it is not ordinary
    shape: tuple[int, ...] = ()
    start: int = 0
    stop: int = 0
    writable: bool = False
    moderate: bool = False


class Number(NamedTuple):
    """A number to pass; the error that it raises, if it does."""

    value: Any
    error: type[BaseException] | None
    read: float


class _Raises:
    """An object whose conversion to a number fails."""

    def __float__(self) -> float:
        raise ZeroDivisionError

    def __index__(self) -> int:
        raise ZeroDivisionError


class _Number:
    """An object that can be converted to a number."""

    def __float__(self) -> float:
        return 0.5

    def __index__(self) -> int:
        return 3


EPS = [
    *(Number(each, None, float(each)) for each in (0.0, -0.0, 1, True, 1e-12)),
    Number(np.float32(0.25), None, 0.25),
    *(Number(each, None, each) for each in (SMALLEST_EPS, LARGEST_EPS, SMALLEST_EPS / 2)),
    *(
        Number(each, None, each)
        for each in (LARGEST_EPS * 2, -1e-5, -1.0, np.nan, np.inf, -np.inf)
    ),
    *(Number(each, None, each) for each in (5e-324, 1e-310, 1e308)),
    Number(_Number(), None, 0.5),
    Number(None, TypeError, 0),
    Number("1", TypeError, 0),
    Number([1.0], TypeError, 0),
    Number(10**400, OverflowError, 0),
    Number(_Raises(), ZeroDivisionError, 0),
]
MODES = [
    *(Number(each, None, each) for each in (4, 7, 2**40, True)),
    *(Number(each, ValueError, 0) for each in (-1, 0x30, 0x0F00, 0xF000)),
    Number(np.int8(2), None, 2),
    Number(_Number(), None, 3),
    *(Number(each, TypeError, 0) for each in (None, 1.0, "1")),
    *(Number(each, OverflowError, 0) for each in (2**63, -(2**70))),
    Number(_Raises(), ZeroDivisionError, 0),
]
THREADS = [each for each in MODES if each.error is not ValueError] + [
    Number(each, None, each) for each in (-1, 0, -5, 2, 3, 5, 64, 1000, 2**31)
]


def item(value: Any, *, moderate: bool = False) -> Item:
    """Describe an object as NumPy sees it."""
    if value is None:
        return Item(None, "None")
    if isinstance(value, memoryview | array):
        seen = np.asarray(value)
        view = memoryview(value)
        kind = view.format if view.c_contiguous and view.format in (*KINDS, "B") else ""
        found = item(seen)
        return found._replace(value=value, kind=kind, writable=not view.readonly)
    if not isinstance(value, np.ndarray):
        return Item(value, "")
    kinds = {"float32": "f", "float16": "e", "uint16": "H", "float64": "d", "uint8": "B"}
    kind = kinds.get(value.dtype.name, "") if value.dtype.isnative else ""
    if not (value.flags.c_contiguous and value.ctypes.data % value.itemsize == 0):
        kind = ""
    start = value.ctypes.data
    return Item(
        value, kind, value.shape, start, start + value.nbytes, value.flags.writeable, moderate
    )


def _fill(random: np.random.Generator, target: np.ndarray[Any, Any], how: int) -> bool:
    """Fill an array in one of several ways; return True if the numbers are moderate."""
    shape = target.shape
    if target.dtype == np.uint16:  # bfloat16: the upper halves of float32 numbers
        wide = np.empty(shape, np.float32)
        moderate = _fill(random, wide, how)
        target[...] = wide.view(np.uint32) >> 16
        return moderate
    with np.errstate(all="ignore"):
        target[...] = random.standard_normal(shape)
        if how == 1:
            target[...] = target * 1e38
        elif how == 2:
            target[...] = target * 1e-42
        elif how == 3:
            target[...] = 1.5
        elif how == 4 and target.size:
            target.reshape(-1)[random.integers(target.size)] = random.choice(
                [np.nan, np.inf, -np.inf]
            )
        elif how == 5:
            target[...] = random.integers(-2, 3, shape)
        elif how == 6:
            target[...] = random.integers(0, 2**32, shape, np.uint32).view(np.float32)
        elif how == 7:
            target[...] = target * 1e-3 + 1000
    return how in (0, 7)


class Pool:
    """Objects of one shape and type: some that fit, and some that nearly do."""

    def __init__(self, random: np.random.Generator, shape: tuple[int, ...], kind: str) -> None:
        self.shape, self.kind = shape, kind
        self.types = KINDS.index(kind) * 0x1110
        dtype = DTYPES[kind]
        self.size = shape[-1] if shape else 0
        self.rows = int(np.prod(shape[:-1])) if self.size else 0
        self.blocks = self._arrays(random, shape, dtype)
        self.vectors = [item(None), *self._arrays(random, (self.size,), dtype)]
        self.of_rows = "d" if kind == "d" else "f"
        self.wide = self._arrays(random, (self.size,), DTYPES[self.of_rows])
        self.saved = [
            [item(np.empty((self.rows, 1))), item(np.empty(self.rows))],
            [item(np.empty((self.rows, 3))), item(np.empty(3 * self.rows))],
        ]
        self.sums = [
            [item(np.zeros((numbers[kind == "d"], self.size))) for _ in range(2)]
            for numbers in (SUMS, FAST_SUMS)
        ]
        self.status = [item(np.zeros(self.rows, np.uint8)), item(bytearray_view(self.rows))]
        # Pieces of one buffer that overlap by some elements, or by none.
        count = int(np.prod(shape))
        arena = np.zeros(8 * count + 64)
        floats = arena.view(dtype)
        for start in (0, max(count - 1, 0), count, count + 1, 3 * count):
            self.blocks.append(item(floats[start : start + count].reshape(shape)))
            self.vectors.append(item(floats[start : start + self.size]))
            if self.rows:
                self.saved[0].append(item(arena[start : start + self.rows]))
                self.saved[1].append(item(arena[start : start + 3 * self.rows]))
                self.status.append(item(arena.view(np.uint8)[start : start + self.rows]))
        for each in self.saved[0] + self.saved[1]:
            each.value[...] = random.standard_normal(each.value.shape)

    @staticmethod
    def _arrays(random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> list[Item]:
        found = []
        for how in (*[0] * USUAL, 1, 2, 3, 4, 5, 6, 7, 7):
            block = np.empty(shape, dtype)
            moderate = _fill(random, block, how)
            found.append(item(block, moderate=moderate))
        block = found[0].value
        read_only = block.copy()
        read_only.flags.writeable = False
        found.append(item(read_only, moderate=True))
        shifted = np.zeros(block.nbytes + 1, np.uint8)[1:].view(dtype).reshape(shape)
        doubled = np.zeros(tuple(2 * k for k in shape), dtype)
        found += [
            item(shifted),
            item(doubled[tuple(slice(None, None, 2) for _ in shape)]),
            item(np.asfortranarray(block)),
            item(block[..., ::-1] if shape else block),
            item(block.astype(block.dtype.newbyteorder())),
            *(item(block.astype(np.float64) * scale) for scale in (1, 1e200, 1e-300)),
            item(block.astype(np.float16 if dtype is np.float32 else np.float32)),
            item(block.astype(np.complex64)),
            item(np.broadcast_to(dtype(1), shape)),
            item(memoryview(block)),
            item(memoryview(read_only)),
        ]
        if len(shape) == 1 and dtype is np.float32:
            found.append(item(array("f", block)))
        return found


def bytearray_view(count: int) -> memoryview:
    """Return a writable buffer that is not NumPy's."""
    return memoryview(bytearray(count))


OTHERS = [
    *(
        item(each)
        for each in (None, 1, 1.5, "text", b"bytes", bytearray(64), [1.0], (), {}, object())
    ),
    *(item(np.zeros(shape, np.float32)) for shape in ((), (0,), (1,), (4, 4), (1,) * 32, (3, 0))),
    item(np.zeros(3, [("a", "f4")])),
    item(np.zeros(3, object)),
    item(np.zeros((2, 2), "M8[s]")),
    item(np.float32(1)),
    item(memoryview(bytearray(48)).cast("f")),
    item(memoryview(bytearray(48)).cast("f", (3, 4))),
    item(memoryview(bytearray(48)).cast("d")[::2]),
    item(array("d", range(6))),
]


def _is_apart(*inputs: Item, results: tuple[Item, ...]) -> bool:
    """Return True if no result overlaps an input or another result."""
    return not any(
        result.start < other.stop and other.start < result.stop
        for k, result in enumerate(results)
        for other in (*inputs, *results[:k])
    )


class Fuzzer:
    """Makes random calls from a seed; `counts` says how they ended."""

    def __init__(self, seed: int, *, compared: float = 0.002, large: float = 0.005) -> None:
        self.random = np.random.default_rng(seed)
        shapes = SHAPES + SHAPES_WITHOUT_ROWS
        self.pools = [Pool(self.random, shape, kind) for shape in shapes for kind in KINDS]
        self.large = [
            Pool(self.random, shape, kind) for shape in SHAPES_OF_SEVERAL_BLOCKS for kind in KINDS
        ]
        self.share_of_large, self.share_compared = large, compared
        self.counts: Counter[str] = Counter()
        self._draws: list[float] = []

    def run(self, calls: int) -> None:
        """Make so many calls."""
        kinds: list[Callable[[Pool], None]] = [self.forward, self.backward] * 4
        kinds += [self.forward_rows, self.backward_rows] * 2
        kinds += [self.statistics, self.merge, self.others]
        while self.counts["calls"] < calls:
            pools = self.large if self.draw() < self.share_of_large else self.pools
            kinds[int(self.draw() * len(kinds))](pools[int(self.draw() * len(pools))])

    def draw(self) -> float:
        """Return a random number below 1."""
        if not self._draws:
            self._draws = self.random.random(100_000).tolist()
        return self._draws.pop()

    def one_of(self, items: list[Any]) -> Any:
        """Return a random item."""
        return items[int(self.draw() * len(items))]

    def fitting(self, items: list[Item]) -> Item:
        """Return an item that fits, as a rule; or any other."""
        drawn = self.draw()
        if drawn < 0.75:
            chosen: Item = self.one_of(items[:USUAL])
        elif drawn < 0.97:
            chosen = self.one_of(items)
        elif drawn < 0.985:
            chosen = self.one_of(OTHERS)
        else:
            chosen = self.one_of(self.one_of(self.pools).blocks)
        return chosen

    def numbers(self, pool: Pool) -> tuple[Number, Number, Number]:
        """Return eps, mode and threads; two of them are as usual."""
        eps, mode = Number(1e-5, None, 1e-5), Number(int(4 * self.draw()) + pool.types, None, 0)
        mode = mode._replace(read=mode.value)
        threads = Number(1, None, 1)
        drawn = self.draw()
        if drawn < 0.15:
            eps = self.one_of(EPS)
        elif drawn < 0.2:
            mode = self.one_of(MODES)
        elif drawn < 0.4:
            threads = self.one_of(THREADS)
        elif drawn < 0.41:
            eps, mode, threads = self.one_of(EPS), self.one_of(MODES), self.one_of(THREADS)
        return eps, mode, threads

    def call(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        numbers: tuple[Number, ...],
        ordinary: bool,
    ) -> Any:
        """Call a function, check how it ends, and return its result (None if it raises)."""
        self.counts["calls"] += 1
        errors = [each.error for each in numbers if each.error is not None]
        errors.sort(key=lambda each: each is ValueError)  # types are checked after all numbers
        error = errors[0] if errors else None
        whole = function in (_core.forward, _core.backward)
        if error is None and not ordinary and not whole:
            error = ValueError
        try:
            result = function(*arguments, *(each.value for each in numbers))
        except BaseException as raised:
            if error is None or type(raised) is not error:
                raise AssertionError(
                    self.describe(function, arguments, numbers, raised)
                ) from raised
            self.counts[f"{function.__name__} {error.__name__}"] += 1
            return None
        right = error is None
        if whole:
            right = right and (result is False or (result is True and ordinary))
        self.counts[f"{function.__name__} {result if whole else 'returned'}"] += 1
        if not right:
            raise AssertionError(self.describe(function, arguments, numbers, result))
        return result

    def describe(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        numbers: tuple[Number, ...],
        end: Any,
    ) -> str:
        """Describe a call that did not end as documented."""
        shown = [
            f"{each.dtype}{each.shape}" if isinstance(each, np.ndarray) else repr(each)
            for each in arguments
        ]
        return f"{function.__name__}({shown}, {numbers}) ended with {end!r}"

    # ---- whole calls ----

    def forward(self, pool: Pool) -> None:
        """Call forward."""
        eps, mode, _ = numbers = self.numbers(pool)
        centred = mode.error is None and bool(int(mode.read) & CENTRED)
        x, gamma, beta, y, saved = (
            self.fitting(pool.blocks),
            self.fitting(pool.vectors),
            self.fitting(pool.vectors),
            self.fitting(pool.blocks),
            self.fitting(pool.saved[centred]),
        )
        of_x, of_gamma, of_beta = kinds = _kinds(mode)
        ordinary = _is_ordinary(x, y, saved, eps, centred, kind=of_x)
        ordinary = ordinary and _are_vectors(x, (gamma, of_gamma), (beta, of_beta))
        ordinary = ordinary and _is_apart(x, gamma, beta, results=(y, saved))
        arguments = tuple(each.value for each in (x, gamma, beta, y, saved))
        compare = ordinary and self.draw() < self.share_compared
        compare = compare and (centred or beta.value is None)  # RMSNorm has no beta elsewhere
        copies = _copied(arguments[:3], kinds) if compare else []
        result = self.call(_core.forward, arguments, numbers, ordinary)
        if compare and result is True:
            fast = bool(int(mode.read) & FAST)
            (found,) = _copied((y.value,), (of_x,))
            _check_forward(copies, found, eps.read, centred, fast)
            self.counts["compared nearly" if fast else "compared"] += 1

    def backward(self, pool: Pool) -> None:
        """Call backward, most of the time with the saved statistics of x."""
        eps, mode, _ = numbers = self.numbers(pool)
        centred = mode.error is None and bool(int(mode.read) & CENTRED)
        fast = mode.error is None and bool(int(mode.read) & FAST)
        x, dy = self.fitting(pool.blocks), self.fitting(pool.blocks)
        gamma = self.fitting(pool.vectors)
        saved = self.fitting(pool.saved[centred])
        dx = self.fitting(pool.blocks)
        dgamma, dbeta = self.fitting(pool.vectors), self.fitting(pool.vectors)
        is_saved = False
        of_x, of_gamma, of_beta = _kinds(mode)
        if self.draw() < 0.9 and _is_ordinary(x, dx, saved, eps, centred, kind=of_x):
            y = item(np.empty(x.shape, DTYPES[of_x]))
            plain_mode = int(centred) + KINDS.index(of_x) * 0x1110
            of_forward = (eps, Number(plain_mode, None, plain_mode), Number(1, None, 1))
            plain = (x.value, None, None, y.value, saved.value)
            apart = _is_apart(x, results=(y, saved))
            is_saved = self.call(_core.forward, plain, of_forward, apart) is True
        ordinary = (
            _is_ordinary(x, dx, saved, eps, centred, saved_is_result=False, kind=of_x)
            and dy.kind == of_x
            and dy.shape == x.shape
            and _are_vectors(x, (gamma, of_gamma), (dgamma, of_gamma), (dbeta, of_beta))
            and all(each.writable or each.kind == "None" for each in (dgamma, dbeta))
            and _is_apart(dy, x, gamma, saved, results=(dx, dgamma, dbeta))
        )
        arguments = tuple(each.value for each in (dy, x, gamma, saved, dx, dgamma, dbeta))
        compare = ordinary and is_saved and not fast and self.draw() < self.share_compared
        copies = _copied(arguments[:3], (of_x, of_x, of_gamma)) if compare else []
        result = self.call(_core.backward, arguments, numbers, ordinary)
        if compare and result is True:
            results = _copied(arguments[4:], (of_x, of_gamma, of_beta))
            _check_backward(copies, results, eps.read, centred)
            self.counts["compared"] += 1

    # ---- blocks ----

    def forward_rows(self, pool: Pool) -> None:
        """Call forward_rows."""
        eps, mode, _ = self.numbers(pool)
        centred = mode.error is None and bool(int(mode.read) & CENTRED)
        x, y = self.fitting(pool.blocks), self.fitting(pool.blocks)
        gamma, beta = self.fitting(pool.wide), self.fitting(pool.wide)
        of_x, _, _ = _kinds(mode)
        wide = "d" if of_x == "d" else "f"
        saved, status = self.fitting(pool.saved[centred]), self.fitting(pool.status)
        ordinary = (
            _is_ordinary(x, y, saved, eps, centred, kind=of_x)
            and _are_vectors(x, (gamma, wide), (beta, wide))
            and gamma.kind == beta.kind == wide
            and _is_status(status, x)
            and _is_apart(x, gamma, beta, results=(y, saved, status))
        )
        arguments = tuple(each.value for each in (x, gamma, beta, y, saved, status))
        result = self.call(_core.forward_rows, arguments, (eps, mode), ordinary)
        assert result is None or 0 <= result <= pool.rows * 20

    def backward_rows(self, pool: Pool) -> None:
        """Call backward_rows."""
        eps, mode, _ = self.numbers(pool)
        centred = mode.error is None and bool(int(mode.read) & CENTRED)
        fast = mode.error is None and bool(int(mode.read) & FAST)
        x, dy, dx = (self.fitting(pool.blocks) for _ in range(3))
        gamma = self.fitting(pool.wide)
        of_x, _, _ = _kinds(mode)
        wide = "d" if of_x == "d" else "f"
        saved, status = self.fitting(pool.saved[centred]), self.fitting(pool.status)
        sums = self.fitting(pool.sums[fast if self.draw() < 0.95 else not fast])
        size = x.shape[-1] if x.shape else 0
        numbers = FAST_SUMS if fast else SUMS
        ordinary = (
            _is_ordinary(x, dx, saved, eps, centred, saved_is_result=False, kind=of_x)
            and dy.kind == of_x
            and dy.shape == x.shape
            and gamma.kind == wide
            and _are_vectors(x, (gamma, wide))
            and _is_status(status, x)
            and sums.kind == "d"
            and sums.writable
            and sums.stop - sums.start == numbers[of_x == "d"] * size * 8
            and _is_apart(dy, x, gamma, saved, results=(dx, sums, status))
        )
        arguments = tuple(each.value for each in (dy, x, gamma, saved, dx, sums, status))
        result = self.call(_core.backward_rows, arguments, (eps, mode), ordinary)
        assert result is None or (type(result) is tuple and len(result) == 3)

    def statistics(self, pool: Pool) -> None:
        """Call statistics."""
        _, mode, _ = self.numbers(pool)
        centred = mode.error is None and bool(int(mode.read) & CENTRED)
        x, saved = self.fitting(pool.blocks), self.fitting(pool.saved[centred])
        of_eps = Number(0.0, None, 0.0)
        as_result = x._replace(writable=True)
        ordinary = _is_ordinary(x, as_result, saved, of_eps, centred, kind=_kinds(mode)[0])
        ordinary = ordinary and _is_apart(x, results=(saved,))
        self.call(_core.statistics, (x.value, saved.value), (mode,), ordinary)

    def merge(self, pool: Pool) -> None:
        """Call merge."""
        candidates = pool.sums[0] * 3 + pool.sums[1] + pool.saved[1]
        sums, others = self.fitting(candidates), self.fitting(candidates)
        ordinary = (
            sums.kind == others.kind == "d"
            and sums.writable
            and len(sums.shape) == 2
            and sums.shape == others.shape
            and sums.shape[0] in (*SUMS, FAST_SUMS[1])
            and _is_apart(others, results=(sums,))
        )
        self.call(_core.merge, (sums.value, others.value), (), ordinary)

    def others(self, pool: Pool) -> None:
        """Call functions with too few and too many arguments, and those on numbers alone."""
        self.counts["calls"] += 1
        name = self.one_of(["forward", "backward", "forward_rows", "backward_rows", "statistics"])
        wrong_count = int(self.draw() * 14)
        right_count = {"forward": 8, "backward": 10, "forward_rows": 8, "backward_rows": 9}
        if wrong_count != right_count.get(name, 3):
            arguments = [self.fitting(pool.blocks).value for _ in range(wrong_count)]
            try:
                getattr(_core, name)(*arguments)
            except TypeError:
                self.counts["wrong number of arguments"] += 1
            else:
                raise AssertionError(f"{name} took {wrong_count} arguments")
        smallest, largest, rows = (self.one_of([0, 1, 2**23, 2**31, 2**32 - 1]) for _ in range(3))
        rows = self.one_of([rows, -1, 2**62, 2**63 - 1])
        assert type(_core.is_exact_sum(smallest, largest, rows)) is bool


def _kinds(mode: Number) -> tuple[str, ...]:
    """Return the formats of rows, gamma and beta that a mode names."""
    if mode.error is not None:
        return KINDS[:1] * 3
    return tuple(KINDS[int(mode.read) >> at & 15] for at in (4, 8, 12))


def _is_ordinary(
    x: Item,
    out: Item,
    saved: Item,
    eps: Number,
    centred: bool,
    *,
    kind: str,
    saved_is_result: bool = True,
) -> bool:
    """Return True if x, the result of its shape, the saved statistics and eps are ordinary."""
    if eps.error is not None or not (eps.read == 0 or SMALLEST_EPS <= eps.read <= LARGEST_EPS):
        return False
    if x.kind != kind or out.kind != kind or not out.writable or saved.kind != "d":
        return False
    if not x.shape or x.start == x.stop or out.shape != x.shape:
        return False
    if saved_is_result and not saved.writable:
        return False
    rows = _rows(x)
    return saved.stop - saved.start == rows * (3 if centred else 1) * 8


def _rows(x: Item) -> int:
    return (x.stop - x.start) // np.dtype(DTYPES[x.kind]).itemsize // x.shape[-1]


def _are_vectors(x: Item, *vectors: tuple[Item, str]) -> bool:
    """Return True if each is None or a vector of its format along the last axis of x."""
    return all(
        each.kind == "None" or (each.kind == kind and each.shape == x.shape[-1:])
        for each, kind in vectors
    )


def _copied(arrays: tuple[Any, ...], kinds: tuple[str, ...]) -> list[Any]:
    """Return copies, with bfloat16 in place of its bits."""
    return [
        None if each is None else np.array(each).view(ml_dtypes.bfloat16 if kind == "H" else kind)
        for each, kind in zip(arrays, kinds, strict=True)
    ]


def _is_status(status: Item, x: Item) -> bool:
    rows = _rows(x)
    return status.kind == "B" and status.writable and status.stop - status.start == rows


def _is_near(found: Any, right: Any, scale: Any) -> bool:
    """Return True if fast results are as near to the right ones as float32, then rounded, is."""
    unit = 2.0**-17 + UNITS[found.dtype.name]
    with np.errstate(all="ignore"):
        near = np.abs(np.float64(found) - np.float64(right)) <= unit * scale
    return bool(np.all(near | (found == right)))  # infinities are equal, not near


def _check_forward(copies: list[Any], y: Any, eps: float, centred: bool, fast: bool) -> None:
    """Compare y with the reference: the same bits, or in fast mode nearly the same numbers."""
    x, gamma, beta = copies
    if centred:
        right = tn.layer_norm(x, gamma, beta, eps=eps, backend="reference")
    else:
        right = tn.rms_norm(x, gamma, eps=eps, backend="reference")
    if fast:
        weights = 1 if gamma is None else np.abs(np.float64(gamma))
        offsets = 0 if beta is None else np.abs(np.float64(beta))
        scale = np.abs(np.float64(right)) + weights + offsets
        assert _is_near(y, right, scale), (x, gamma, beta, eps)
    else:
        assert y.tobytes() == right.tobytes(), (x, gamma, beta, eps)


def _check_backward(copies: list[Any], results: list[Any], eps: float, centred: bool) -> None:
    """Compare the gradients of correct mode with the reference."""
    dy, x, gamma = copies
    of_gamma, of_beta = (dy.dtype if each is None else each.dtype for each in results[1:])
    beta = np.ones(x.shape[-1], of_beta)
    scale = np.ones(x.shape[-1], of_gamma) if gamma is None else gamma
    if centred:
        _, saved = tn.layer_norm_forward(x, scale, beta, eps=eps, backend="reference")
        right = tn.layer_norm_backward(dy, saved, backend="reference")
    else:
        _, saved = tn.rms_norm_forward(x, scale, eps=eps, backend="reference")
        right = tn.rms_norm_backward(dy, saved, backend="reference")
    for name, result, expected in zip(right._fields, results, right, strict=True):
        if result is not None and expected is not None:
            assert result.tobytes() == expected.tobytes(), (name, dy, x, gamma, eps)
