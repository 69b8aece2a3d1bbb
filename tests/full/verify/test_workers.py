"""Exact answers by processes of ``--jobs``: the same report, and nothing else runs there."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import truenorm.verify as tv
from shared.verify.workers import kernels
from truenorm.verify import oracle, workers
from truenorm.verify.judge import verify_target
from truenorm.verify.report.json_report import to_json
from truenorm.verify.running.records import CannotRunError
from truenorm.verify.workers import answers_by

FILE = Path(kernels.__file__)


def text_of(report: tv.Report) -> str:
    """Return a report as JSON, without times."""
    return to_json(replace(report, seconds=0.0, machine={}))


def few(subject: tv.Subject, *_: object) -> list[tv.Case]:
    """Return some cases; a formula has no other than ordinary ones."""
    return tv.cases(subject.dtypes[0], operation=subject.operation)[:9]


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge on a few cases, each of which is a task."""
    monkeypatch.setattr("truenorm.verify.judge.scope", few)
    monkeypatch.setattr(workers, "TASK_ELEMENTS", 1)


@pytest.mark.usefixtures("_short")
def test_processes_compute_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    target = f"{FILE}:wrong"
    plain = text_of(verify_target(target))
    oracle.EXPECTED_BY_CASE.clear()
    monkeypatch.setattr(oracle, "load_or_compute", None)  # this process computes none
    assert text_of(verify_target(target, jobs=2)) == plain


@pytest.mark.usefixtures("_short")
def test_the_subject_runs_in_one_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernel is right only in the first process that loads its file."""
    monkeypatch.setenv(kernels.FIRST_COME, str(tmp_path))
    oracle.EXPECTED_BY_CASE.clear()
    assert verify_target(f"{FILE}:of_process", jobs=2).passed
    assert len(list(tmp_path.iterdir())) == 1


def test_answers_of_a_formula() -> None:
    """Processes execute the file of the formula: its spec is ``file.py:name``."""
    suite = tv.cases("float32", operation="swiglu")[:3]
    for case, exact in answers_by(2, suite):
        wanted = oracle.compute_exact(case)
        assert exact.keys() == wanted.keys()
        assert all(exact[name].tobytes() == wanted[name].tobytes() for name in wanted)


def ends(_: str, __: Sequence[str]) -> None:
    os._exit(1)


def test_a_process_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_compute", ends)
    with pytest.raises(CannotRunError, match="give fewer --jobs"):
        list(answers_by(2, tv.cases("float32")[:2]))
