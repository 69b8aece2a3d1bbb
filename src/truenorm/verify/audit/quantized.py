"""Wrong kernels of quantized norms: y in float64, then scales and codes, with one planted bug."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.audit.planted import Kernel, PlantedBug, case_of_inputs, planted_bugs
from truenorm.verify.formulas.rounding import rounded, truncated
from truenorm.verify.norms.changes import constant
from truenorm.verify.norms.codes import E4M3FN, CodeType, packed
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.quant import Quant
from truenorm.verify.norms.quantized.answers import in_groups, largest_in_groups
from truenorm.verify.norms.quantized.hypotheses import conversions
from truenorm.verify.norms.quantized.recipes import NORMS
from truenorm.verify.norms.steps import Changes, Steps
from truenorm.verify.operation import Case
from truenorm.verify.types import Array, Float64s, numeric_dtype

OF_PLAIN_NORMS = {"no reduction, normal", "other eps", "no gamma", "no residual"}
"""Bugs of plain norms that are planted in quantized norms too."""
SCALED_TOO = "T, scaled too"


def _quant(at: Steps) -> Quant:
    return at.norm.quant


def _setting(at: Steps) -> float:
    return _quant(at).setting_of(at.case)


def _group_amax(at: Steps, of: str = "y") -> Float64s:
    rows = np.abs(at[of])
    if _quant(at).nan == "clamp":
        rows = np.where(np.isfinite(rows), rows, 0.0)
    return largest_in_groups(rows, _quant(at))


def _scale(at: Steps, amax: Float64s) -> Float64s:
    """Return the scale of each group; a float32 scale of zeros is 1."""
    quant = _quant(at)
    if quant.is_static:
        return np.full((1, 1), _setting(at))
    if quant.scale_type == "e8m0":
        return np.where(np.isfinite(amax), np.ldexp(1.0, quant.powers(amax)), np.nan)
    if quant.scale_type == "e4m3fn":
        return E4M3FN.nearest(amax * _setting(at) / quant.code.largest)
    return np.where(amax == 0, 1.0, rounded(amax / quant.code.largest, "float32"))


def _unit(at: Steps, scales: Float64s) -> Float64s:
    """Return the value of the code 1 for each element, given the scales of groups."""
    quant = _quant(at)
    return quant.spread(quant.code_units(scales, at.case), at.size)


def _scaled(at: Steps) -> Float64s:
    # The scale of a group of NVFP4 may underflow to 0: so do its codes.
    underflows = (at["unit"] == 0) & (_quant(at).scale_type == "e4m3fn") & np.isfinite(at["y"])
    return np.where(underflows, 0.0, at["y"] / at["unit"])


def _clamped(at: Steps) -> Float64s:
    """Return y over the scale, without NaN if the norm clamps it."""
    quant, scaled = _quant(at), at["scaled"]
    return (
        np.where(np.isnan(scaled), quant.code.largest, scaled) if quant.nan == "clamp" else scaled
    )


def _codes(at: Steps) -> Float64s:
    return _quant(at).code.nearest(_clamped(at))


def _amax(at: Steps, of: str = "y") -> Float64s:
    return np.full(1, np.nanmax(np.abs(at[of]), initial=0.0))


QUANTIZED: Changes = {
    "group_amax": _group_amax,
    "scale": lambda at: _scale(at, at["group_amax"]),
    "returned_scale": lambda at: at["scale"],
    "unit": lambda at: _unit(at, at["scale"]),
    "scaled": _scaled,
    "codes": _codes,
    "amax": _amax,
}
"""The steps after y; codes are numbers, which `QuantizedKernel.as_array` encodes."""


class Recipe(NamedTuple):
    """The parts of a recipe: where the norm rounds, what is rounded after it, how y is scaled."""

    norm: str = "late"
    via: str = "direct"
    way: str = ""

    @classmethod
    def parse(cls, text: str, norm: Norm) -> "Recipe":
        """Return the recipe with this name; without one, only results are rounded."""
        if not text:
            return cls()
        if text not in norm.knowledge.recipe_names:
            names = "; ".join(norm.knowledge.recipe_names)
            raise ValueError(f"recipe must be one of {names}; got {text!r}")
        name, _, rest = text.partition("/")
        return cls(name, rest) if rest == SCALED_TOO else cls(name, *rest.split(", "))

    def steps(self) -> Changes:
        """Return the steps that are rounded."""
        return {"y": self._y, "scaled": self._scaled}

    def _y(self, at: Steps) -> Float64s:
        kind, of_x = at.case.dtype, NORMS[self.norm][0]
        if "x*gain" in of_x:
            y = rounded(at["c"] * at["gain"], kind) * at["r"]
        else:
            y = (rounded(at["xhat"], kind) if "xhat" in of_x else at["xhat"]) * at["gain"]
        return y + at["beta"] if self.via == "direct" else rounded(y + at["beta"], kind)

    def _scaled(self, at: Steps) -> Float64s:
        if self.via == SCALED_TOO:
            return rounded(_scaled(at), at.case.dtype)
        if not self.way:
            return _scaled(at)
        # Codes show the way by roundings of float32. A factor beyond its range is not rounded.
        unit, amax = at["unit"], np.where(at["group_amax"] == 0, 1.0, at["group_amax"])
        exact = 1 / unit if self.way == "reciprocal" else _quant(at).code.largest / amax
        factor = np.where(exact > np.finfo(np.float32).max, exact, rounded(exact, "float32"))
        return rounded(at["y"] / unit if self.way == "divide" else at["y"] * factor, "float32")


class QuantizedKernel(Kernel):
    """A quantized norm with or without a planted bug."""

    norm: Norm
    backward = None  # type: ignore[assignment]
    sample_shape = (5, 4096)

    def _steps_of_recipe(self) -> Changes:
        return {**QUANTIZED, **Recipe.parse(self.recipe, self.norm).steps()}

    @property
    def roundings(self) -> str:
        """The recipe without the way to scale, which has cases of its own."""
        return "/".join(Recipe.parse(self.recipe, self.norm)[:2])

    def result(self, steps: Steps, name: str) -> Float64s:
        """Return a result as numbers."""
        count, size = steps.case.shape
        shapes = {"scale": (count, self.norm.quant.groups(size)), "amax": (1,)}
        values = steps["returned_scale" if name == "scale" else name]
        return np.asarray(np.broadcast_to(values, shapes.get(name, (count, size))))

    def forward(self, *arguments: Any) -> Any:
        """Return the results; codes and scales of one byte are uint8, and int8 are int8."""
        names = [*self.norm.inputs_of("data", "parameter"), "eps", self.norm.quant.setting]
        inputs = dict(zip(filter(None, names), arguments, strict=True))
        x, steps = inputs["x"], self.steps(case_of_inputs(self.norm, inputs, inputs.pop("eps")))
        results = []
        for name in self.norm.outputs_of(backward=False):
            code, shape = (
                self.norm.quant.code_type(name),
                self.norm.result_shapes(name, x.shape)[0],
            )
            kind = code.dtypes[0] if code else self.norm.type_of(name, x.dtype.name)
            results.append(
                self.as_array(name, self.result(steps, name), shape, numeric_dtype(kind))
            )
        return results[0] if len(results) == 1 else tuple(results)

    def as_array(
        self, name: str, values: Float64s, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Array:
        """Return a result in a shape and a type; codes and their scales are bytes."""
        code, size = self.norm.quant.code_type(name), int(np.prod(shape))
        if code is None:
            return super().as_array(name, values, shape, dtype)
        codes = code.encode(values)
        if name == "codes" and code.name == "e2m1" and size < codes.size:
            codes = packed(codes, high_first=self.norm.quant.packed == "high-first")
        if dtype.itemsize != 1 or codes.size != size:
            raise ValueError(
                f"{name} must have {codes.size} elements of one byte for this x; got the shape "
                f"{shape} and the type {dtype.name}"
            )
        return codes.reshape(shape).view(dtype)

    def written_arguments(self, arguments: Collection[str]) -> dict[str, str]:
        """Return the arguments to which a function may write its results, by result."""
        total = "sum" if "sum" in arguments else "residual"
        return {"codes": "out", "scale": "scale", "amax": "amax", "sum": total}

    def _sample(self, dtype: str, arguments: Collection[str]) -> Case:
        """Return rows of several sizes, zeros and NaN, with a scale that saturates codes."""
        case, quant = super()._sample(dtype, arguments), self.norm.quant
        factors = np.array([[1], [3], [0.01], [0], [np.nan]]).astype(case.x.dtype)
        rows = {name: array * factors for name, array in case.rows.items()}
        inverse = quant.is_static and quant.direction == "divide"
        number = 1 / quant.code.largest if inverse else quant.code.largest
        settings = {quant.setting: np.full(1, number, np.float32)} if quant.setting else {}
        return case.with_inputs(**rows, **settings)


def quantized_bugs(norm: Norm, recipe: str = "") -> list[PlantedBug]:
    """Return the bugs that can be planted in a quantized norm, the most obvious first."""
    quant = norm.quant
    code, top = quant.code, quant.code.largest
    returned, has_nan = not quant.is_static, quant.type != "int8"
    is_float32, is_power = quant.scale_type == "float32", quant.scale_type == "e8m0"
    grouped, of = quant.group > 0, "group" if quant.group else "row"
    other = "multiplied" if quant.direction == "divide" else "divided"
    table: list[tuple[bool, str, str, Changes]] = [
        (True, "zeros", "all codes are 0", {"codes": lambda at: np.zeros(at.case.shape)}),
        (True, "no scale", "y is encoded without the scale", {"unit": constant(1.0)}),
        (True, f"{other} by the scale", f"y is {other} by the scale",
         {"unit": lambda at: 1 / QUANTIZED["unit"](at)}),
        (quant.nan == "propagate" and has_nan, "NaN clamped", "codes of NaN are the largest code",
         {"codes": lambda at: np.where(np.isnan(at["scaled"]), top, _codes(at)),
          "group_amax": lambda at: largest_in_groups(np.abs(_finite(at["y"])), quant)}),
        (code.name == "e2m1", "nibbles exchanged", "the two codes of a byte are exchanged",
         {"codes": lambda at: _codes(at)[:, np.arange(at.size) ^ 1]}),
        (returned, "amax of x", "amax is that of x, not of y",
         {"group_amax": partial(_group_amax, of="rows")}),
        (returned, "amax without gamma", "amax is that of xhat, before gamma",
         {"group_amax": partial(_group_amax, of="xhat")}),
        (returned, "signed amax", "amax is the largest y, not the largest |y|",
         {"group_amax": lambda at: largest_in_groups(at["y"], quant)}),
        (returned, "one scale", "all rows have the largest scale",
         {"group_amax": lambda at: _group_amax(at) * 0 + np.nanmax(_group_amax(at))}),
        (is_float32, "inverse returned", "the inverse of the scale is returned",
         {"returned_scale": lambda at: 1 / at["scale"]}),
        (is_float32 and has_nan, "zero rows", "the scale of zeros is 0, and their codes are NaN",
         {"scale": lambda at: rounded(at["group_amax"] / top, "float32")}),
        (is_float32 and top == E4M3FN.largest, "240 for 448", "the scale is amax/240",
         {"scale": lambda at: _scale(at, at["group_amax"] * (448 / 240))}),
        (is_power, "power of amax", "the largest code is left out of the power of two",
         {"scale": lambda at: np.ldexp(_scale(at, at["group_amax"]), int(np.log2(top)))}),
        (is_power, "power too small", "the power of two is one too small",
         {"scale": lambda at: _scale(at, at["group_amax"]) / 2}),
        (quant.setting == "global_scale", "inverse global scale",
         "scales are divided by the global scale, not multiplied",
         {"scale": lambda at: E4M3FN.nearest(at["group_amax"] / _setting(at) / top)}),
        (returned, "scale before", f"codes have the scale of the {of} before",
         {"unit": lambda at: _unit(at, np.roll(at["scale"], 1, axis=int(grouped)))}),
        (grouped and quant.group % 2 == 0, "half groups",
         "codes have scales of groups of half the size", {"unit": _of_half_groups}),
        (quant.amax, "amax after scaling", "amax is that of y times the scale",
         {"amax": partial(_amax, of="scaled")}),
        (norm.adds, "stale residual", "the residual is returned as the sum",
         {"sum": lambda at: at.input("residual", 0.0)}),
        (norm.adds, "truncated sum", "the sum is truncated, not rounded", {"sum": _truncated_sum}),
    ]  # fmt: skip
    return [
        *(PlantedBug(name, text, changes) for applies, name, text, changes in table if applies),
        *_of_conversion(quant),
        *(bug for bug in planted_bugs(norm.plain) if bug.name in OF_PLAIN_NORMS),
        *(_of_rounding(norm, recipe) if recipe else ()),
    ]


def _of_conversion(quant: Quant) -> list[PlantedBug]:
    """Return hypotheses of the judge about the conversion to codes as bugs."""
    names = {"codes are rounded towards zero": "truncated"}
    if quant.is_static:
        beyond = ("are not saturated: they are NaN", "are not saturated: they are infinity")
        for words in (*beyond, "wrap around"):
            names[f"codes beyond the largest {words}"] = "no saturation"
    return [
        PlantedBug(names[words], words, {"codes": partial(_converted, convert)})
        for words, convert in conversions(quant)
        if words in names
    ]


def _converted(convert: Callable[[CodeType, Float64s], Float64s], at: Steps) -> Float64s:
    return convert(_quant(at).code, _clamped(at))


def _of_rounding(norm: Norm, recipe: str) -> list[PlantedBug]:
    """Return bugs that only a required recipe makes wrong."""
    right = Recipe.parse(recipe, norm)
    bugs = {"not rounded": ("y is not rounded to the type of x before it is scaled", "direct")}
    if right.via == "direct":
        bugs = {"rounded first": ("y is rounded to the type of x before it is scaled", "T")}
    if right.via != SCALED_TOO and norm.quant.scale_type != "e8m0":
        bugs["rounded again"] = ("y over the scale is rounded to the type of x", SCALED_TOO)
    return [
        PlantedBug(name, text, right._replace(via=via).steps(), narrow=True, by_bits=True)
        for name, (text, via) in bugs.items()
    ]


def _finite(values: Float64s) -> Float64s:
    return np.where(np.isfinite(values), values, 0.0)


def _of_half_groups(at: Steps) -> Float64s:
    group = _quant(at).group
    groups = in_groups(np.abs(at["y"]), _quant(at))
    half = groups.reshape(at.count, -1, group // 2).max(axis=2)
    units = [_unit(at, _scale(at, half[:, first::2])) for first in (0, 1)]
    return np.where(np.arange(at.size) % group < group // 2, *units)


def _truncated_sum(at: Steps) -> Float64s:
    return truncated(at.input("x", 0.0) + at.input("residual", 0.0), at.case.dtype)
