"""Random calls of the C core's functions on blocks, with valid and invalid arguments.

`Fuzzer.run` makes calls and compares how each ends with the documentation of `module.c`, which
`_is_valid` states independently, in terms of NumPy. `test_entry.py` does so for whole calls.
"""

from array import array
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from shared.promise.checking import BACKENDS

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

from truenorm.kernels.native import _core

SHAPES = ((1, 1), (1, 2), (3, 1), (2, 3), (5, 7), (9, 16), (4, 33), (2, 1, 20), (12,), (300, 2))
SHAPES_OF_SEVERAL_BLOCKS = ((3, 513), (2, 1100), (40, 450), (600, 64))
SHAPES_WITHOUT_ROWS = ((0, 4), (4, 0), ())
SUMS, FAST_SUMS = (5, 6), (2, 4)
"""Numbers a column, of rows of at most float32 and of float64 rows."""
SMALLEST_EPS, LARGEST_EPS = 2.0**-200, 2.0**200
CENTRED, FAST, WIDE = 1, 2, 4
KINDS = ("f", "e", "H", "d")
"""Formats of float32, float16, the bits of bfloat16, and float64, in the order of `core.h`."""
DTYPES = {"f": np.float32, "e": np.float16, "H": np.uint16, "d": np.float64}
SUITABLE = 8
"""Objects at the beginning of a list, which are usually valid."""


class Argument(NamedTuple):
    """An object to pass, and how the core should see it."""

    value: Any
    kind: str  # "f", "e", "H", "d", "B"; "None"; "" if it is not supported
    shape: tuple[int, ...] = ()
    start: int = 0
    stop: int = 0
    writable: bool = False


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
    *(Number(each, None, each) for each in (4, 5, 0x30, 0x0F00, 2**40, True)),
    *(Number(each, ValueError, 0) for each in (-1, 7, 0x34, 0x40, 0xF0)),
    Number(np.int8(2), None, 2),
    Number(_Number(), None, 3),
    *(Number(each, TypeError, 0) for each in (None, 1.0, "1")),
    *(Number(each, OverflowError, 0) for each in (2**63, -(2**70))),
    Number(_Raises(), ZeroDivisionError, 0),
]


def argument(value: Any) -> Argument:
    """Describe an object as NumPy sees it."""
    if value is None:
        return Argument(None, "None")
    if isinstance(value, bytes | bytearray):
        return argument(np.frombuffer(value, np.uint8))._replace(value=value)
    if isinstance(value, np.generic | memoryview | array):
        view = memoryview(value)  # type: ignore[arg-type]  # scalars are buffers: not in the types
        kind = view.format if view.c_contiguous and view.format in (*KINDS, "B") else ""
        described = argument(np.asarray(value))
        return described._replace(value=value, kind=kind, writable=not view.readonly)
    if not isinstance(value, np.ndarray):
        return Argument(value, "")
    kinds = {"float32": "f", "float16": "e", "uint16": "H", "float64": "d", "uint8": "B"}
    kinds["int64"] = "l"
    kind = kinds.get(value.dtype.name, "") if value.dtype.isnative else ""
    if not (value.flags.c_contiguous and value.ctypes.data % value.itemsize == 0):
        kind = ""
    start = value.ctypes.data
    return Argument(value, kind, value.shape, start, start + value.nbytes, value.flags.writeable)


def _fill(random: np.random.Generator, target: np.ndarray[Any, Any], how: int) -> None:
    """Fill an array in one of several ways."""
    shape = target.shape
    if target.dtype == np.uint16:  # bfloat16: the upper halves of float32 numbers
        wide = np.empty(shape, np.float32)
        _fill(random, wide, how)
        target[...] = wide.view(np.uint32) >> 16
        return
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


class Pool:
    """Objects of one shape and type: some valid, some nearly valid."""

    def __init__(self, random: np.random.Generator, shape: tuple[int, ...], kind: str) -> None:
        self.shape, self.kind = shape, kind
        self.types = KINDS.index(kind) << _core.ROWS_AT
        dtype = DTYPES[kind]
        self.size = shape[-1] if shape else 0
        self.rows = int(np.prod(shape[:-1])) if self.size else 0
        self.blocks = self._arrays(random, shape, dtype)
        self.vectors = [argument(None), *self._arrays(random, (self.size,), dtype)]
        self.parameters = {
            each: self._arrays(random, (self.size,), DTYPES[each]) for each in ("f", "d")
        }
        self.saved = [
            [argument(np.empty((self.rows, 1))), argument(np.empty(self.rows))],
            [argument(np.empty((self.rows, 3))), argument(np.empty(3 * self.rows))],
        ]
        self.sums = [
            [argument(np.zeros((numbers[kind == "d"], self.size))) for _ in range(2)]
            for numbers in (SUMS, FAST_SUMS)
        ]
        self.limbs = [
            *(argument(np.zeros((_core.PLACES, self.size + 1), np.int64)) for _ in range(5)),
            argument(random.integers(-(2**31), 2**31, (3, self.size + 1))),
            argument(random.integers(-(2**63), 2**63 - 1, (2, self.size + 1))),
            argument(np.zeros((0, self.size + 1), np.int64)),
            argument(np.zeros((_core.PLACES, self.size), np.int64)),
            argument(np.zeros((_core.PLACES, self.size + 1))),
            argument(np.zeros((self.size + 1, _core.PLACES), np.int64).T),
        ]
        firsts = np.arange(0, self.size, _core.STRIP)
        self.columns = [argument(firsts), argument(firsts[:1]), argument(firsts + 3)]
        self.strips = [
            argument(np.zeros((len(each.value), 3, _core.STRIP))) for each in self.columns
        ]
        self.status = [
            argument(np.zeros(self.rows, np.uint8)),
            argument(memoryview(bytearray(self.rows))),
        ]
        # Pieces of one buffer that overlap by some elements, or by none.
        count = int(np.prod(shape))
        arena = np.zeros(8 * count + 64)
        floats = arena.view(dtype)
        for start in (0, max(count - 1, 0), count, count + 1, 3 * count):
            self.blocks.append(argument(floats[start : start + count].reshape(shape)))
            self.vectors.append(argument(floats[start : start + self.size]))
            if self.rows:
                self.saved[0].append(argument(arena[start : start + self.rows]))
                self.saved[1].append(argument(arena[start : start + 3 * self.rows]))
                self.status.append(argument(arena.view(np.uint8)[start : start + self.rows]))
        for each in self.saved[0] + self.saved[1]:
            each.value[...] = random.standard_normal(each.value.shape)

    @staticmethod
    def _arrays(random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> list[Argument]:
        made = []
        for how in (*[0] * SUITABLE, 1, 2, 3, 4, 5, 6, 7, 7):
            block = np.empty(shape, dtype)
            _fill(random, block, how)
            made.append(argument(block))
        block = made[0].value
        read_only = block.copy()
        read_only.flags.writeable = False
        made.append(argument(read_only))
        shifted = np.zeros(block.nbytes + 1, np.uint8)[1:].view(dtype).reshape(shape)
        doubled = np.zeros(tuple(2 * k for k in shape), dtype)
        made += [
            argument(shifted),
            argument(doubled[tuple(slice(None, None, 2) for _ in shape)]),
            argument(np.asfortranarray(block)),
            argument(block[..., ::-1] if shape else block),
            argument(block.astype(block.dtype.newbyteorder())),
            *(argument(block.astype(np.float64) * scale) for scale in (1, 1e200, 1e-300)),
            argument(block.astype(np.float16 if dtype is np.float32 else np.float32)),
            argument(block.astype(np.complex64)),
            argument(np.broadcast_to(dtype(1), shape)),
            argument(memoryview(block)),
            argument(memoryview(read_only)),
        ]
        if len(shape) == 1 and dtype is np.float32:
            made.append(argument(array("f", block)))
        return made


UNSUITABLE = [
    *(
        argument(each)
        for each in (None, 1, 1.5, "text", b"bytes", bytearray(64), [1.0], (), {}, object())
    ),
    *(
        argument(np.zeros(shape, np.float32))
        for shape in ((), (0,), (1,), (4, 4), (1,) * 32, (3, 0))
    ),
    argument(np.zeros(3, [("a", "f4")])),
    argument(np.zeros(3, object)),
    argument(np.zeros((2, 2), "M8[s]")),
    argument(np.float32(1)),
    argument(memoryview(bytearray(48)).cast("f")),
    argument(memoryview(bytearray(48)).cast("f", (3, 4))),
    argument(memoryview(bytearray(48)).cast("d")[::2]),
    argument(array("d", range(6))),
]


def _do_not_overlap(*inputs: Argument, results: tuple[Argument, ...]) -> bool:
    """Return True if no result overlaps an input or another result."""
    return not any(
        result.start < other.stop and other.start < result.stop
        for k, result in enumerate(results)
        for other in (*inputs, *results[:k])
    )


class Fuzzer:
    """Make random calls from a seed; `counts` records how they end."""

    def __init__(self, seed: int, *, large: float = 0.005) -> None:
        self.random = np.random.default_rng(seed)
        shapes = SHAPES + SHAPES_WITHOUT_ROWS
        self.pools = [Pool(self.random, shape, kind) for shape in shapes for kind in KINDS]
        self.large = [
            Pool(self.random, shape, kind) for shape in SHAPES_OF_SEVERAL_BLOCKS for kind in KINDS
        ]
        self.share_of_large = large
        self.counts: Counter[str] = Counter()
        self._draws: list[float] = []

    def run(self, calls: int) -> None:
        """Make so many calls."""
        kinds: list[Callable[[Pool], None]] = [self.forward_rows, self.backward_rows] * 2
        kinds += [self.statistics, self.merge, self.others, self.add_terms, self.add_numbers]
        kinds += [self.add_strips]
        while self.counts["calls"] < calls:
            pools = self.large if self.draw() < self.share_of_large else self.pools
            kinds[int(self.draw() * len(kinds))](pools[int(self.draw() * len(pools))])

    def draw(self) -> float:
        """Return a random number below 1."""
        if not self._draws:
            self._draws = self.random.random(100_000).tolist()
        return self._draws.pop()

    def choice(self, candidates: list[Any]) -> Any:
        """Return a random element."""
        return candidates[int(self.draw() * len(candidates))]

    def choose(self, candidates: list[Argument]) -> Argument:
        """Return a valid argument most of the time, or any other."""
        drawn = self.draw()
        if drawn < 0.75:
            chosen: Argument = self.choice(candidates[:SUITABLE])
        elif drawn < 0.97:
            chosen = self.choice(candidates)
        elif drawn < 0.985:
            chosen = self.choice(UNSUITABLE)
        else:
            chosen = self.choice(self.choice(self.pools).blocks)
        return chosen

    def numbers(self, pool: Pool) -> tuple[Number, Number]:
        """Return eps and mode; most of the time both are valid."""
        flags = int(4 * self.draw()) + (WIDE if self.draw() < 0.2 else 0)
        is_right = not flags & WIDE or (not flags & FAST and pool.kind != "d")
        eps, mode = Number(1e-5, None, 1e-5), Number(flags + pool.types, None, 0)
        mode = mode._replace(read=mode.value, error=None if is_right else ValueError)
        drawn = self.draw()
        if drawn < 0.15:
            eps = self.choice(EPS)
        elif drawn < 0.2:
            mode = self.choice(MODES)
        elif drawn < 0.21:
            eps, mode = self.choice(EPS), self.choice(MODES)
        return eps, mode

    def call(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        numbers: tuple[Number, ...],
        valid: bool,
    ) -> Any:
        """Call a function, check how it ends, and return its result (None if it raises)."""
        self.counts["calls"] += 1
        call = function.__name__, arguments, numbers
        errors = [each.error for each in numbers if each.error is not None]
        errors.sort(key=lambda each: each is ValueError)  # types are checked after all numbers
        error = errors[0] if errors else None
        if error is None and not valid:
            error = ValueError
        try:
            result = function(*arguments, *(each.value for each in numbers))
        except BaseException as raised:
            if error is None or type(raised) is not error:
                raise AssertionError(call) from raised
            self.counts[f"{function.__name__} {error.__name__}"] += 1
            return None
        self.counts[f"{function.__name__} returned"] += 1
        if error is not None:
            raise AssertionError(call, result)
        return result

    # ---- blocks ----

    def forward_rows(self, pool: Pool) -> None:
        """Call forward_rows."""
        eps, mode = self.numbers(pool)
        centred = _has(mode, CENTRED)
        x, y = self.choose(pool.blocks), self.choose(pool.blocks)
        of_x, wide = _kind(mode), _kind_of_parameters(mode)
        gamma, beta = (self.choose(pool.parameters[wide]) for _ in range(2))
        saved, status = self.choose(pool.saved[centred]), self.choose(pool.status)
        valid = (
            _is_valid(x, y, saved, eps, centred, kind=of_x)
            and _are_vectors(x, (gamma, wide), (beta, wide))
            and gamma.kind == beta.kind == wide
            and _is_status(status, x)
            and _do_not_overlap(x, gamma, beta, results=(y, saved, status))
        )
        arguments = tuple(each.value for each in (x, gamma, beta, y, saved, status))
        result = self.call(_core.forward_rows, arguments, (eps, mode), valid)
        assert result is None or 0 <= result <= pool.rows * 20

    def backward_rows(self, pool: Pool) -> None:
        """Call backward_rows."""
        eps, mode = self.numbers(pool)
        centred, fast = _has(mode, CENTRED), _has(mode, FAST)
        x, dy, dx = (self.choose(pool.blocks) for _ in range(3))
        of_x, wide = _kind(mode), _kind_of_parameters(mode)
        gamma = self.choose(pool.parameters[wide])
        saved, status = self.choose(pool.saved[centred]), self.choose(pool.status)
        sums = self.choose(pool.sums[fast if self.draw() < 0.95 else not fast])
        size = x.shape[-1] if x.shape else 0
        numbers = FAST_SUMS if fast else SUMS
        valid = (
            _is_valid(x, dx, saved, eps, centred, saved_is_result=False, kind=of_x)
            and dy.kind == of_x
            and dy.shape == x.shape
            and gamma.kind == wide
            and _are_vectors(x, (gamma, wide))
            and _is_status(status, x)
            and sums.kind == "d"
            and sums.writable
            and sums.stop - sums.start == numbers[of_x == "d"] * size * 8
            and _do_not_overlap(dy, x, gamma, saved, results=(dx, sums, status))
        )
        arguments = tuple(each.value for each in (dy, x, gamma, saved, dx, sums, status))
        result = self.call(_core.backward_rows, arguments, (eps, mode), valid)
        assert result is None or (type(result) is tuple and len(result) == 3)

    def statistics(self, pool: Pool) -> None:
        """Call statistics."""
        _, mode = self.numbers(pool)
        centred = _has(mode, CENTRED)
        x, saved = self.choose(pool.blocks), self.choose(pool.saved[centred])
        of_eps = Number(0.0, None, 0.0)
        as_result = x._replace(writable=True)
        valid = _is_valid(x, as_result, saved, of_eps, centred, kind=_kind(mode))
        valid = valid and _do_not_overlap(x, results=(saved,))
        self.call(_core.statistics, (x.value, saved.value), (mode,), valid)

    def merge(self, pool: Pool) -> None:
        """Call merge."""
        candidates = pool.sums[0] * 3 + pool.sums[1] + pool.saved[1]
        sums, others = self.choose(candidates), self.choose(candidates)
        valid = (
            sums.kind == others.kind == "d"
            and sums.writable
            and len(sums.shape) == 2
            and sums.shape == others.shape
            and sums.shape[0] in (*SUMS, FAST_SUMS[1])
            and _do_not_overlap(others, results=(sums,))
        )
        self.call(_core.merge, (sums.value, others.value), (), valid)

    def add_terms(self, pool: Pool) -> None:
        """Call add_terms."""
        eps, mode = self.numbers(pool)
        x, dy = self.choose(pool.blocks), self.choose(pool.blocks)
        status, undecided = self.choose(pool.status), self.choose(pool.status)
        if self.draw() < 0.5:
            status = argument(np.zeros(pool.rows, np.uint8))
        limbs = self.choose(pool.limbs)
        valid = (
            _are_rows_of_terms(x, dy, eps, mode)
            and _is_status(status._replace(writable=True), x)
            and _is_status(undecided, x)
            and limbs.kind == "l"
            and limbs.writable
            and limbs.shape == (_core.PLACES, x.shape[1] + 1)
            and _do_not_overlap(x, dy, status, results=(undecided, limbs))
        )
        arguments = tuple(each.value for each in (dy, x, status, undecided, limbs))
        result = self.call(_core.add_terms, arguments, (eps, mode), valid)
        assert result is None or 0 <= result <= x.shape[0]

    def add_strips(self, pool: Pool) -> None:
        """Call add_strips."""
        eps, mode = self.numbers(pool)
        x, dy = self.choose(pool.blocks), self.choose(pool.blocks)
        columns, sums = self.choose(pool.columns), self.choose(pool.strips)
        valid = (
            _are_rows_of_terms(x, dy, eps, mode)
            and columns.kind == "l"
            and len(columns.shape) == 1
            and all(0 <= column < x.shape[1] for column in columns.value)
            and sums.kind == "d"
            and sums.writable
            and sums.stop - sums.start == columns.shape[0] * 3 * _core.STRIP * 8
            and _do_not_overlap(x, dy, columns, results=(sums,))
        )
        arguments = tuple(each.value for each in (dy, x, columns, sums))
        self.call(_core.add_strips, arguments, (eps, mode), valid)

    def add_numbers(self, pool: Pool) -> None:
        """Call add_numbers."""
        firsts = [self.choice([0, 0, 0, -3, 2, 2**8, -(2**8) - 1, 2**40]) for _ in range(2)]
        a, b = self.choose(pool.limbs), self.choose(pool.limbs)
        valid = (
            a.kind == b.kind == "l"
            and len(a.shape) == len(b.shape) == 2
            and a.shape[1] == b.shape[1] > 0
            and max(map(abs, firsts)) <= 2**8
        )
        arguments = (firsts[0], a.value, firsts[1], b.value)
        result = self.call(_core.add_numbers, arguments, (), valid)
        assert result is None or len(result[1]) % (8 * a.shape[1]) == 0

    def others(self, pool: Pool) -> None:
        """Call functions with too few and too many arguments, and those on numbers alone."""
        self.counts["calls"] += 1
        counts_of = {"forward_rows": 8, "backward_rows": 9, "statistics": 3}
        counts_of |= {"add_terms": 7, "add_numbers": 4}
        name = self.choice(list(counts_of))
        count = int(self.draw() * 14)
        if count != counts_of[name]:
            arguments = [self.choose(pool.blocks).value for _ in range(count)]
            try:
                getattr(_core, name)(*arguments)
            except TypeError:
                self.counts["wrong number of arguments"] += 1
            else:
                raise AssertionError(f"{name} took {count} arguments")
        smallest, largest, rows = (self.choice([0, 1, 2**23, 2**31, 2**32 - 1]) for _ in range(3))
        rows = self.choice([rows, -1, 2**62, 2**63 - 1])
        assert type(_core.is_exact_sum(smallest, largest, rows)) is bool


def _has(mode: Number, flag: int) -> bool:
    return mode.error is None and bool(int(mode.read) & flag)


def _kind_of_parameters(mode: Number) -> str:
    return "d" if _kind(mode) == "d" or _has(mode, WIDE) else "f"


def _kind(mode: Number) -> str:
    """Return the format of rows that a mode names."""
    return KINDS[int(mode.read) >> _core.ROWS_AT & 15] if mode.error is None else KINDS[0]


def _is_valid(
    x: Argument,
    out: Argument,
    saved: Argument,
    eps: Number,
    centred: bool,
    *,
    kind: str,
    saved_is_result: bool = True,
) -> bool:
    """Return True if x, the result of its shape, the saved statistics and eps are valid."""
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


def _rows(x: Argument) -> int:
    return (x.stop - x.start) // np.dtype(DTYPES[x.kind]).itemsize // x.shape[-1]


def _are_vectors(x: Argument, *vectors: tuple[Argument, str]) -> bool:
    """Return True if each is None or a vector of its format along the last axis of x."""
    return all(
        each.kind == "None" or (each.kind == kind and each.shape == x.shape[-1:])
        for each, kind in vectors
    )


def _are_rows_of_terms(x: Argument, dy: Argument, eps: Number, mode: Number) -> bool:
    """Return True if rows of at most float32 have terms of dgamma that the core adds."""
    return bool(
        x.kind == dy.kind == _kind(mode) != "d"
        and len(x.shape) == 2
        and x.start < x.stop
        and dy.shape == x.shape
        and eps.error is None
        and (eps.read == 0 or SMALLEST_EPS <= eps.read <= LARGEST_EPS)
    )


def _is_status(status: Argument, x: Argument) -> bool:
    rows = _rows(x)
    return status.kind == "B" and status.writable and status.stop - status.start == rows


@pytest.mark.filterwarnings("ignore")  # NumPy warns of a writable buffer of a broadcast array
@pytest.mark.parametrize(
    "calls",
    [30_000, pytest.param(10**7, marks=pytest.mark.slow(reason="millions of calls take minutes"))],
)
def test_hostile_arguments(calls: int) -> None:
    """Invalid calls raise; a crash would end the process."""
    fuzzer = Fuzzer(0)
    fuzzer.run(calls)
    names = ("forward_rows", "backward_rows", "statistics", "merge", "add_terms", "add_numbers")
    for name in names:
        assert fuzzer.counts[f"{name} returned"] > calls // 500
        assert fuzzer.counts[f"{name} ValueError"] > calls // 500
