"""How a norm is quantized: `Quant`, the rules of scales, and their floors."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.norms.codes import CODE_TYPES, E2M1, E4M3FN, E8M0, CodeType
from truenorm.verify.operation import Case
from truenorm.verify.types import Array, Float64s

SMALLEST_POWER, LARGEST_POWER = -127, 127
"""The exponents of E8M0."""


class MicroScaling(NamedTuple):
    """A scheme with a scale of one byte for each group."""

    code: CodeType
    group: int
    scale: str


MICROSCALING = {
    "mxfp8": MicroScaling(E4M3FN, 32, "e8m0"),
    "mxfp4": MicroScaling(E2M1, 32, "e8m0"),
    "nvfp4": MicroScaling(E2M1, 16, "e4m3fn"),
}
NAMES = (*(name for name in CODE_TYPES if name != "e2m1"), *MICROSCALING)
FLOORS: dict[str, Callable[[float], float]] = {
    "1/(qmax*512)": lambda qmax: 1 / (qmax * 512),
    "float32 eps": lambda qmax: 2.0**-23,  # noqa: ARG005 (the same for every qmax)
    "amax >= 1e-5": lambda qmax: 1e-5 / qmax,
    "amax >= 1e-6": lambda qmax: 1e-6 / qmax,
    "amax >= 1e-10": lambda qmax: 1e-10 / qmax,
    "amax >= 1e-12": lambda qmax: 1e-12 / qmax,
}
"""Rules for the least scale, by name: functions of qmax."""
FLOOR_ERROR = 2.0**-8
"""The relative error of a floor that was rounded to bfloat16 on the way."""
POWERS = ("ceil", "floor", "even", "ceil-of-amax", "nearest")
PowerEnd = tuple[float, bool]
"""The largest amax with the power 0, and True if it has that power itself."""


def powers_of_two(amax: Float64s, power_end: PowerEnd) -> NDArray[np.intp]:
    """Return the exponents of powers of two by a rule; for 0, the least exponent."""
    end, included = power_end
    fractions, exponents = np.frexp(amax)
    fraction, exponent = math.frexp(end)
    more = fractions > fraction if included else fractions >= fraction
    powers = np.where(amax > 0, exponents - exponent + more, SMALLEST_POWER)
    return np.clip(powers, SMALLEST_POWER, LARGEST_POWER)


@dataclass(frozen=True)
class Quant:
    r"""The quantization after a norm, for `norm`.

    Parameters
    ----------
    type : str
        The type of the codes: ``e4m3fn``, ``e4m3fnuz``, ``e5m2`` or ``int8``; or ``mxfp8``,
        ``mxfp4`` or ``nvfp4``, whose groups have scales of one byte.
    scale : str
        ``static``: forward takes the scale. ``per-token``, or ``per-128`` and other sizes of
        groups: forward returns a float32 scale for each row or group.
    direction : str
        Of a static scale: codes are y ``divide``\ d by it or, as in Transformer Engine,
        ``multiply``.
    power : str
        How the scale of mxfp8 and mxfp4 is rounded to a power of two: ``ceil``, ``floor``,
        ``even``, ``ceil-of-amax`` or ``nearest``.
    qmax : float
        The code of the largest \|y\|; by default, the largest of the type.
    floor : str
        The least scale: ``any`` number up to the largest of the known rules, ``none``, or the
        name of a rule, such as ``float32 eps``.
    nan : str
        ``propagate``: where y is NaN, code times scale is not finite. ``clamp``: it is finite.
    amax : bool
        Whether forward also returns the largest \|y\| of the call.
    packed : str
        The half of a byte that has the first of two codes of four bits: ``low-first`` or
        ``high-first``.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> tv.norm("rms_norm", quant=tv.Quant("e4m3fn", scale="per-token")).title
    'RMS normalization, quantized to e4m3fn, scale per-token'
    """

    type: str = "e4m3fn"
    scale: str = "static"
    direction: Literal["divide", "multiply"] = "divide"
    power: str = "ceil"
    qmax: float = 0.0
    floor: str = "any"
    nan: Literal["propagate", "clamp"] = "propagate"
    amax: bool = False
    packed: Literal["low-first", "high-first"] = "low-first"

    def __post_init__(self) -> None:
        """Raise ValueError for an option that is unknown or does not apply."""
        for name, choices in (
            ("type", NAMES),
            ("direction", ("divide", "multiply")),
            ("power", POWERS),
            ("floor", ("any", "none", *FLOORS)),
            ("nan", ("propagate", "clamp")),
            ("packed", ("low-first", "high-first")),
            ("amax", (False, True)),
        ):
            value = getattr(self, name)
            if value not in choices:
                names = ", ".join(map(str, choices))
                raise ValueError(f"{name} of quant must be one of {names}; got {value!r}")
        group = self.scale.removeprefix("per-")
        if self.scale not in ("static", "per-token") and not (
            self.scale.startswith("per-") and group.isdecimal() and 2 <= int(group) <= 2**16
        ):
            raise ValueError(
                "scale of quant must be static, per-token, or per-N with a group of N elements, "
                f"such as per-128; got {self.scale!r}"
            )
        for option, needed, applies in (
            ("scale", "a type without scales of its own", self.type not in MICROSCALING),
            ("direction", "a static scale", self.is_static),
            ("power", "mxfp8 or mxfp4", self.scale_type == "e8m0"),
            ("floor", "a float32 scale that is returned", self.scale_type == "float32"),
            ("packed", "codes of four bits", self.code.name == "e2m1"),
            ("qmax", "a scale that is returned", self.scale_type == "float32"),
        ):
            value = getattr(self, option)
            if value != _DEFAULTS[option] and not applies:
                raise ValueError(f"{option}={value} of quant needs {needed}; got {self.type}")
        if self.qmax:
            code = CODE_TYPES[self.type]
            if not 0 < self.qmax <= code.largest or self.qmax not in code.sizes:
                raise ValueError(
                    f"qmax must be a value of {self.type}, above 0 and at most {code.largest:g}; "
                    f"got {self.qmax:g}"
                )

    @cached_property
    def code(self) -> CodeType:
        """The type of the codes, saturated at qmax."""
        if self.type in MICROSCALING:
            return MICROSCALING[self.type].code
        code = CODE_TYPES[self.type]
        return replace(code, largest=self.qmax) if self.qmax else code

    @property
    def is_static(self) -> bool:
        """True if forward takes the scale of all codes."""
        return self.scale == "static" and self.type not in MICROSCALING

    @property
    def scale_type(self) -> str:
        """The type of scales that are returned; empty for a static scale."""
        if self.type in MICROSCALING:
            return MICROSCALING[self.type].scale
        return "" if self.is_static else "float32"

    @property
    def setting(self) -> str:
        """The name of the number that forward takes after eps, if any."""
        if self.is_static:
            return "scale"
        return "global_scale" if self.scale_type == "e4m3fn" else ""

    @property
    def group(self) -> int:
        """The elements of a group; 0 if a scale is for a row or for all rows."""
        if self.type in MICROSCALING:
            return MICROSCALING[self.type].group
        return 0 if self.scale in ("static", "per-token") else int(self.scale[4:])

    def setting_of(self, case: Case) -> float:
        """Return the number that forward takes after eps."""
        return float(np.asarray(case.inputs[self.setting], np.float64).reshape(-1)[0])

    def code_type(self, output: str) -> CodeType | None:
        """Return the type of the bytes of an output, if it has any."""
        if output == "codes":
            return self.code
        by_scale = {"e8m0": E8M0, "e4m3fn": E4M3FN}
        return by_scale.get(self.scale_type) if output == "scale" else None

    def code_units(self, scales: Float64s, case: Case) -> Float64s:
        """Return the value of the code 1 for scales."""
        if self.direction == "multiply":
            return 1 / scales
        return scales / self.setting_of(case) if self.scale_type == "e4m3fn" else scales

    def spread(self, scales: Array, size: int) -> Array:
        """Return scales of groups for each element; other scales broadcast as they are."""
        if not self.group:
            return scales
        spread: Array = np.repeat(scales, self.group, axis=1)[:, :size]
        return spread

    def groups(self, size: int) -> int:
        """Return the number of groups of a row."""
        return -(-size // self.group) if self.group else 1

    @property
    def options(self) -> dict[str, str]:
        """The options that are not defaults, as text, with the type as ``quant``."""
        given = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name != "type" and getattr(self, each.name) != each.default
        }
        texts = {
            name: f"{value:.17g}" if name == "qmax" else str(value)
            for name, value in given.items()
        }
        return {"quant": self.type, **{name: text.lower() for name, text in texts.items()}}

    @cached_property
    def _power_end(self) -> PowerEnd:
        qmax, precision = self.code.largest, self.code.precision
        top = 2.0 ** math.floor(math.log2(qmax))
        return {
            "ceil": (qmax, True),
            "floor": (2 * top, False),
            "even": ((2 - 2.0**-precision) * top, False),
            "ceil-of-amax": (top, True),
            "nearest": (qmax * math.sqrt(2), True),
        }[self.power]

    def powers(self, amax: Float64s) -> NDArray[np.intp]:
        """Return the exponents of powers of two by the rule; for 0, the least exponent."""
        return powers_of_two(amax, self._power_end)

    def power_cells(self, powers: NDArray[np.intp]) -> tuple[Float64s, Float64s]:
        """Return the least and the largest amax that have some exponents."""
        end, _ = self._power_end
        low = np.where(powers <= SMALLEST_POWER, 0.0, np.ldexp(end, powers - 1))
        return low, np.where(powers >= LARGEST_POWER, np.inf, np.ldexp(end, powers))

    def power_boundary(self, power: int) -> tuple[Fraction, bool]:
        """Return the square of the largest amax with an exponent, and True if it is included.

        The square is rational for every rule.
        """
        end, included = self._power_end
        is_root = self.power == "nearest"
        square = 2 * Fraction(self.code.largest) ** 2 if is_root else Fraction(end) ** 2
        return square * Fraction(4) ** power, included

    @property
    def least_scale(self) -> float:
        """The least scale by the rule `floor`; 0 without a rule."""
        return FLOORS[self.floor](self.code.largest) if self.floor in FLOORS else 0.0

    def floor_name(self, scale: float) -> str:
        """Return the rule whose least scale this is, or the scale as text.

        Return an empty string if `floor` does not allow the scale. A floor above the largest known
        floor would leave few codes to rows of ordinary size.
        """
        rules = {name: rule(self.code.largest) for name, rule in FLOORS.items()}
        for name, least in rules.items():
            if self.floor in ("any", name) and abs(scale - least) <= FLOOR_ERROR * least:
                return name
        return f"{scale:.6g}" if self.floor == "any" and scale <= max(rules.values()) else ""


_DEFAULTS = {each.name: each.default for each in fields(Quant)}
OPTIONS = {"quant" if name == "type" else name for name in _DEFAULTS}
"""The options in the text of an operation."""


def quant_from(options: dict[str, str]) -> Quant:
    """Return the `Quant` of options as text."""
    texts = dict(options)
    given: dict[str, object] = {"type": texts.pop("quant")} if "quant" in texts else {}
    given |= {name: text for name, text in texts.items() if name not in ("qmax", "amax")}
    if "amax" in texts:
        if texts["amax"] not in ("true", "false"):
            raise ValueError(f"amax must be true or false; got {texts['amax']!r}")
        given["amax"] = texts["amax"] == "true"
    if "qmax" in texts:
        try:
            given["qmax"] = float(texts["qmax"])
        except ValueError:
            raise ValueError(f"qmax must be a number; got {texts['qmax']!r}") from None
    return Quant(**given)  # type: ignore[arg-type]
