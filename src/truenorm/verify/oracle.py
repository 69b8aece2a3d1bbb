"""Exact answers to cases: rounding, the cache of computed answers, and allowed errors.

`Operation.exact` computes the answers to a case in integers and rounds them with `round_exactly`.
`load_or_compute` reads cached answers from the package or the user's cache. `expected` returns the
answers as an `Expected`, the one source of exact answers for the rest of the judge.

Answers depend only on the case and on the source files that `sources` hashes.
"""

import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

import truenorm.exact
from truenorm import user_cache
from truenorm.exact import FLOAT64, FloatFormat, InverseRoot, Term, round_sum_of_roots
from truenorm.verify import types
from truenorm.verify.operation import Case, Operation, Predictor, Results
from truenorm.verify.types import Array, Float64s, dtype_of, ulps_of, unit_roundoff

Arrays = dict[str, Float64s]
Predictors = Mapping[str, Predictor]

ONE = InverseRoot(1, 1)
BRACKET_BITS = 128  # of a root: many more than float64 has
UNDECIDED = (float("-inf"), float("inf"))


class ExactNumber(Protocol):
    """A number that can be rounded correctly."""

    def bracket(self) -> tuple[float, float]:
        """Return two float64 numbers that enclose the number rounded to float64."""

    def round_to(self, target: FloatFormat) -> float:
        """Round once to a type."""

    def remainder(self, over: int, under: int, up: int, down: int) -> "ExactNumber":
        """Subtract over/under, then multiply by 2**up/2**down."""


class NonFinite(NamedTuple):
    """NaN or an infinity."""

    value: float

    def bracket(self) -> tuple[float, float]:
        """Return the bracket that decides nothing."""
        return UNDECIDED

    def round_to(self, target: FloatFormat) -> float:  # noqa: ARG002 (the same in every type)
        """Return the value."""
        return self.value

    def remainder(self, *_: int) -> "NonFinite":
        """Return the value: subtraction does not change it."""
        return self


class LinearInRoot(NamedTuple):
    """(a*r + b)/denominator, with the inverse root r of a row."""

    root: InverseRoot
    a: int
    b: int
    denominator: int

    @classmethod
    def of(cls, term: Term) -> "LinearInRoot":
        """Return a single term of a sum of roots."""
        return cls(term.root, term.numerator, 0, term.denominator)

    def bracket(self) -> tuple[float, float]:
        """Divide integers: Python rounds the quotient once, to nearest."""
        if self.a == 0:
            place, below = 0, 0
        else:
            place = max(0, BRACKET_BITS - self.root.magnitude)
            below = self.root.scaled(place)
        shift, denominator = self.b << place, self.denominator << place
        try:
            low = (self.a * below + shift) / denominator
            high = (self.a * (below + 1) + shift) / denominator
        except OverflowError:
            return UNDECIDED
        return low, high

    def round_to(self, target: FloatFormat) -> float:
        """Round in integers."""
        return self.root.round_linear(self.a, self.b, self.denominator, target)

    def remainder(self, over: int, under: int, up: int, down: int) -> "LinearInRoot":
        """Subtract over/under, then scale."""
        b = self.b * under - over * self.denominator
        denominator = self.denominator * under << down
        return LinearInRoot(self.root, self.a * under << up, b << up, denominator)


class SumOfRoots(NamedTuple):
    """A sum of inverse roots with rational factors: one term for each row."""

    terms: list[Term]

    def bracket(self) -> tuple[float, float]:
        """Round in integers, which decide such sums quickly."""
        value = self.round_to(FLOAT64)
        return value, value

    def round_to(self, target: FloatFormat) -> float:
        """Round in integers."""
        return round_sum_of_roots(self.terms, target)

    def remainder(self, over: int, under: int, up: int, down: int) -> "SumOfRoots":
        """Subtract over/under, then scale."""
        terms = [*self.terms, Term(-over, under, ONE)]
        return SumOfRoots([Term(over << up, under << down, root) for over, under, root in terms])


def round_exactly(numbers: Sequence[ExactNumber], target: FloatFormat) -> Float64s:
    """Return a row (value, remainder) for each number: exact = value + remainder*ulp(value).

    The value is correctly rounded, and |remainder| <= 1/2. Remainders of 0 and 1/2 are exact;
    other remainders may have an error of one float64 rounding at the value, 2**-30 for float32.
    """
    brackets = np.array([number.bracket() for number in numbers], np.float64).reshape(-1, 2)
    pairs, decided = _round_brackets(brackets, target)
    for place in np.flatnonzero(~decided).tolist():
        low, high = brackets[place].tolist()
        in_float64 = target == FLOAT64 and low == high and low != 0
        value = low if in_float64 else numbers[place].round_to(target)
        pairs[place] = value, _remainder(numbers[place], value, target)
    return pairs


def _round_brackets(brackets: Float64s, target: FloatFormat) -> tuple[Float64s, NDArray[np.bool_]]:
    """Round float64 brackets to a narrower type; return (value, remainder) rows and a mask.

    Numbers of a narrower type, and the midpoints between them, are float64 numbers. So the exact
    answer and its rounding to float64 are on the same side of each, unless they are equal.
    """
    wide = brackets[:, 0]
    decided = (wide == brackets[:, 1]) & (np.abs(wide) < 2.0 ** (target.limit - 1))
    if target.precision >= FLOAT64.precision:
        decided[:] = False
    wide = np.where(decided, wide, 0.0)
    # From here on only `rint` rounds: float64 has digits to spare.
    places = _ulp_exponents(wide, target)
    digits = np.ldexp(wide, -places)
    whole = np.rint(digits)
    # In ulp of the number, not of its rounding: ulps differ below a power of two.
    decided &= (digits != whole) & (np.abs(digits - whole) != 0.5)
    values = np.copysign(np.ldexp(whole, places), wide)
    remainders = np.ldexp(wide - values, -_ulp_exponents(values, target))
    return np.stack([values, remainders], axis=-1), decided


def _ulp_exponents(values: Float64s, target: FloatFormat) -> NDArray[np.intp]:
    """Return the exponent of an ulp at each finite value."""
    _, exponents = np.frexp(values)
    places = np.maximum(exponents - target.precision, target.quantum)
    return np.where(values == 0, target.quantum, places)


def _remainder(number: ExactNumber, value: float, target: FloatFormat) -> float:
    """Return number - value in ulp of the value."""
    if not math.isfinite(value):
        return 0.0
    place = target.quantum
    if value:
        place = max(math.frexp(value)[1] - target.precision, target.quantum)
    remainder = number.remainder(*value.as_integer_ratio(), max(0, -place), max(0, place))
    low, high = remainder.bracket()
    # Only integers can tell an exact tie or an exact zero.
    return low if low == high and abs(low) not in (0.0, 0.5) else remainder.round_to(FLOAT64)


def output_types(case: Case) -> dict[str, str]:
    """Return the type of each output; omit outputs like an absent parameter."""
    likes = {each.name: case.inputs[each.like] for each in case.operation.outputs}
    return {
        name: case.operation.type_of(name, like.dtype.name)
        for name, like in likes.items()
        if like is not None
    }


class AnswerKey(NamedTuple):
    """The data of a case on which its answers depend: neither its name nor its layout.

    Attributes
    ----------
    inputs : dict of str to ndarray
        In float64: the inputs without absent inputs and without repeated rows, eps and repeats.
    types : dict of str to str
        The type of each output.
    variant : str
        `Operation.variant`.
    """

    inputs: Arrays
    types: dict[str, str]
    variant: str = ""

    @classmethod
    def of(cls, case: Case) -> "AnswerKey":
        """Return the key of a case."""
        once = case.shape[0] // case.repeats
        rows = {name: array[:once] for name, array in case.rows.items()}
        scalars = {"eps": np.asarray(case.eps), "repeats": np.asarray(case.repeats)}
        arrays = {**case.inputs, **rows, **scalars}
        inputs = {
            name: each.astype(np.float64) for name, each in arrays.items() if each is not None
        }
        return cls(inputs, output_types(case), case.operation.variant)

    @property
    def name(self) -> str:
        """A hash of all bits, shapes and types: the file name of the answers."""
        kind = f"{self.types}{self.variant}".encode()
        return sha256(kind + fingerprint(self.inputs)).hexdigest()[:32]


def fingerprint(arrays: Arrays) -> bytes:
    """Return a hash of the names, shapes and bits of arrays."""
    content = sha256()
    for name, array in sorted(arrays.items()):
        content.update(f"{name} {array.shape} ".encode())
        content.update(array.astype("<f8").tobytes())
    return content.digest()


DIGEST_BYTES = 32
ALL_ONES = np.uint64(2**64 - 1)


@np.errstate(all="ignore")  # predictions may overflow, and exact numbers may be NaN
def pack(key: AnswerKey, predictors: Predictors, exact: Arrays) -> bytes:
    """Compress exact numbers: store their distances, in float64 numbers, from predictions.

    The array of an output has one axis more than the output, with values and remainders.
    """
    order = sorted(exact, key=lambda name: ([*predictors, name].index(name), name))
    known, distances, shapes = dict(key.inputs), [], {}
    for name in order:
        kind, numbers = key.types.get(name), exact[name]
        shapes[name] = numbers.shape[:-1] if kind else numbers.shape
        start = _predict(name, shapes[name], predictors, known)
        pairs = [(numbers, start)]
        if kind:
            value, remainder = numbers[..., 0], numbers[..., 1]
            wide = value + np.where(np.isfinite(value), remainder * _ulps(value, kind), 0.0)
            pairs = [(wide, start), *zip((value, remainder), _split(wide, kind), strict=True)]
        known[name] = numbers
        distances += [_bits(to) - _bits(origin) for to, origin in pairs]
    heading = json.dumps(shapes).encode() + b"\n"
    planes = _to_byte_planes(np.concatenate(distances))
    return fingerprint(exact) + zlib.compress(heading + planes, 9)


@np.errstate(all="ignore")
def unpack(key: AnswerKey, predictors: Predictors, content: bytes) -> Arrays | None:
    """Return the exact numbers that were packed, or None if the content does not match the key."""
    try:
        heading, _, planes = zlib.decompress(content[DIGEST_BYTES:]).partition(b"\n")
        shapes, distances = json.loads(heading), _Distances(_from_byte_planes(planes))
    except (zlib.error, ValueError):
        return None
    known, exact = dict(key.inputs), {}
    for name, shape in shapes.items():
        numbers = distances.add_next(_predict(name, shape, predictors, known))
        if name in key.types:
            split = _split(numbers, key.types[name])
            numbers = np.stack([distances.add_next(origin) for origin in split], axis=-1)
        known[name] = exact[name] = numbers
    return exact if fingerprint(exact) == content[:DIGEST_BYTES] else None


def _predict(name: str, shape: tuple[int, ...], predictors: Predictors, known: Arrays) -> Float64s:
    """Predict an array; 0 replaces non-finite numbers: bits of a NaN depend on the CPU."""
    if name not in predictors:
        return np.zeros(shape)
    predicted = predictors[name](known)
    return np.where(np.isfinite(predicted), predicted, 0.0)


class _Distances:
    """Packed distances, read from the first on."""

    def __init__(self, distances: NDArray[np.uint64]) -> None:
        self._distances, self._read = distances, 0

    def add_next(self, origin: Float64s) -> Float64s:
        """Return the numbers at the next distances from an array; past the end, the array."""
        some = self._distances[self._read : self._read + origin.size]
        self._read += origin.size
        bits = _bits(origin)
        bits[: some.size] += some
        return bits.view(np.float64).reshape(origin.shape)


def _ulps(values: Float64s, kind: str) -> Float64s:
    return ulps_of(np.where(np.isfinite(values), values, 0.0), kind)


def _split(wide: Float64s, kind: str) -> tuple[Float64s, Float64s]:
    """Round to a type; return the values, and the remainders in ulp."""
    if kind == "float64":
        return wide, np.zeros_like(wide)
    ulps = _ulps(wide, kind)
    value = np.rint(wide / ulps) * ulps
    return value, (wide - value) / _ulps(value, kind)


def _bits(numbers: Float64s) -> NDArray[np.uint64]:
    """Return a flat copy of the bit patterns; patterns of neighbours differ by one."""
    return numbers.flatten().view(np.uint64)


def _to_byte_planes(distances: NDArray[np.uint64]) -> bytes:
    """Encode small distances of either sign as bytes that compress well (zigzag, transposed)."""
    signs = (distances >> np.uint64(63)) * ALL_ONES
    zigzag = (distances << np.uint64(1)) ^ signs
    return zigzag.astype("<u8").view(np.uint8).reshape(-1, 8).T.tobytes()


def _from_byte_planes(content: bytes) -> NDArray[np.uint64]:
    planes = np.frombuffer(content, np.uint8).reshape(8, -1)
    zigzag = np.ascontiguousarray(planes.T).view("<u8").ravel().astype(np.uint64)
    distances: NDArray[np.uint64] = (zigzag >> np.uint64(1)) ^ ((zigzag & np.uint64(1)) * ALL_ONES)
    return distances


QUICK_ARCHIVE, QUICK_SOURCES = "quick.zip", "quick.sources"
"""In the folder of an operation: cached answers, and the hash of their sources.

``python -m benchmarks.answers`` writes both.
"""
SMALLEST_CACHED = 256
"""Elements of a case: fewer are computed in the time of finding a file."""


def compute_exact(case: Case) -> Arrays:
    """Compute the exact numbers of a case: see `Operation.exact`."""
    with np.errstate(all="ignore"):  # the caller's settings must not matter
        return case.operation.exact(case)


def load_or_compute(case: Case, compute: Callable[[Case], Arrays]) -> Arrays:
    """Return the exact numbers of a case, from the cache if possible."""
    operation = case.operation
    sources_hash = sources_of(operation)
    if operation.folder is None or not sources_hash or case.enclosed:
        return compute(case)  # an enclosure is computed faster than a file is read
    key = AnswerKey.of(case)
    place = f"answers-{sources_hash}", key.name
    for content in _cached(operation.folder, sources_hash, *place):
        exact = unpack(key, operation.predictors, content)
        if exact is not None:
            return exact
    exact = compute(case)
    if not case.seeded and key.inputs[operation.inputs[0].name].size >= SMALLEST_CACHED:
        with suppress(OSError, RuntimeError):  # no writable folder, or no home
            user_cache.write(*place, pack(key, operation.predictors, exact))
    return exact


def _cached(operation: Path, sources_hash: str, folder: str, name: str) -> Iterator[bytes]:
    """Yield packed answers of the package, then of the user's cache."""
    if content := _quick(operation, sources_hash).get(name):
        yield content
    with suppress(OSError, RuntimeError):
        yield user_cache.read(folder, name)


def sources_of(operation: Operation) -> str:
    """Return the name of an operation and a hash of the source files that decide its answers.

    Return an empty text if sources cannot be read, as in an archive, or are not declared.
    """
    if operation.folder is None:
        return ""
    digest = sources(*operation.shared_sources, operation.folder)
    return digest and f"{operation.folder.name}-{digest}"


@cache
def sources(*parts: Path) -> str:
    """Return a hash of files and folders, and of the sources of all operations."""
    paths = [Path(types.__file__), Path(truenorm.exact.__file__), Path(__file__)]
    for part in parts:
        paths += sorted(part.glob("*.py")) if part.is_dir() else [part]
    with suppress(OSError):
        # As text: line ends depend on the system.
        content = [(path.name, path.read_text(encoding="utf-8")) for path in paths]
        return sha256(repr(content).encode()).hexdigest()[:16]
    return ""


@cache
def _quick(folder: Path, sources_hash: str) -> dict[str, bytes]:
    """Return the cached answers of the package, if they belong to the current sources."""
    with suppress(OSError, zipfile.BadZipFile):
        if (folder / QUICK_SOURCES).read_text(encoding="utf-8").strip() == sources_hash:
            with zipfile.ZipFile(folder / QUICK_ARCHIVE) as archive:
                return {name: archive.read(name) for name in archive.namelist()}
    return {}


EXPECTED_BY_CASE: "dict[Case, Expected]" = {}
"""The answers that this process holds in memory."""


def expected(case: Case) -> "Expected":
    """Return the answers to a case; compute them at most once."""
    return EXPECTED_BY_CASE.get(case) or remember(case, load_or_compute(case, compute_exact))


def remember(case: Case, exact: Arrays) -> "Expected":
    """Hold the answers to a case in memory; `exact` may come from another process."""
    kind: type[Expected] = case.operation.expected_type or Expected
    EXPECTED_BY_CASE[case] = answers = kind(case, exact)
    return answers


def forget(cases: Iterable[Case]) -> None:
    """Drop the answers to some cases from memory."""
    for case in cases:
        EXPECTED_BY_CASE.pop(case, None)


FLOAT32_ROUNDOFF = 2.0**-24
LARGEST_SUM_ERROR = 1 / 8
"""The largest error that a sum in sequence may have, relative to the scale."""
IN_SEQUENCE = ("sweep", "hard")
"""Kinds of cases whose rows may be summed in sequence by a conditional kernel."""


class AnswerBounds(NamedTuple):
    """Enclosures of answers that are not exact.

    The exact answer is within `radius` of the stored one; `low` and `high` are the ends of that
    interval, rounded to the type of the result. Errors are reduced by the radius.
    """

    radius: Float64s
    low: Float64s
    high: Float64s


class ElementErrors(NamedTuple):
    """Absolute errors, errors in ulp, and a mask of correctly rounded elements.

    Elements whose answer is NaN or infinite have no error: see `Expected.misplaced`.
    """

    error: Float64s
    in_ulp: Float64s
    correct: NDArray[np.bool_]

    @classmethod
    def where(
        cls,
        measured: NDArray[np.bool_],
        error: Float64s,
        in_ulp: Float64s,
        correct: NDArray[np.bool_],
    ) -> "ElementErrors":
        """Return errors of the measured elements; NaN is an infinite error."""
        error, in_ulp = (
            np.where(measured, np.where(np.isnan(each), np.inf, each), 0.0)
            for each in (error, in_ulp)
        )
        return cls(error, in_ulp, correct | ~measured)


class Expected:
    """The exact answers to a case, and the errors that results may have.

    Attributes
    ----------
    types : dict of str to str
        The type of each output; an output like an absent parameter has none.
    values : dict of str to ndarray or None
        The outputs, correctly rounded; None where there is no type.
    wide : dict of str to ndarray
        The values in float64.
    remainders : dict of str to ndarray
        Exact answer minus value, in ulp of the value.
    ulps : dict of str to ndarray
        The ulp of each value; the smallest ulp where the value is not finite.
    scales : Scales
        The natural scales of the results.
    """

    def __init__(self, case: Case, exact: Arrays) -> None:
        self._case = case
        self.types = output_types(case)
        self.values: dict[str, Array | None] = dict.fromkeys(
            each.name for each in case.operation.outputs
        )
        self.wide: Arrays = {}
        self.remainders: Arrays = {}
        self.ulps: Arrays = {}
        with np.errstate(all="ignore"):
            for output, kind in self.types.items():
                pairs = self._repeat(output, exact[output])
                wide, self.remainders[output] = pairs[..., 0], pairs[..., 1]
                self.values[output] = wide.astype(dtype_of(kind))
                self.wide[output] = wide
                self.ulps[output] = _ulps(wide, kind)
            self.scales = case.operation.scales(case, exact)
        self._allowed: dict[tuple[str, int], Float64s] = {}

    def _repeat(self, output: str, values: Float64s) -> Float64s:
        """Repeat rows as the case does."""
        if not self._case.operation.is_rows(output) or self._case.repeats == 1:
            return values
        return np.tile(values, (self._case.repeats, *(1,) * (values.ndim - 1)))

    def given(self, results: Results) -> "Expected":  # noqa: ARG002 (subclasses use it)
        """Return the answers to a call: some depend on other results of the call."""
        return self

    def type_error(self, output: str, result: Array) -> str:
        """Return the error in the type of a result, or an empty string."""
        value = self.values[output]
        if value is None or result.dtype == value.dtype:
            return ""
        return f"{output} is {result.dtype.name}; it should be {value.dtype.name}"

    def decoded(self, output: str, result: Array | None) -> Array | None:
        """Return a result as numbers in the shape of the answer, or None if that is impossible."""
        value = self.values[output]
        if value is None or result is None or result.size != value.size:
            return None
        return result.reshape(value.shape)

    def element_errors(
        self, output: str, result: Array, *, bounds: AnswerBounds | None = None
    ) -> ElementErrors:
        """Return the error of each element of a decoded result.

        `bounds` encloses answers that are not exact.
        """
        exact, ulps, rest = self.wide[output], self.ulps[output], self.remainders[output]
        with np.errstate(all="ignore"):
            wide = result.astype(np.float64)
            measured = np.isfinite(exact)
            error = np.abs((wide - exact) - rest * ulps)
            in_ulp = np.abs((wide - exact) / ulps - rest)
            correct = wide == exact
            if bounds is not None:
                measured &= np.isfinite(bounds.low) & np.isfinite(bounds.high)
                error = (error - bounds.radius).clip(0)
                in_ulp = (in_ulp - bounds.radius / ulps).clip(0)
                correct = (bounds.low <= wide) & (wide <= bounds.high)
        return ElementErrors.where(measured, error, in_ulp, correct)

    def undefined(self, output: str) -> NDArray[np.bool_]:
        """Return True for each element without an answer: any result is right."""
        return np.zeros(self.wide[output].shape, bool)

    def misplaced(
        self, output: str, result: Array, bounds: AnswerBounds | None = None
    ) -> NDArray[np.bool_]:
        """Return True for each element that should be NaN or infinite and is not.

        Any non-finite value is accepted except infinity of the wrong sign: infinity times a
        number that an algorithm rounds to zero is NaN. An answer that may be finite by its
        `bounds` accepts any value.
        """
        with np.errstate(all="ignore"):
            exact, wide = self.wide[output], result.astype(np.float64)
        wrong = ~np.isfinite(exact) & np.isfinite(wide) | np.isinf(exact) & (wide == -exact)
        if bounds is not None:
            wrong &= ~(np.isfinite(bounds.low) | np.isfinite(bounds.high))
        return np.asarray(wrong)

    def number(self, output: str) -> Float64s:
        """Return the exact answer in float64, before it is rounded to the type of the output."""
        with np.errstate(all="ignore"):
            rest = self.remainders[output] * self.ulps[output]
        return self.wide[output] + np.where(np.isfinite(rest), rest, 0.0)

    def scale(self, output: str, power: int = 0) -> Float64s:
        """Return the natural scale of each element, for errors like that power of kappa."""
        scale = self._repeat(output, self.scales.of(output, power))
        return scale if self._case.operation.is_rows(output) else self._case.repeats * scale

    def unit(self, output: str) -> float:
        """Return the unit roundoff of an output: at least that of the rows, except for dbeta.

        A float32 result of bfloat16 rows may be rounded to bfloat16 on the way, by some recipes.
        """
        own = unit_roundoff(self.types[output])
        return own if output == "dbeta" else max(own, unit_roundoff(self._case.dtype))

    def factor(self, output: str, power: int = 0) -> float:
        """Return K: a few roundings, and roundings of sums, which grow like the square root of n.

        Types of 16 bits are for storage. Kernels compute in float32, where sums add next to
        nothing; otherwise zero would pass for a bfloat16 sum over many rows.

        From the first power of kappa on, a sum may be taken in sequence, up to
        `LARGEST_SUM_ERROR`: over rows, with an error of u for each term; in rows of sweeps and
        hard cases, of u/2, which is the error of the root of a mean square.
        """
        unit = unit_roundoff(self._case.dtype)
        roundings = 8.0 if unit <= FLOAT32_ROUNDOFF else 3.0
        terms, relative = self.scales.terms(output), min(1.0, FLOAT32_ROUNDOFF / unit)
        stable = roundings + math.sqrt(terms) / 4 * relative
        if not power:
            return stable
        rows = 0 if self._case.operation.is_rows(output) else self._case.shape[0]
        in_sequence = 8.0 + rows if rows else 0.0
        if self._case.kind in IN_SEQUENCE:
            in_sequence = max(in_sequence, (8.0 + (terms - rows) / 2) * relative)
        return max(stable, min(in_sequence, LARGEST_SUM_ERROR / unit))

    def allowed(self, output: str, power: int = 0) -> Float64s:
        """Return the largest error allowed for each element: an ulp plus K*u*scale.

        With a power, the scale of an algorithm whose error grows like that power of kappa. Where
        the value is not finite it is 0.
        """
        place = (output, power)
        if place not in self._allowed:
            with np.errstate(all="ignore"):
                scale = self.scale(output, power) * self.factor(output, power)
                bound = self.ulps[output] + self.unit(output) * scale
            self._allowed[place] = np.where(np.isfinite(self.wide[output]), bound, 0.0)
        return self._allowed[place]
