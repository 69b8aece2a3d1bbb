"""Named cases: rows that broke somebody, read from the file of an operation with their sources."""

import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from truenorm.verify.cases.patterns import filled
from truenorm.verify.operation import Case, Operation
from truenorm.verify.types import FORMATS, Array

__all__ = ["Entry", "entries", "named_cases", "not_cases"]

TEXTS = {"name", "title", "failed", "shows", "sources", "dtypes", "as_in"}
SETTINGS = {"eps", "rows", "size", "repeats", "kind", "family", "layout", "also"}
"""What an entry may say: for a reader, and, beside the inputs, for building its cases. The latter
may be said again for one type, in a table that is called after it. With `as_in` they are those of
another file's entry of the same name, or its defaults, unless they are said again."""


Entry = Mapping[str, Any]
"""What the file says of a case, or of a failure that is none; its head says what each key is."""


@cache
def _file(operation: Operation) -> dict[str, Any]:
    read = _read(operation.case_file)
    settings = SETTINGS | {each.name for each in operation.inputs}
    defaults = dict(_complete(read["defaults"], settings))
    defaults.pop("as_in", None)  # it is said of each entry
    found = [defaults | dict(_complete(each, settings)) for each in read["case"]]
    for each in found:
        unknown = each.keys() - TEXTS - settings - FORMATS.keys()
        unknown |= {key for kind in FORMATS for key in each.get(kind, {}).keys() - settings}
        if unknown:
            raise ValueError(
                f"{operation.case_file}: {each['name']} has {', '.join(sorted(unknown))}"
            )
    return {**read, "case": found}


@cache
def _read(case_file: str) -> dict[str, Any]:
    file = files("truenorm.verify.operations").joinpath(case_file)
    return tomllib.loads(file.read_text("utf-8"))


def _complete(entry: Entry, settings: Collection[str]) -> Entry:
    """Return an entry with what another file says of it, but for inputs that are not there."""
    if "as_in" not in entry:
        return entry
    there = _read(entry["as_in"])
    others = [there["defaults"], *there["case"]]  # defaults have no name
    (other,) = (each for each in others if each.get("name") == entry.get("name"))
    absent = there["defaults"].keys() - TEXTS - settings

    def kept(said: Entry) -> dict[str, Any]:
        return {key: value for key, value in said.items() if key not in absent}

    said = {key: kept(value) if key in FORMATS else value for key, value in kept(other).items()}
    return said | dict(entry)


def entries(operation: Operation) -> list[Entry]:
    """Return what there is to read about each named case, in the order of the file."""
    return list(_file(operation)["case"])


def not_cases(operation: Operation) -> list[Entry]:
    """Return the failures that no two passes on a small machine can show, each with the reason."""
    return list(_file(operation)["not_a_case"])


def named_cases(operation: Operation, dtype: str) -> list[Case]:
    """Return the named cases of a type, in the order of the file."""
    return [
        _case(operation, dtype, each | each.get(dtype, {}))
        for each in _file(operation)["case"]
        if dtype in each["dtypes"]
    ]


def _case(operation: Operation, dtype: str, said: Mapping[str, Any]) -> Case:
    name = f"{dtype}-{said['name']}"
    shape = (said["rows"], said["size"])
    of_parameters = "float32" if "float32-parameters" in said["also"] else dtype
    inputs: dict[str, Array | None] = {}
    for each in operation.inputs:
        pattern, seed = said[each.name], f"{name} {each.name}"
        if each.role != "parameter":
            inputs[each.name] = filled(pattern, dtype, shape, seed, x=inputs.get("x"))
        elif pattern == "none":
            inputs[each.name] = None
        else:
            inputs[each.name] = filled(pattern, of_parameters, shape[1:], seed)
    case = Case(
        operation,
        name,
        dtype,
        inputs,
        float.fromhex(said["eps"]),
        kind=said["kind"],
        family=said.get("family", said["name"]),
        why=said["shows"],
        sources=tuple(said["sources"]),
        layout=said["layout"],
        needs=frozenset(said["also"]),
    )
    return case.tiled(said["repeats"])
