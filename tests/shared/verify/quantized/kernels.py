"""Quantized norms in float32, as engines compute them, with one method for each step.

A wrong kernel replaces one method. Conversions use ml_dtypes, not the tables of the judge.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv
from truenorm.verify.collecting import collect
from truenorm.verify.grading.report import Report
from truenorm.verify.judge import grade_records
from truenorm.verify.norms.norm import Norm
from truenorm.verify.operation import Case
from truenorm.verify.operations import parse_operation
from truenorm.verify.running.runners import runner_for
from truenorm.verify.suite import cases

F = np.float32
Array = NDArray[Any]
DTYPES = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
LARGEST = {"e4m3fn": 448.0, "e4m3fnuz": 240.0, "e5m2": 57344.0, "e2m1": 6.0, "int8": 127.0}
Step = Callable[..., Any]
OF_MANY_ROWS = ("large", "row-counts", "batch-sizes")
"""Families whose calls take most of the time of a kernel in NumPy."""
OF_CALLS = ("batch", "repeated", "served")
"""Families that compare the bits of calls."""


quantized_norm = parse_operation
FEW_ROWS = 12
"""Rows of the ordinary cases of all widths, where bits of calls are not compared."""


@cache
def suite_of(operation: str, dtype: str, *, calls: bool) -> list[Case]:
    """Return the cases of `judge`; exact answers are remembered with them."""
    left = OF_MANY_ROWS if calls else (*OF_MANY_ROWS, *OF_CALLS)
    suite = [case for case in cases(dtype, operation=operation) if case.family not in left]
    if calls:
        return suite
    return [case.part(slice(FEW_ROWS)) if case.family == "normal" else case for case in suite]


def judge(subject: tv.Subject, *, calls: bool = True) -> Report:
    """Judge a subject as `tv.verify` does, without the families `OF_MANY_ROWS`.

    Without `calls`, also leave out `OF_CALLS`, and all but `FEW_ROWS` of ordinary cases.
    """
    suite = suite_of(subject.operation.spec, *subject.dtypes, calls=calls)
    records = collect(runner_for(subject), suite)
    domain = subject.required_domain(strict=False)
    spec = subject.spec()
    return grade_records(subject, suite, records, spec, domain=domain, strict=False)


def encode(values: Array, kind: str) -> Array:
    """Round to the codes of a type, saturated; NaN stays where the type has it."""
    clipped: Array = np.clip(values, F(-LARGEST[kind]), F(LARGEST[kind]))
    if kind == "int8":
        return np.nan_to_num(np.rint(clipped)).astype(np.int8)
    return np.asarray(clipped.astype(DTYPES[kind]))


def nan_clamped(values: Array, kind: str) -> Array:
    """Convert as fmax(-q, fmin(x, q)) of CUDA does: a NaN becomes q."""
    return encode(np.where(np.isnan(values), F(LARGEST[kind]), values), kind)


class Kernel:
    """A quantized norm: `norm` is late, early or product; `via` is T or direct.

    Keyword arguments replace methods, as functions without self.
    """

    def __init__(
        self,
        operation: Norm,
        norm: str = "late",
        via: str = "T",
        way: str = "divide",
        **steps: Step,
    ) -> None:
        self.operation, self.quant = operation, operation.quant
        self.norm, self.via, self.way = norm, via, way
        self.qmax = F(self.quant.code.largest)
        for name, step in steps.items():
            setattr(self, name, step)

    def subject(self, dtype: str = "bfloat16", name: str = "kernel", **claims: Any) -> tv.Subject:
        return tv.Subject(self, name=name, dtypes=[dtype], operation=self.operation, **claims)

    def rounded(self, values: Array, dtype: Any) -> Array:
        return values.astype(dtype).astype(F)

    def added(self, x: Array, residual: Array) -> Array:
        return (x.astype(F) + residual.astype(F)).astype(x.dtype)

    def rows(self, x: Array, residual: Array | None) -> Array:
        if residual is None:
            return x.astype(F)
        total = x.astype(F) + residual.astype(F)
        return total if self.operation.sum == "unrounded" else self.rounded(total, x.dtype)

    def inverse_root(self, c: Array, eps: float) -> Array:
        """Return 1/sqrt(mean(c^2) + eps) of each row."""
        return np.asarray(F(1) / np.sqrt((c * c).mean(-1, keepdims=True, dtype=F) + F(eps)))

    def y(self, rows: Array, gamma: Array, beta: Array | None, eps: float, dtype: Any) -> Array:
        gain = gamma.astype(F) + F(self.operation.gain == "zero-centred")
        c = rows - rows.mean(-1, keepdims=True, dtype=F) if self.operation.centred else rows
        r = self.inverse_root(c, eps)
        if self.norm == "late":
            y = c * r * gain
        elif self.norm == "early":
            y = self.rounded(c * r, dtype) * gain
        else:
            y = self.rounded(c * gain, dtype) * r
        y = y if beta is None else y + beta.astype(F)
        return self.rounded(y, dtype) if self.via == "T" else y

    def amax(self, groups: Array) -> Array:
        """Return the largest |y| of each group; NaN stays."""
        return np.asarray(np.abs(groups).max(-1))

    def scale(self, amax: Array) -> Array:
        """Return the float32 scale of each group."""
        return np.where(amax == 0, F(1), amax / self.qmax).astype(F)

    def power(self, amax: Array) -> Array:
        """Return the exponent of the scale of each group."""
        top = float(self.qmax)
        fractions, exponents = np.frexp(amax.astype(float))
        fraction, exponent = np.frexp(top)
        powers = exponents - exponent + (fractions > fraction)
        return np.clip(np.where(amax > 0, powers, -127), -127, 127)

    def power_byte(self, powers: Array, amax: Array) -> Array:
        """Return the code of a scale that is a power of two."""
        return np.where(np.isfinite(amax), powers + 127, 255).astype(np.uint8)

    def by_power(self, groups: Array, powers: Array) -> Array:
        """Return y in units of a scale that is a power of two."""
        return np.asarray(groups / np.ldexp(F(1), powers))

    def block_scale(self, amax: Array, global_scale: Array) -> Array:
        """Return the e4m3 scale of each group, as codes."""
        return encode(amax * F(1 / 6) * global_scale, "e4m3fn")

    def block_factor(self, scale: Array, global_scale: Array) -> Array:
        """Return what y is multiplied by, for a decoded block scale."""
        return np.where(scale > 0, global_scale / scale, F(0)).astype(F)

    def scaled(self, y: Array, scale: Array, amax: Array) -> Array:
        """Return y in units of the scale."""
        if self.way == "divide":
            return y / scale
        if self.way == "reciprocal":
            return y * (F(1) / scale)
        return y * (self.qmax / np.maximum(amax, F(1e-30)))

    def convert(self, values: Array, kind: str) -> Array:
        return encode(np.clip(values, -self.qmax, self.qmax), kind)

    def pack(self, codes: Array) -> Array:
        """Return the bytes of codes; two of four bits share one."""
        if codes.dtype != DTYPES["e2m1"]:
            return codes
        halves = codes.view(np.uint8) & 15
        return np.asarray(halves[:, 0::2] | (halves[:, 1::2] << 4))

    def scales_out(self, scale: Array) -> Array:
        return scale

    def amax_out(self, y: Array, scale: Array) -> Array:  # noqa: ARG002 (wrong ones use it)
        """Return the largest |y| of the call."""
        return np.full(1, np.abs(y).max(initial=0.0), F)

    def __call__(self, x: Array, *arguments: Any) -> Any:
        names = [
            *self.operation.inputs_of("data", "parameter")[1:],
            "eps",
            *self.operation.inputs_of("setting"),
        ]
        given = dict(zip(names, arguments, strict=True))
        rows = self.rows(x, given.get("residual"))
        y = self.y(rows, given["gamma"], given.get("beta"), given["eps"], x.dtype)
        codes, scale = self.quantize(y, given)
        results = [self.pack(codes)]
        if self.quant.scale_type:
            results.append(self.scales_out(scale))
        if self.quant.amax:
            results.append(self.amax_out(y, scale))
        if self.operation.adds:
            results.append(self.added(x, given["residual"]))
        return results[0] if len(results) == 1 else tuple(results)

    def quantize(self, y: Array, given: dict[str, Any]) -> tuple[Array, Array]:
        kind = self.quant.code.name
        if self.quant.is_static:
            scale = given["scale"]
            if self.quant.direction == "multiply":
                return self.convert(y * scale, kind), scale
            return self.convert(self.scaled(y, scale, np.abs(y)), kind), scale
        count, size = y.shape
        group = self.quant.group or size
        wide = np.zeros((count, self.quant.groups(size) * group), F)
        wide[:, :size] = y
        groups = wide.reshape(count, -1, group)
        amax = self.amax(groups).astype(F)
        if self.quant.scale_type == "float32":
            scale = self.scale(amax)
            values = self.scaled(groups, scale[..., np.newaxis], amax[..., np.newaxis])
        elif self.quant.scale_type == "e8m0":
            powers = self.power(amax)
            scale = self.power_byte(powers, amax)
            values = self.by_power(groups, powers[..., np.newaxis])
        else:
            scale = self.block_scale(amax, given["global_scale"])
            factor = self.block_factor(scale.astype(F), given["global_scale"])
            values = groups * factor[..., np.newaxis]
        codes = self.convert(values.reshape(count, -1)[:, :size], kind)
        return codes, scale
