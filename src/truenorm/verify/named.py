"""The named cases: rows that broke somebody, read from `cases.toml` with their sources."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from truenorm.verify.inputs import Case
from truenorm.verify.recipes import build
from truenorm.verify.types import FORMATS, Array

__all__ = ["Entry", "NotACase", "entries", "named_cases", "not_cases"]

TEXTS = {"name", "title", "failed", "shows", "sources", "dtypes"}
SETTINGS = {
    *("x", "gamma", "beta", "dy", "eps", "rows", "size", "repeats"),
    *("kind", "family", "layout", "also"),
}
"""What an entry may say: for a reader, and for building its cases. The latter may be said again
for one type, in a table that is called after it."""


@dataclass(frozen=True)
class Entry:
    """A named case, as a reader wants to know it.

    Attributes
    ----------
    slug : str
        Its name without the type.
    title : str
    failed : str
        What was seen, where; empty if nobody reported such a failure.
    shows : str
        What the case tests.
    sources : tuple of str
        Where it was reported, such as ``pytorch#51102``.
    dtypes : tuple of str
        The types in which there is such a case.
    also : tuple of str
        The extensions that it needs.
    """

    slug: str
    title: str
    failed: str
    shows: str
    sources: tuple[str, ...]
    dtypes: tuple[str, ...]
    also: tuple[str, ...]


@dataclass(frozen=True)
class NotACase:
    """A failure that no forward and backward pass on a small machine can show, and why."""

    title: str
    sources: tuple[str, ...]
    reason: str


@cache
def _file() -> dict[str, Any]:
    read = tomllib.loads(files("truenorm.verify").joinpath("cases.toml").read_text("utf-8"))
    read["case"] = [read["defaults"] | each for each in read["case"]]
    for each in read["case"]:
        unknown = each.keys() - TEXTS - SETTINGS - FORMATS.keys()
        unknown |= {key for kind in FORMATS for key in each.get(kind, {}).keys() - SETTINGS}
        if unknown:
            raise ValueError(f"cases.toml: {each['name']} has {', '.join(sorted(unknown))}")
    return read


def entries() -> list[Entry]:
    """Return what there is to read about each named case, in the order of the file.

    Examples
    --------
    >>> entries()[0].sources
    ('pytorch#51102',)
    """
    return [
        Entry(
            each["name"],
            each["title"],
            each["failed"],
            each["shows"],
            tuple(each["sources"]),
            tuple(each["dtypes"]),
            tuple(each["also"]),
        )
        for each in _file()["case"]
    ]


def not_cases() -> list[NotACase]:
    """Return the failures that are known and are not judged, each with the reason."""
    return [
        NotACase(each["title"], tuple(each["sources"]), each["reason"])
        for each in _file()["not_a_case"]
    ]


def named_cases(dtype: str) -> list[Case]:
    """Return the named cases of a type, in the order of the file.

    Examples
    --------
    >>> print(named_cases("float32")[0])
    float32-mean-2000
    """
    return [
        _case(dtype, each | each.get(dtype, {}))
        for each in _file()["case"]
        if dtype in each["dtypes"]
    ]


def _case(dtype: str, said: Mapping[str, Any]) -> Case:
    name = f"{dtype}-{said['name']}"
    shape = (said["rows"], said["size"])
    parameters = "float32" if "float32-parameters" in said["also"] else dtype

    def parameter(which: str) -> Array | None:
        recipe = said[which]
        if recipe == "none":
            return None
        return build(recipe, parameters, shape[1:], f"{name} {which}")

    x = build(said["x"], dtype, shape, f"{name} x")
    dy = build(said["dy"], dtype, shape, f"{name} dy", x=x)
    return Case(
        name,
        dtype,
        np.tile(x, (said["repeats"], 1)),
        parameter("gamma"),
        parameter("beta"),
        np.tile(dy, (said["repeats"], 1)),
        float.fromhex(said["eps"]),
        kind=said["kind"],
        family=said.get("family", said["name"]),
        why=said["shows"],
        sources=tuple(said["sources"]),
        repeats=said["repeats"],
        layout=said["layout"],
        needs=frozenset(said["also"]),
    )
