"""Layer norm, RMSNorm and their variants: exact answers, scales, cases and specifications.

Exact answers are compared with ball arithmetic and rationals that share nothing with the judge.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import flint
import numpy as np
import pytest

from shared.promise.oracle import bits, correct_backward, correct_forward
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.options import NAMES
from truenorm.verify.operation import Case
from truenorm.verify.operations import (
    LAYER_NORM,
    OUTPUTS,
    RMS_NORM,
    layer_norm_case,
    norm,
    parse_operation,
)
from truenorm.verify.oracle import expected
from truenorm.verify.suite import cases
from truenorm.verify.types import FORMATS, Array, ulps_of


def assert_rounded_once(case: Case, correct: Mapping[str, Array | None]) -> None:
    """Compare every output with the correct one, and its remainder with half an ulp."""
    answers = expected(case)
    for output, right in correct.items():
        value = answers.values[output]
        if right is None or value is None:
            assert value is None
            assert right is None
        else:
            same = (bits(value) == bits(right)) | (np.isnan(value) & np.isnan(right))
            assert same.all(), (case.name, output)
            assert (np.abs(answers.remainders[output]) <= 0.5).all()


SMALL, SMALL_VARIANT = 600, 300  # elements of x: ball arithmetic is slow


# Cases are made in the tests: as parameters, each process that collects tests would make all.
def layer_norm_cases(dtype: str) -> list[Case]:
    also = ("no-gamma", "no-beta", "zero-eps", "tiny-eps", "float32-parameters")
    return [each for each in cases(dtype, "quick", also) if each.x.size < SMALL]


def correct_layer_norm(case: Case) -> dict[str, Array | None]:
    y = correct_forward(case.x, case.gamma, case.beta, case.eps)
    gradients = correct_backward(case.dy, case.x, case.gamma, case.beta, case.eps)
    return dict(zip(OUTPUTS, (y, *gradients), strict=True))


@pytest.mark.parametrize("dtype", FORMATS)
def test_layer_norm_is_rounded_correctly(dtype: str) -> None:
    for case in layer_norm_cases(dtype):
        assert_rounded_once(case, correct_layer_norm(case))


def _layer_norm_of(x: list[list[float]]) -> Case:
    rows = np.array(x, np.float32)
    size = rows.shape[1]
    ones = np.ones(size, np.float32)
    return layer_norm_case("made here", (rows, ones, 0 * ones, np.ones_like(rows)), 8.0)


def test_remainders_of_ties_are_exact() -> None:
    # xhat = 1/3, gamma = 3 and beta = 2^-24: the tie of docs/inside/error-analysis.md
    gamma, beta = np.full(2, 3, np.float32), np.full(2, 2.0**-24, np.float32)
    answers = expected(_layer_norm_of([[1, -1]]).with_inputs(gamma=gamma, beta=beta))
    assert answers.wide["y"][0, 0] == 1.0
    assert answers.remainders["y"][0, 0] == 0.5
    # 1/3 = 0x1.555554p-2 and 2/3 of an ulp below the next number
    answers = expected(_layer_norm_of([[1, -1]]))
    assert answers.wide["y"][0, 0] + answers.remainders["y"][0, 0] * 2.0**-25 == pytest.approx(
        1 / 3, 1e-15
    )


def test_an_answer_next_to_a_tie_is_not_rounded_twice() -> None:
    """Nearer to a tie than float64 resolves: rounded twice, both would be even."""
    tiny = _layer_norm_of([[1, -1]]).with_inputs(gamma=np.full(2, 2.0**-100))
    answers = expected(tiny.with_inputs(beta=np.full(2, 1 + 2.0**-24)))
    assert answers.wide["y"].tolist() == [[1 + 2.0**-23, 1.0]]
    answers = expected(tiny.with_inputs(beta=np.ones(2)))
    assert answers.remainders["y"][0, 0] > 0 > answers.remainders["y"][0, 1]


def test_repeated_rows_have_the_answers_of_one() -> None:
    base = cases("float32")[3]
    many = base.tiled(5)
    once, plain = expected(many), expected(replace(many, repeats=1))
    for output in OUTPUTS:
        assert (once.wide[output] == plain.wide[output]).all()
        assert (once.remainders[output] == plain.remainders[output]).all()
        assert once.allowed(output) == pytest.approx(plain.allowed(output), 1e-12)


def test_no_rows_have_zero_sums() -> None:
    answers = expected(_layer_norm_of([[1, 2, 3]]).part(slice(0, 0)))
    assert answers.wide["y"].shape == (0, 3)
    assert (answers.wide["dgamma"] == 0).all()
    assert (answers.allowed("dbeta") > 0).all()


def test_an_answer_is_computed_once() -> None:
    case = cases("float32")[0]
    assert expected(case) is expected(cases("float32")[0])


NAN, INF = math.nan, math.inf


def rms_norm_cases(dtype: str) -> list[Case]:
    also = ("no-gamma", "zero-eps", "tiny-eps", "float32-parameters")
    return [
        each
        for each in cases(dtype, "quick", also, operation=RMS_NORM)
        if each.x.size < SMALL_VARIANT and each.kind != "special"
    ]


def correct_rms_norm(case: Case) -> dict[str, Array | None]:
    """Return the results of a layer normalization of x and -x side by side, whose mean is 0.

    Its variance is mean(x^2); with dy and -dy for a gradient, and gamma twice, mean(g) is 0 too.
    """
    x, dy = (np.concatenate([each, -each], axis=1) for each in (case.x, case.dy))
    gamma = None if case.gamma is None else np.concatenate([case.gamma, case.gamma])
    size = case.shape[1]
    y = correct_forward(x, gamma, None, case.eps)
    dx, dgamma, _ = correct_backward(dy, x, gamma, None, case.eps)
    return {
        "y": y[:, :size],
        "dx": dx[:, :size],
        "dgamma": None if dgamma is None else dgamma[:size],
    }


@pytest.mark.parametrize("dtype", FORMATS)
def test_rms_norm_is_rounded_correctly(dtype: str) -> None:
    for case in rms_norm_cases(dtype):
        assert_rounded_once(case, correct_rms_norm(case))


def _rms_norm_of(x: Any, gamma: Any, dy: Any, eps: float = 3.0) -> Case:
    named = {"x": x, "gamma": gamma, "dy": dy}
    arrays = {name: np.array(each, np.float64) for name, each in named.items()}
    return Case(RMS_NORM, "by hand", "float64", arrays, eps)


ROW = [1.0, 1.0, 1.0]  # mean(x^2) is 1, and with eps = 3, r is 1/2


@pytest.mark.parametrize(("x", "gamma", "dy", "y", "dgamma"), [
    # An infinite x makes r = 0: finite elements give +0, whatever the sign of gamma.
    ([INF, 2.0, -1.0], [1, 1, -1], [1, 1, 1], [NAN, 0, 0], [NAN, 0.5, 0.5]),
    ([-INF, INF, 2.0], [1, 1, 1], [1, 1, 1], [NAN, NAN, 0], [NAN, NAN, 0.5]),
    # 0 times infinity is NaN, in gamma and in dy.
    ([INF, 2.0, 2.0], [1, INF, 1], [1, 1, INF], [NAN, NAN, 0], [NAN, 0.5, NAN]),
    # NaN is stronger: there is no row at all.
    ([INF, NAN, 2.0], [1, 1, 1], [1, 1, 1], [NAN] * 3, [NAN] * 3),
    # Of finite rows, infinities have the sign of x.
    ([-1.0, 0.0, 1.0], [INF, INF, 1], [1, 1, INF], [-INF, NAN, None], [None, None, INF]),
])  # fmt: skip
def test_non_finite_inputs_of_rms_norm(
    x: list[float], gamma: list[float], dy: list[float], y: list[Any], dgamma: list[Any]
) -> None:
    answers = expected(_rms_norm_of([x, ROW], gamma, [dy, [1, 1, 1]]))
    for output, right in (("y", y), ("dgamma", dgamma)):
        values = answers.wide[output][0] if output == "y" else answers.wide[output]
        for value, wanted in zip(values, right, strict=True):
            assert wanted is None or np.array_equal(value, wanted, equal_nan=True), output
    finite = np.isfinite([x, dy]).all() and np.isfinite(gamma).all()
    assert np.isnan(answers.wide["dx"][0]).all() == (not finite)
    assert np.isfinite(answers.wide["dx"][1]).all() == np.isfinite(gamma).all()
    zeros = answers.wide["y"][0][answers.wide["y"][0] == 0]
    assert not np.signbit(zeros).any()
    assert np.isfinite(answers.allowed("y")).all()


def test_a_row_of_zeros() -> None:
    answers = expected(_rms_norm_of([[0.0, 0.0], [3.0, 4.0]], [2, -5], [[1, 2], [0, 0]], eps=0.25))
    assert answers.wide["y"][0].tolist() == [0, 0]
    assert answers.wide["dx"][0].tolist() == [2 * 2, -10 * 2]
    assert answers.wide["dgamma"].tolist() == [0, 0]
    without = expected(_rms_norm_of([[0.0, 0.0], [3.0, 4.0]], [2, -5], [[1, 2], [0, 0]], eps=0.0))
    assert np.isnan(without.wide["y"][0]).all()
    assert np.isnan(without.wide["dgamma"]).all()
    assert np.isfinite(without.wide["y"][1]).all()


@pytest.mark.parametrize("x", [[[2.0]], [[3.0, -1.0, 4.0]]])
def test_dx_cancels_down_to_eps_where_x_is_along_g(x: list[list[float]]) -> None:
    eps = 2.0**-20
    answers = expected(_rms_norm_of(x, [1.0] * len(x[0]), x, eps))
    w = np.mean(np.square(x)) + eps
    assert answers.wide["dx"] == pytest.approx(np.array(x) * eps / w**1.5, rel=1e-14)


def test_rms_norm_scales_by_hand() -> None:
    # mean(x^2) = 1, eps 3: w = 4, r = 1/2, xhat = +-1/2, rho = 1/2; g = 2, -6 and G = sqrt(20)
    answers = expected(_rms_norm_of([[1.0, -1.0]], [2, 2], [[1, -3]]))
    assert answers.scale("y") == pytest.approx(np.full((1, 2), 1.0))
    assert answers.scale("dgamma") == pytest.approx(np.array([0.5, 1.5]))
    along = math.sqrt(20) / 4
    assert answers.scale("dx") == pytest.approx(np.array([[2 + along, 6 + along]]) / 2)


def test_rms_norm_scales_do_not_depend_on_kappa() -> None:
    answers = expected(_rms_norm_of([[1e6, 1e6 + 2.0]], [2, 2], [[1, -3]]))
    assert answers.scales.kappa.tolist() == [[1.0]]
    for output in ("y", "dx", "dgamma"):
        assert (answers.scale(output, 2) == answers.scale(output)).all()


GATED = 70
BITS = 4000
"""More than the exponents of two float64 numbers are apart."""

VARIANTS = [
    norm("add_rms_norm"),
    norm("add_layer_norm"),
    norm("rms_norm", gain="zero-centred", parameters="float32"),
    norm("layer_norm", gain="zero-centred", beta=False),
    norm("rms_norm", beta=True, parameters="float32", result="float32"),
    norm("add_layer_norm", gain="zero-centred", sum="unrounded"),
]


def _variant_types(operation: Norm) -> list[str]:
    return ["bfloat16"] if operation.sum == "unrounded" else ["float16", "float64"]


def variant_cases(operation: Norm, dtype: str) -> list[Case]:
    also = ("zero-eps", "tiny-eps", "no-gamma")
    return [
        each
        for each in cases(dtype, "quick", also, operation=operation)
        if each.x.size < SMALL_VARIANT and each.kind != "special" and each.repeats == 1
    ]


def _balls(array: Array) -> list[list[flint.arb]]:
    return [[flint.arb(value) for value in row] for row in array.astype(np.float64).tolist()]


def _total(terms: list[flint.arb]) -> flint.arb:
    return sum(terms, flint.arb(0))


def _answers(case: Case, operation: Norm) -> dict[str, Any]:
    """Return all results of a case as balls, from the definitions."""
    size = case.shape[1]
    x, dy = _balls(case.x), _balls(case.dy)
    rows = x
    if operation.adds:
        residual = _balls(case.residual)
        rows = [
            [a + b for a, b in zip(*both, strict=True)] for both in zip(x, residual, strict=True)
        ]
        answers: dict[str, Any] = {"sum": rows}
        if operation.sum == "rounded":
            rows = _balls(case.x + case.residual)
    else:
        answers = {}
    gamma = [flint.arb(1)] * size if case.gamma is None else _balls(case.gamma[np.newaxis])[0]
    if case.gamma is not None and operation.gain == "zero-centred":
        gamma = [1 + each for each in gamma]
    beta = case.inputs.get("beta")
    shift = [flint.arb(0)] * size if beta is None else _balls(beta[np.newaxis])[0]
    answers |= {"y": [], "dx": []}
    xhats = []
    for i, row in enumerate(rows):
        mean = _total(row) / size if operation.centred else flint.arb(0)
        c = [each - mean for each in row]
        r = 1 / (_total([each * each for each in c]) / size + flint.arb(case.eps)).sqrt()
        xhat = [each * r for each in c]
        xhats.append(xhat)
        g = [a * b for a, b in zip(gamma, dy[i], strict=True)]
        along = _total([a * b for a, b in zip(g, xhat, strict=True)]) / size
        of_mean = _total(g) / size if operation.centred else flint.arb(0)
        answers["y"].append([a * b + s for a, b, s in zip(xhat, gamma, shift, strict=True)])
        dx = [r * (a - of_mean - b * along) for a, b in zip(g, xhat, strict=True)]
        if operation.adds:
            arriving = _balls(case.dsum[i : i + 1])[0]
            dx = [a + b for a, b in zip(dx, arriving, strict=True)]
        answers["dx"].append(dx)
    answers["dresidual"] = answers["dx"]
    columns = range(size)
    answers["dgamma"] = [_total([dy[i][j] * xhats[i][j] for i in range(len(dy))]) for j in columns]
    answers["dbeta"] = [_total([row[j] for row in dy]) for j in columns]
    return answers


def _assert_variant_is_rounded_once(case: Case, operation: Norm) -> None:
    known = expected(case)
    with flint.ctx.workprec(BITS):
        answers = _answers(case, operation)
        for output, kind in known.types.items():
            exact = np.array(answers[output], object).ravel()
            ulps = ulps_of(known.wide[output], kind).ravel()
            wide, remainders = known.wide[output].ravel(), known.remainders[output].ravel()
            assert (np.abs(remainders) <= 0.5).all()
            for ball, value, rest, ulp in zip(exact, wide, remainders, ulps, strict=True):
                if np.isfinite(value):
                    off = abs((ball - flint.arb(value)) / flint.arb(ulp) - flint.arb(rest))
                    assert off < 2.0**-20, (case.name, output, ball, value)


BALLS = pytest.mark.slow(reason="ball arithmetic takes minutes for large cases")


@pytest.mark.parametrize("most", [GATED, pytest.param(SMALL_VARIANT, marks=BALLS)])
@pytest.mark.parametrize("operation", VARIANTS, ids=lambda operation: operation.spec)
def test_variants_are_rounded_correctly(operation: Norm, most: int) -> None:
    for dtype in _variant_types(operation):
        if dtype != "float64" or most > GATED:  # its balls are the widest
            for case in variant_cases(operation, dtype):
                if case.x.size <= most:
                    _assert_variant_is_rounded_once(case, operation)


@pytest.mark.parametrize("operation", VARIANTS, ids=lambda operation: operation.spec)
def test_rows_and_gains_are_those_of_the_plain_case(operation: Norm) -> None:
    plain = {each.name: each for each in cases("bfloat16", operation=_plain(operation))}
    for case in cases("bfloat16", operation=operation):
        base = plain[case.name]
        if operation.adds:
            total = np.asarray(case.x + case.residual)
            finite = np.isfinite(base.x)
            assert (total[finite] == base.x[finite]).all(), case.name
        else:
            assert case.x.tobytes() == base.x.tobytes()
        assert list(case.inputs) == [each.name for each in operation.inputs]
        if case.gamma is not None:
            assert case.gamma.dtype.name == (operation.parameter_type or "bfloat16")


def _plain(operation: Norm) -> Norm:
    return LAYER_NORM if operation.centred else RMS_NORM


def test_most_sums_are_not_exact() -> None:
    """Otherwise a rounded sum and an unrounded one would give the same y."""
    (case,) = (
        each
        for each in cases("bfloat16", operation=norm("add_rms_norm"))
        if each.name == "bfloat16-normal-2x768"
    )
    exact = case.x.astype(np.float64) + case.residual.astype(np.float64)
    assert np.mean(exact != (case.x + case.residual).astype(np.float64)) > 0.5
    assert (case.x != 0).mean() > 0.99
    assert (case.residual != 0).mean() > 0.99


def test_a_spec_parses_to_its_operation() -> None:
    for name, gain, beta, sums in product(
        NAMES, ("plain", "zero-centred"), (None, True, False), ("rounded", "unrounded")
    ):
        if sums == "unrounded" and not name.startswith("add_"):
            continue
        made = norm(name, gain=gain, beta=beta, sum=sums, parameters="float32")  # type: ignore[arg-type]
        assert parse_operation(made.spec) is parse_operation(made.spec)
        assert parse_operation(made.spec).spec == made.spec
    assert parse_operation("rms_norm") is RMS_NORM
    assert parse_operation(",gain=zero-centred", RMS_NORM).spec == "rms_norm,gain=zero-centred"


@pytest.mark.parametrize(("spec", "message"), [
    ("batch_norm", "operation must be one of layer_norm, rms_norm"),
    ("rms_norm,gian=plain", "operation must be a name such as add_rms_norm"),
    ("rms_norm,beta=no", "beta must be true or false; got .no."),
    ("rms_norm,gain=one", "gain must be one of plain, zero-centred; got .one."),
    ("rms_norm,sum=unrounded", "sum=.unrounded. needs add_rms_norm"),
    ("rms_norm,parameters=half", "parameters must be one of float16"),
])  # fmt: skip
def test_an_invalid_spec_is_an_error(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_operation(spec)


@pytest.mark.parametrize(
    ("spec", "eps"), [("rms_norm", 1e-6), ("layer_norm", 0.0), ("rms_norm,groups=4", 0.0)]
)
def test_cases_of_the_only_eps(spec: str, eps: float) -> None:
    """They are the usual ones; without eps no row is constant, and none vanishes."""
    operation = parse_operation(f"{spec},eps={eps}")
    assert parse_operation(operation.spec) is operation
    usual = {each.name: each for each in cases("float32", operation=spec)}
    own = cases("float32", operation=operation)
    assert {case.eps for case in own} == {float(np.float32(eps))}
    assert len(own) > 0.4 * len(usual)
    for case in own:
        assert np.array_equal(case.x, usual[case.name].x, equal_nan=True)
        assert usual[case.name].eps == np.float32(1e-5)
    zero = {"float32-zeros", "float32-rows-of-1e-30", "float32-constant-rows"}
    assert (not zero & {case.name for case in own}) == (eps == 0)


def test_cases_up_to_a_width() -> None:
    operation = parse_operation("rms_norm,width=67")
    assert parse_operation(operation.spec) is operation
    names = [case.name for case in cases("float32") if case.shape[1] <= 67]
    usual = [each.name for each in cases("float32", operation="rms_norm") if each.shape[1] <= 67]
    assert [each.name for each in cases("float32", operation=operation)] == usual
    assert max(case.shape[1] for case in cases("float32", operation=operation)) == 67
    assert [case.name for case in cases("float32", operation="layer_norm,width=67")] == names


def test_the_only_eps_is_refused() -> None:
    with pytest.raises(ValueError, match="quant=int8 has neither eps= nor width="):
        parse_operation("rms_norm,quant=int8,scale=per-token,eps=1e-6")
    for eps, message in (("-1", "0 or above; got -1"), ("inf", "got inf"), ("x", "got 'x'")):
        with pytest.raises(ValueError, match=message):
            parse_operation(f"rms_norm,eps={eps}")


def test_an_unrounded_sum_needs_16_bits() -> None:
    with pytest.raises(ValueError, match="needs a type of 16 bits; got float32"):
        cases("float32", operation=norm("add_rms_norm", sum="unrounded"))


def _scaled_case(x: list[list[float]], dy: list[list[float]], eps: float = 3.0) -> Case:
    rows = np.array(x)
    parameters = np.full(rows.shape[1], 2.0), np.full(rows.shape[1], 0.5)
    return layer_norm_case("by hand", (rows, *parameters, np.array(dy)), eps)


def test_layer_norm_scales_by_hand() -> None:
    # mean 5, var 1, eps 3: w = 4, r = 1/2, xhat = +-1/2, rho = 1/2, kappa = sqrt(26)/2
    case = _scaled_case([[4.0, 6.0]], [[1.0, -3.0]])
    answers = expected(case)
    assert answers.scales.kappa[0, 0] == pytest.approx(math.sqrt(26) / 2)
    assert answers.scale("y") == pytest.approx(np.full((1, 2), 2 * (0.5 + 0.5) + 0.5))
    assert answers.scale("dgamma") == pytest.approx(np.array([1.0, 3.0]))
    assert answers.scale("dbeta") == pytest.approx(np.array([1.0, 3.0]))
    # g = 2, -6: mean|g| = 4, G = sqrt(20), rho(rho + |xhat|) = 1/2
    along = math.sqrt(20) / 2
    assert answers.scale("dx") == pytest.approx(np.array([[2 + 4 + along, 6 + 4 + along]]) / 2)


def test_a_power_of_kappa_lets_errors_grow() -> None:
    case = _scaled_case([[1e6, 1e6 + 2.0]], [[1.0, -3.0]])
    answers = expected(case)
    kappa = float(answers.scales.kappa[0, 0])
    for output in ("y", "dx", "dgamma"):
        plain, once, twice = (answers.scale(output, power).max() for power in range(3))
        assert once / plain == pytest.approx(kappa, rel=3)
        assert twice / once == pytest.approx(kappa, rel=0.1)
    assert (answers.scale("dbeta", 2) == answers.scale("dbeta")).all()


def test_a_row_far_below_eps_has_a_small_bound() -> None:
    """With a scale of |xhat| + 1, zeros would pass for a row of 1e-30."""
    case = _scaled_case([[1e-30, 2e-30]], [[1.0, 1.0]])
    answers = expected(case.with_inputs(beta=np.zeros(2)))
    assert (answers.allowed("y") < 1e-3 * np.abs(answers.wide["y"])).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_an_xhat_may_be_rounded_to_the_smallest_number_of_y(dtype: str) -> None:
    """Rows of a type with smaller numbers than y has: an error of 1.5 of them is no bug."""
    operation = norm("rms_norm", parameters="float16", result="float16")
    case = cases(dtype, operation=operation)[0]
    answers = expected(case.with_inputs(x=np.zeros_like(case.x)))
    assert (answers.allowed("y") > 2 * 2.0**-24).all()
    assert (answers.allowed("y") < 10 * 2.0**-24).all()


def test_y_of_a_constant_row_is_beta() -> None:
    answers = expected(_scaled_case([[1e6, 1e6, 1e6]], [[1.0, 2.0, 3.0]]))
    assert (answers.wide["y"] == 0.5).all()
    assert (answers.allowed("y") < 1e-14).all()
    assert (answers.allowed("y", 1) > 1e-10).all()


def test_columns_may_be_summed_in_sequence_from_the_first_power_on() -> None:
    case = _scaled_case([[1.0, 2.0]] * 400, [[1.0, 1.0]] * 400)
    answers = expected(case)
    assert answers.factor("dbeta") == 8 + 20 / 4
    assert answers.factor("dbeta", 1) == 408
    assert answers.factor("y", 1) == answers.factor("y")
    half = replace(case, dtype="float16")
    assert expected(half).factor("dbeta", 1) == 2.0**11 / 8


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("operation", [LAYER_NORM, RMS_NORM], ids=lambda each: each.spec)
def test_every_allowed_error_is_finite(operation: Norm, dtype: str) -> None:
    also = [f"no-{name}" for name in operation.parameters]
    for case in cases(dtype, "quick", ["zero-eps", *also], operation=operation):
        answers = expected(case)
        for output in answers.types:
            for power in range(3):
                bound = answers.allowed(output, power)
                assert np.isfinite(bound).all()
                assert (bound >= 0).all()
