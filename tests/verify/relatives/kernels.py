"""Relatives of the norms in float64, forward and backward, written from their definitions.

`Textbook` works on arrays as a user has them: (N, C, S) for group norm, (N, T, D) for heads and
samples, (N, D) otherwise. A wrong kernel overrides a method.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv
from truenorm.verify.operations.relatives.norm import RelativeNorm

Array = NDArray[Any]


class Textbook:
    """A relative of the norms in a wide type, by default float64, rounded at the end."""

    def __init__(self, norm: RelativeNorm, wide: Any = np.float64) -> None:
        self.norm, self.wide = norm, wide

    def subject(self, dtype: str = "float32", name: str = "textbook", **claims: Any) -> tv.Subject:
        """Return it as a subject."""
        return tv.Subject(
            self.forward, self.backward, name=name, dtypes=[dtype], operation=self.norm, **claims
        )

    def widen(self, array: Array) -> Array:
        """Return an array in the wide type."""
        return np.asarray(array.astype(self.wide))

    def narrow(self, array: Array, kind: Any) -> Array:
        """Round a result to the type of x."""
        return np.asarray(array.astype(kind))

    def units(self, x: Array) -> Array:
        """Return x as (N, units, elements of a unit)."""
        norm, count = self.norm, len(x)
        if norm.name == "instance_norm":
            return x.reshape(count, x.shape[1], -1)
        if norm.over == "channels":
            return np.asarray(np.moveaxis(x.reshape(count, x.shape[1], -1), 1, 2))
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
        """Return the gate and its derivative."""
        sigma: Array = 1 / (1 + np.exp(-z))
        if self.norm.activation == "sigmoid":
            return sigma, sigma * (1 - sigma)
        return z * sigma, sigma * (1 + z * (1 - sigma))

    def squares(self, c: Array) -> Array:
        """Return the mean or the sum of squares of each unit."""
        counted = self.norm.counted(c.shape[-1])
        total: Array = np.sum(c[..., :counted] ** 2, axis=-1, keepdims=True)
        return total if self.norm.divisor == "sum" else total / counted

    def forward(self, *arguments: Any) -> Any:
        """Return y, the sum if a residual is added, and what backward needs."""
        *arrays, eps = arguments
        at: dict[str, Any] = dict(
            zip(self.norm.inputs_of("data", "parameter"), arrays, strict=True)
        )
        kind, shape = at["x"].dtype, at["x"].shape
        at = {name: self.widen(each) for name, each in at.items()}
        at["kind"], at["shape"] = kind, shape
        x, total = at["x"], None
        if self.norm.adds:
            total = self.narrow(x + at["residual"], kind)
            x = self.widen(total)
        u = x
        if self.norm.gates_by_z:
            at["s"], at["slope"] = self.gate(at["z"])
            u = x * at["s"] if self.norm.gate_first else x
        cut = self.units(u)
        c = cut - cut.mean(-1, keepdims=True) if self.norm.centred else cut
        r = 1 / np.sqrt(self.squares(c) + self.widen(np.full(1, eps)))
        at |= {"u": x, "r": r, "xhat": c * r}
        n = self.back(at["xhat"], shape)
        at["gain"] = self.widen(np.ones(shape))
        if "gamma" in at:
            at["gain"] = self.per_element(at["gamma"] + (self.norm.gain == "zero-centred"), shape)
            n = n * at["gain"]
        if "beta" in at:
            n = n + self.per_element(at["beta"], shape)
        m = n
        if self.norm.modulate:
            at["factor"] = 1 + self.modulation(at["scale"], shape)
            m = n * at["factor"] + self.modulation(at["shift"], shape)
        y = m
        if self.norm.gate == "self":
            y, at["slope"] = self.gate(m)
        elif self.norm.gates_by_z and not self.norm.gate_first:
            y = m * at["s"]
        at |= {"n": n, "m": m}
        result = self.narrow(y, kind)
        return (result, at) if total is None else (result, total, at)

    def backward(self, dy: Array, *rest: Any) -> Any:
        """Return the gradients of all inputs."""
        *others, at = rest
        norm, shape = self.norm, at["shape"]
        d = dy = self.widen(dy)
        results: dict[str, Array] = {}
        if norm.gate == "self":
            d = dy * at["slope"]
        elif norm.gates_by_z and not norm.gate_first:
            d = dy * at["s"]
            results["dz"] = dy * at["m"] * at["slope"]
        e = d
        if norm.modulate:
            sums = (1,) if norm.modulate == "sample" else ()
            results["dshift"], results["dscale"] = d.sum(sums), (d * at["n"]).sum(sums)
            e = d * at["factor"]
        xhat = self.back(at["xhat"], shape)
        results |= {"dgamma": self.columns(e * xhat), "dbeta": self.columns(e)}
        g, xhat = self.units(at["gain"] * e), at["xhat"]
        counted = norm.counted(g.shape[-1])
        along = (g * xhat).sum(-1, keepdims=True) / (1 if norm.divisor == "sum" else counted)
        projected = xhat * along
        projected[..., counted:] = 0
        inner = g - g.mean(-1, keepdims=True) if norm.centred else g
        du = self.back(at["r"] * (inner - projected), shape)
        if norm.gate_first:
            results["dz"] = du * at["u"] * at["slope"]
            du = du * at["s"]
        if norm.adds:
            du = du + self.widen(others[0])
        results |= {"dx": du, "dresidual": du}
        names = norm.outputs_of(backward=True)
        gradients = tuple(self.narrow(results[name], at["kind"]) for name in names)
        return gradients if len(gradients) > 1 else gradients[0]

    def columns(self, terms: Array) -> Array:
        """Sum over all elements with the same element of gamma."""
        by_channel = self.norm.spatial or self.norm.over == "channels"
        kept = 1 if by_channel else terms.ndim - 1
        axes = tuple(axis for axis in range(terms.ndim) if axis != kept)
        return np.asarray(terms.sum(axes))
