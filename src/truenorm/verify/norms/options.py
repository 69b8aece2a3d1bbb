"""The options of a norm, and their text."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from fractions import Fraction
from functools import cached_property
from typing import Literal, get_args

from truenorm.tools.arguments import require_choice
from truenorm.verify.formulas.functions import flint
from truenorm.verify.norms.quant import Quant
from truenorm.verify.types import FORMATS

RowNormName = Literal["layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm"]
SpatialName = Literal["group_norm", "instance_norm"]
NormName = RowNormName | SpatialName
Gain = Literal["plain", "zero-centred"]
Sum = Literal["rounded", "unrounded"]
NAMES, SPATIAL = get_args(RowNormName), get_args(SpatialName)
CHOICES: Mapping[str, Sequence[str]] = {
    "gain": get_args(Gain),
    "sum": get_args(Sum),
    "parameters": ("", *FORMATS),
    "result": ("", *FORMATS),
    "gate": ("", "silu", "sigmoid", "silu-first", "sigmoid-first", "self"),
    "modulate": ("", "sample", "row"),
    "over": ("row", "channels"),
    "channels": ("first", "last"),
}
OF_UNITS = (*("groups", "heads", "gate", "modulate", "variance", "gamma", "over", "channels"),)
"""The options of norms that divide a row into units, gate it or modulate it."""
CLOSE = 0.8
"""Likeness from which a name is taken for a misspelt one: RMSNorm is, batch_norm is not."""


@dataclass(frozen=True)
class Options:
    """The options of a norm, as `truenorm.verify.norm` takes them."""

    name: str = "layer_norm"
    gain: str = "plain"
    beta: bool | None = None
    parameters: str = ""
    result: str = ""
    sum: str = "rounded"
    eps: float | None = None
    width: int | None = None
    groups: int = 1
    heads: int = 0
    gate: str = ""
    modulate: str = ""
    variance: str = ""
    gamma: bool = True
    over: str = "row"
    channels: str = "first"
    quant: Quant | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for an option that is unknown, or excluded by another option."""
        if self.name not in (known := (*NAMES, *SPATIAL)):
            for close in get_close_matches(self.name.lower(), known, 1, CLOSE):
                raise ValueError(f"unknown operation {self.name!r}: did you mean {close}?")
            require_choice("operation", self.name, known)
        for option, choices in CHOICES.items():
            if (value := getattr(self, option)) not in choices:
                names = ", ".join(filter(None, choices))
                raise ValueError(f"{option} must be one of {names}; got {value!r}")
        if self.eps is not None and not 0 <= self.eps < math.inf:
            raise ValueError(f"eps must be a finite number, 0 or above; got {self.eps}")
        if self.sum != "rounded" and not self.adds:
            raise ValueError(f"sum={self.sum!r} needs add_{self.name}: {self.name} adds nothing")
        if self.quant is not None:
            self._check_quant(self.quant)
        if self.has_units:
            self._check_units()

    @property
    def adds(self) -> bool:
        """True if a residual is added to x first."""
        return self.name.startswith("add_")

    @property
    def centred(self) -> bool:
        """True if the mean is subtracted."""
        return not self.name.endswith("rms_norm")

    @property
    def has_units(self) -> bool:
        """True if a row is divided into units, gated or modulated."""
        return self.name in SPATIAL or any(
            getattr(self, name) != getattr(Options, name) for name in OF_UNITS
        )

    def _check_quant(self, quant: Quant) -> None:
        if self.has_units:
            raise ValueError(f"quant={quant.type} is not for grouped, gated or modulated norms")
        if self.eps is not None or self.width is not None:
            raise ValueError(f"quant={quant.type} has neither eps= nor width=")
        if self.result:
            raise ValueError(f"result={self.result} and quant={quant.type} exclude each other")

    def _check_units(self) -> None:
        """Raise ValueError for options of units that exclude each other, or need a package."""
        if self.gate:
            flint()
        dividing = {
            "groups": self.groups > 1 and self.name not in SPATIAL,
            "heads": self.heads > 0,
            "modulate=sample": self.modulate == "sample",
            "over=channels": self.over == "channels",
            self.name: self.name in SPATIAL,
        }
        if len(several := [text for text, used in dividing.items() if used]) > 1:
            raise ValueError(f"one of {' and '.join(several)} divides a row; got all of them")
        if self.name == "group_norm" and self.groups < 2:
            raise ValueError("group_norm needs groups of at least 2, such as groups=8")
        if self.name == "instance_norm" and self.groups > 1:
            raise ValueError(f"instance_norm has no groups; got groups={self.groups}")
        if self.groups < 1 or self.heads < 0:
            raise ValueError("groups and heads must be positive")
        if self.channels == "last" and self.name not in SPATIAL:
            raise ValueError(f"channels=last needs group_norm or instance_norm; got {self.name}")
        if self.variance and self.centred:
            raise ValueError(f"variance={self.variance} needs rms_norm: a mean is of all columns")
        share_of(self.variance)

    @cached_property
    def texts(self) -> dict[str, str]:
        """The options that are not defaults, as text; options of `Quant` come last."""
        given = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in ("name", "quant") and getattr(self, each.name) != each.default
        }
        if self.beta == self.centred:
            given.pop("beta", None)
        texts = {
            name: repr(float(value)) if name == "eps" else str(value)
            for name, value in given.items()
        }
        for name in ("beta", "gamma"):
            if name in texts:
                texts[name] = texts[name].lower()
        return texts if self.quant is None else {**texts, **self.quant.options}


def share_of(variance: str) -> Fraction:
    """Return the part of a unit that counts for the mean square."""
    if not variance:
        return Fraction(1)
    try:
        share = Fraction(variance)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share < 1:
        raise ValueError(f"variance must be a fraction between 0 and 1 as 3/4; got {variance!r}")
    return share
