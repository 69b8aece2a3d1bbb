"""Cases of quantized norms: families of rows, with scales where the norm takes a scale.

Rows and parameters are made for a plain norm, and adapted to variants like plain cases.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.inputs import families
from truenorm.verify.inputs.families import EPS, EPSILONS, PLAIN_X, SEEDS, Family
from truenorm.verify.inputs.midpoints import NEXT_TO_MIDPOINTS, RowMaker, rows_of_y
from truenorm.verify.inputs.patterns import Pattern
from truenorm.verify.norms.codes import E4M3FN, CodeType
from truenorm.verify.norms.norm import PARTIAL_GROUPS, Norm
from truenorm.verify.norms.quant import Quant
from truenorm.verify.norms.variants import adapt_case
from truenorm.verify.operation import Case
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of

WIDTHS = {
    "quick": (2, 16, 33, 128, 200, 512, 1000, 1024, 1152, 3000, 4096, 8192),
    "full": (3, 5, 64, 67, 256, 257, 768, 2048, 2049, 5120, 7168, 16384),
}
GROUPED_WIDTHS = {
    "quick": (128, 256, 512, 1024, 1152, 4096, 8192),
    "full": (384, 640, 768, 2048, 2304, 5120, 7168, 16384),
}
"""Multiples of the usual groups; other groups have multiples of their own."""
ROW_COUNTS = (1, 255, 256, 257, 384)
"""Numbers of rows at which kernels wrote other scales (vllm#48271, flashinfer#3398)."""
CHOSEN = ("ways", "amax", NEXT_TO_MIDPOINTS)
"""Families whose y is chosen."""
MOST_OFFSETS = 9
"""Steps of the mean of a row, each by a factor of sqrt(10)."""
ROOM = (1.0, 0.8, 1.1)
"""How much of the range of codes a static scale uses: amax over scale over qmax, inverted."""


@dataclass(frozen=True)
class _Kind:
    """A family, its shape, and the room that a static scale leaves."""

    family: Family
    rows: int
    size: int
    room: float = 1.0
    of_family: str = ""


def quantized_cases(norm: Norm, dtype: str, level: str, seed: int) -> Iterator[Case]:
    """Yield the cases of a quantized norm."""
    for first in range(seed, seed + SEEDS[level]):
        for kind in _families(norm.quant, dtype, level):
            yield _of_kind(norm, kind, dtype, first)
        if norm.centred:  # else a large mean is not hard
            for kind in _offsets(norm.quant, dtype):
                yield _of_kind(norm, kind, dtype, first)
    yield from _constructed(norm, dtype)


def _of_kind(norm: Norm, kind: _Kind, dtype: str, seed: int) -> Case:
    plain = kind.family.case(norm.plain, dtype, kind.rows, kind.size, seed)
    if kind.of_family:
        plain = replace(plain, family=kind.of_family)
    return quantized(norm, plain, kind.room)


def quantized(norm: Norm, plain: Case, room: float = 1.0, scale: float = 0.0) -> Case:
    """Return a case of a plain norm as a case of a quantized norm.

    A static scale is chosen so that the largest |y| is about 1/room of the largest code, unless it
    is given. Rows of one of the families `CHOSEN` stay as they are.
    """
    case = plain
    if norm.base is not norm.plain:
        # The family next to midpoints is adapted without new digits: the residual is zero.
        family = NEXT_TO_MIDPOINTS if plain.family in CHOSEN else plain.family
        case = replace(adapt_case(norm.base, replace(plain, family=family)), family=plain.family)
    inputs = {name: case.inputs[name] for name in norm.inputs_of("data", "parameter")}
    if norm.quant.setting:
        number = scale or _setting(norm, case, room)
        inputs[norm.quant.setting] = np.full(1, number, np.float32)
    needs = plain.needs
    if norm.quant.group and case.shape[1] % norm.quant.group:
        needs = needs | {PARTIAL_GROUPS}
    return replace(case, operation=norm, inputs=inputs, needs=needs, made="")


def _setting(norm: Norm, case: Case, room: float) -> float:
    """Return the static scale or the global scale for the largest |y| of a case."""
    amax = _largest(norm, case) * room
    largest = norm.quant.code.largest
    if norm.quant.scale_type == "e4m3fn":
        return _in_float32(E4M3FN.largest * largest / amax)
    return _in_float32(largest / amax if norm.quant.direction == "multiply" else amax / largest)


def _in_float32(number: float) -> float:
    return float(np.float32(number))


@np.errstate(all="ignore")
def _largest(norm: Norm, case: Case) -> float:
    """Return the largest |y| approximately, or 1 if every y is zero."""
    rows = norm.base.normalized(case.part(slice(case.shape[0] // case.repeats)))
    rows = rows[np.isfinite(rows).all(axis=1)]
    c = rows - rows.mean(axis=1, keepdims=True) if norm.centred else rows
    gain = case.gamma.astype(np.float64) + (norm.gain == "zero-centred")
    beta = case.inputs.get("beta")
    y = c / np.sqrt((c * c).mean(axis=1, keepdims=True) + case.eps) * gain
    y = y if beta is None else y + beta.astype(np.float64)
    largest = float(np.abs(y).max(initial=0.0))
    return 2.0 ** np.floor(np.log2(largest)) * 1.37 if largest > 0 else 1.0


def _families(quant: Quant, dtype: str, level: str) -> Iterator[_Kind]:
    yield from _of_widths(quant, level)
    yield from _of_calls(quant)
    yield from _hard(quant, dtype)


def _multiple(quant: Quant, size: int) -> int:
    """Return the next multiple of the group."""
    return -(-size // quant.group) * quant.group if quant.group else size


def _of_widths(quant: Quant, level: str) -> Iterator[_Kind]:
    """Yield ordinary rows of many widths."""
    widths = (GROUPED_WIDTHS if quant.group else WIDTHS)["quick"]
    if level == "full":
        widths += (GROUPED_WIDTHS if quant.group else WIDTHS)["full"]
    for k, size in enumerate(dict.fromkeys(_multiple(quant, each) for each in widths)):
        family = Family(
            "normal",
            PLAIN_X[k % 3],
            "ordinary",
            f"ordinary input, D = {size}",
            eps=EPSILONS[k % 4],
        )
        yield _Kind(family, max(3, min(64, 2**15 // size)), size, ROOM[k % 3])
    if quant.group and quant.code.name != "e2m1":
        for size in (quant.group + 1, 3 * quant.group - 2):
            why = "the last group of a row is not full"
            yield _Kind(Family(PARTIAL_GROUPS, PLAIN_X[1], "ordinary", why), 5, size)


def _offsets(quant: Quant, dtype: str) -> Iterator[_Kind]:
    """Yield rows of standard deviation 1 whose mean grows until an ulp is 1/4."""
    last = FORMATS[dtype].precision * np.log10(2.0)
    for half in range(1, min(int(2 * last) - 1, MOST_OFFSETS) + 1):
        offset = float(f"{10 ** (half / 2):.3g}")
        x = {"pattern": "normal", "offset": offset}
        why = f"standard deviation 1, mean {offset:g}"
        slug = f"offset-{offset:.3g}".replace("e+0", "e")
        family = Family(slug, x, "sweep", why, {"beta": "zeros"})
        yield _Kind(family, 4, _multiple(quant, 257), of_family="offset")


def _of_calls(quant: Quant) -> Iterator[_Kind]:
    """Yield rows for the calls that compare bits: batches, repeated and large calls."""
    for family, rows, size in (
        (families.BATCH, 30, 67),
        (families.BATCH_SIZES, 11, 33),
        (families.REPEATED, 8, 64),
        (families.ROW_COUNTS, 5, 8),
        (families.LARGE, 2, 500),
    ):
        wide = _multiple(quant, size)
        # D of the large call is no power of two: see `families.LARGE`.
        yield _Kind(family, rows, 640 if wide == 512 else wide)
    yield _Kind(families.SERVED, 2, _multiple(quant, 2048))
    for rows in ROW_COUNTS:
        why = f"{rows} rows"
        yield _Kind(Family("rows", PLAIN_X[1], "ordinary", why), rows, _multiple(quant, 128))


def _hard(quant: Quant, dtype: str) -> Iterator[_Kind]:
    """Yield rows on which quantized norms failed."""
    size, step = _multiple(quant, 512), quant.group or 64
    narrow = dtype == "float16"

    def kind(
        slug: str,
        why: str,
        x: Pattern = PLAIN_X[0],
        gamma: Pattern = "random",
        *,
        rows: int = 8,
        room: float = 1.0,
        what: str = "hard",
    ) -> _Kind:
        family = Family(slug, x, what, why, {"gamma": gamma, "beta": "zeros"})
        return _Kind(family, rows, size, room)

    def put(places: Mapping[tuple[int, int], Any]) -> Pattern:
        return {"pattern": "normal", "put": [[i, j, each] for (i, j), each in places.items()]}

    def at(columns: range, value: Any, rows: int = 8) -> dict[tuple[int, int], Any]:
        return {(i, j): value for i in range(rows) for j in columns}

    yield kind("row-scales", "rows from 1e-3 to 1e3", _scaled_rows(narrow=narrow))
    zeros = at(range(size), 0.0, 2) | {
        (i + 2, j): each for (i, j), each in at(range(0, size, 2), -0.0, 2).items()
    }
    yield kind("zero-rows", "two rows of zeros, two with every other element -0", put(zeros))
    yield kind("all-zero", "all rows are zero", "zeros")
    yield kind("zero-groups", "gamma is 0 in half of the columns", gamma=_zero_half(size))
    large = {"pattern": "random", "put": [[j, 900.0] for j in range(0, size, 7)]}
    room = 0.02 if quant.is_static else 1.0
    yield kind(
        "saturating",
        "y far beyond the largest code, or gamma far above the rest",
        gamma=large,
        room=room,
    )
    if quant.type == "e5m2" and quant.is_static:
        yield kind("beyond-448", "codes of e5m2 between 448 and 57344", room=40.0)
    tiny = (1e-2, 1e-3, 1e-4) if narrow else (1e-3, 1e-6, 1e-9, 1e-20, 1e-30)
    if not (narrow or quant.setting):
        tiny = (*tiny, 4e-38)
    for top in tiny:
        scaled = {"pattern": "normal", "offset": 2 * top, "scale": top / 4}
        yield kind(
            f"tiny-{top:g}",
            f"y about {top:g}, below the least scale of some kernels",
            gamma=scaled,
        )
    spread = {"pattern": "decades", "reach": 4.5}
    yield kind("subnormal-codes", "codes from the smallest to the largest", gamma=spread)
    yield kind("outliers", "one large element in each group", put(at(range(5, size, step), 200.0)))
    edges = at(range(0, size, step), 50.0) | at(range(step - 1, size, step), -30.0)
    yield kind("group-edges", "the first and the last element of each group are large", put(edges))
    apart = {"pattern": "values", "values": _apart(size, quant.group or 16)}
    yield kind("groups-apart", "neighbouring groups are far apart", gamma=apart)
    for name in ("nan", "inf", "-inf"):
        slug = {"-inf": "minus-inf"}.get(name, name)
        x = put({(1, 7): name, (2, size - 1): name})
        yield kind(f"one-{slug}", f"two rows have one {name}", x, rows=4, what="special")


def _scaled_rows(*, narrow: bool) -> Pattern:
    powers = np.linspace(-1, 1, 8) if narrow else np.linspace(-3, 3, 8)
    return {"pattern": "normal", "scale": [float(f"{10**each:.2g}") for each in powers]}


def _zero_half(size: int) -> Pattern:
    return {"pattern": "random", "put": [[j, 0.0] for j in range(size // 2, size)]}


def _apart(size: int, group: int) -> list[float]:
    """Return a gamma whose groups differ by powers of 4, and some by 2^-9 and less."""
    random = np.random.default_rng(zlib.crc32(b"groups-apart"))
    powers = 2 * (np.arange(size) // group % 5)
    powers = np.where(np.arange(size) // group % 11 == 7, -9, powers)
    powers = np.where(np.arange(size) // group % 11 == 9, -14, powers)
    values: list[float] = np.ldexp(random.uniform(1, 2, size), powers).tolist()
    return values


# Rows whose y is chosen


def _constructed(norm: Norm, dtype: str) -> Iterator[Case]:
    """Yield rows of 1 and -1, so that y is gamma nearly, and rows next to midpoints."""
    quant = norm.quant
    for k, top in enumerate((1.0, 1.5, 1.75, 1.9375)):
        for j, near in enumerate(_neighbours(top, dtype)):
            slug = f"amax-{top:g}{('-below', '', '-above')[j]}"
            yield _of_gamma(norm, dtype, slug, "hard", _with_amax(quant, near, 3 * k + j))
    if quant.is_static and quant.direction == "divide":
        for m in (7, 9, 11, 13, 15):
            scale = _in_float32(m / (2**15 if quant.type == "e5m2" else 512))
            gamma = _ties(quant.code, scale, dtype)
            if gamma.size > 1:
                yield _of_gamma(norm, dtype, f"ways-{m}", "hard", gamma, scale, "ways")
    if quant.scale == "per-token" and FORMATS[dtype].precision <= 11:
        for amax, gamma in _telling_rows(quant.code, dtype):
            yield _of_gamma(norm, dtype, f"ways-{amax:g}", "hard", gamma, 0.0, "ways")
    if quant.scale_type != "float32":
        yield from codes_next_to_midpoints(norm, dtype)


def _of_gamma(
    norm: Norm,
    dtype: str,
    slug: str,
    kind: str,
    gamma: Float64s,
    scale: float = 0.0,
    family: str = "",
) -> Case:
    """Return two rows of 1 and -1, whose y is gamma up to 1/sqrt(1 + eps)."""
    size = _multiple(norm.quant, gamma.size + gamma.size % 2)
    wide = np.zeros(size)
    wide[: gamma.size] = gamma
    why = "rows of 1 and -1: each y is a gamma"
    made = Family(slug, "alternating-signs", kind, why, {"beta": "zeros"})
    case = made.case(norm.plain, dtype, 2, size)
    case = replace(
        case.with_inputs(gamma=wide.astype(dtype_of(dtype))), family=family or slug.split("-")[0]
    )
    return quantized(norm, case, 1.0, scale)


def _neighbours(number: float, dtype: str) -> list[float]:
    """Return a number of a type between its two neighbours."""
    below, above = (
        float(np.nextafter(np.asarray(number, dtype_of(dtype)), np.asarray(end, dtype_of(dtype))))
        for end in (0.0, 4.0)
    )
    return [below, number, above]


def _with_amax(quant: Quant, top: float, seed: int) -> Float64s:
    """Return numbers below 1/2, and in each group one that is the top or its negative."""
    random = np.random.default_rng(seed)
    size = _multiple(quant, 256)
    sizes = random.choice([1, 1.25, 1.5], size)
    gamma: Float64s = np.ldexp(sizes, random.integers(-6, -1, size))
    group = quant.group or size
    gamma[::group] = top
    gamma[1 :: 2 * group] = -top
    return gamma


@np.errstate(invalid="ignore")  # some of the bits are signaling NaN
def _numbers_between(low: float, high: float, dtype: str) -> Float64s:
    """Return all numbers of a type of 16 bits from low to below high."""
    bits = np.arange(1 << 15, dtype=np.uint16)
    every: Float64s = bits.view(dtype_of(dtype)).astype(np.float64)
    return every[(every >= low) & (every < high)]


def _ties(code: CodeType, scale: float, dtype: str) -> Float64s:
    """Return numbers of a type that are midpoints of codes times the scale, of both signs."""
    middles = (code.sizes[1:] + code.sizes[:-1]) / 2
    middles = middles[(middles >= code.sizes[1]) & (middles < code.largest)]
    exact: Float64s = middles * scale
    exact = exact[exact.astype(dtype_of(dtype)).astype(np.float64) == exact]
    return np.concatenate([exact, -exact])


TELLING_ROWS = 12


def _telling_rows(code: CodeType, dtype: str) -> Iterator[tuple[float, Float64s]]:
    """Yield amax, and numbers whose codes depend on the way in which they are scaled."""
    qmax, found = np.float32(code.largest), []
    for amax in _numbers_between(4, 8, dtype)[:: 1 if dtype == "bfloat16" else 8]:
        y = _numbers_between(amax / 512, amax, dtype)
        codes = list(ways_of_row(y, amax / code.largest, amax, qmax, code).values())
        differs = (codes[0] != codes[1]) | (codes[0] != codes[2]) | (codes[1] != codes[2])
        if differs.any():
            found.append((int(differs.sum()), float(amax), y[differs]))
    for _, amax, y in sorted(found, key=lambda each: -each[0])[:TELLING_ROWS]:
        yield amax, np.concatenate([[amax], y, -y])
    # The scale is a power of two: y over it is exact, and ties show.
    ties = _ties(code, 1 / 16, dtype)
    yield code.largest / 16, np.concatenate([[code.largest / 16], ties[:300], -ties[:300]])


@np.errstate(all="ignore")
def ways_of_row(
    y: Array, scale: Array | float, amax: Array | float, qmax: np.float32, code: CodeType
) -> dict[str, Float64s]:
    """Return the codes of numbers by each way to scale them, in float32."""
    narrow, by = np.asarray(y, np.float32), np.asarray(scale, np.float32)
    top = np.asarray(amax, np.float32)
    return {
        "divide": code.nearest((narrow / by).astype(np.float64)),
        "reciprocal": code.nearest((narrow * (np.float32(1) / by)).astype(np.float64)),
        "qmax/amax": code.nearest((narrow * (qmax / top)).astype(np.float64)),
    }


MIDPOINT_ROWS = 12
MIDPOINT_SCALE = {"e5m2": 1e-4, "int8": 0.03, "nvfp4": 700.0}
"""Scales for rows of y up to about 10: static, or global; the other types have 0.0099."""


def codes_next_to_midpoints(norm: Norm, dtype: str) -> Iterator[Case]:
    """Yield rows with one y over the scale next to a midpoint of the code type."""
    slug, size, quant = f"codes-{NEXT_TO_MIDPOINTS}", 64, norm.quant
    make = RowMaker(f"{dtype}-{slug}-{quant.code.name}", dtype, EPS, centred=norm.centred)
    scale = MIDPOINT_SCALE.get(quant.type, 0.0099)
    scale = _in_float32(1 / scale if quant.direction == "multiply" else scale)
    rows = _MidpointRows(quant, scale)
    count, gains = MIDPOINT_ROWS, np.ones(size)
    if not quant.is_static:
        # Another y is the largest of the group. Not every row can also have a midpoint.
        count, gains = 10 * MIDPOINT_ROWS, np.full(size, 8.0)
        gains[0], gains[1 : 1 + make.steps] = 2.0, 1.0
    made = rows_of_y(make, size, rows.below, count, gains)
    made["x"] = made["x"][rows.are_at_midpoints(made["x"], made["gamma"])][:MIDPOINT_ROWS]
    if not len(made["x"]):
        return
    family = Family(slug, "normal", "hard", "codes next to midpoints", {"beta": "zeros"})
    plain = family.case(norm.plain, dtype, len(made["x"]), size)
    chosen = {
        name: array.astype(dtype_of(dtype)) for name, array in made.items() if name in plain.inputs
    }
    plain = replace(plain.with_inputs(**chosen), family=NEXT_TO_MIDPOINTS)
    yield quantized(norm, plain, 1.0, scale)


class _MidpointRows:
    """Midpoints for the first y of a row, times the scale by the largest y of its group."""

    def __init__(self, quant: Quant, setting: float) -> None:
        self.quant, self.setting = quant, setting
        sizes = quant.code.sizes[quant.code.sizes <= quant.code.largest]
        self.middles = (sizes[1:] + sizes[:-1]) / 2

    def units(self, amax: Float64s) -> Float64s:
        """Return the values of the code 1, approximately."""
        quant = self.quant
        if quant.scale_type == "e8m0":
            return np.ldexp(1.0, quant.powers(amax))
        if quant.scale_type == "e4m3fn":
            return E4M3FN.nearest(amax * self.setting / quant.code.largest) / self.setting
        unit = 1 / self.setting if quant.direction == "multiply" else self.setting
        return np.full(np.shape(amax), unit)

    def exact_unit(self, unit: float) -> Fraction:
        """Return the value of the code 1."""
        if self.quant.scale_type == "e4m3fn":
            return Fraction(round(unit * self.setting * 512), 512) / Fraction(self.setting)
        multiplies = self.quant.direction == "multiply"
        return 1 / Fraction(self.setting) if multiplies else Fraction(unit)

    def below(self, y: Sequence[Fraction]) -> Fraction:
        """Return the largest midpoint below the first y; all y shrink with it."""
        first = float(abs(y[0]))
        ratio = float(max(map(abs, y[: self.quant.group or len(y)]))) / first
        # The units of all rows whose y are at most twice smaller.
        units = np.unique(self.units(first * ratio * np.linspace(0.5, 1, 65)))
        middle, unit = np.meshgrid(self.middles, units)
        at = middle * unit
        fits = (at < first) & (np.abs(self.units(ratio * at) - unit) < 1e-9 * unit)
        # Rows without a midpoint are left out afterwards.
        best = np.unravel_index(int(np.argmax(np.where(fits, at, at * 1e-9))), at.shape)
        exact = Fraction(float(middle[best])) * self.exact_unit(float(unit[best]))
        while not exact < abs(y[0]):
            exact /= 2
        return exact if y[0] > 0 else -exact

    def are_at_midpoints(self, x: Float64s, gamma: Float64s) -> NDArray[np.bool_]:
        """Return True for each row whose first y is at a midpoint."""
        y = np.abs(x * gamma) / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPS)
        amax = y[:, : self.quant.group or None].max(axis=1)
        codes = y[:, 0] / self.units(amax)
        distances = np.abs(codes[:, np.newaxis] / self.middles - 1).min(axis=1)
        return np.asarray(distances < 1e-10)
