"""Relatives of layer and RMS normalization: their cases, and their answers by ball arithmetic."""

from itertools import product
from typing import Any

import flint
import numpy as np
import pytest

from truenorm.verify.operation import Case
from truenorm.verify.operations import LAYER_NORM, RMS_NORM, norm, parse_operation
from truenorm.verify.operations.norms import NAMES, Norm
from truenorm.verify.oracle import expected
from truenorm.verify.suite import cases
from truenorm.verify.types import Array, ulps_of

SMALL = 300  # elements of x: beyond, ball arithmetic takes its time
GATED = 70
BITS = 4000
"""More than the exponents of two float64 numbers are apart."""

RELATIVES = [
    norm("add_rms_norm"),
    norm("add_layer_norm"),
    norm("rms_norm", gain="zero-centred", parameters="float32"),
    norm("layer_norm", gain="zero-centred", beta=False),
    norm("rms_norm", beta=True, parameters="float32", result="float32"),
    norm("add_layer_norm", gain="zero-centred", sum="unrounded"),
]


def _types(operation: Norm) -> list[str]:
    return ["bfloat16"] if operation.sum == "unrounded" else ["float16", "float64"]


def _small_cases() -> list[Case]:
    also = ("zero-eps", "tiny-eps", "no-gamma")
    return [
        each
        for operation in RELATIVES
        for dtype in _types(operation)
        for each in cases(dtype, "quick", also, operation=operation)
        if each.x.size < SMALL and each.kind != "special" and each.repeats == 1
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
        found: dict[str, Any] = {"sum": rows}
        if operation.sum == "rounded":
            rows = _balls(case.x + case.residual)
    else:
        found = {}
    gamma = [flint.arb(1)] * size if case.gamma is None else _balls(case.gamma[np.newaxis])[0]
    if case.gamma is not None and operation.gain == "zero-centred":
        gamma = [1 + each for each in gamma]
    beta = case.inputs.get("beta")
    shift = [flint.arb(0)] * size if beta is None else _balls(beta[np.newaxis])[0]
    found |= {"y": [], "dx": []}
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
        found["y"].append([a * b + s for a, b, s in zip(xhat, gamma, shift, strict=True)])
        dx = [r * (a - of_mean - b * along) for a, b in zip(g, xhat, strict=True)]
        if operation.adds:
            arriving = _balls(case.dsum[i : i + 1])[0]
            dx = [a + b for a, b in zip(dx, arriving, strict=True)]
        found["dx"].append(dx)
    found["dresidual"] = found["dx"]
    columns = range(size)
    found["dgamma"] = [_total([dy[i][j] * xhats[i][j] for i in range(len(dy))]) for j in columns]
    found["dbeta"] = [_total([row[j] for row in dy]) for j in columns]
    return found


def _gated(case: Case) -> Any:
    """Leave float64, whose balls are the widest, and all but the smallest rows to `slow`."""
    slow = case.dtype == "float64" or case.x.size > GATED
    name = f"{case.operation.spec}-{case}"
    return pytest.param(case, marks=pytest.mark.slow if slow else (), id=name)


@pytest.mark.parametrize("case", list(map(_gated, _small_cases())))
def test_every_answer_is_rounded_correctly(case: Case) -> None:
    assert isinstance(case.operation, Norm)
    known = expected(case)
    with flint.ctx.workprec(BITS):
        answers = _answers(case, case.operation)
        for output, kind in known.types.items():
            exact = np.array(answers[output], object).ravel()
            ulps = ulps_of(known.wide[output], kind).ravel()
            wide, remainders = known.wide[output].ravel(), known.remainders[output].ravel()
            assert (np.abs(remainders) <= 0.5).all()
            for ball, value, rest, ulp in zip(exact, wide, remainders, ulps, strict=True):
                if np.isfinite(value):
                    off = abs((ball - flint.arb(value)) / flint.arb(ulp) - flint.arb(rest))
                    assert off < 2.0**-20, (output, ball, value)


@pytest.mark.parametrize("operation", RELATIVES, ids=lambda operation: operation.spec)
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
    """Else nobody could tell whether what is normalized was rounded."""
    (case,) = (
        each
        for each in cases("bfloat16", operation=norm("add_rms_norm"))
        if each.name == "bfloat16-normal-2x768"
    )
    exact = case.x.astype(np.float64) + case.residual.astype(np.float64)
    assert np.mean(exact != (case.x + case.residual).astype(np.float64)) > 0.5
    assert (case.x != 0).mean() > 0.99
    assert (case.residual != 0).mean() > 0.99


def test_each_operation_has_its_words() -> None:
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("batch_norm", "operation must be one of layer_norm, rms_norm"),
        ("rms_norm,gian=plain", "operation must be a name such as add_rms_norm"),
        ("rms_norm,beta=no", "operation must be a name such as add_rms_norm"),
        ("rms_norm,gain=one", "gain must be one of plain, zero-centred; got .one."),
        ("rms_norm,sum=unrounded", "sum=.unrounded. needs add_rms_norm"),
        ("rms_norm,parameters=half", "parameters must be one of float16"),
    ],
)
def test_words_that_mean_nothing(words: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_operation(words)


def test_an_unrounded_sum_is_for_16_bits() -> None:
    with pytest.raises(ValueError, match="needs a type of 16 bits; got float32"):
        cases("float32", operation=norm("add_rms_norm", sum="unrounded"))
