"""Cases of relatives: those of the plain norm, whose rows become units, and some of gates."""

import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from truenorm.verify.cases.midpoints import NEXT_TO_MIDPOINTS
from truenorm.verify.cases.patterns import Pattern, filled
from truenorm.verify.operation import Case
from truenorm.verify.operations.norms import Norm
from truenorm.verify.operations.variants import adapt_case
from truenorm.verify.types import FORMATS, Array, dtype_of

if TYPE_CHECKING:
    from truenorm.verify.operations.relatives.norm import RelativeNorm

UNITS = 2
"""Units of a row where the norm does not say how many."""
SMALLER = -0.5
"""The factor of the unit beside that of a plain case: so mixing units shows."""
SATURATED = (0.0, -0.0, 1e-3, -20.0, 20.0, 89.5, 100.0, -8.0, 2.0**-20, 60.0)
"""Gates that are nearly 0 or 1, or one half; exp overflows in float32 at 89."""
LARGEST_GATE = {"float16": 12.0}
FLAT = -1.2784645
"""Where the derivative of silu is 0."""


def relative_cases(norm: "RelativeNorm", dtype: str, level: str, seed: int) -> Iterator[Case]:
    """Yield the cases of a relative."""
    plain = Norm("layer_norm" if norm.centred else "rms_norm")
    for case in plain.cases(dtype, level, seed):
        made = _of_plain(norm, case)
        if made is None:
            continue
        yield made
        if case.family == "normal" and case.shape[1] in (67, 96):
            yield from _of_gates(norm, made)
            yield from _of_modulation(norm, made)
        if case.family == "normal" and case.shape[1] == 96:
            yield _unlike_units(norm, made)


def _of_plain(norm: "RelativeNorm", plain: Case) -> Case | None:
    """Return a plain case as one of the relative, or None if it cannot be one."""
    moved = plain.family == NEXT_TO_MIDPOINTS and (norm.gate or norm.modulate or norm.share < 1)
    if plain.layout != "rows" or plain.needs or moved or plain.shape[1] < 2:
        return None
    base = norm.base
    once = plain.part(slice(0, plain.shape[0] // plain.repeats))
    if base.is_variant:
        once = adapt_case(base, once)
    layout, units, width = _layout(norm, once)
    inputs: dict[str, Array | None] = {}
    for each in norm.inputs:
        name, given = each.name, once.inputs.get(each.name)
        if name in ("scale", "shift"):
            inputs[name] = _modulation(once, name, width, norm)
        elif name == "z":
            inputs[name] = _gate(once, units)
        elif each.role == "parameter":
            inputs[name] = _parameter(given, units, width, once.shape[1])
        else:
            assert given is not None
            inputs[name] = _in_units(given, units)
    made = replace(
        once, operation=norm, inputs=inputs, layout=layout, repeats=1, enclosed=False, made=""
    )
    return made.tiled(plain.repeats)


def _layout(norm: "RelativeNorm", once: Case) -> tuple[str, int, int]:
    """Return the layout of a case, the number of units of a row, and the elements of gamma."""
    size = once.shape[1]
    units = norm.heads or (norm.groups if norm.groups > 1 else UNITS)
    if norm.spatial:
        divisors = [each for each in range(1, size + 1) if size % each == 0]
        channels = divisors[zlib.crc32(once.name.encode()) % len(divisors)]
        if norm.name == "instance_norm":
            channels = 1
        return f"as-{units * channels}x{size // channels}", units, units * channels
    if norm.over == "channels":
        return f"as-{size}x{units}", units, size
    if norm.heads or norm.modulate == "sample":
        return f"as-{units}x{size}", units, size
    if norm.groups > 1:
        return "rows", units, units * size
    return "rows", 1, size


def _in_units(rows: Array, units: int) -> Array:
    """Return rows as units of fewer or of longer rows.

    As many rows as units make one row. Otherwise each row gets units of its own numbers, in
    another order and size.
    """
    count, size = rows.shape
    if units == 1:
        return rows
    if count % units == 0:
        return rows.reshape(-1, units * size)
    kind = rows.dtype.type
    with np.errstate(all="ignore"):
        parts = [
            rows if k == 0 else np.roll(rows, k, axis=1) * kind(SMALLER ** ((k - 1) % 3 + 1))
            for k in range(units)
        ]
    return np.concatenate(parts, axis=1)


def _parameter(given: Array | None, units: int, width: int, size: int) -> Array | None:
    """Return gamma or beta for another number of columns."""
    if given is None or width == size:
        return given
    with np.errstate(all="ignore"):
        parts = [given * given.dtype.type(1 - 0.25 * (k % 3)) for k in range(units)]
        return np.resize(np.concatenate(parts), width).astype(given.dtype)


def _gate(once: Case, units: int) -> Array:
    pattern: Pattern = {"pattern": "normal", "scale": 3.0}
    count = once.shape[0] // units if once.shape[0] % units == 0 else once.shape[0]
    return filled(pattern, once.dtype, (count, units * once.shape[1]), f"{once.name} z")


def _modulation(once: Case, name: str, width: int, norm: "RelativeNorm") -> Array:
    """Return scale or shift: one row for each sample."""
    rows = once.shape[0]
    if norm.modulate == "sample" and rows % UNITS == 0:
        rows //= UNITS
    pattern: Pattern = {"pattern": "normal", "offset": 0.25, "scale": 0.5}
    return filled(pattern, once.dtype, (rows, width), f"{once.name} {name}")


def _named(case: Case, slug: str, why: str, inputs: dict[str, Array], kind: str = "hard") -> Case:
    """Return a case with some inputs replaced, in a family of its own."""
    name = case.name.replace("-normal-", f"-{slug}-")
    return replace(case.with_inputs(**inputs), name=name, family=slug, why=why, kind=kind)


def _of_gates(norm: "RelativeNorm", case: Case) -> Iterator[Case]:
    """Yield gates that are nearly 0 or 1, flat, or not finite."""
    if not norm.gates_by_z:
        return
    kind, limit = dtype_of(case.dtype), LARGEST_GATE.get(case.dtype, np.inf)
    z = np.resize(np.clip(SATURATED, -limit, limit), case.x.shape).astype(kind)
    yield _named(case, "gate-saturated", "gates that are nearly 0 or 1, or one half", {"z": z})
    flat = np.full(case.x.shape, FLAT).astype(kind)
    yield _named(case, "gate-flat", "gates where the derivative of silu is 0", {"z": flat})
    for slug, value in (("nan", np.nan), ("inf", np.inf)):
        z = case.z.copy()
        z[1, 7] = value
        yield _named(case, f"gate-{slug}", f"one z is {slug}", {"z": z}, "special")


def _of_modulation(norm: "RelativeNorm", case: Case) -> Iterator[Case]:
    """Yield scales of -1 and near it, which remove the norm from y."""
    if not norm.modulate:
        return
    kind = dtype_of(case.dtype)
    scale = np.full(case.scale.shape, -1.0)
    scale[:, ::3] += 4 * 2.0 ** -FORMATS[case.dtype].precision
    why = "1 + scale is 0 or next to it"
    yield _named(case, "scale-near-minus-1", why, {"scale": scale.astype(kind)})


def _unlike_units(norm: "RelativeNorm", case: Case) -> Case:
    """Return rows whose units differ by eight decades, or by three in float16."""
    decades = 1.5 if case.dtype == "float16" else 4.0
    geometry = norm.geometry(case)
    units = geometry.units_of(case.x.astype(np.float64))
    signs = np.where(np.arange(len(units)) % 2, -1.0, 1.0)[:, np.newaxis]
    x = geometry.rows_of(units * 10.0 ** (decades * signs)).astype(dtype_of(case.dtype))
    inputs = {"x": x} if not norm.adds else {"x": x, "residual": np.zeros_like(x)}
    return _named(case, "units-unlike", "units of 1e4 beside units of 1e-4", inputs)
