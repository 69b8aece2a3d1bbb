"""The list of released packages, and what is said of two runs; no package is needed."""

import re
import time
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
from benchmarks.common import RESULTS, fill, read_results
from benchmarks.environments import Peer
from benchmarks.world import front, page, reproduce
from benchmarks.world.judged import Without, call_in_words, case_of, differences, exact, rows
from benchmarks.world.listed import FOLDER, JUDGED, Finding, read_findings, read_list
from benchmarks.world.reproduce import SCRIPTS
from truenorm.verify.collecting import collect
from truenorm.verify.grading.not_judged import is_too_slow
from truenorm.verify.operations import as_operation
from truenorm.verify.running.runners import runner_for
from truenorm.verify.types import dtype_of

PACKAGES = read_list()
NORMS = [norm for package in PACKAGES for norm in package.norms]


def test_every_version_is_exact() -> None:
    for package in PACKAGES:
        for requirement in (*package.requirements, *JUDGED):
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
        as_operation(norm.operation)
    if norm.target.startswith("torch:"):
        assert norm.operation
        return
    file, _, name = norm.target.partition(":")
    text = (FOLDER / "subjects" / file).read_text(encoding="utf-8")
    made = rf"^((\w+, )*{name}[,: =]|def {name}\()|\"{name}\""
    assert re.search(made, text, re.MULTILINE), norm.target
    assert bool(norm.operation) == (f"def {name}(" in text)  # a function says neither


@pytest.mark.parametrize("finding", read_findings(), ids=lambda each: each.package)
def test_finding_has_norms_and_a_script_of_its_package_alone(finding: Finding) -> None:
    (package,) = (each for each in PACKAGES if each.name == finding.package)
    assert set(finding.norms) <= {norm.name for norm in package.norms}
    script = (SCRIPTS / finding.reproducer).read_text(encoding="utf-8")
    assert "truenorm" not in script
    last = script.splitlines()[-1]
    assert re.fullmatch(r'assert .+, "not reproduced"', last)
    for version in re.findall(r"==(\S+)", " ".join(package.requirements)):
        if version in script:
            return
    pytest.fail("the script names no version of its package")


@pytest.mark.parametrize(
    ("script", "shown"), [("print('y')", True), ("assert 0", False), ("import truenorm", False)]
)
def test_reproducer_that_fails_is_not_shown(
    script: str, shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "it.py").write_text(script)
    environment = tmp_path / "environment"
    venv.create(environment)
    monkeypatch.setattr(reproduce, "SCRIPTS", tmp_path)
    monkeypatch.setattr(reproduce, "python_for", lambda _: environment / "bin" / "python")
    finding = Finding("it", (), "it", "it.py", "")
    assert reproduce.run(finding, PACKAGES[0], seconds=60).shown is shown


def measured(name: str, grade: str, **changes: Any) -> dict[str, Any]:
    """Return a row as `judge_norm` writes it."""
    curve = {"64": 0.6, "1024": 2.0, "16384": 30.6}
    return {
        "name": name,
        "package": "one",
        "calls": "it",
        "operation": "rms_norm",
        "requirements": ["one==1"],
        "outcome": "judged",
        "grades": [{"dtype": "float32", "output": "y", "grade": grade}],
        "verdicts": {"batch-invariant": "warn", "special values": "fail"},
        "recipes": {},
        "too_slow": [],
        "unsupported": {"float16": "no kernel"},
        "errors": {"float32": {"length": curve}},
        "cases": 412,
    } | changes


def test_rows_are_sorted_by_grade_and_others_are_listed() -> None:
    late = {"outcome": "too slow", "reason": "not judged within 9 s"}
    slow = [{"dtype": "float32", "family": "served", "cases": 2, "calls": 0, "seconds": 9.0}]
    rows = [
        measured("worse", "unstable"),
        measured("better", "stable"),
        measured("part", "faithful", too_slow=slow),
        measured("late", "", **late),
    ]
    machine = {"date": "today", "cpu": "a", "cores": "2", "python": "3", "instructions": "avx2"}
    limits = {"row": 9.0, "time": 3.0}
    text = page.page({"machine": machine, "limits": limits, "rows": rows})
    better, worse = (text.index(f"| {name} | [") for name in ("better", "worse"))
    assert better < worse
    assert "| better | [stable]{.grade-stable} | 2.0 | 31 |" in text
    assert "| part | ≤[faithful]{.grade-faithful} | 2.0 | 31 |" in text
    assert "[warn]{.grade-conditional} | - | [fail]{.grade-fail} |" in text
    assert "| one 1 | 412 |" in text
    assert "| late | too slow | `not judged within 9 s` |" in text
    assert "| better | unsupported: float16 | `no kernel` |" in text
    assert "numpy-ml 0.1.2" in text
    assert "1 packages, each" in text


def test_causes_are_listed_once_each_with_its_results() -> None:
    def found(output: str, cause: str) -> dict[str, str]:
        return {"output": output, "dtype": "float32", "case": "hard", "cause": cause}

    told = [found("y", "no sum"), found("dx", "no sum"), found("dbeta", "")]
    text = page.causes([measured("it", "unstable", findings=told)])
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert lines == ["- no sum: y in float32 (it, `hard`), dx in float32 (it, `hard`)"]
    assert page.causes([measured("it", "unstable", findings=told[2:])]) == ""


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "softmax", "cross_entropy"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_exact_values_of_a_curve_are_those_of_float64(name: str, dtype: str) -> None:
    case = case_of(rows(16, 3.0).astype(dtype_of(dtype)), dtype, as_operation(name))
    x = case.x.astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    y = {
        "layer_norm": (x - x.mean(axis=1, keepdims=True))
        / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5),
        "rms_norm": x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5),
        "softmax": e / e.sum(axis=1, keepdims=True),
        "cross_entropy": np.log(e.sum(axis=1) / np.diag(e))[:, np.newaxis],
    }
    np.testing.assert_allclose(exact(case), y[name], rtol=1e-9)


def row(**changes: Any) -> dict[str, Any]:
    grades = [{"dtype": "float32", "output": "y", "grade": "stable"}]
    verdicts = {"batch-invariant": "pass"}
    return {"name": "a", "outcome": "judged", "grades": grades, "verdicts": verdicts} | changes


def test_a_changed_grade_or_verdict_is_told() -> None:
    worse = [{"dtype": "float32", "output": "y", "grade": "wrong"}]
    changed = row(grades=worse, verdicts={"batch-invariant": "fail"})
    (text,) = differences([row()], [changed])
    assert text == "a: float32 y stable -> wrong, batch-invariant pass -> fail"
    assert differences([row()], [row(outcome="too slow")])
    assert differences([row()], [])


def test_a_second_run_makes_the_calls_of_the_first() -> None:
    def forward(x: Any, gamma: Any, beta: Any, eps: float) -> Any:
        time.sleep(0.01)
        return x * gamma + beta + eps

    subject = tv.Subject(forward, dtypes=["float32"])
    suite = [case for case in tv.cases("float32") if case.family in ("normal", "batch", "rows")]
    first = collect(runner_for(subject), suite, seconds=0.4)
    slow = [call_in_words(each.case, each.call) for each in first if is_too_slow(each)]
    assert slow
    second = collect(Without(runner_for(subject), slow), suite)
    made = [
        {(each.case, each.call) for each in run if not each.left_out} for run in (first, second)
    ]
    assert made[0] == made[1]


def test_readme_matches_results() -> None:
    """If this fails: `python -m benchmarks.world.front`."""
    text = front.README.read_text(encoding="utf-8")
    table = front.front_table(read_results(RESULTS / "peers.json"), read_results(page.FILES[0]))
    assert fill(text, {"front": table}) == text


def test_times_of_the_readme_are_divided_by_those_of_pytorch() -> None:
    def figure(shape: list[int], direction: str, name: str) -> dict[str, Any]:
        time = 2.0 if name.startswith("truenorm fast") else 4.0
        return {"shape": shape, "direction": direction, "contestant": name, "time": time}

    figures = [
        figure(shape, direction, name)
        for shape in front.SHAPES
        for direction in ("forward", "backward")
        for name in front.FRONT.values()
        if (name, direction) != ("textbook NumPy", "backward")
    ]
    machine = {"date": "today", "cpu": "one", "cores": "2"}
    curve = {"float32": {"mean": {"0": 2.0, "10000": 3000.0}}}
    rows = [measured(name, "stable", errors=curve) for name in front.FRONT]
    table = front.front_table(
        {"figures": figures, "machine": machine, "quiet": True}, {"rows": rows, "machine": machine}
    )
    halves = " | ".join(["0.50/0.50"] * len(front.SHAPES))
    assert f"| truenorm fast | stable | 3000 | {halves} |" in table
    assert "| textbook NumPy | stable | 3000 | 1.00/none |" in table
    assert "not quiet" not in table
