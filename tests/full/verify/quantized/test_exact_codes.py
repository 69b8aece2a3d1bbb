"""Exact codes are those of balls, also next to midpoints of codes."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

from shared.verify.quantized.balls import Norm as NormInBalls
from shared.verify.quantized.balls import exactly, values_of
from shared.verify.quantized.kernels import Array
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.quantized import answers
from truenorm.verify.norms.quantized.answers import QuantizedExpected
from truenorm.verify.norms.quantized.cases import codes_next_to_midpoints
from truenorm.verify.operation import Case
from truenorm.verify.operations import parse_operation
from truenorm.verify.oracle import compute_exact
from truenorm.verify.types import dtype_of

ROWS, SIZE = 5, 128
OPERATIONS = [
    ("rms_norm,quant=e4m3fn", "bfloat16"),
    ("rms_norm,quant=e4m3fnuz", "float16"),
    ("rms_norm,quant=e5m2,direction=multiply", "float32"),
    ("rms_norm,quant=int8", "bfloat16"),
    ("rms_norm,quant=e4m3fnuz,scale=per-token,qmax=224", "bfloat16"),
    ("rms_norm,quant=int8,scale=per-token,gain=zero-centred", "float16"),
    ("rms_norm,quant=e4m3fn,scale=per-64,parameters=float32", "bfloat16"),
    ("rms_norm,quant=e4m3fn,scale=per-48", "float32"),  # the last group has 32 elements
    ("rms_norm,quant=mxfp8", "bfloat16"),
    ("rms_norm,quant=mxfp4", "float16"),
    ("rms_norm,quant=nvfp4", "bfloat16"),
    ("rms_norm,beta=true,quant=nvfp4", "float32"),
    ("layer_norm,quant=e4m3fn", "float32"),
    ("layer_norm,quant=int8,scale=per-token,gain=zero-centred", "bfloat16"),
    ("add_rms_norm,quant=e4m3fn,scale=per-token", "bfloat16"),
    ("add_rms_norm,sum=unrounded,quant=int8,scale=per-64", "bfloat16"),
    ("add_layer_norm,sum=unrounded,quant=e4m3fn,direction=multiply", "float16"),
    ("add_layer_norm,quant=mxfp8", "float32"),
]


def ordinary(norm: Norm, dtype: str) -> Case:
    """Return a case of random numbers; the mean of a row is above its spread."""
    random, kind = np.random.default_rng(7), dtype_of(dtype)
    inputs = {
        name: (random.normal(size=(ROWS, SIZE)) + 0.5).astype(kind)
        for name in norm.inputs_of("data")
    }
    of_parameters = dtype_of(norm.parameter_type or dtype)
    for name in norm.inputs_of("parameter"):
        inputs[name] = random.normal(size=SIZE).astype(of_parameters)
    if norm.quant.setting:
        given = 3000.0 if norm.quant.setting == "global_scale" else 0.0137
        if norm.quant.type == "e5m2":
            given = 4321.0
        elif norm.quant.direction == "multiply":
            given = 87.6
        inputs[norm.quant.setting] = np.full(1, given, np.float32)
    return Case(norm, "test", dtype, inputs, 1e-5)


def beside_ties(norm: Norm, dtype: str) -> Iterator[tuple[Case, Array]]:
    """Yield cases and scales with y over the scale at midpoints, and 2^-54 beside them.

    In rows of 1 and -1, eps = 3 makes r = 1/2, and neighbours of 3 move it by 2^-54.
    """
    quant, kind = norm.quant, dtype_of(dtype)
    values = values_of(quant.code.name)
    middles = [(a + b) / 2 for a, b in pairwise(values)]
    middles = [each for each in middles if abs(each) < quant.code.largest]
    middles = middles[:: max(1, len(middles) // SIZE)][:SIZE]
    wanted = [2 * each / 4 for each in middles]  # y over a scale of 1/4
    gamma = np.zeros(SIZE)
    gamma[: len(wanted)] = [float(each) for each in wanted]
    gamma -= norm.gain == "zero-centred"
    x = np.where(np.arange(SIZE) % 2, -1.0, 1.0)[np.newaxis, :].repeat(2, axis=0)
    inputs = {name: np.zeros((2, SIZE), kind) for name in norm.inputs_of("data")}
    inputs["x"] = x.astype(kind)
    for name in norm.inputs_of("parameter"):
        inputs[name] = np.zeros(SIZE, dtype_of(norm.parameter_type or dtype))
    inputs["gamma"] = gamma.astype(inputs["gamma"].dtype)
    if quant.setting:
        by = 4.0 if quant.direction == "multiply" else 0.25
        inputs[quant.setting] = np.full(1, 8.0 if quant.scale_type else by, np.float32)
    groups = quant.groups(SIZE)
    scale: Array = np.full((2, groups), 0.25, np.float32)
    if quant.scale_type == "e8m0":
        scale = np.full((2, groups), 125, np.uint8)
    elif quant.scale_type == "e4m3fn":
        scale = np.full((2, groups), 2.0).astype(ml_dtypes.float8_e4m3fn)
    for eps in (3.0, np.nextafter(3.0, 0), np.nextafter(3.0, 4)):
        yield Case(norm, "test", dtype, inputs, float(eps)), scale


def some_scales(norm: Norm, case: Case) -> Array | None:
    """Return scales as a kernel might: off by some percent, and not rounded to anything."""
    quant, shape = norm.quant, (case.shape[0], norm.quant.groups(case.shape[1]))
    random = np.random.default_rng(8)
    if quant.scale_type == "e8m0":
        top = 8 if quant.code.largest > 6 else 2
        return random.integers(126 - top, 129 - top, shape).astype(np.uint8)
    if quant.scale_type == "e4m3fn":
        return random.uniform(200, 448, shape).astype(ml_dtypes.float8_e4m3fn)
    if quant.scale_type:
        return (random.uniform(2, 4, shape) / quant.code.largest).astype(np.float32)
    return None


def factors(norm: Norm, case: Case, scale: Array | None) -> Callable[[int, int], Fraction]:
    """Return the exact factor from y to codes of each element."""
    quant = norm.quant
    setting = exactly(getattr(case, quant.setting))[0] if quant.setting else Fraction(1)
    if scale is None:
        factor = setting if quant.direction == "multiply" else 1 / setting
        return lambda i, j: factor  # noqa: ARG005 (one for all elements)
    if quant.scale_type == "e8m0":
        scale = scale.view(ml_dtypes.float8_e8m0fnu)
    rows = [exactly(row) for row in scale]
    group = quant.group or case.shape[1]
    if quant.scale_type == "e4m3fn":
        return lambda i, j: setting / rows[i][j // group]
    return lambda i, j: 1 / rows[i][j // group]


def by_balls(norm: Norm, case: Case, scale: Array | None) -> Array:
    y = NormInBalls(
        case.x,
        case.gamma,
        case.eps,
        beta=case.inputs.get("beta"),
        residual=case.inputs.get("residual"),
        unrounded=norm.sum == "unrounded",
        centred=norm.centred,
        zero_centred=norm.gain == "zero-centred",
    )
    return y.codes(factors(norm, case, scale), norm.quant.code.name, norm.quant.qmax)


def judged(case: Case, scale: Array | None) -> Array:
    given = QuantizedExpected(case, compute_exact(case)).given({"scale": scale})
    values = given.values["codes"]
    assert values is not None
    return values


@pytest.mark.parametrize(("spec", "dtype"), OPERATIONS)
def test_codes_of_ordinary_rows(spec: str, dtype: str) -> None:
    norm = parse_operation(spec)
    case = ordinary(norm, dtype)
    scale = some_scales(norm, case)
    codes = by_balls(norm, case, scale)
    assert len(np.unique(codes)) > 12  # the scale is of use
    np.testing.assert_array_equal(judged(case, scale), codes)


@pytest.mark.parametrize(("spec", "dtype"), OPERATIONS)
def test_codes_at_ties_and_beside_them(spec: str, dtype: str) -> None:
    norm = parse_operation(spec)
    different = []
    for case, scale in beside_ties(norm, dtype):
        given = scale if norm.quant.scale_type else None
        different.append(by_balls(norm, case, given))
        np.testing.assert_array_equal(judged(case, given), different[-1])
    at, closer, farther = different
    # Each midpoint has one of its neighbours on one side, and the other on the other side.
    assert (closer != farther).sum() >= 8
    assert ((at == closer) | (at == farther)).all()


@pytest.mark.parametrize(
    ("spec", "dtype"), [(spec, dtype) for spec, dtype in OPERATIONS if "scale=" not in spec][:4]
)
def test_codes_of_the_family_next_to_midpoints(spec: str, dtype: str) -> None:
    norm = parse_operation(spec)
    (case,) = codes_next_to_midpoints(norm, dtype)
    np.testing.assert_array_equal(judged(case, None), by_balls(norm, case, None))


def test_codes_where_the_mean_and_beta_cancel() -> None:
    norm = parse_operation("layer_norm,quant=e4m3fn")
    plain = ordinary(norm, "float32")
    x = plain.x[:2] / np.float32(64) + np.float32(1000)
    wide = x.astype(np.float64)
    c = wide - wide.mean(axis=1, keepdims=True)
    xhat = c / np.sqrt((c * c).mean(axis=1, keepdims=True) + plain.eps)
    beta = (-plain.gamma * xhat[0]).astype(np.float32)
    # What remains of the first row is about 2^-25 of its terms.
    case = plain.with_inputs(x=x, beta=beta, scale=np.full(1, 1e-10, np.float32))
    codes = by_balls(norm, case, None)
    assert len(np.unique(codes[0])) > 50
    np.testing.assert_array_equal(judged(case, None), codes)


@pytest.mark.parametrize("spec", ["rms_norm,quant=e4m3fn", "rms_norm,quant=nvfp4"])
def test_a_smaller_bound_gives_wrong_codes(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "BOUND", answers.BOUND / 64)
    norm = parse_operation(spec)
    wrong = 0
    for case, scale in beside_ties(norm, "bfloat16"):
        given = scale if norm.quant.scale_type else None
        wrong += int((judged(case, given) != by_balls(norm, case, given)).sum())
    assert wrong > 0
