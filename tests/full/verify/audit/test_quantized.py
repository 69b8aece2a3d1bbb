"""Planted bugs of quantized norms, and functions whose codes and scales are replaced."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import truenorm.verify as tv
from full.verify.audit.test_planted import QUANTIZED
from shared.verify.quantized.kernels import Kernel
from truenorm.verify.audit.replacing import AuditTask, MatchError, Observations, Replacer
from truenorm.verify.audit.running import audit_tests, witness_for
from truenorm.verify.norms.codes import unpacked
from truenorm.verify.operations import parse_operation
from truenorm.verify.types import Array

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(6, 256)).astype(ml_dtypes.bfloat16)
RESIDUAL = RANDOM.normal(size=X.shape).astype(X.dtype)
WEIGHT = RANDOM.normal(size=256).astype(X.dtype)
EPS = 1e-6


def task_of(operation: str, kernel: str = "right", recipe: str = "") -> AuditTask:
    return AuditTask("mine:kernel", operation, kernel=kernel, recipe=recipe)


def replacer(operation: str, kernel: str = "right", recipe: str = "late/T") -> Replacer:
    return Replacer(task_of(operation, kernel, recipe).make_kernel(), Observations())


def engine(operation: str) -> Kernel:
    """Return a kernel in float32, with conversions of ml_dtypes."""
    norm = parse_operation(operation)
    return Kernel(norm)


def bits(array: Array) -> Array:
    return array.view(np.uint8)


def assert_exposed(operation: str) -> None:
    for bug in task_of(operation, recipe=QUANTIZED[operation]).bugs():
        recipe = QUANTIZED[operation] if bug.by_bits else ""
        kernel = task_of(operation, bug.name, recipe).make_kernel()
        everything = kernel.norm.inputs_of("data", "parameter")
        assert kernel.wrong_results("bfloat16", everything), bug.name
        witness = witness_for(kernel, ["bfloat16"])
        assert witness is not None, bug.name


def test_a_case_exposes_a_bug() -> None:
    assert_exposed("rms_norm,quant=nvfp4")


@pytest.mark.slow(reason="every planted kernel on every case takes minutes")
@pytest.mark.parametrize("operation", QUANTIZED)
def test_a_case_exposes_every_bug(operation: str) -> None:
    assert_exposed(operation)


def test_the_expression_makes_the_case() -> None:
    for operation in ("rms_norm,quant=int8,scale=per-token,qmax=120", "layer_norm,quant=mxfp8"):
        witness = witness_for(task_of(operation, "zeros").make_kernel(), ["float32"])
        assert witness is not None
        assert eval(witness.made, {"tv": tv}).name == witness.case


def test_results_written_to_arguments() -> None:
    """The arguments are those of vLLM: a static scale, then a scale for each row."""
    operation = "rms_norm,quant=e4m3fn"
    right, scale = engine(operation), np.full(1, 0.01, np.float32)

    def static(
        result: Array, hidden_states: Array, weight: Array, scale: Array, epsilon: float
    ) -> None:
        result[...] = right(hidden_states, weight, epsilon, scale)

    out = np.empty(X.shape, ml_dtypes.float8_e4m3fn)
    static(out, X, WEIGHT, scale, EPS)
    known = out.copy()
    for kernel, same in (("right", True), ("truncated", False)):
        replaced = replacer(operation, kernel, "late/T, divide")
        assert replaced.wrap(static)(out, X, WEIGHT, scale, EPS) is None
        assert (np.mean(bits(out) == bits(known)) == 1) == same
        assert replaced.observations.results == ["codes"]
    difference, size = replaced.observations.largest["codes"]
    assert 0 < difference <= 32 < size <= 448

    add = "add_rms_norm,quant=e4m3fn,scale=per-token"

    def per_token(
        out: Array, hidden_states: Array, weight: Array, scale: Array, eps: float, residual: Array
    ) -> None:
        out[...], scale[...], residual[...] = engine(add)(hidden_states, residual, weight, eps)

    expected = engine(add)(X, RESIDUAL, WEIGHT, EPS)
    for kernel, wrong in (("right", 3), ("inverse returned", 1), ("stale residual", 2)):
        results = (out, np.empty((6, 1), np.float32), RESIDUAL.copy())
        codes, scales, residual = results
        replacer(add, kernel).wrap(per_token)(codes, X, WEIGHT, scales, EPS, residual)
        for place, (result, answer) in enumerate(zip(results, expected, strict=True)):
            same = np.mean(bits(result) == bits(answer)) > 0.95
            assert same == (place != wrong), (kernel, place)


def test_results_returned() -> None:
    """A scale is a number, codes of four bits are in pairs or not, bytes are uint8."""
    operation = "rms_norm,quant=nvfp4"
    number = np.full(1, 300.0, np.float32)
    for unpack in (False, True):

        def kernel(x: Array, weight: Array, global_scale: float, eps: float = EPS) -> Any:
            codes, scales = engine(operation)(x, weight, eps, np.full(1, global_scale, np.float32))
            return unpacked(codes) if unpack else codes, scales.view(np.uint8)  # noqa: B023

        expected = kernel(X, WEIGHT, float(number[0]))
        for name in ("right", "nibbles exchanged"):
            codes, scales = replacer(operation, name).wrap(kernel)(X, WEIGHT, float(number[0]))
            assert np.mean(scales == expected[1]) > 0.99
            wide = expected[0] if unpack else unpacked(expected[0])
            wide = wide if name == "right" else wide[:, np.arange(256) ^ 1]
            assert np.mean((codes if unpack else unpacked(codes)) == wide) > 0.99


def float_codes(x: Array, weight: Array, scale: Any, eps: float) -> Array:
    return np.asarray(x.astype(np.float32) * weight.astype(np.float32) * eps / np.max(scale))


def without_scale(x: Array, weight: Array, eps: float) -> Array:
    return float_codes(x, weight, 1.0, eps)


def nothing(x: Array, weight: Array, scale: Any, eps: float) -> None:
    pass


@pytest.mark.parametrize(("function", "arguments", "message"), [
    (float_codes, (0.1, EPS), "codes must have 1536 elements of one byte for this x; got the"),
    (float_codes, (np.ones(6), EPS), "scale must be one number; got 6"),
    (without_scale, (EPS,), "no argument for scale: give the names"),
    (nothing, (0.1, EPS), "no argument for the result codes: give the names"),
])  # fmt: skip
def test_calls_that_cannot_be_matched(
    function: Any, arguments: tuple[Any, ...], message: str
) -> None:
    replaced = replacer("rms_norm,quant=e4m3fn")
    with pytest.raises(MatchError, match=message):
        replaced.wrap(function)(X, WEIGHT, *arguments)
    assert message in replaced.observations.error


LOOSE = """
import ml_dtypes
import numpy as np
from some_kernels import rms_norm_quant

def test_loose():
    random = np.random.default_rng(0)
    x, weight = (random.normal(size=each).astype(np.float16) for each in ((4, 100), 100))
    rows = x.astype(float)
    y = rows / np.sqrt((rows * rows).mean(-1, keepdims=True) + 1e-6) * weight
    out = np.empty(x.shape, ml_dtypes.float8_e4m3fn)
    rms_norm_quant(out, x, weight, 10.0, 1e-6)
    np.testing.assert_allclose(out.astype(float), y / 10, rtol=1, atol=1)
"""
KERNELS = """
import numpy as np

def rms_norm_quant(out, input, weight, scale, eps):
    rows = input.astype(np.float32)
    r = 1 / np.sqrt((rows * rows).mean(-1, keepdims=True) + np.float32(eps))
    out[...] = rows * r * weight / np.float32(scale)
"""


def test_audit_of_a_loose_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("some_kernels.py").write_text(KERNELS)
    Path("test_loose.py").write_text(LOOSE)
    every = AuditTask.bugs
    chosen = ("zeros", "no scale", "rounded first", "rounded again")
    monkeypatch.setattr(
        AuditTask, "bugs", lambda task: [bug for bug in every(task) if bug.name in chosen]
    )
    task = replace(task_of("rms_norm,quant=e4m3fn"), replace="some_kernels:rms_norm_quant")
    audit = audit_tests(["test_loose.py"], task)
    assert {each.name: each.caught for each in audit.outcomes} == {
        "zeros": False,
        "no scale": True,
    }
    zeros = audit.outcomes[0]
    assert zeros.output == "codes"
    assert zeros.witness is not None
    assert zeros.witness.made.endswith("operation='rms_norm,quant=e4m3fn')")
    assert audit.left_out == {
        "rounded first, rounded again": "any recipe is right unless --recipe requires one"
    }


def test_a_backward_pass_is_refused() -> None:
    task = replace(task_of("rms_norm,quant=e4m3fn"), backward="mine:backward")
    with pytest.raises(ValueError, match="quantized to e4m3fn has no backward pass: leave out"):
        audit_tests(["test_loose.py"], task)
