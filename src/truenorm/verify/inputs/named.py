"""Named cases: rows on which kernels failed, read from the case file of an operation."""

import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from truenorm.verify.inputs.patterns import filled
from truenorm.verify.operation import Case, Operation
from truenorm.verify.types import FORMATS, Array

TEXTS = {"name", "title", "failed", "shows", "sources", "dtypes", "as_in"}
SETTINGS = {"eps", "rows", "size", "repeats", "kind", "family", "layout", "also"}
"""The keys of an entry: texts for readers and, beside the inputs, settings of its cases. A table
with the name of a type overrides settings for that type. With `as_in`, an entry inherits from the
entry of the same name in another file, or from its defaults."""


Entry = Mapping[str, Any]
"""An entry of the file: a case, or a failure without one; the file describes its keys."""


@cache
def _file(operation: Operation) -> dict[str, Any]:
    content = _read(operation.case_file)
    settings = SETTINGS | {each.name for each in operation.inputs}
    defaults = dict(_complete(content["defaults"], settings))
    defaults.pop("as_in", None)  # each entry has its own
    cases = [defaults | dict(_complete(each, settings)) for each in content["case"]]
    for each in cases:
        unknown = each.keys() - TEXTS - settings - FORMATS.keys()
        unknown |= {key for kind in FORMATS for key in each.get(kind, {}).keys() - settings}
        if unknown:
            raise ValueError(
                f"{operation.case_file}: {each['name']} has unknown {', '.join(sorted(unknown))}"
            )
    return {**content, "case": cases}


@cache
def _read(case_file: str) -> dict[str, Any]:
    file = files("truenorm.verify.norms").joinpath(case_file)
    return tomllib.loads(file.read_text("utf-8"))


def _complete(entry: Entry, settings: Collection[str]) -> Entry:
    """Return an entry with inherited settings, without inputs that the operation lacks."""
    if "as_in" not in entry:
        return entry
    parent_file = _read(entry["as_in"])
    parents = [parent_file["defaults"], *parent_file["case"]]  # defaults have no name
    (parent,) = (each for each in parents if each.get("name") == entry.get("name"))
    absent = parent_file["defaults"].keys() - TEXTS - settings

    def present(table: Entry) -> dict[str, Any]:
        return {key: value for key, value in table.items() if key not in absent}

    inherited = {
        key: present(value) if key in FORMATS else value for key, value in present(parent).items()
    }
    return inherited | dict(entry)


def entries(operation: Operation) -> list[Entry]:
    """Return the entries of the named cases, in the order of the file."""
    return list(_file(operation)["case"])


def not_cases(operation: Operation) -> list[Entry]:
    """Return the entries of failures that no case can show, each with the reason."""
    return list(_file(operation)["not_a_case"])


def named_cases(operation: Operation, dtype: str) -> list[Case]:
    """Return the named cases of a type, in the order of the file."""
    return [
        _case(operation, dtype, each | each.get(dtype, {}))
        for each in _file(operation)["case"]
        if dtype in each["dtypes"]
    ]


def _case(operation: Operation, dtype: str, entry: Entry) -> Case:
    name = f"{dtype}-{entry['name']}"
    shape = (entry["rows"], entry["size"])
    parameter_type = "float32" if "float32-parameters" in entry["also"] else dtype
    inputs: dict[str, Array | None] = {}
    for each in operation.inputs:
        pattern, seed = entry[each.name], f"{name} {each.name}"
        if each.role != "parameter":
            inputs[each.name] = filled(pattern, dtype, shape, seed, x=inputs.get("x"))
        elif pattern == "none":
            inputs[each.name] = None
        else:
            inputs[each.name] = filled(pattern, parameter_type, shape[1:], seed)
    case = Case(
        operation,
        name,
        dtype,
        inputs,
        float.fromhex(entry["eps"]),
        kind=entry["kind"],
        family=entry.get("family", entry["name"]),
        why=entry["shows"],
        sources=tuple(entry["sources"]),
        layout=entry["layout"],
        needs=frozenset(entry["also"]),
    )
    return case.tiled(entry["repeats"])
