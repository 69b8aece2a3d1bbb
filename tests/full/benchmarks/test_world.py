"""The list of released packages, and what is said of two runs; no package is needed."""

import re
from typing import Any

import pytest

from benchmarks.environments import BASE, Peer
from benchmarks.world.judged import differences, rows
from benchmarks.world.listed import FOLDER, read_list
from truenorm.verify.operations import parse_operation

PACKAGES = read_list()
NORMS = [norm for package in PACKAGES for norm in package.norms]


def test_every_version_is_exact() -> None:
    for package in PACKAGES:
        for requirement in (*package.requirements, *BASE):
            assert re.fullmatch(r"[A-Za-z0-9_.-]+(\[\w+\])?==[\w.+]+", requirement), package.name


def test_names_are_unique() -> None:
    names = [norm.name for norm in NORMS]
    assert len(names) == len(set(names))
    homes: dict[str, Peer] = {}
    for package in PACKAGES:
        assert homes.setdefault(package.peer.environment, package.peer) == package.peer


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)
def test_target_exists(norm: Any) -> None:
    if norm.operation:
        parse_operation(norm.operation)
    if norm.target.startswith("torch:"):
        assert norm.operation
        return
    file, _, name = norm.target.partition(":")
    text = (FOLDER / "subjects" / file).read_text(encoding="utf-8")
    assert re.search(rf"^({name}[,: =]|def {name}\()|\"{name}\"", text, re.MULTILINE), norm.target
    assert bool(norm.operation) == (f"def {name}(" in text)  # a function says neither


def row(**changes: Any) -> dict[str, Any]:
    grades = [{"dtype": "float32", "output": "y", "grade": "stable"}]
    verdicts = {"batch-invariant": "pass"}
    return {"name": "a", "outcome": "judged", "grades": grades, "verdicts": verdicts} | changes


def test_equal_rows_do_not_differ() -> None:
    assert differences([row(seconds=1.0)], [row(seconds=2.0)]) == []


def test_a_changed_grade_or_verdict_is_told() -> None:
    worse = [{"dtype": "float32", "output": "y", "grade": "wrong"}]
    changed = row(grades=worse, verdicts={"batch-invariant": "fail"})
    (text,) = differences([row()], [changed])
    assert text == "a: float32 y stable -> wrong, batch-invariant pass -> fail"
    assert differences([row()], [row(outcome="too slow")])
    assert differences([row()], [])


def test_rows_have_their_mean() -> None:
    x = rows(64, 1000.0)
    assert x.shape == (5, 64)
    assert abs(x.mean() - 1000) < 1
