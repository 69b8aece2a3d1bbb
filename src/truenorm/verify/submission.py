"""A kernel to score, and its cases, which a seed draws.

Widths, numbers, order and layouts are drawn, so that a kernel cannot know them. Cases that
everybody can see are permuted.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Literal

import numpy as np

from truenorm.verify.cases.families import (
    EPSILONS,
    PLAIN_X,
    WIDTHS,
    Family,
    to_float32,
)
from truenorm.verify.cases.midpoints import NEXT_TO_MIDPOINTS, midpoints_of_width
from truenorm.verify.operation import AS_SHAPE, Case, Operation
from truenorm.verify.operations.norms import Norm
from truenorm.verify.operations.shapes import (
    MANY_DISTINCT,
    Shape,
    divide_shape,
    in_shape,
    with_columns,
)
from truenorm.verify.operations.variants import adapt_case
from truenorm.verify.running.guarded import (
    CHANGED,
    CHANGED_Y,
    GAPS,
    IN_MODEL,
    INFERENCE,
    KEEP_ALL_BITS,
    NO_GRAD,
    PRODUCERS,
)
from truenorm.verify.types import FORMATS, Array

Norms = Literal["forbidden", "allowed"]
Form = Literal["functional", "out", "inplace", "module"]
Modes = dict[str, str | float | list[str]]
LARGEST, CASES, SECONDS = 1e4, 66, 20.0
LEFT_OUT = frozenset(
    {"large", "repeated", "row-counts", "row-limit", "batch-sizes", "served", "many-rows"}
)
"""Families whose calls take long."""
MOST_ELEMENTS, MOST_IN_A_CALL = 2500, 40_000
"""Elements of x in a case: without repeated rows, whose exact answers cost nothing, and with."""
FEW_ELEMENTS = 1100
"""The same for a case of ordinary rows; a wider one has one row, whose answers are enclosed."""
SEEDS_OF_WIDTHS, FIRST_CASES, USUAL_WIDTHS = 2, 30, 3
"""Each seed draws three widths; ordinary cases are among the first ones."""
TWINS = 2
"""Ordinary cases that have another one of the same shape."""
WIDE_RANGES = ((2048, 4096), (4097, 8192), (8193, 20_480), (20_480, 65_537))
"""One row of each range is drawn."""
ALWAYS_WIDE = (4096, 8192)
MODEL_WIDTHS = (
    *(
        256,
        320,
        384,
        512,
        576,
        640,
        768,
        896,
        1024,
        1152,
        1280,
        1408,
        1536,
        1600,
        1664,
        1792,
        2048,
    ),
    *(2304, 2560, 2880, 3072, 3584, 4608, 5120, 6144, 6656, 7168, 9216, 10_240, 11_008, 12_288),
    *(14_336, 16_384, 18_432),
)
"""Hidden sizes of models. Some are drawn: one row of each, and calls as in a model."""
WIDE_MODEL_ROWS, SMALL_MODEL_CALLS, WIDEST_IN_MODEL_CALL = 2, 3, 1600
"""The numbers of these rows and of small calls, and the largest width of such a call."""
MODEL_ROW_PAIRS, LARGE_MODEL_CALL = (16, 21), (2**17, 2**17 + 2**14)
"""Half of the rows of small calls as in a model, and elements of a larger one."""
PARAMETERS_OF_MODELS = {0: {"gamma": "ones", "beta": "zeros"}, 1: {"beta": "zeros"}}
"""Those of a new model and without beta, by the number of the call; others are random."""
SMALL_DY = {"float16": 2.0**-7}
"""The factor of a dy that is small, if it is not 2^-24: that of a mean over many tokens."""
OUTLIER = 1000.0
"""An element of some rows, in one column: as large as those of some models."""
MODEL, NON_FINITE = "model", "non-finite"
BATCHES = ((5, 31, 2, 9), (16, 31, 20, 130))
"""Distinct rows of two batches, and how often they are repeated at least and at most."""
MANY_ELEMENTS, MANY_ROWS_WIDTH = 2**21, 256
"""One case has more elements, and rows of at least this width, which are repeated."""
MAY_BE_REFUSED = {
    **dict.fromkeys(("three-axes", "four-axes", "five-axes", "one-axis", "one-token"), "ranks"),
    **dict.fromkeys(("padded", "swapped-axes"), "padded-rows"),
    **dict.fromkeys(("strided", "transposed"), "strides"),
}
"""Layouts of a few cases, and the extension that an operation has for them."""
ROWS_OF_AXES = {
    "swapped-axes": 4,
    **dict.fromkeys(("three-axes", "one-token", "four-axes", "five-axes"), 2),
}
"""Those of more axes, and a divisor of the number of rows."""
EXPANDED = "an expanded dy"
"""The family of a case whose dy is one number in memory."""
OTHER_GRADIENTS = {"a transposed dy": "transposed", "a dy with gaps": "padded"}
"""Families of two cases, and the layouts of their dy."""
EARLY_CHANGE = "inputs that are changed before the backward pass"
INPUT_MODES = {
    "gaps in gamma and beta": GAPS,
    EARLY_CHANGE: CHANGED,
    "a y that is changed before the backward pass": CHANGED_Y,
}
"""Families of three cases, and the modes of their inputs."""
INPUTS_THAT_MAY_BE_REFUSED = (EXPANDED, *OTHER_GRADIENTS, *INPUT_MODES)
LEAST_EPS = {"float16": 1e-5}
"""The least eps that is drawn, if it is not 1e-12: x becomes as small as its root."""
USUAL_EPS = (1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
"""Values of models, which most ordinary cases get; rounded to float32, they give the same results
but for the last bit of a few."""
ORDINARY = 9
"""Ordinary cases in each shape of a kernel that takes no others."""
MIDPOINT_ROWS = 12
FEWEST_CASES = 30


@dataclass(frozen=True)
class Submission:
    """A kernel to score; `score` documents the fields.

    If `layouts` is False, x is a contiguous matrix unless the operation says otherwise. If
    `special` is False, there is no NaN or infinity.
    """

    target: str
    operation: Operation
    seed: int
    dtypes: tuple[str, ...] = ("float32",)
    norms: Norms = "forbidden"
    cases: int = CASES
    largest: float = LARGEST
    form: Form = "functional"
    signature: str = ""
    backward: str = ""
    device: str = "cpu"
    seconds: float = SECONDS
    causes: bool = False
    layouts: bool = True
    special: bool = True
    shapes: tuple[Shape, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for a field that is out of range."""
        if not self.dtypes or not set(self.dtypes) <= FORMATS.keys():
            raise ValueError(f"dtypes must be of {', '.join(FORMATS)}; got {list(self.dtypes)}")
        if self.norms not in ("forbidden", "allowed"):
            raise ValueError(f"norms must be forbidden or allowed, got {self.norms!r}")
        if self.cases < FEWEST_CASES:
            raise ValueError(f"cases must be {FEWEST_CASES} or above, got {self.cases}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or above, got {self.seed}")
        for shape in self.shapes:
            divide_shape(_as_norm(self.operation), shape)

    def arguments(self, folder: Path) -> list[str]:
        """Return the arguments of the runner."""
        options = {
            "--form": self.form,
            "--signature": self.signature,
            "--backward": self.backward,
            "--device": self.device,
            "--seconds": str(self.seconds),
        }
        given = [f"{name}={value}" for name, value in options.items() if value]
        return [self.target, str(folder), *given]


def draw_suite(submission: Submission) -> list[Case]:
    """Return the cases of a submission, without names that describe them."""
    suite = [
        replace(case, enclosed=case.enclosed or case.kind == "ordinary")  # integers take longer
        for dtype in submission.dtypes
        for case in draw_cases(submission, dtype, generator(submission.seed, dtype))
        if submission.special or case.kind != "special"
    ]
    return [replace(case, name=f"{case.dtype}-{number}") for number, case in enumerate(suite)]


def draw_modes(suite: Sequence[Case], random: np.random.Generator) -> list[Modes]:
    """Return the modes of the calls of each case; about as many ordinary cases have each of them.

    Every second list of inputs that require gradients has the first input: its gradient is the
    one that kernels shorten.
    """
    first, *others = suite[0].operation.inputs_of("data", "parameter")
    modes: dict[str, str | list[str]] = {}
    order = sorted(suite, key=lambda case: (case.kind != "ordinary", case.family != MODEL))
    for number, case in enumerate(order):
        has_first = number % 8 < 4
        count = int(random.integers(max(len(others), 1))) + (not has_first)
        some = [first] * has_first + random.permutation(others)[:count].tolist()
        some = [first] if case.family == MODEL else some  # as where norms are not trained
        modes[case.name] = ("", NO_GRAD, INFERENCE, some)[number % 4]
        if case.x.size > MANY_ELEMENTS:  # a call of it takes longer than all others
            modes[case.name] = str(random.choice(["", NO_GRAD]))
        if INPUT_MODES.get(case.family) in (CHANGED, CHANGED_Y):
            modes[case.name] = ""
    inputs = random.permuted(np.resize(["", IN_MODEL], len(suite))).tolist()
    producers = random.permuted(np.resize([*PRODUCERS], len(suite))).tolist()
    exact = random.choice(KEEP_ALL_BITS, len(suite)).tolist()
    places = random.random(len(suite)).tolist()
    return [
        {
            "gradients": modes[case.name],
            "inputs": {MODEL: IN_MODEL, **INPUT_MODES}.get(case.family, inputs[number]),
            "producer": (producers if case.kind == "ordinary" else exact)[number],
            "place": places[number],
        }
        for number, case in enumerate(suite)
    ]


def generator(seed: int, *purpose: str) -> np.random.Generator:
    """Return random numbers of a seed; another purpose has others."""
    return np.random.default_rng([seed, *(zlib.crc32(each.encode()) for each in purpose)])


def draw_cases(submission: Submission, dtype: str, random: np.random.Generator) -> list[Case]:
    """Draw the cases of a type.

    Those that decide a grade are always there: rows in batches, all steps of the condition number,
    rows next to midpoints, one case with non-finite and one with subnormal numbers. Some others
    have widths that are drawn, and a few of these have a twin: a kernel that caches results by
    shape or by address is wrong there. Others have one to five axes, gaps or an offset, a dy that
    lies otherwise, or other parameters.
    Some rows are wide, and one call has many rows. The rest is one case from each of some other
    families.
    """
    if submission.shapes:
        shapes = dict.fromkeys(submission.shapes)
        return [case for each in shapes for case in draw_in(each, submission, dtype, random)]
    operation, largest = submission.operation, submission.largest
    every = [*_seeded(operation, dtype, random)]
    pool = [case for case in every if is_scored(case, largest)]
    always = _decisive(pool)
    widths = drawn_widths(operation, dtype, random)
    always += [*widths[:TWINS], *(hidden(case, random) for case in widths[:TWINS])]
    widest = max(widths, key=lambda case: case.shape[1])
    always += [with_another_element(case, random) for case in (*widths[1:TWINS], widest)]
    always.append(with_another_element(widths[0], random, inner=True))
    if widest.inputs.get("gamma") is not None:
        always.append(with_another_element(widest, random, "gamma"))
    always += with_other_settings(widths, random)
    others = widths[TWINS:]
    always += laid_out(others, random) if submission.layouts else others
    if submission.layouts and not submission.backward:  # whose caller knows what it takes
        always += refusable(INPUTS_THAT_MAY_BE_REFUSED, widths, random)
    of_models = random.permutation(MODEL_WIDTHS).tolist()
    always += wide_rows(every, of_models[:WIDE_MODEL_ROWS], random)
    always += model_calls(widths[0], of_models[WIDE_MODEL_ROWS:], random)
    always += many_rows(widths)
    always += non_finite(widths[0], random)
    always += batches((case for case in always if case.family == "batch"), random)
    return _completed(always, pool, submission.cases, random)


def draw_in(
    shape: Shape, submission: Submission, dtype: str, random: np.random.Generator
) -> list[Case]:
    """Draw the cases of a type in one shape: those of `draw_cases` that are not about others.

    Other cases of the plain norm get its columns, some several times, in an order that is drawn.
    """
    norm = _as_norm(submission.operation)
    plain = _plain(norm)
    divided = divide_shape(norm, shape)
    ordinary: list[Case] = []
    for number in range(ORDINARY):
        most = MANY_DISTINCT if number == 0 else 0
        eps = EPSILONS[number % len(EPSILONS) if norm.eps is None else 0]
        family = Family("normal", PLAIN_X[number % 3], "ordinary", "ordinary input", eps=eps)
        rows = divided.units * divided.distinct_rows(MANY_DISTINCT)
        case = family.case(plain, dtype, rows, divided.size, int(random.integers(1, 2**31)))
        case = with_numbers_of_models(replace(case, seeded=True), number, random)
        ordinary += in_shape(norm, shape, case, most)
    others = [
        case
        for case in _seeded(plain, dtype, random)
        if is_scored(case, submission.largest)
        and case.layout == "rows"
        and case.family not in ("normal", NEXT_TO_MIDPOINTS)
    ]
    others += midpoints_of_width(plain, dtype, divided.size, centred=plain.centred)
    pool = [
        made
        for case in others
        for made in in_shape(norm, shape, hidden(with_columns(case, divided.size), random))
    ]
    always = [*_decisive(pool), *ordinary, *non_finite(ordinary[-1], random)]
    if not submission.backward:
        always += refusable([EARLY_CHANGE], ordinary, random)
    return _completed(always, pool, submission.cases, random)


def _as_norm(operation: Operation) -> Norm:
    if not isinstance(operation, Norm):
        raise ValueError(f"shapes are for results of truenorm.verify.norm, got {operation.name}")
    return operation


def _decisive(pool: Sequence[Case]) -> list[Case]:
    """Return the cases that decide a grade."""
    always = [case for case in pool if case.kind == "sweep" or case.family == NEXT_TO_MIDPOINTS]
    return always + [case for case in pool if case.family == "batch" and case.kind == "ordinary"]


def _completed(
    always: Sequence[Case], pool: Iterable[Case], count: int, random: np.random.Generator
) -> list[Case]:
    """Return some cases and, until there are so many, one of each other family of a pool."""
    families: dict[str, list[Case]] = {}
    for case in pool:
        if case.kind in ("special", "subnormal"):
            families.setdefault(case.kind, []).append(case)
        elif case.family != "normal" and not any(case is each for each in always):
            families.setdefault(f"{case.kind} {case.family}", []).append(case)
    one_each = [cases[random.integers(len(cases))] for cases in families.values()]
    order = [one_each[place] for place in random.permutation(len(one_each))]
    order.sort(key=lambda case: case.kind not in ("special", "subnormal"))
    drawn = [*always, *order][: max(count, len(always))]
    return [drawn[place] for place in random.permutation(len(drawn))]


def _seeded(operation: Operation, dtype: str, random: np.random.Generator) -> Iterator[Case]:
    """Yield the cases of a seed; those that have none are hidden."""
    seed = int(random.integers(1, 2**31))
    for case in operation.cases(dtype, "quick", seed):
        if not case.needs:
            known = not case.name.endswith(f"-{seed}")
            yield replace(hidden(case, random) if known else case, seeded=True)


def drawn_widths(operation: Operation, dtype: str, random: np.random.Generator) -> list[Case]:
    """Return ordinary cases of widths that are drawn, and of a few that are usual."""
    drawn: list[Case] = []
    usual: list[Case] = []
    for _ in range(SEEDS_OF_WIDTHS):
        seed = int(random.integers(1, 2**31))
        for case in islice(operation.cases(dtype, "quick", seed), FIRST_CASES):
            if case.family == "normal" and not case.enclosed:
                in_list = case.shape[1] in WIDTHS["quick"]
                (usual if in_list else drawn).append(case)
    usual = [case for case in usual if case.x.size <= FEW_ELEMENTS]
    some = [usual[place] for place in random.permutation(len(usual))[:USUAL_WIDTHS]]
    wide = [
        case if case.x.size <= FEW_ELEMENTS else replace(case.part(slice(1)), enclosed=True)
        for case in drawn
    ]
    return [with_usual_eps(replace(case, seeded=True), random) for case in (*wide, *some)]


def laid_out(cases: Sequence[Case], random: np.random.Generator) -> Iterator[Case]:
    """Yield cases with one to five axes, with gaps or in another order, and with an offset."""
    of_any_rows = ["unaligned", "padded", "strided", "transposed"]
    left = [*ROWS_OF_AXES, *random.permutation(of_any_rows).tolist()]
    several = [case for case in cases if case.shape[0] > 1]
    missing = max(len(left) - len(several), 0)
    for case in (*cases, *(hidden(each, random) for each in islice(cycle(several), missing))):
        rows, known = case.shape[0], case.operation.extensions.keys() | {""}
        fitting = [each for each in left if rows % ROWS_OF_AXES.get(each, 2) == 0]
        layout = "one-axis" if rows == 1 else fitting[0] if fitting else "rows"
        if case.layout != "rows" or MAY_BE_REFUSED.get(layout, "") not in known:
            layout = case.layout
        if layout == case.layout:
            yield case
        else:
            left = [each for each in left if each != layout]
            yield replace(case, layout=layout, family="layouts", why=f"{case.why}, {layout}")


def refusable(
    families: Iterable[str], cases: Iterable[Case], random: np.random.Generator
) -> Iterator[Case]:
    """Yield a case of each of some families that may be refused.

    One has a constant dy, which the runner expands.
    """
    some = [
        case
        for case in cases
        if case.layout == "rows" and case.shape[0] > 1 and case.inputs.get("gamma") is not None
    ]
    if not some or "dy" not in some[0].inputs:
        return
    widest = max(some, key=lambda case: case.shape[1])
    for family in families:
        chosen = widest if family == EARLY_CHANGE else some[random.integers(len(some))]
        case = hidden(chosen, random)
        case = replace(case, family=family, why=f"{case.why}, {family}")
        if family == EXPANDED:
            constant = np.full_like(case.dy, random.choice([0.5, 1.0, 2.0]))
            case = case.with_inputs(dy=constant)
        elif family in OTHER_GRADIENTS:
            case = replace(case, gradient_layout=OTHER_GRADIENTS[family])
        yield case


def with_other_settings(cases: Sequence[Case], random: np.random.Generator) -> Iterator[Case]:
    """Yield a case with the parameters of a new model, one of two rows, and others.

    The two rows differ in one element. A dy has one column that is not 0. An eps is drawn, and x
    is as small as its root, so that another eps would give other results.
    """
    small = [case for case in cases if not case.enclosed]
    case = small[random.integers(len(small))]
    plain = {
        name: np.full_like(given, number)
        for name, number in (("gamma", 1), ("beta", 0))
        if (given := case.inputs.get(name)) is not None
    }
    yield replace(case.with_inputs(**plain), why=f"{case.why}, gamma = 1 and beta = 0")
    widest = max(small, key=lambda each: each.shape[1])
    one = widest.part(slice(1))
    other = with_another_element(one, random)
    both = {name: np.concatenate([rows, other.rows[name]]) for name, rows in one.rows.items()}
    yield replace(one.with_inputs(**both), why=f"{one.why}, two similar rows")
    if "dy" in widest.inputs:
        dy = np.zeros_like(widest.dy)
        column = int(random.integers(dy.shape[1]))
        dy[:, column] = widest.dy[:, column]
        yield replace(widest.with_inputs(dy=dy), why=f"{widest.why}, dy of one column")
    if isinstance(case.operation, Norm) and case.operation.eps is None:
        least = LEAST_EPS.get(case.dtype, 1e-12)
        eps = to_float32(float(np.exp(random.uniform(np.log(least), np.log(0.1)))))
        scale = case.x.dtype.type(2.0 ** round(np.log2(eps) / 2))
        scaled = {name: case.rows[name] * scale for name in case.operation.inputs_of("data")}
        yield replace(case.with_inputs(**scaled), eps=eps, why=f"{case.why}, eps = {eps:.2g}")


def wide_rows(
    cases: Iterable[Case], sizes: Iterable[int], random: np.random.Generator
) -> list[Case]:
    """Return one row of each of two usual widths, a width from each range, and some sizes."""
    least = WIDE_RANGES[0][0]
    wide = {
        case.shape[1]: replace(case.part(slice(1)), family="wide")
        for case in cases
        if case.enclosed and case.kind == "ordinary" and case.shape[1] >= least
    }
    rows = [wide.pop(width) for width in ALWAYS_WIDE if width in wide]
    some = [case for case in wide.values() if takes_width(case)]
    drawn = [int(random.integers(low, high)) for low, high in WIDE_RANGES]
    if some:
        chosen = [(some[random.integers(len(some))], size) for size in (*drawn, *sizes)]
        rows += [with_usual_eps(resized(*each, random), random) for each in chosen]
        return [with_outliers(row, random) if each % 2 else row for each, row in enumerate(rows)]
    for low, high in WIDE_RANGES:
        some = [case for width, case in wide.items() if low <= width < high]
        rows += [hidden(some[random.integers(len(some))], random)] if some else []
    return rows


def model_calls(case: Case, sizes: Iterable[int], random: np.random.Generator) -> Iterator[Case]:
    """Yield cases as large as calls in a model, whose rows all differ: three small, one larger.

    The last row is like the first but for one element. One has the parameters of a new model,
    another one beta = 0. Those of float64 would take too long.
    """
    if not takes_width(case) or case.dtype == "float64":
        return
    norm = _as_norm(case.operation)
    plain = _plain(norm)
    narrow = [size for size in sizes if size <= WIDEST_IN_MODEL_CALL]
    in_two_axes = random.integers(SMALL_MODEL_CALLS + 1)
    for number, size in enumerate(narrow[: SMALL_MODEL_CALLS + 1]):
        rows = 2 * int(random.integers(*MODEL_ROW_PAIRS))
        if number == SMALL_MODEL_CALLS:
            rows = 2 * (int(random.integers(*LARGE_MODEL_CALL)) // (2 * size) + 1)
        why = f"ordinary input, {rows} rows, D = {size}"
        others = PARAMETERS_OF_MODELS.get(number, {})
        family = Family(MODEL, PLAIN_X[number % 3], "ordinary", why, others)
        made = family.case(plain, case.dtype, rows, size, int(random.integers(1, 2**31)))
        made = with_numbers_of_models(made, number, random)
        made.x[-1] = with_another_element(made.part(slice(1)), random).x[0]
        layout = "three-axes" if number != in_two_axes and "ranks" in norm.extensions else "rows"
        for each in norm.within_limits(adapt_case(norm, made) if norm.is_variant else made):
            case = replace(each, layout=layout, seeded=True, enclosed=True)
            yield with_usual_eps(case, random)


def with_numbers_of_models(case: Case, number: int, random: np.random.Generator) -> Case:
    """Return a case with a small dy, with zeros in gamma, with a row of zeros, or with outliers.

    In float16, gradients of a row of zeros may be too large.
    """
    rows, size = case.shape
    if number == 0 and "dy" in case.inputs:
        factor = case.dy.dtype.type(SMALL_DY.get(case.dtype, 2.0**-24))
        return replace(case.with_inputs(dy=case.dy * factor), why=f"{case.why}, a small dy")
    if number == 1 and (gamma := case.inputs.get("gamma")) is not None:
        kept = random.permutation(size) >= size // 4
        made = case.with_inputs(gamma=gamma * kept.astype(gamma.dtype))
        return replace(made, why=f"{case.why}, some gamma are 0")
    if number == 2 and case.dtype != "float16" and rows > 2:
        x = case.x.copy()
        x[random.integers(1, rows - 1)] = 0  # the last row is like the first
        return replace(case.with_inputs(x=x), why=f"{case.why}, a row of zeros")
    return with_outliers(case, random) if number == 3 else case


def with_outliers(case: Case, random: np.random.Generator) -> Case:
    """Return a case with a large element in every eighth row, in one column."""
    x = case.x.copy()
    x[::8, random.integers(case.shape[1])] = random.choice([-OUTLIER, OUTLIER])
    return replace(case.with_inputs(x=x), why=f"{case.why}, outliers")


def _plain(norm: Norm) -> Norm:
    return Norm("layer_norm" if norm.centred else "rms_norm") if norm.is_variant else norm


def takes_width(case: Case) -> bool:
    """Return True if rows of a case may have any number of columns."""
    return case.layout == "rows" and not case.operation.spec.count(",")


def resized(case: Case, size: int, random: np.random.Generator) -> Case:
    """Return a case with another number of columns, in another order, if it takes that."""
    if not takes_width(case):
        return hidden(case, random)
    made = hidden(with_columns(case, size), random)
    return replace(made, why=f"ordinary input, D = {size}")


def batches(cases: Iterable[Case], random: np.random.Generator) -> Iterator[Case]:
    """Yield two batches of a number of rows that is drawn."""
    for case in cases:
        for low, high, least, most in BATCHES:
            rows = case.part(slice(int(random.integers(low, high))))
            made = resized(rows, int(random.integers(9, 100)), random)
            many = made.tiled(int(random.integers(least, most + 1)))
            yield replace(many, family="rows", why=f"ordinary input, {many.shape[0]} rows")


def many_rows(cases: Iterable[Case]) -> list[Case]:
    """Return a case whose rows are repeated until the call is large."""
    wide = [case for case in cases if case.layout == "rows" and case.shape[1] >= MANY_ROWS_WIDTH]
    some = min(wide, key=lambda case: case.shape[1], default=None)
    if some is None:
        return []
    times = MANY_ELEMENTS // some.x.size + 1
    return [replace(some.tiled(times), why=f"{some.why}, each row {times} times")]


def with_another_element(
    case: Case, random: np.random.Generator, name: str = "x", *, inner: bool = False
) -> Case:
    """Return a case that differs in one element of an input: a cache must not know it.

    If `inner` is True, that element is in neither the first row nor the last, if it can be.
    """
    given = case.inputs[name]
    assert given is not None
    margin = case.shape[1] if inner and case.shape[0] > 2 else 0
    array, place = given.copy(), int(random.integers(margin, given.size - margin))
    array.flat[place] += np.sign(array.flat[place]) * array.dtype.type(4)
    why = f"{case.why}, another element of {name}"
    return replace(case.with_inputs(**{name: array}), why=why)


def with_usual_eps(case: Case, random: np.random.Generator) -> Case:
    """Return a case with an eps as in models, if the operation takes any."""
    free = isinstance(case.operation, Norm) and case.operation.eps is None
    return replace(case, eps=float(random.choice(USUAL_EPS))) if free else case


def non_finite(case: Case, random: np.random.Generator) -> Iterator[Case]:
    """Yield cases with one NaN and with an infinity in x, and with a NaN in other inputs."""
    once = case.part(slice(case.shape[0] // case.repeats))
    numbers = (("x", np.nan), ("x", random.choice([-np.inf, np.inf])), ("dy", np.nan))
    for name, number in (*numbers, ("gamma", np.nan), ("beta", np.nan)):
        given = once.inputs.get(name)
        if given is None:
            continue
        array, place = given.copy(), int(random.integers(given.size))
        array.flat[place] = number
        why = f"an element of {name} is {number}"
        made = once.with_inputs(**{name: array})
        yield replace(made, kind="special", family=NON_FINITE, why=why).tiled(case.repeats)


def hidden(case: Case, random: np.random.Generator) -> Case:
    """Permute the rows and columns of a case, and flip signs, so that its answers are not known.

    It stays as hard: sums have the same terms, and a change of sign changes no rounding. So a
    case of units or channels stays as it is but for the order of its rows.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> case = tv.case("float32-mean-1449")
    >>> other = hidden(case, generator(7))
    >>> sorted(abs(other.x[0])) == sorted(abs(case.x[0]))
    True
    >>> bool((other.x == case.x).all())
    False
    """
    once, size = case.part(slice(case.shape[0] // case.repeats)), case.shape[1]
    order = random.permutation(once.shape[0])
    if case.family == NEXT_TO_MIDPOINTS and len(order) > size:
        order = order[:MIDPOINT_ROWS]  # each row has such a result
    columns = np.arange(size) if case.layout.startswith(AS_SHAPE) else random.permutation(size)
    sign, sign_of_gradients = random.choice([-1, 1], 2)
    signs = dict.fromkeys(case.operation.inputs_of("gradient"), sign_of_gradients)
    signs |= dict.fromkeys(("x", "residual", "beta"), sign)
    inputs: dict[str, Array | None] = {}
    for name, array in once.inputs.items():
        if array is None or name in case.operation.inputs_of("setting"):
            inputs[name] = array
            continue
        rows = array[order] if name in once.rows else array
        moved = rows[..., columns] if array.shape[-1] == size else rows
        # NumPy returns selected columns in another order of memory.
        inputs[name] = np.ascontiguousarray(moved * array.dtype.type(signs.get(name, 1)))
    return once.with_inputs(**inputs).tiled(case.repeats)


def is_scored(case: Case, largest: float) -> bool:
    """Return True for a case of reasonable size whose parameters are not all 1 and 0."""
    size = case.x.size
    if size > MOST_IN_A_CALL or size > MOST_ELEMENTS * case.repeats or case.family in LEFT_OUT:
        return False
    rows = [case.rows[name].astype(np.float64) for name in case.operation.inputs_of("data")]
    numbers = np.abs(np.concatenate(rows))
    parameters = [each for name, each in case.inputs.items() if name in ("gamma", "beta")]
    plain = all(each is None or bool(((each == 0) | (each == 1)).all()) for each in parameters)
    return not plain and float(numbers[np.isfinite(numbers)].max(initial=0.0)) <= largest
