"""An operation that no file of the judge knows goes through all of it by its description alone."""

from pathlib import Path

import numpy as np
import pytest

import truenorm.verify as tv
from shared.programs import python
from shared.verify import toy
from shared.verify.recorded import leave_out_long_calls
from truenorm.verify.judge import verify_target
from truenorm.verify.oracle import expected
from truenorm.verify.report.vectors import write_vectors
from truenorm.verify.running.records import CannotRunError
from truenorm.verify.types import Array


@pytest.fixture(scope="module")
def report() -> tv.Report:
    with pytest.MonkeyPatch.context() as patch:
        leave_out_long_calls(patch)
        return tv.verify(toy.no_mean_of_dy)


@pytest.mark.slow(reason="a verdict takes half a minute")
def test_nothing_is_found_in_what_is_right() -> None:
    report = tv.verify(toy.right)
    assert report.passed
    assert [each.output for each in report.grades] == ["y", "dx"]
    assert report.verdicts["own state"] == report.verdicts["large calls"] == "pass"


@pytest.mark.usefixtures("without_long_calls")
def test_a_rounded_mean_is_found_by_its_growth() -> None:
    grade, _ = tv.verify(toy.in_float32, strict=True).grades
    assert (grade.output, grade.grade) == ("y", "conditional")
    assert grade.slope is not None
    assert 0.7 < grade.slope < 1.3


def test_a_wrong_gradient_is_found(report: tv.Report) -> None:
    assert {each.output: each.grade for each in report.grades}["dx"] == "wrong"
    assert {(each.guard, each.output) for each in report.findings} == {("ordinary", "dx")}


def test_a_damaged_input_is_named() -> None:
    def forward(x: Array) -> tuple[Array, None]:
        y = toy.centred(x)
        x[:] = 0
        return y, None

    subject = toy.subject_of(forward, toy.right.backward, "damages x")
    with pytest.raises(AssertionError, match="x changed during the call"):
        tv.check(subject, tv.cases("float32", operation=toy.CENTRING)[0])


def test_the_reproducer_reproduces(report: tv.Report, tmp_path: Path) -> None:
    """It finds the case by the operation of the subject, which the file has."""
    script = tmp_path / "again.py"
    script.write_text(report.findings[0].reproducer, encoding="utf-8")
    assert f"tv.load('{Path(toy.__file__)}:no_mean_of_dy')" in script.read_text()
    done = python(script)
    assert done.returncode == 1
    assert "AssertionError: got " in done.stderr


def test_its_cases_are_written_as_files(tmp_path: Path) -> None:
    (case, *_) = tv.cases("float32", operation=toy.CENTRING)
    write_vectors(tmp_path, [case])
    given = np.fromfile(tmp_path / f"{case.name}.in", "<f4")
    assert given.tolist() == [*case.x.ravel(), *case.dy.ravel()]
    answers = np.fromfile(tmp_path / f"{case.name}.expected", "<f4").reshape(2, *case.shape)
    for output, written in zip(("y", "dx"), answers, strict=True):
        np.testing.assert_array_equal(written, expected(case).values[output])
    with np.load(tmp_path / f"{case.name}.npz") as archive:
        assert set(archive) == {*("x", "dy", "eps", "y", "dx", "bound_y", "bound_dx", "dtype")}
    said = (tmp_path / "README.txt").read_text()
    assert said.startswith("Inputs of centring, correctly rounded results")
    assert "<name>.expected  y (rows*D), dx (rows*D), in the dtype" in said


def test_in_another_process_only_known_operations_are_judged() -> None:
    with pytest.raises(CannotRunError, match="'centring' must be a name that another process"):
        verify_target(f"{toy.__file__}:right")
