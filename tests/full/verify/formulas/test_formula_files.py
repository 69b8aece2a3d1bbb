"""Formulas in files: targets, and functions that are judged by them with each command."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import truenorm.verify as tv
from shared.verify.formulas import report_of
from shared.verify.formulas import softmax as both
from truenorm.cli.app import app
from truenorm.verify.grading.report import Report
from truenorm.verify.operations import as_operation

pytest_plugins = ["pytester"]

FORMULAS = """
import truenorm.verify as tv
from truenorm.verify.formulas import exp, largest, log, take, total

def softmax(x):
    top = largest(x)
    e = exp(x - top)
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

def naive(x):
    e = np.exp(x)
    return e / e.sum(axis=-1, keepdims=True)

def two(x):
    return x, x

subject = tv.Subject(cross_entropy, operation=loss)
"""


FORMULA = "formulas.py:softmax"
ROWS = np.random.default_rng(0).normal(size=(2, 3, 64)).astype(np.float32)


@pytest.fixture(autouse=True)
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


@pytest.mark.parametrize(("arguments", "message"), [
    (["--formula", "formulas.py:relu"], "formulas.py has no formula 'relu'"),
    (["--formula", "softmax"], "--formula must be FILE.py:NAME, got 'softmax'"),
    (["--formula", "formulas.py:softmax", "--operation", "rms_norm"],
        "give --formula or --operation, not both"),
    (["--formula", "nowhere.py:softmax"], "there is no file"),
])  # fmt: skip
def test_wrong_arguments_are_refused(arguments: list[str], message: str) -> None:
    code, output = run("verify", "kernels.py:softmax", *arguments)
    assert code == 2
    assert message in output


def test_the_command_judges_a_function() -> None:
    """Exit code 0, and the operation is named."""
    code, output = run("verify", "kernels.py:softmax", "--formula", FORMULA)
    assert code == 0, output
    assert "softmax on NumPy arrays: softmax, quick level" in output
    assert "PASS: no finding" in output


def run(*arguments: str) -> tuple[int, str]:
    """Return the exit code of a command and its output on one line."""
    result = CliRunner().invoke(app, [*arguments])
    return result.exit_code, " ".join(result.output.split())


def naive(x: Any) -> Any:
    e = np.exp(x)
    return e / e.sum(axis=-1, keepdims=True)


def softmax(x: Any) -> Any:
    return both(x)[0]


def judged(forward: Callable[..., Any]) -> Report:
    subject = tv.Subject(forward, name="a kernel", operation=FORMULA)
    places = ("normal-4x67", "large-values-4x67")
    suite = [tv.case(f"float32-{place}", operation=subject.operation) for place in places]
    return report_of(subject, suite)


def test_compare_finds_where_two_kernels_differ() -> None:
    one, other = (tv.Subject(each, operation=FORMULA) for each in (softmax, naive))
    cases = [tv.case("float32-large-values-4x67", operation=one.operation)]
    assert tv.compare(one, one, cases=cases).passed
    difference = tv.compare(one, other, cases=cases).differences[0]
    assert difference.first_nearer > difference.second_nearer


def test_a_baseline_is_the_same_in_another_folder(tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    assert not judged(naive).passed
    assert tv.update_baseline(judged(naive), file).passed
    assert '"operation": "formulas.py:softmax"' in file.read_text()


def test_verdicts_in_a_test(pytester: pytest.Pytester) -> None:
    (pytester.path / "formulas.py").write_text(FORMULAS)
    (pytester.path / "kernels.py").write_text(KERNELS)
    pytester.makepyfile(
        test_it="""
        import pytest
        import truenorm.verify as tv
        from kernels import naive
        subject = tv.Subject(naive, operation="formulas.py:softmax")
        @pytest.mark.parametrize("verdict", tv.verdicts(subject))
        def test_kernel(verdict):
            verdict.assert_passed()
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-k", "accuracy-y")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*likely cause  top is not subtracted: exp overflows*"])


def test_bound_takes_arrays() -> None:
    dy = ROWS[::-1].copy()
    bound = tv.bound(FORMULA, ROWS, dy=dy)
    y, _ = both(ROWS)
    dx = y * (dy - (dy * y).sum(axis=-1, keepdims=True))
    bound.assert_close(y=y, dx=dx)
    wide = ROWS.astype(np.longdouble)
    e = np.exp(wide - wide.max(axis=-1, keepdims=True))
    assert np.array_equal(bound.exact(), (e / e.sum(axis=-1, keepdims=True)).astype(np.float32))
    with pytest.raises(AssertionError, match="likely cause: e has the base 2"):
        bound.assert_close(np.exp2(ROWS) / np.exp2(ROWS).sum(-1, keepdims=True))


def test_bound_takes_indices_and_gives_one_number_for_each_row() -> None:
    label = np.arange(6).reshape(2, 3)
    bound = tv.bound("cross_entropy", ROWS, label=label, dy=np.ones((2, 3), np.float32))
    wide = ROWS.astype(np.longdouble)
    loss = np.log(np.exp(wide).sum(-1)) - np.take_along_axis(wide, label[..., None], -1)[..., 0]
    assert np.array_equal(bound.exact(), loss.astype(np.float32))
    assert bound.tolerance("dx").shape == ROWS.shape
    wrong = loss.astype(np.float32)
    wrong[1, 2] += 1
    with pytest.raises(AssertionError, match=r"1 of 6 elements is off\n  worst: y\[1, 2\] is"):
        bound.assert_close(wrong)


@pytest.mark.parametrize(("inputs", "message"), [
    ({}, "cross_entropy needs label"),
    ({"label": np.full((2, 3), 64)}, "integers from 0 to 63 and the shape (2, 3)"),
    ({"label": np.zeros((2, 3))}, "integers from 0 to 63 and the shape (2, 3); got float64"),
    ({"label": np.zeros(6, int)}, "and the shape (2, 3); got int64 (6,)"),
    ({"label": np.zeros((2, 3), int), "dy": ROWS}, "shape of x, float32 (2, 3); got float32"),
    ({"label": np.zeros((2, 3), int), "z": ROWS}, "cross_entropy takes no z"),
])  # fmt: skip
def test_bound_refuses_other_inputs(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        tv.bound("cross_entropy", ROWS, **inputs)
