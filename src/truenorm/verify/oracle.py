"""Exact answers: compute, round and cache what each case must give."""

import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from math import frexp, isfinite
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

import truenorm.exact
from truenorm import user_cache
from truenorm.exact import FLOAT64, FloatFormat, InverseRoot, Term, round_sum_of_roots
from truenorm.verify import types
from truenorm.verify.operation import Case, Operation, Predictor
from truenorm.verify.types import Array, Float64s, dtype_of, ulps_of, unit_roundoff

ONE = InverseRoot(1, 1)
BITS = 128  # of a root, for the bracket: many more than float64 has
UNDECIDED = (float("-inf"), float("inf"))


class ExactNumber(Protocol):
    """A real number that can be rounded."""

    def bracket(self) -> tuple[float, float]:
        """Return float64 numbers that it is between, once it is rounded to float64 itself."""

    def round_to(self, target: FloatFormat) -> float:
        """Return it, rounded once to a type."""

    def less(self, over: int, under: int, up: int, down: int) -> "ExactNumber":
        """Return what is left when over/under is taken away, times 2**up/2**down."""


class NonFinite(NamedTuple):
    """A number that is no real one: NaN, or an infinity."""

    value: float

    def bracket(self) -> tuple[float, float]:
        """Say nothing: it is not between numbers."""
        return UNDECIDED

    def round_to(self, target: FloatFormat) -> float:  # noqa: ARG002 (the same in every type)
        """Return it."""
        return self.value

    def less(self, *_: int) -> "NonFinite":
        """Return it, from which nothing can be taken away."""
        return self


class LinearInRoot(NamedTuple):
    """(a*r + b)/denominator, with the root r of a row."""

    root: InverseRoot
    a: int
    b: int
    denominator: int

    @classmethod
    def of(cls, term: Term) -> "LinearInRoot":
        """Return a single term of a sum."""
        return cls(term.root, term.numerator, 0, term.denominator)

    def bracket(self) -> tuple[float, float]:
        """Divide integers, which Python rounds once and to nearest."""
        if self.a == 0:
            place, below = 0, 0
        else:
            place = max(0, BITS - self.root.magnitude)
            below = self.root.scaled(place)
        shift, denominator = self.b << place, self.denominator << place
        try:
            low = (self.a * below + shift) / denominator
            high = (self.a * (below + 1) + shift) / denominator
        except OverflowError:
            return UNDECIDED
        return low, high

    def round_to(self, target: FloatFormat) -> float:
        """Round by integers."""
        return self.root.round_linear(self.a, self.b, self.denominator, target)

    def less(self, over: int, under: int, up: int, down: int) -> "LinearInRoot":
        """Take away."""
        left = self.b * under - over * self.denominator
        return LinearInRoot(
            self.root, self.a * under << up, left << up, self.denominator * under << down
        )


class SumOfRoots(NamedTuple):
    """A sum of roots, each times a ratio: one term for each row."""

    terms: list[Term]

    def bracket(self) -> tuple[float, float]:
        """Round by integers, twice the same: they decide such sums quickly."""
        value = self.round_to(FLOAT64)
        return value, value

    def round_to(self, target: FloatFormat) -> float:
        """Round by integers."""
        return round_sum_of_roots(self.terms, target)

    def less(self, over: int, under: int, up: int, down: int) -> "SumOfRoots":
        """Take away."""
        terms = [*self.terms, Term(-over, under, ONE)]
        return SumOfRoots([Term(over << up, under << down, root) for over, under, root in terms])


def round_exactly(numbers: Sequence[ExactNumber], target: FloatFormat) -> Float64s:
    """Return a row (value, rest) for each number: exact = value + rest*ulp(value).

    The value is correctly rounded, and |rest| <= 1/2. Whether rest is 0, 1/2 or neither is exact;
    else it may be off by a rounding of float64 at the value, 2**-30 for float32.
    """
    brackets = np.array([number.bracket() for number in numbers], np.float64).reshape(-1, 2)
    found, decided = _told_by_float64(brackets, target)
    for place in np.flatnonzero(~decided).tolist():
        low, high = brackets[place].tolist()
        in_float64 = target == FLOAT64 and low == high and low != 0
        value = low if in_float64 else numbers[place].round_to(target)
        found[place] = value, _rest(numbers[place], value, target)
    return found


def _told_by_float64(
    brackets: Float64s, target: FloatFormat
) -> tuple[Float64s, NDArray[np.bool_]]:
    """Round again what was rounded to float64, and tell where that is the same as rounding once.

    Numbers of a narrower type, and the points half way between them, are float64 numbers. So the
    exact answer is on the same side of each as its rounding to float64, unless that is one of
    them.
    """
    wide = brackets[:, 0]
    decided = (wide == brackets[:, 1]) & (np.abs(wide) < 2.0 ** (target.limit - 1))
    if target.precision >= FLOAT64.precision:
        decided[:] = False
    wide = np.where(decided, wide, 0.0)
    # From here on nothing is rounded but by `rint`: float64 has the digits to spare.
    places = _places(wide, target)
    digits = np.ldexp(wide, -places)
    whole = np.rint(digits)
    # In places of the number, not of what it is rounded to: they differ below a power of two.
    decided &= (digits != whole) & (np.abs(digits - whole) != 0.5)
    values = np.copysign(np.ldexp(whole, places), wide)
    rests = np.ldexp(wide - values, -_places(values, target))
    return np.stack([values, rests], axis=-1), decided


def _places(values: Float64s, target: FloatFormat) -> NDArray[np.intp]:
    """Return the exponent of an ulp at each finite value."""
    _, exponents = np.frexp(values)
    places = np.maximum(exponents - target.precision, target.quantum)
    return np.where(values == 0, target.quantum, places)


def _rest(number: ExactNumber, value: float, target: FloatFormat) -> float:
    """Return what is left of a number beyond its rounded value, in ulp of that."""
    if not isfinite(value):
        return 0.0
    place = max(frexp(value)[1] - target.precision, target.quantum) if value else target.quantum
    left = number.less(*value.as_integer_ratio(), max(0, -place), max(0, place))
    low, high = left.bracket()
    # A tie, or nothing left, is for integers to tell.
    return low if low == high and abs(low) not in (0.0, 0.5) else left.round_to(FLOAT64)


Arrays = dict[str, Float64s]


class AnswerKey(NamedTuple):
    """The inputs of a case, and the types of its results.

    Attributes
    ----------
    given : dict of str to ndarray
        In float64: the inputs that are there, rows that are repeated once; eps; and repeats.
    types : dict of str to str
        Of each result that is there.
    variant : str
        What else the answers depend on.
    """

    given: Arrays
    types: dict[str, str]
    variant: str = ""

    @classmethod
    def of(cls, case: Case) -> "AnswerKey":
        """Return the question that a case is."""
        once = case.shape[0] // case.repeats
        rows = {name: array[:once] for name, array in case.rows.items()}
        others = {"eps": np.asarray(case.eps), "repeats": np.asarray(case.repeats)}
        parts = {**case.inputs, **rows, **others}
        given = {name: part.astype(np.float64) for name, part in parts.items() if part is not None}
        return cls(given, output_types(case), case.operation.variant)

    @property
    def name(self) -> str:
        """A name that no other question has: it depends on all bits, shapes and types."""
        kind = f"{self.types}{self.variant}".encode()
        return sha256(kind + fingerprint(self.given)).hexdigest()[:32]


def output_types(case: Case) -> dict[str, str]:
    """Return the type of each result; one like an absent parameter has none."""
    likes = {each.name: case.inputs[each.like] for each in case.operation.outputs}
    return {
        name: case.operation.type_of(name, like.dtype.name)
        for name, like in likes.items()
        if like is not None
    }


def fingerprint(arrays: Arrays) -> bytes:
    """Return a hash of the names, shapes and bits of arrays."""
    content = sha256()
    for name, array in sorted(arrays.items()):
        content.update(f"{name} {array.shape} ".encode())
        content.update(array.astype("<f8").tobytes())
    return content.digest()


DIGEST = 32
ALL_ONES = np.uint64(2**64 - 1)
Predictors = Mapping[str, Predictor]


@np.errstate(all="ignore")  # a guess may overflow, and an exact number be none
def pack(question: AnswerKey, predictors: Predictors, exact: Arrays) -> bytes:
    """Return bytes from which `unpack` makes the exact numbers, to the bit.

    Those of a result have one axis more: its value, and what the rounding left over.
    """
    order = sorted(exact, key=lambda name: ([*predictors, name].index(name), name))
    known, steps, shapes = dict(question.given), [], {}
    for name in order:
        kind, numbers = question.types.get(name), exact[name]
        shapes[name] = numbers.shape[:-1] if kind else numbers.shape
        start = _start(name, shapes[name], predictors, known)
        pairs = [(numbers, start)]
        if kind:
            value, rest = numbers[..., 0], numbers[..., 1]
            wide = value + np.where(np.isfinite(value), rest * _ulps(value, kind), 0.0)
            pairs = [(wide, start), *zip((value, rest), _split(wide, kind), strict=True)]
        known[name] = numbers
        steps += [_bits(to) - _bits(origin) for to, origin in pairs]
    heading = json.dumps(shapes).encode() + b"\n"
    return fingerprint(exact) + zlib.compress(heading + _squeezed(np.concatenate(steps)), 9)


@np.errstate(all="ignore")
def unpack(question: AnswerKey, predictors: Predictors, content: bytes) -> Arrays | None:
    """Return the exact numbers, or None if these bytes do not give them."""
    try:
        heading, _, planes = zlib.decompress(content[DIGEST:]).partition(b"\n")
        shapes, steps = json.loads(heading), _Steps(_unsqueezed(planes))
    except (zlib.error, ValueError):
        return None
    known, exact = dict(question.given), {}
    for name, shape in shapes.items():
        found = steps.from_here(_start(name, shape, predictors, known))
        if name in question.types:
            split = _split(found, question.types[name])
            found = np.stack([steps.from_here(origin) for origin in split], axis=-1)
        known[name] = exact[name] = found
    return exact if fingerprint(exact) == content[:DIGEST] else None


def _start(name: str, shape: tuple[int, ...], predictors: Predictors, known: Arrays) -> Float64s:
    """Guess; 0 for what is not finite, since which NaN it is depends on the processor."""
    if name not in predictors:
        return np.zeros(shape)
    guessed = predictors[name](known)
    return np.where(np.isfinite(guessed), guessed, 0.0)


class _Steps:
    """Differences, taken from the first on."""

    def __init__(self, steps: NDArray[np.uint64]) -> None:
        self._steps, self._taken = steps, 0

    def from_here(self, origin: Float64s) -> Float64s:
        """Return the numbers at the next differences from here; without any, those here."""
        some = self._steps[self._taken : self._taken + origin.size]
        self._taken += origin.size
        bits = _bits(origin)
        bits[: some.size] += some
        return bits.view(np.float64).reshape(origin.shape)


def _ulps(values: Float64s, kind: str) -> Float64s:
    return ulps_of(np.where(np.isfinite(values), values, 0.0), kind)


def _split(wide: Float64s, kind: str) -> tuple[Float64s, Float64s]:
    """Round to the type; return that and what is left over, in ulp."""
    if kind == "float64":
        return wide, np.zeros_like(wide)
    ulps = _ulps(wide, kind)
    value = np.rint(wide / ulps) * ulps
    return value, (wide - value) / _ulps(value, kind)


def _bits(numbers: Float64s) -> NDArray[np.uint64]:
    """Return a flat copy of the bit patterns, of which neighbours differ by one."""
    return numbers.flatten().view(np.uint64)


def _squeezed(steps: NDArray[np.uint64]) -> bytes:
    """Return differences, small ones of either sign, as bytes that compress well."""
    signs = (steps >> np.uint64(63)) * ALL_ONES
    zigzag = (steps << np.uint64(1)) ^ signs
    planes = zigzag.astype("<u8").view(np.uint8).reshape(-1, 8).T
    return planes.tobytes()


def _unsqueezed(content: bytes) -> NDArray[np.uint64]:
    planes = np.frombuffer(content, np.uint8).reshape(8, -1)
    zigzag = np.ascontiguousarray(planes.T).view("<u8").ravel().astype(np.uint64)
    steps: NDArray[np.uint64] = (zigzag >> np.uint64(1)) ^ ((zigzag & np.uint64(1)) * ALL_ONES)
    return steps


QUICK_ARCHIVE, QUICK_SOURCES = "quick.zip", "quick.sources"
"""In the folder of an operation: answers, and the `sources` that they were computed with.

They are made by ``python -m benchmarks.answers``.
"""
WORTH_KEEPING = 256
"""Elements of a case: with fewer, it is computed in the time that it takes to find a file."""


def load_or_compute(case: Case, compute: Callable[[Case], Arrays]) -> Arrays:
    """Return the exact numbers of a case; they are computed if nobody kept them."""
    operation = case.operation
    made_with = sources_of(operation)
    if operation.folder is None or not made_with:
        return compute(case)
    question = AnswerKey.of(case)
    place = f"answers-{made_with}", question.name
    for content in _found(operation.folder, made_with, *place):
        exact = unpack(question, operation.predictors, content)
        if exact is not None:
            return exact
    exact = compute(case)
    if not case.seeded and question.given[operation.inputs[0].name].size >= WORTH_KEEPING:
        with suppress(OSError, RuntimeError):  # there is no place, or no home
            user_cache.write(*place, pack(question, operation.predictors, exact))
    return exact


def _found(operation: Path, made_with: str, folder: str, name: str) -> Iterator[bytes]:
    """Yield what was kept: beside the operation, and by the user if that will not do."""
    if content := _quick(operation, made_with).get(name):
        yield content
    with suppress(OSError, RuntimeError):
        yield user_cache.read(folder, name)


def sources_of(operation: Operation) -> str:
    """Return a name for everything that decides what the answers of an operation are.

    There is none where sources cannot be read, as in an archive, or are nowhere.
    """
    if operation.folder is None:
        return ""
    return sources(*operation.shared_sources, operation.folder)


@cache
def sources(*parts: Path) -> str:
    """Return a name for these files and folders, and for what all operations have in common."""
    paths = [Path(types.__file__), Path(truenorm.exact.__file__)]
    for part in (Path(__file__), *parts):
        paths += sorted(part.glob("*.py")) if part.is_dir() else [part]
    with suppress(OSError):
        # As text: ends of lines depend on the system.
        content = [(path.name, path.read_text(encoding="utf-8")) for path in paths]
        return sha256(repr(content).encode()).hexdigest()[:16]
    return ""


@cache
def _quick(folder: Path, made_with: str) -> dict[str, bytes]:
    """Return the answers that come with the package, if they belong to these sources."""
    with suppress(OSError, zipfile.BadZipFile):
        if (folder / QUICK_SOURCES).read_text(encoding="utf-8").strip() == made_with:
            with zipfile.ZipFile(folder / QUICK_ARCHIVE) as archive:
                return {name: archive.read(name) for name in archive.namelist()}
    return {}


FLOAT32_ROUNDOFF = 2.0**-24
DIGITS_LEFT = 1 / 8
"""The error, relative to the scale, at which a sum that was added up one by one is no sum."""


def compute_exact(case: Case) -> dict[str, Float64s]:
    """Compute the numbers of a case in integers: see `Operation.exact`."""
    with np.errstate(all="ignore"):  # whatever the caller has set
        return case.operation.exact(case)


EXPECTED_BY_CASE: "dict[Case, Expected]" = {}
"""The answers that this process has."""


def expected(case: Case) -> "Expected":
    """Return the answers to a case, computed once, if ever."""
    return EXPECTED_BY_CASE.get(case) or remember(case, load_or_compute(case, compute_exact))


def remember(case: Case, exact: dict[str, Float64s]) -> "Expected":
    """Keep the answers to a case, from numbers that were computed elsewhere."""
    EXPECTED_BY_CASE[case] = found = Expected(case, exact)
    return found


def forget(cases: Iterable[Case]) -> None:
    """Let go of answers that nobody will ask for again."""
    for case in cases:
        EXPECTED_BY_CASE.pop(case, None)


class Expected:
    """What a case must give, and how far off a result may be.

    Attributes
    ----------
    types : dict of str to str
        The type of each output; one like an absent parameter has none.
    values : dict of str to ndarray or None
        The outputs, correctly rounded; None where there is no type.
    wide : dict of str to ndarray
        The same in float64.
    rests : dict of str to ndarray
        What the rounding left over, in ulp of the value.
    ulps : dict of str to ndarray
        The ulp of each value; of one that is not finite, the smallest.
    scales : Scales
        The natural scales of the results.
    """

    def __init__(self, case: Case, exact: dict[str, Float64s]) -> None:
        self._case = case
        self.types = output_types(case)
        self.values: dict[str, Array | None] = dict.fromkeys(
            each.name for each in case.operation.outputs
        )
        self.wide: dict[str, Float64s] = {}
        self.remainders: dict[str, Float64s] = {}
        self.ulps: dict[str, Float64s] = {}
        with np.errstate(all="ignore"):
            for output, kind in self.types.items():
                pairs = self._repeated(output, exact[output])
                wide, self.remainders[output] = pairs[..., 0], pairs[..., 1]
                self.values[output] = wide.astype(dtype_of(kind))
                self.wide[output] = wide
                self.ulps[output] = ulps_of(np.where(np.isfinite(wide), wide, 0.0), kind)
            self.scales = case.operation.scales(case, exact)
        self._allowed: dict[tuple[str, int], Float64s] = {}

    def _repeated(self, output: str, values: Float64s) -> Float64s:
        """Repeat rows as the case does."""
        if not self._case.operation.is_rows(output) or self._case.repeats == 1:
            return values
        return np.tile(values, (self._case.repeats, *(1,) * (values.ndim - 1)))

    def scale(self, output: str, power: int = 0) -> Float64s:
        """Return the natural scale of each element, for errors like that power of kappa."""
        scale = self._repeated(output, self.scales.of(output, power))
        return scale if self._case.operation.is_rows(output) else self._case.repeats * scale

    def unit(self, output: str) -> float:
        """Return u of a result; of none that is more precise than rows, but a plain sum of them.

        So a float32 result of bfloat16 rows may have been rounded to bfloat16 on the way, as some
        recipes do.
        """
        own = unit_roundoff(self.types[output])
        return own if output == "dbeta" else max(own, unit_roundoff(self._case.dtype))

    def factor(self, output: str, power: int = 0) -> float:
        """Return K: some roundings, and those of sums, which add up like the square root of n.

        Types of 16 bits are for storing: computed is in float32, so that there is little to
        round but the result, and sums cost next to nothing. Were it not so, a sum over many rows
        could be zero in bfloat16. A column added up one by one can be off by u for each of its n
        terms: that, too, is allowed from the first power of kappa on, as long as a digit is left.
        """
        unit = unit_roundoff(self._case.dtype)
        roundings = 8.0 if unit <= FLOAT32_ROUNDOFF else 3.0
        terms = self.scales.terms(output)
        stable = roundings + math.sqrt(terms) / 4 * min(1.0, FLOAT32_ROUNDOFF / unit)
        if power and not self._case.operation.is_rows(output):
            return max(stable, min(8.0 + self._case.shape[0], DIGITS_LEFT / unit))
        return stable

    def allowed(self, output: str, power: int = 0) -> Float64s:
        """Return how far each element may be off: by an ulp, and by K*u*scale.

        With a power, the scale of an algorithm whose error grows like that power of kappa. Where
        the value is not finite nothing is allowed.
        """
        place = (output, power)
        if place not in self._allowed:
            with np.errstate(all="ignore"):
                scale = self.scale(output, power) * self.factor(output, power)
                bound = self.ulps[output] + self.unit(output) * scale
            self._allowed[place] = np.where(np.isfinite(self.wide[output]), bound, 0.0)
        return self._allowed[place]
