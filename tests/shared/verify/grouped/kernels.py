"""Grouped, gated and modulated norms in float64, forward and backward, by their definitions.

`Textbook` works on arrays as a user has them: (N, C, S) for group norm, (N, T, D) for heads and
samples, (N, D) otherwise. A wrong kernel overrides a method.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv
from truenorm.verify.collecting import collect
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.report import Report
from truenorm.verify.judge import scope
from truenorm.verify.norms.norm import Norm
from truenorm.verify.running.runners import InProcess

Array = NDArray[Any]


@np.errstate(all="ignore")
def judge_cases(subject: tv.Subject, cases: list[tv.Case], *, strict: bool = True) -> Report:
    """Judge a subject by some cases, as `verify` does."""
    return grade(
        subject.name,
        cases,
        list(collect(InProcess(subject), cases)),
        outputs=subject.outputs,
        domain=subject.required_domain(strict=strict),
        strict=strict,
    )


OF_MANY_CALLS = ("batch", "batch-sizes", "repeated", "row-counts", "large", "served", "many-rows")


def few_cases(subject: tv.Subject, most: int = 2000, family: str = "") -> list[tv.Case]:
    """Return cases of the quick level with few elements and calls, and those of a family."""
    return [
        case
        for case in scope(subject, "quick")
        if case.family == family or (case.family not in OF_MANY_CALLS and case.x.size <= most)
    ]


class Textbook:
    """A grouped norm in a wide type, by default float64, rounded at the end."""

    def __init__(self, norm: Norm, wide: Any = np.float64) -> None:
        self.norm, self.wide = norm, wide

    def subject(self, dtype: str = "float32", name: str = "textbook", **claims: Any) -> tv.Subject:
        claims = {"operation": self.norm, **claims}
        return tv.Subject(self.forward, self.backward, name=name, dtypes=[dtype], **claims)

    def widen(self, array: Array) -> Array:
        return np.asarray(array.astype(self.wide))

    def narrow(self, array: Array, kind: Any) -> Array:
        return np.asarray(array.astype(kind))

    def units(self, x: Array) -> Array:
        """Return x as (N, units, elements of a unit)."""
        norm, count = self.norm, len(x)
        if norm.name == "instance_norm":
            return x.reshape(count, x.shape[1], -1)
        if norm.over == "channels":
            # Contiguous: NumPy adds up a strided axis one after the other, with larger errors.
            return np.ascontiguousarray(np.moveaxis(x.reshape(count, x.shape[1], -1), 1, 2))
        if norm.heads or norm.modulate == "sample":
            return x.reshape(count, x.shape[1], -1)
        return x.reshape(count, norm.groups, -1)

    def back(self, units: Array, shape: tuple[int, ...]) -> Array:
        """Return units in the shape of x."""
        if self.norm.over == "channels":
            units = np.moveaxis(units, 2, 1)
        return units.reshape(shape)

    def per_element(self, values: Array, shape: tuple[int, ...]) -> Array:
        """Return a parameter for each element of x."""
        by_channel = self.norm.spatial or self.norm.over == "channels"
        values = values.reshape(-1, *(1,) * (len(shape) - 2)) if by_channel else values
        return np.asarray(np.broadcast_to(values, shape))

    def modulation(self, values: Array, shape: tuple[int, ...]) -> Array:
        """Return scale or shift for each element of x."""
        values = values[:, np.newaxis] if self.norm.modulate == "sample" else values
        return np.asarray(np.broadcast_to(values, shape))

    def gate(self, z: Array) -> tuple[Array, Array]:
        sigma: Array = 1 / (1 + np.exp(-z))
        if self.norm.activation == "sigmoid":
            return sigma, sigma * (1 - sigma)
        return z * sigma, sigma * (1 + z * (1 - sigma))

    def mean(self, cut: Array) -> Array:
        return cut.mean(-1, keepdims=True) if self.norm.centred else self.widen(np.zeros(1))

    def variance(self, cut: Array, mean: Array) -> Array:
        """Return the mean square of each unit."""
        counted = self.norm.counted(cut.shape[-1])
        total: Array = np.sum((cut - mean)[..., :counted] ** 2, axis=-1, keepdims=True)
        return np.asarray(total / counted)

    def rstd(self, variance: Array, eps: Array, size: int) -> Array:  # noqa: ARG002 (for bugs)
        """Return r of each unit, whose size is given."""
        return np.asarray(1 / np.sqrt(variance + eps))

    def normalized(self, u: Array, eps: float, at: dict[str, Any]) -> Array:
        cut = self.units(u)
        at["mean"] = self.mean(cut)
        variance = self.variance(cut, at["mean"])
        at["r"] = self.rstd(variance, self.widen(np.full(1, eps)), cut.shape[-1])
        return np.asarray((cut - at["mean"]) * at["r"])

    def gain(self, xhat: Array, at: dict[str, Any]) -> Array:
        shape, n = at["shape"], xhat
        at["gain"] = self.widen(np.ones(shape))
        if "gamma" in at:
            at["gain"] = self.per_element(at["gamma"] + (self.norm.gain == "zero-centred"), shape)
            n = n * at["gain"]
        return n + self.per_element(at["beta"], shape) if "beta" in at else n

    def modulated(self, n: Array, at: dict[str, Any]) -> Array:
        shape = at["shape"]
        at["factor"] = 1 + self.modulation(at["scale"], shape)
        return np.asarray(n * at["factor"] + self.modulation(at["shift"], shape))

    def forward(self, *arguments: Any) -> Any:
        """Return y, the sum if a residual is added, and what backward needs."""
        *arrays, eps = arguments
        names = self.norm.inputs_of("data", "parameter")
        at: dict[str, Any] = dict(zip(names, arrays, strict=True))
        kind, shape = at["x"].dtype, at["x"].shape
        at = {name: self.widen(each) for name, each in at.items()}
        at["kind"], at["shape"] = kind, shape
        x, total = at["x"], None
        if self.norm.adds:
            total = self.narrow(x + at["residual"], kind)
            x = self.widen(total)
        at["u"] = u = x
        if self.norm.gates_by_z:
            at["s"], at["slope"] = self.gate(at["z"])
            u = x * at["s"] if self.norm.gate_first else x
        at["xhat"] = self.normalized(u, eps, at)
        n = self.gain(self.back(at["xhat"], shape), at)
        m = self.modulated(n, at) if self.norm.modulate else n
        y = m
        if self.norm.gate == "self":
            y, at["slope"] = self.gate(m)
        elif self.norm.gates_by_z and not self.norm.gate_first:
            y = m * at["s"]
        at |= {"n": n, "m": m}
        result = self.narrow(y, kind)
        self.save(at)
        return (result, at) if total is None else (result, total, at)

    def save(self, at: dict[str, Any]) -> None:
        """Change what backward gets."""

    def backward(self, dy: Array, *rest: Any) -> Any:
        *others, at = rest
        norm, shape = self.norm, at["shape"]
        d = dy = self.widen(dy)
        results: dict[str, Array] = {}
        if norm.gate == "self":
            d = dy * at["slope"]
        elif norm.gates_by_z and not norm.gate_first:
            d = dy * at["s"]
            results["dz"] = self.gate_gradient(dy, at)
        e = d
        if norm.modulate:
            results["dshift"], results["dscale"] = self.row_sums(d), self.row_sums(d * at["n"])
            e = d * at["factor"]
        results |= {"dgamma": self.columns(self.terms(dy, e, at)), "dbeta": self.columns(e)}
        du = self.back(self.input_gradient(self.units(at["gain"] * e), at), shape)
        if norm.gate_first:
            results["dz"] = du * at["u"] * at["slope"]
            du = du * at["s"]
        if norm.adds:
            du = du + self.widen(others[0])
        results |= {"dx": du, "dresidual": du}
        gradients = self.returned([results[name] for name in norm.outputs_of(backward=True)])
        narrow = tuple(self.narrow(each, at["kind"]) for each in gradients)
        return narrow if len(narrow) > 1 else narrow[0]

    def gate_gradient(self, dy: Array, at: dict[str, Any]) -> Array:
        """Return dz of a gate after the norm."""
        return np.asarray(dy * at["m"] * at["slope"])

    def terms(self, dy: Array, e: Array, at: dict[str, Any]) -> Array:  # noqa: ARG002 (for bugs)
        """Return the terms of dgamma."""
        return np.asarray(e * self.back(at["xhat"], at["shape"]))

    def input_gradient(self, g: Array, at: dict[str, Any]) -> Array:
        """Return du by unit."""
        mean, along = self.means(g, at["xhat"])
        projected = at["xhat"] * along
        projected[..., self.norm.counted(g.shape[-1]) :] = 0
        return np.asarray(at["r"] * (g - mean - projected))

    def means(self, g: Array, xhat: Array) -> tuple[Array, Array]:
        counted = self.norm.counted(g.shape[-1])
        along = (g * xhat).sum(-1, keepdims=True) / counted
        return self.mean(g), along

    def returned(self, gradients: list[Array]) -> list[Array]:
        """Return the gradients in the order of the inputs."""
        return gradients

    def row_sums(self, terms: Array) -> Array:
        """Sum over the units of a sample."""
        return np.asarray(terms.sum(1)) if self.norm.modulate == "sample" else terms

    def columns(self, terms: Array) -> Array:
        """Sum over all elements with the same element of gamma."""
        by_channel = self.norm.spatial or self.norm.over == "channels"
        kept = 1 if by_channel else terms.ndim - 1
        axes = tuple(axis for axis in range(terms.ndim) if axis != kept)
        return np.asarray(terms.sum(axes))


class InFloat32(Textbook):
    """Float32 arithmetic, with sums over rows in float64."""

    def __init__(self, norm: Norm) -> None:
        super().__init__(norm, np.float32)

    def columns(self, terms: Array) -> Array:
        """Sum in float64: one after the other, 65,536 float32 numbers lose 4 digits."""
        return super().columns(terms.astype(np.float64))


class HuggingFace(InFloat32):
    """The roundings of Qwen3-Next: [[[xhat]*gamma]*silu(z)]."""

    def gain(self, xhat: Array, at: dict[str, Any]) -> Array:
        """Return n, with xhat and n in the type of x."""
        rounded = xhat.astype(at["kind"]).astype(self.wide)
        return super().gain(rounded, at).astype(at["kind"]).astype(self.wide)
