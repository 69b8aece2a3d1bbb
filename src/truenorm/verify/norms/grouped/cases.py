"""Cases of grouped norms: cases of the plain norm, whose rows become units, and cases of gates."""

import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from truenorm.verify.inputs.midpoints import NEXT_TO_MIDPOINTS
from truenorm.verify.inputs.patterns import Pattern, filled
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.variants import adapt_case, within_limits
from truenorm.verify.operation import CHANNELS_LAST, Case
from truenorm.verify.types import FORMATS, Array, dtype_of

UNITS = 2
"""Units of a row if the norm does not set their number."""
SMALLER = -0.5
"""The factor of the second unit of a row: mixed units then show."""
SATURATED = (0.0, -0.0, 1e-3, -20.0, 20.0, 89.5, 100.0, -8.0, 2.0**-20, 60.0)
"""Gates that are nearly 0 or 1, or one half; exp overflows in float32 at 89."""
SMALLEST_GATE = {"float16": -89.5}
"""In place of -20: exp(-z) overflows too. In float16 y is 0 there, in wider types subnormal."""
SMALL_GATE = {"float16": -11.5, "float64": -740.0}
LARGE_GAMMA = {"float16": 256.0}
DIFFERENT_GATES = 1021
"""Sigmoids take most of the time of exact answers. A prime, so that rows start at other gates."""
FLAT = -1.2784645
"""Where the derivative of silu is 0."""


def grouped_cases(norm: Norm, dtype: str, level: str, seed: int) -> Iterator[Case]:
    """Yield the cases of a grouped norm."""
    for case in norm.plain.cases(dtype, level, seed):
        if (made := _of_plain(norm, case)) is not None:
            for each in _of_plain_case(norm, case, made):
                yield from within_limits(norm, each)


def _of_plain_case(norm: Norm, case: Case, made: Case) -> Iterator[Case]:
    """Yield the case that is made of a plain case, and further cases beside some."""
    yield made
    if case.family == "normal" and case.shape[1] in (67, 96):
        yield from _of_gates(norm, made)
        yield from _of_modulation(norm, made)
    if case.family == "normal" and case.shape[1] == 96:
        yield _unlike_units(norm, made)
        yield from _of_partial_variance(norm, made)
        yield from _of_sizes(norm, case)


def _of_plain(norm: Norm, plain: Case) -> Case | None:
    """Return a plain case as a case of a grouped norm, or None if that is impossible."""
    moved = plain.family == NEXT_TO_MIDPOINTS and (norm.gate or norm.modulate or norm.share < 1)
    if moved or plain.shape[1] < 2 or plain.layout != "rows" or plain.needs:
        return None
    return _divided(norm, plain)


def _divided(norm: Norm, plain: Case, channels: int = 0, units: int = 0) -> Case:
    """Return a case whose units are the rows of a plain case.

    `channels` and `units` are those of a group and of a row, if they are not drawn.
    """
    base = norm.base
    once = plain.part(slice(0, plain.shape[0] // plain.repeats))
    if base is not norm.plain:
        once = adapt_case(base, once)
    layout, units, width = _layout(norm, once, channels, units)
    inputs: dict[str, Array | None] = {}
    for each in norm.inputs:
        name, given = each.name, once.inputs.get(each.name)
        if name in ("scale", "shift"):
            inputs[name] = _modulation(once, name, width, norm, units)
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


def _layout(norm: Norm, once: Case, channels: int = 0, units: int = 0) -> tuple[str, int, int]:
    """Return the layout of a case, the number of units of a row, and the elements of gamma."""
    size = once.shape[1]
    units = norm.heads or (norm.groups if norm.groups > 1 else units or UNITS)
    if norm.spatial:
        channels = channels or _factor(once.name, size)
        if norm.name == "instance_norm":
            channels = 1
        last = CHANNELS_LAST if norm.channels_last else ""
        return f"as-{units * channels}x{size // channels}{last}", units, units * channels
    if norm.over == "channels":
        return f"as-{size}x{units}", units, size
    if norm.heads or norm.modulate == "sample":
        return f"as-{units}x{size}", units, size
    if norm.groups > 1:
        return "rows", units, units * size
    return "rows", 1, size


def _factor(name: str, size: int) -> int:
    """Return a factor of a size, drawn by a name."""
    divisors = [each for each in range(1, size + 1) if size % each == 0]
    return divisors[zlib.crc32(name.encode()) % len(divisors)]


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
    z = filled(pattern, once.dtype, (1, DIFFERENT_GATES), f"{once.name} z")
    return np.resize(z, (count, units * once.shape[1]))


def _modulation(once: Case, name: str, width: int, norm: Norm, units: int) -> Array:
    """Return scale or shift: one row for each sample."""
    rows = once.shape[0]
    if norm.modulate == "sample" and rows % units == 0:
        rows //= units
    pattern: Pattern = {"pattern": "normal", "offset": 0.25, "scale": 0.5}
    return filled(pattern, once.dtype, (rows, width), f"{once.name} {name}")


def _named(case: Case, slug: str, why: str, inputs: dict[str, Array], kind: str = "hard") -> Case:
    """Return a case with some inputs replaced, in a new family."""
    name = case.name.replace("-normal-", f"-{slug}-")
    return replace(case.with_inputs(**inputs), name=name, family=slug, why=why, kind=kind)


def _of_gates(norm: Norm, case: Case) -> Iterator[Case]:
    """Yield gates that are nearly 0 or 1, flat, or not finite."""
    kind = dtype_of(case.dtype)
    why = "gates that are nearly 0 or 1, or one half"
    if norm.gate == "self" and case.dtype == "float16" and case.gamma is not None:
        gamma = (case.gamma * kind.type(LARGE_GAMMA[case.dtype])).astype(kind)
        yield _named(case, "gate-saturated", why, {"gamma": gamma})
    if not norm.gates_by_z:
        return
    smallest = SMALLEST_GATE.get(case.dtype, min(SATURATED))
    gates = [smallest if each == min(SATURATED) else each for each in SATURATED]
    z = np.resize(gates, case.x.shape).astype(kind)
    yield _named(case, "gate-saturated", why, {"z": z})
    flat = np.full(case.x.shape, FLAT).astype(kind)
    yield _named(case, "gate-flat", "gates where the derivative of silu is 0", {"z": flat})
    for slug, value in (("nan", np.nan), ("inf", np.inf), ("minus-inf", -np.inf)):
        z = case.z.copy()
        z[-1, 7] = value  # with four groups or more there is one row
        yield _named(case, f"gate-{slug}", f"one z is {slug}", {"z": z}, "special")
    if norm.gate_first or case.gamma is None:
        return
    small = np.full(case.x.shape, SMALL_GATE.get(case.dtype, -95.0)).astype(kind)
    gamma = (case.gamma * kind.type(LARGE_GAMMA.get(case.dtype, 2.0**30))).astype(kind)
    inputs = {"z": small, "gamma": gamma}
    why = "the gate is subnormal, and the norm is large"
    yield _named(case, "gate-subnormal", why, inputs, "subnormal")


def _of_modulation(norm: Norm, case: Case) -> Iterator[Case]:
    """Yield scales of -1 and near it, which remove the norm from y."""
    if not norm.modulate:
        return
    kind = dtype_of(case.dtype)
    scale = np.full(case.scale.shape, -1.0)
    scale[:, ::3] += 4 * 2.0 ** -FORMATS[case.dtype].precision
    why = "1 + scale is 0 or next to it"
    yield _named(case, "scale-near-minus-1", why, {"scale": scale.astype(kind)})
    unlike = case.scale * np.resize([kind.type(2.0**-10), kind.type(64)], (len(scale), 1))
    why = "samples have scales of 1e-3 and of 64"
    yield _named(case, "samples-unlike", why, {"scale": unlike.astype(kind)})


def _of_partial_variance(norm: Norm, case: Case) -> Iterator[Case]:
    """Yield columns that do not count for the variance and would dominate it."""
    geometry = norm.geometry(case)
    if norm.share < 1:
        units = geometry.units_of(case.x.astype(np.float64))
        units[:, norm.counted(geometry.unit_size) :] *= 100.0 if case.dtype == "float16" else 1e4
        x = geometry.rows_of(units).astype(dtype_of(case.dtype))
        why = "columns beyond those of the variance are 1e4 times larger"
        yield _named(case, "large-beyond-variance", why, {"x": x})


SIZES = {
    "odd-group": (3, 25, "a group has three channels"),
    "five-channels": (5, 7, "a group has five channels"),
    "many-places": (1, 4096, "a channel has 4,096 places"),
    "one-place": (48, 1, "a channel has one place"),
    "one-channel": (1, 49, "a group has one channel"),
}
"""By name: the channels of a group, their places, and why."""
MANY_UNITS = 1024


def _of_sizes(norm: Norm, plain: Case) -> Iterator[Case]:
    """Yield groups of unusual sizes, many units, units of one element, and other layouts."""
    if norm.spatial:
        for slug, (channels, places, why) in SIZES.items():
            if norm.name == "group_norm" or channels == 1:
                size = channels * places
                yield _divided(norm, _resized(plain, slug, why, UNITS, size), channels)
    if norm.centred and plain.dtype == "bfloat16":
        why = "the mean is 8 + 1/32, which bfloat16 rounds by 1/32"
        x = _with_mean_8(8, 48).astype(dtype_of(plain.dtype))
        made = _divided(norm, _with_steady_dy(plain, "mean-8", why, 8, 48).with_inputs(x=x))
        yield replace(made, kind="hard")
    if norm.modulate == "sample":
        many = _with_steady_dy(plain, "many-units", "a sample has many units", MANY_UNITS, 8)
        yield _divided(norm, many, units=MANY_UNITS)
    one = _resized(plain, "one-element-units", "a unit has one element", 4, 1)
    yield replace(_divided(norm, one), needs=frozenset(["one-element-units"]), kind="hard")
    for key, layout in (("padded-rows", "padded"), ("channels-last", "")):
        if key in norm.extensions:
            made = _divided(norm, _resized(plain, key, norm.extensions[key], 4, 60))
            layout = layout or f"{made.layout}{CHANNELS_LAST}"
            yield replace(made, layout=layout, needs=frozenset([key]))


def _with_steady_dy(plain: Case, slug: str, why: str, count: int, size: int) -> Case:
    """Return a resized case in which dy has one sign: errors of one sign add up in sums."""
    case = _resized(plain, slug, why, count, size)
    steady: Pattern = {"pattern": "normal", "offset": 0.5, "scale": 0.125}
    return case.with_inputs(dy=filled(steady, case.dtype, case.shape, f"{case.name} dy"))


def _with_mean_8(count: int, size: int) -> Array:
    """Return rows of numbers of bfloat16 with the mean 8 + 1/32, and one outlier.

    The condition number is below 10. The error of a saved mean is largest at the outlier.
    """
    above = np.round(1.2 * np.linspace(0, 1, size // 2) * 16) / 16
    above[0] = 2.9375
    row = np.stack([8 + above + 1 / 16, 8 - above], axis=1).reshape(-1)
    return np.stack([np.roll(row, 7 * k) for k in range(count)])


def _resized(plain: Case, slug: str, why: str, count: int, size: int) -> Case:
    """Return a case of normal numbers of another size, in a new family."""
    name = f"{plain.dtype}-{slug}-{count}x{size}"
    inputs: dict[str, Array | None] = {}
    for key, role in plain.operation.inputs:
        pattern: Pattern = {"pattern": "normal", "offset": 0.5}
        if key == "gamma":
            pattern = {"pattern": "normal", "offset": 1.0, "scale": 0.25}
        shape = (size,) if role == "parameter" else (count, size)
        inputs[key] = filled(pattern, plain.dtype, shape, f"{name} {key}")
    return replace(plain, name=name, family=slug, why=why, inputs=inputs, repeats=1)


def _unlike_units(norm: Norm, case: Case) -> Case:
    """Return rows whose units differ by eight decades, or by three in float16."""
    decades = 1.5 if case.dtype == "float16" else 4.0
    geometry = norm.geometry(case)
    units = geometry.units_of(case.x.astype(np.float64))
    signs = np.where(np.arange(len(units)) % 2, -1.0, 1.0)[:, np.newaxis]
    x = geometry.rows_of(units * 10.0 ** (decades * signs)).astype(dtype_of(case.dtype))
    inputs = {"x": x} if not norm.adds else {"x": x, "residual": np.zeros_like(x)}
    return _named(case, "units-unlike", "units of 1e4 beside units of 1e-4", inputs)
