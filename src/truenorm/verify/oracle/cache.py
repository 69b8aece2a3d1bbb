"""What is asked for: the exact numbers of a case, whatever its name and its layout."""

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import truenorm.exact
from truenorm import user_cache
from truenorm.verify import types
from truenorm.verify.operation import Case, Guess, Operation
from truenorm.verify.types import Float64s, ulps_of

Arrays = dict[str, Float64s]


class Question(NamedTuple):
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
    def of(cls, case: Case) -> "Question":
        """Return the question that a case is."""
        once = case.shape[0] // case.repeats
        rows = {name: array[:once] for name, array in case.rows.items()}
        others = {"eps": np.asarray(case.eps), "repeats": np.asarray(case.repeats)}
        parts = {**case.inputs, **rows, **others}
        given = {name: part.astype(np.float64) for name, part in parts.items() if part is not None}
        return cls(given, types_of(case), case.operation.variant)

    @property
    def name(self) -> str:
        """A name that no other question has: it depends on all bits, shapes and types."""
        kind = f"{self.types}{self.variant}".encode()
        return sha256(kind + fingerprint(self.given)).hexdigest()[:32]


def types_of(case: Case) -> dict[str, str]:
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
Guesses = Mapping[str, Guess]


@np.errstate(all="ignore")  # a guess may overflow, and an exact number be none
def pack(question: Question, guesses: Guesses, exact: Arrays) -> bytes:
    """Return bytes from which `unpack` makes the exact numbers, to the bit.

    Those of a result have one axis more: its value, and what the rounding left over.
    """
    order = sorted(exact, key=lambda name: ([*guesses, name].index(name), name))
    known, steps, shapes = dict(question.given), [], {}
    for name in order:
        kind, numbers = question.types.get(name), exact[name]
        shapes[name] = numbers.shape[:-1] if kind else numbers.shape
        start = _start(name, shapes[name], guesses, known)
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
def unpack(question: Question, guesses: Guesses, content: bytes) -> Arrays | None:
    """Return the exact numbers, or None if these bytes do not give them."""
    try:
        heading, _, planes = zlib.decompress(content[DIGEST:]).partition(b"\n")
        shapes, steps = json.loads(heading), _Steps(_unsqueezed(planes))
    except (zlib.error, ValueError):
        return None
    known, exact = dict(question.given), {}
    for name, shape in shapes.items():
        found = steps.from_here(_start(name, shape, guesses, known))
        if name in question.types:
            split = _split(found, question.types[name])
            found = np.stack([steps.from_here(origin) for origin in split], axis=-1)
        known[name] = exact[name] = found
    return exact if fingerprint(exact) == content[:DIGEST] else None


def _start(name: str, shape: tuple[int, ...], guesses: Guesses, known: Arrays) -> Float64s:
    """Guess; 0 for what is not finite, since which NaN it is depends on the processor."""
    if name not in guesses:
        return np.zeros(shape)
    guessed = guesses[name](known)
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


QUICK, QUICK_SOURCES = "quick.zip", "quick.sources"
"""In the folder of an operation: answers, and the `sources` that they were computed with.

They are made by ``python -m benchmarks.answers``.
"""
WORTH_KEEPING = 256
"""Elements of a case: with fewer, it is computed in the time that it takes to find a file."""


def kept(case: Case, compute: Callable[[Case], Arrays]) -> Arrays:
    """Return the exact numbers of a case; they are computed if nobody kept them."""
    operation = case.operation
    made_with = sources_of(operation)
    if operation.folder is None or not made_with:
        return compute(case)
    question = Question.of(case)
    place = f"answers-{made_with}", question.name
    for content in _found(operation.folder, made_with, *place):
        exact = unpack(question, operation.guesses, content)
        if exact is not None:
            return exact
    exact = compute(case)
    if not case.drawn and question.given[operation.inputs[0].name].size >= WORTH_KEEPING:
        with suppress(OSError, RuntimeError):  # there is no place, or no home
            user_cache.write(*place, pack(question, operation.guesses, exact))
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
    return sources(*operation.also_computed_in, operation.folder)


@cache
def sources(*parts: Path) -> str:
    """Return a name for these files and folders, and for what all operations have in common."""
    paths = [Path(types.__file__), Path(truenorm.exact.__file__)]
    for part in (Path(__file__).parent, *parts):
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
            with zipfile.ZipFile(folder / QUICK) as archive:
                return {name: archive.read(name) for name in archive.namelist()}
    return {}
