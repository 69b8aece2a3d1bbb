"""Codes next to midpoints: float32 and float64 lose *correct*, and exact codes keep it."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from full.verify.quantized.test_exact_codes import by_balls
from full.verify.quantized.test_scales import block_scale, power
from shared.verify.quantized.answers_of import judged
from shared.verify.quantized.balls import FORMATS, codes_of, values_of
from shared.verify.quantized.kernels import Array, Kernel
from truenorm.verify.inputs.midpoints import NEXT_TO_MIDPOINTS
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.quant import POWERS
from truenorm.verify.norms.quantized.cases import codes_next_to_midpoints
from truenorm.verify.operation import Case
from truenorm.verify.operations import parse_operation

SCHEMES = [
    *("e4m3fn", "e4m3fnuz", "e5m2", "int8", "e4m3fn,direction=multiply"),
    *("mxfp8", "mxfp4", "nvfp4"),
]


def next_to_midpoints(spec: str, dtype: str) -> tuple[Norm, Case]:
    norm = parse_operation(spec)
    (case,) = codes_next_to_midpoints(norm, dtype)
    assert case.family == NEXT_TO_MIDPOINTS
    return norm, case


def in_float64(norm: Norm, case: Case) -> Array:
    x = case.x.astype(np.float64)
    c = x - x.mean(axis=1, keepdims=True) if norm.centred else x
    r = 1 / np.sqrt((c * c).mean(axis=1, keepdims=True) + case.eps)
    return np.asarray(c * r * case.gamma.astype(np.float64))


def scales(norm: Norm, case: Case) -> Array | None:
    """Return the right scales: in float64, since no amax is next to a boundary."""
    quant = norm.quant
    if not quant.scale_type:
        return None
    y = np.abs(in_float64(norm, case))
    amax = y.reshape(len(y), -1, quant.group).max(axis=2)
    if quant.scale_type == "e8m0":
        powers = [power(Fraction(each), quant.power, quant.code.name) for each in amax.ravel()]
        return (np.array(powers) + 127).astype(np.uint8).reshape(amax.shape)
    by = Fraction(float(case.global_scale[0])) / 6
    rounded = [float(block_scale(by * Fraction(each))) for each in amax.ravel()]
    return np.array(rounded).reshape(amax.shape).astype(ml_dtypes.float8_e4m3fn)


def as_codes(values: Array, kind: str) -> Array:
    by_value = {float(value): code for value, code in codes_of(kind).items()}
    codes = np.array([by_value[each] for each in values.ravel().tolist()], np.uint8)
    return codes.reshape(values.shape).view(np.int8 if kind == "int8" else np.uint8)


def is_correct(case: Case, codes: Array, scale: Array | None) -> bool:
    results = {"codes": codes} if scale is None else {"codes": codes, "scale": scale}
    return judged(case, **results)["codes"].error.correct


@pytest.mark.parametrize(
    ("name", "dtype"), [*(("rms_norm", each) for each in FORMATS), ("layer_norm", "bfloat16")]
)
@pytest.mark.parametrize("quant", SCHEMES)
def test_only_exact_codes_are_correct(name: str, quant: str, dtype: str) -> None:
    norm, case = next_to_midpoints(f"{name},quant={quant}", dtype)
    kind, scale = norm.quant.code.name, scales(norm, case)
    exact = by_balls(norm, case, scale)
    assert is_correct(case, as_codes(exact, kind), scale)
    kernel = Kernel(norm, via="direct")
    arguments = [each for each in case.inputs.values() if each is not None]
    settings = [*arguments[len(norm.inputs_of("data", "parameter")) :]]
    results = kernel(*arguments[: len(arguments) - len(settings)], case.eps, *settings)
    codes, of_kernel = results if isinstance(results, tuple) else (results, None)
    assert not is_correct(case, codes, of_kernel)


@pytest.mark.parametrize("quant", SCHEMES)
def test_float64_is_not_enough(quant: str) -> None:
    norm, case = next_to_midpoints(f"rms_norm,quant={quant}", "bfloat16")
    kind, scale = norm.quant.code.name, scales(norm, case)
    exact = by_balls(norm, case, scale)
    if scale is None:
        unit: Array = case.scale.astype(np.float64)
        unit = 1 / unit if norm.quant.direction == "multiply" else unit
    else:
        byte = ml_dtypes.float8_e8m0fnu if norm.quant.scale_type == "e8m0" else scale.dtype
        unit = np.repeat(scale.view(byte).astype(np.float64), norm.quant.group, axis=1)
        unit = unit if norm.quant.scale_type == "e8m0" else unit / case.global_scale[0]
    scaled = (in_float64(norm, case) / unit)[:, 0]
    values = np.array([float(each) for each in values_of(kind)])
    middles = (values[1:] + values[:-1]) / 2
    distances = np.abs(scaled[:, np.newaxis] / middles - 1).min(axis=1)
    # One element in each row is as near to a midpoint as float64 can tell.
    assert len(scaled) == 12
    assert (distances < 1e-14).all()
    rounded = values[np.abs(scaled[:, np.newaxis] - values).argmin(axis=1)]
    assert (rounded != exact[:, 0]).any()


@pytest.mark.parametrize("rule", POWERS)
@pytest.mark.parametrize("quant", ["mxfp8", "mxfp4"])
def test_rows_follow_the_rule_of_powers(quant: str, rule: str) -> None:
    norm, case = next_to_midpoints(f"rms_norm,quant={quant},power={rule}", "bfloat16")
    scale = scales(norm, case)
    assert case.shape[0] == 12
    exact = as_codes(by_balls(norm, case, scale), norm.quant.code.name)
    assert is_correct(case, exact, scale)
