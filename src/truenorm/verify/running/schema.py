"""The schema of a recorded run: its manifest, and each line of its log, are checked before use."""

import math
import reprlib
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.running.records import CannotRunError
from truenorm.verify.types import CODE_TYPES, NUMERIC_TYPES, numeric_dtype

MOST_AXES = 64  # the limit of NumPy
MOST_ELEMENTS = 2**48
MOST_SEED = 2**63
PAIRS = "float4_e2m1fn_x2"
"""The type of PyTorch that has two codes in a byte."""
FORMS = ("functional", "out", "inplace", "module")


class DamagedResultsError(CannotRunError):
    """The files of a recording or of its results are not as they were written."""


class Rule(NamedTuple):
    """What a value has to be, in words and as a test."""

    expected: str
    holds: Callable[[Any], bool]


def is_count(value: Any, most: float = math.inf, least: int = 0) -> bool:
    """Return True for an integer in a range."""
    return type(value) is int and least <= value <= most


def is_time(value: Any, least: float) -> bool:
    """Return True for a finite number of seconds."""
    return type(value) in (int, float) and least <= value <= 1e9


def is_text(value: Any) -> bool:
    """Return True for text."""
    return isinstance(value, str)


def are_texts(value: Any) -> bool:
    """Return True for a list of texts that is not empty."""
    return isinstance(value, list) and bool(value) and all(map(is_text, value))


TEXT = Rule("text", is_text)
FLAG = Rule("true or false", lambda value: isinstance(value, bool))
SCOPE = {
    "operation": TEXT,
    "dtypes": Rule("a list of types", are_texts),
    "level": Rule("quick or full", lambda value: value in ("quick", "full")),
    "also": Rule("a list of names", lambda value: value == [] or are_texts(value)),
    "seed": Rule("a number", lambda value: is_count(value, MOST_SEED)),
}
HEADER = {
    "question": TEXT,
    "target": Rule("printable text", lambda value: is_text(value) and value.isprintable()),
    "form": Rule(f"one of {', '.join(FORMS)}", lambda value: is_text(value) and value in FORMS),
    "backward": FLAG,
    "seconds": Rule("seconds above zero", lambda value: is_time(value, 1e-9)),
    "torch": TEXT,
    "python": TEXT,
    "gpu": Rule("text, or missing", lambda value: value is None or is_text(value)),
}
END = {"end": Rule("two hashes", lambda value: are_texts(value) and len(value) == 2)}
DEATH = {
    "exit_code": Rule("an exit code", lambda value: is_count(value, 2**32, -(2**31))),
    "hung": FLAG,
    "deaths": Rule("1", lambda value: is_count(value, 1, 1)),
}


def check_fields(value: Any, rules: Mapping[str, Rule], where: object) -> None:
    """Raise DamagedResultsError unless the fields of an object are as the rules say."""
    if not isinstance(value, dict):
        raise DamagedResultsError(f"{where} must be an object of JSON, got {shown(value)}")
    for name, (expected, holds) in rules.items():
        field = value.get(name)
        if not holds(field):
            got = shown(field) if name in value else "nothing"
            raise DamagedResultsError(f"{where}: {name} must be {expected}, got {got}")


def shown(value: Any) -> str:
    """Return the beginning of a value as text, however deep and long it is."""
    return reprlib.repr(value)


class LogSchema:
    """The rules for the lines of a log, given the manifest and the size of the file of arrays."""

    def __init__(self, manifest: Mapping[str, Any], size: int) -> None:
        self._size, self._seen = size, set[int]()
        calls = manifest["calls"]
        results = [*manifest["outputs"], *manifest["gradients"]]
        inputs = {name for call in calls for name in call["tensors"]}
        self._results = {*results, *(f"later {name}" for name in results)}
        self._arrays = self._results | {f"given {name}" for name in inputs}
        number = f"a number below {len(calls)}"
        self._begin = {"begin": Rule(number, lambda value: is_count(value, len(calls) - 1))}
        self._step = {"step": Rule(f"{number}, once", self._begin["begin"].holds)}
        by_name = "an object of names of results and"
        self._result = {
            "failure": TEXT,
            "left_out": TEXT,
            "seconds": Rule("seconds", lambda value: is_time(value, 0.0)),
            "holds": Rule(f"{by_name} the number of a call", self._by_result(_is_number_in_list)),
            "types": Rule(f"{by_name} text", self._by_result(is_text)),
            "shared": Rule(f"{by_name} text", self._by_result(is_text)),
            "arrays": Rule(
                "an object of names and [type, shape, width, place, size] inside the file",
                self._are_arrays,
            ),
        }

    def check(self, entry: Any, where: object, *, first: bool) -> None:
        """Raise DamagedResultsError unless a line is as the runner writes it."""
        if first:
            check_fields(entry, HEADER, where)
        elif isinstance(entry, dict) and "begin" in entry:
            check_fields(entry, self._begin, where)
        else:
            check_fields(entry, self._step, where)
            check_fields(entry, DEATH if "deaths" in entry else self._result, where)
            if entry["step"] in self._seen:
                raise DamagedResultsError(f"{where}: step {entry['step']} must be there once")
            self._seen.add(entry["step"])

    def _by_result(self, holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
        return lambda value: (
            isinstance(value, dict)
            and value.keys() <= self._results
            and all(map(holds, value.values()))
        )

    def _are_arrays(self, value: Any) -> bool:
        return (
            isinstance(value, dict)
            and value.keys() <= self._arrays
            and all(each is None or self._is_array(each) for each in value.values())
        )

    def _is_array(self, entry: Any) -> bool:
        if not isinstance(entry, list) or len(entry) != 5:
            return False
        kind, shape, width, at, size = entry
        return (
            is_text(kind)
            and isinstance(shape, list)
            and len(shape) <= MOST_AXES
            and all(map(is_count, shape))
            and prod(each or 1 for each in shape) <= MOST_ELEMENTS
            and is_count(width, self._size, 1)
            and is_count(at, self._size)
            and is_count(size, self._size - at)
            and (is_unknown(kind) or prod(shape) * dtype_of_result(kind).itemsize % width == 0)
        )


def _is_number_in_list(value: Any) -> bool:
    return are_texts(value) and len(value) == 1 and len(value[0]) < 10 and value[0].isdecimal()


def is_unknown(kind: str) -> bool:
    """Return True for a type of PyTorch that no result has that is judged."""
    return kind not in (*NUMERIC_TYPES, *CODE_TYPES, PAIRS)


def dtype_of_result(kind: str) -> np.dtype[Any]:
    """Return the NumPy type of a type of PyTorch; pairs of codes are bytes."""
    return np.dtype(np.uint8) if kind == PAIRS else numeric_dtype(kind)
