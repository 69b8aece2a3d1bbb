"""Operations of formulas: names, roles and refusals."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import truenorm.verify as tv
import truenorm.verify.formulas as f
from truenorm.verify.calls import other_rows
from truenorm.verify.formulas.operation import FormulaOperation
from truenorm.verify.formulas.shipped import SHIPPED
from truenorm.verify.operation import other_cases, padded
from truenorm.verify.oracle import expected

SOFTMAX = SHIPPED["softmax"]()


def scaled(x: Any, scale: Any, row: Any, label: Any, mask: Any, eps: Any) -> Any:
    top = f.take(x, label)
    y = f.where(mask > 0.0, x * scale, row) + eps
    return y, top


SCALED = tv.formula(
    scaled,
    parameters=["scale"],
    columns=["row"],
    indices=["label"],
    constants=["mask"],
    ranges={"mask": (0.0, 1.0)},
    multiple=2,
)


def test_roles() -> None:
    roles = {each.name: each.role for each in SCALED.inputs}
    assert roles == {
        **dict.fromkeys(("x", "row", "label", "mask"), "data"),
        "scale": "parameter",
        "dy": "gradient",
        "dtop": "gradient",
    }
    assert [each.name for each in SCALED.outputs] == ["y", "top", "dx", "dscale", "drow"]
    assert SCALED.columns == {"row", "label", "top", "dtop", "drow"}
    assert SCALED.takes_eps


def test_cases_follow_roles() -> None:
    for case in tv.cases("float32", operation=SCALED):
        rows, size = case.shape
        assert size % 2 == 0
        assert case.row.shape == case.label.shape == case.dtop.shape == (rows, 1)
        assert case.scale.shape == (size,)
        assert case.label.dtype == np.int64
        assert (case.label >= 0).all()
        assert (case.label < size).all()
        assert (case.mask >= 0).all()
        assert (case.mask <= 1).all()
    case = tv.case("float32-normal-4x18", operation=SCALED)
    for other in (*other_cases(case), *other_rows(case), padded(case, [np.nan, 0.0])):
        assert other.shape[1] % 2 == 0
        assert (other.label >= 0).all()
        assert (other.label < other.shape[1]).all()
        assert other.row.shape[1] == 1


def test_a_kernel_of_all_roles() -> None:
    """It gets one number for each row as an array of one axis."""

    def forward(x: Any, scale: Any, row: Any, label: Any, mask: Any, eps: float) -> Any:
        assert row.shape == label.shape == x.shape[:-1]
        y = np.where(mask > 0, x * scale, row[:, None]) + x.dtype.type(eps)
        top = np.take_along_axis(x, label[:, None], 1)[:, 0]
        return y, top, (x, scale, label, mask)

    def backward(dy: Any, dtop: Any, saved: Any) -> Any:
        x, scale, label, mask = saved
        dx = np.where(mask > 0, dy * scale, 0)
        np.put_along_axis(
            dx, label[:, None], np.take_along_axis(dx, label[:, None], 1) + dtop[:, None], 1
        )
        terms = np.where(mask > 0, dy * x, 0)
        return dx, terms.sum(0), np.where(mask > 0, 0, dy).sum(1)

    subject = tv.Subject(forward, backward, operation=SCALED)
    for name in ("float32-normal-4x18", "float32-batch-300x68", "float32-normal-2x1024"):
        tv.check(subject, tv.case(name, operation=SCALED))


def f_steps(operation: FormulaOperation, output: str) -> list[Any]:
    from truenorm.verify.formulas.graph import needed

    return needed(operation.graph[output])


def test_the_largest_element_has_no_gradient_in_a_softmax() -> None:
    """It has one where results depend on it."""
    assert not any(each.op == "compare" for each in f_steps(SOFTMAX, "dx"))
    other = tv.formula(lambda x: x / f.largest(abs(x)), name="largest")
    assert any(each.op == "compare" for each in f_steps(other, "dx"))


@pytest.mark.parametrize(("function", "options", "message"), [
    (SOFTMAX.function, {"columns": ["z"]}, "must be told of arguments of the formula, x; got"),
    (lambda x: np.exp(x), {}, "raised TypeError.*it may use numbers"),
    (lambda x: x if x > 0 else -x, {}, "cannot branch"),
    (lambda x: [x], {}, "must return one step.*got list"),
    (lambda gamma, x: gamma * x, {}, "the first argument of <lambda>, gamma, must be rows"),
    (lambda x, gamma: (x * 1.0, gamma * 2.0)[1], {}, "it does not depend on rows"),
    (lambda x: f.where(x == 0.0, 1.0, x), {}, r"got False: write x == a as \(x >= a\)"),
    (lambda x, gamma: f.first(x, 0.25) * gamma, {}, "needs rows of one length; got, of 64"),
    (lambda x: f.first(x, 0.5), {}, "must have as many columns as x, or one; got 32 of 64"),
    (lambda *x: x, {}, "must name its arguments"),
    (lambda: 1.0, {}, "which has none"),
])  # fmt: skip
def test_a_formula_that_cannot_be_judged_is_refused(
    function: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        tv.formula(function, **options)


@pytest.mark.parametrize("least", [-1000.0, 2.0, 5.0])
def test_an_input_may_have_any_range(least: float) -> None:
    """A largest element without effect is found at numbers within the range."""
    operation = tv.formula(
        lambda x, z: f.exp(x - f.largest(x)) * z, name="scaled", ranges={"z": (least, 1000.0)}
    )
    (case,) = (
        each for each in operation.cases("float32", "quick") if "large-values-z" in each.name
    )
    z = case.inputs["z"]
    assert z is not None
    assert z.min() >= least
    assert z.max() == 1000.0


def test_every_input_is_large_in_a_case() -> None:
    """Else exp(z - max(x)) would never overflow."""
    operation = tv.formula(lambda x, z: f.exp(x - z), columns=["z"])
    distances = [
        (case.inputs["z"] - case.x.max(axis=1, keepdims=True)).max()
        for case in operation.cases("float32", "quick")
        if case.family != "subnormal"
    ]
    assert max(distances) > 1000


def test_an_operation_without_eps_has_no_cases_of_eps() -> None:
    names = [each.name for each in SOFTMAX.cases("float32", "quick")]
    assert not [name for name in names if "-eps" in name and "spread" not in name]


def test_a_formula_must_be_a_function() -> None:
    with pytest.raises(TypeError, match="a formula must be a function, got 'softmax'"):
        tv.formula("softmax")


def test_a_formula_that_overflows_is_refused() -> None:
    operation = tv.formula(lambda x: f.log(f.total(f.exp(x))), name="naive")
    case = tv.case("float32-large-values-4x67", operation=operation)
    with pytest.raises(ValueError, match="overflows in float64 for float32-large-values-4x67"):
        expected(case).allowed("y")


def test_a_nan_stays_in_its_element() -> None:
    """Tanh has no sums: other elements of the row have answers."""
    operation = tv.formula(lambda x: 30.0 * f.tanh(x / 30.0), name="softcap")
    case = tv.case("float32-special-0-6x67", operation=operation)
    assert np.array_equal(np.isnan(expected(case).wide["y"]), np.isnan(case.x))


def test_a_row_without_a_value_is_not_judged() -> None:
    """All of it is masked: 0/0. A row with a value must have it."""
    operation = SHIPPED["masked_softmax"]()
    case = tv.case("float32-normal-4x8", operation=operation)
    mask = np.ones_like(case.x)
    mask[0] = -1.0
    answers = expected(case.with_inputs(mask=mask))
    assert np.isnan(answers.wide["dx"]).all(axis=1).tolist() == [True, False, False, False]
    result = np.zeros_like(case.x)
    assert not answers.misplaced("y", result).any()


def test_norms_need_no_flint() -> None:
    """A subject runs in an environment that has its package and NumPy alone."""
    code = "import sys; sys.modules['flint'] = None; import truenorm.verify.operations"
    subprocess.run([sys.executable, "-c", code], check=True)
