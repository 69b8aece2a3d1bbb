"""Formulas in files: targets, and functions that are judged by them."""

import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import truenorm.verify as tv
from truenorm.cli.app import app
from truenorm.verify.operations import as_operation

FORMULAS = """
import truenorm.verify as tv
from truenorm.verify.formulas import exp, largest, log, take, total

def softmax(x):
    e = exp(x - largest(x))
    return e / total(e)

def cross_entropy(x, label):
    top = largest(x)
    return log(total(exp(x - top))) + top - take(x, label)

loss = tv.formula(cross_entropy, indices=["label"])
double = lambda x: 2.0 * x
"""
KERNELS = """
import numpy as np
import truenorm.verify as tv
from formulas import loss

def softmax(x, axis=None):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)

def cross_entropy(x, label):
    top = x.max(axis=-1)
    at_label = np.take_along_axis(x, label[:, None], 1)[:, 0]
    return np.log(np.exp(x - top[:, None]).sum(axis=-1)) + top - at_label

def two(x):
    return x, x

subject = tv.Subject(cross_entropy, operation=loss)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with formulas and kernels, which is the current one."""
    (tmp_path / "formulas.py").write_text(FORMULAS)
    (tmp_path / "kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "formulas", raising=False)
    return tmp_path


def test_a_file_has_formulas_and_operations(folder: Path) -> None:
    softmax = as_operation(f"{folder}/formulas.py:softmax")
    assert softmax.spec == f"{folder}/formulas.py:softmax"
    assert as_operation(softmax.spec) is softmax
    double = as_operation(f"{folder}/formulas.py:double")
    assert as_operation(double.spec) is double
    by_function = as_operation(f"{folder}/formulas.py:cross_entropy")
    assert by_function.indices == {"label"}
    with pytest.raises(ValueError, match=r"formulas\.py has no formula 'relu'"):
        as_operation(f"{folder}/formulas.py:relu")
    (folder / "broken.py").write_text("1 / 0")
    with pytest.raises(ValueError, match=r"(?s)cannot execute.*ZeroDivisionError"):
        as_operation(f"{folder}/broken.py:relu")


@pytest.mark.parametrize("name", ["softmax", "cross_entropy"])
def test_a_function_is_judged_by_a_formula(folder: Path, name: str) -> None:
    subject = tv.load(f"{folder}/kernels.py:{name}", operation=f"{folder}/formulas.py:{name}")
    assert subject.name == f"{name} on NumPy arrays"
    for case in ("float32-normal-4x17", "float32-batch-300x67"):
        tv.check(subject, tv.case(case, operation=subject.operation))


def test_a_function_of_other_results_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="two is called with x; with NumPy arrays: TypeError: it"):
        tv.load(f"{folder}/kernels.py:two", operation=f"{folder}/formulas.py:softmax")


def test_another_process_finds_the_formula(folder: Path) -> None:
    subject = tv.load(f"{folder}/kernels.py:subject")
    other = tv.Subject.from_description(subject.to_description())
    assert other.operation.spec == f"{folder}/formulas.py:cross_entropy"
    assert [each.name for each in other.operation.inputs] == ["x", "label", "dy"]
    case = tv.case("float32-normal-4x17", operation=other.operation)
    assert np.array_equal(case.x, tv.case(case.name, operation=subject.operation).x)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("arguments", "message"), [
    (["--formula", "formulas.py:relu"], "formulas.py has no formula 'relu'"),
    (["--formula", "softmax"], "--formula must be FILE.py:NAME, got 'softmax'"),
    (["--formula", "formulas.py:softmax", "--operation", "rms_norm"],
        "give --formula or --operation, not both"),
    (["--formula", "nowhere.py:softmax"], "there is no file"),
])  # fmt: skip
def test_wrong_arguments_are_refused(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["verify", "kernels.py:softmax", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.usefixtures("folder")
def test_the_command_judges_a_function() -> None:
    """Exit code 0, and the operation is named."""
    arguments = ["verify", "kernels.py:softmax", "--formula", "formulas.py:softmax"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "softmax on NumPy arrays: softmax, quick level" in result.output
    assert "PASS: no finding" in result.output
