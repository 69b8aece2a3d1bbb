"""A kernel to score, and its cases, which a seed draws from those of `truenorm.verify.verify`.

Numbers, order and many widths are drawn, so that a kernel cannot know them. Cases that are the
same with every seed are permuted.
"""

import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from truenorm.verify.inputs.midpoints import NEXT_TO_MIDPOINTS
from truenorm.verify.norms.norm import require_norm
from truenorm.verify.operation import AS_SHAPE, Case, Operation
from truenorm.verify.types import FORMATS, Array

Norms = Literal["allowed", "forbidden"]
Form = Literal["functional", "out", "inplace", "module"]
LARGEST, CASES, SECONDS = 1e4, 90, 20.0
FEWEST_CASES = 40
LEFT_OUT = frozenset(
    {"large", "repeated", "row-counts", "row-limit", "batch-sizes", "served", "many-rows"}
)
"""Families whose calls take long."""
MOST_ELEMENTS, MOST_IN_A_CALL = 2500, 40_000
"""Elements of x in a case: without repeated rows, whose exact answers cost nothing, and with."""
ORDINARY, WIDE, TWINS = 20, 3, 4
"""Numbers of ordinary cases, of single wide rows, and of cases beside one of the same shape."""
MIDPOINT_ROWS = 12


@dataclass(frozen=True)
class Submission:
    """A kernel to score; `truenorm.verify.score` documents the fields."""

    target: str
    operation: Operation
    seed: int
    dtypes: tuple[str, ...] = ("float32",)
    norms: Norms = "allowed"
    cases: int = CASES
    largest: float = LARGEST
    form: Form = "functional"
    signature: str = ""
    backward: str = ""
    device: str = "cpu"
    seconds: float = SECONDS
    causes: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for a field that is out of range."""
        require_norm(self.operation, "a score", "score")
        if not self.dtypes or not set(self.dtypes) <= FORMATS.keys():
            raise ValueError(f"dtypes must be of {', '.join(FORMATS)}; got {list(self.dtypes)}")
        if self.norms not in ("forbidden", "allowed"):
            raise ValueError(f"norms must be forbidden or allowed, got {self.norms!r}")
        if self.cases < FEWEST_CASES:
            raise ValueError(f"cases must be {FEWEST_CASES} or above, got {self.cases}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or above, got {self.seed}")

    def options(self) -> dict[str, str]:
        """Return the options of the process that calls the kernel, which has another folder."""
        names = ("form", "signature", "backward", "device")
        place, _, name = self.target.rpartition(":")
        place = str(Path(place).resolve()) if place.endswith(".py") else place
        return {"target": f"{place}:{name}", **{each: getattr(self, each) for each in names}}


def draw_suite(submission: Submission) -> list[Case]:
    """Return the cases of a submission, without names that describe them."""
    suite = [
        replace(case, enclosed=case.enclosed or case.kind == "ordinary")  # integers take longer
        for dtype in submission.dtypes
        for case in draw_cases(submission, dtype, generator(submission.seed, dtype))
    ]
    return [replace(case, name=f"{case.dtype}-{number}") for number, case in enumerate(suite)]


def generator(seed: int, *purpose: str) -> np.random.Generator:
    """Return random numbers of a seed; another purpose has others."""
    return np.random.default_rng([seed, *(zlib.crc32(each.encode()) for each in purpose)])


def draw_cases(submission: Submission, dtype: str, random: np.random.Generator) -> list[Case]:
    """Draw the cases of a type.

    Those that decide a grade are always there: all steps of the condition number, rows next to
    midpoints, non-finite and subnormal numbers. A number of ordinary cases is drawn, of which
    some have a twin that differs in one element: a kernel that caches results by shape, address
    or a few elements is wrong there. The rest is one case from each of the other families.
    """
    every, more = (_seeded(submission.operation, dtype, random) for _ in range(2))
    pool = [case for case in every if is_scored(case, submission.largest)]
    always = [case for case in pool if case.kind == "sweep" or case.family == NEXT_TO_MIDPOINTS]
    families: dict[str, list[Case]] = {}
    for case in pool:
        if case.family != "normal" and all(case is not each for each in always):
            families.setdefault(case.family, []).append(case)
    small = [
        case
        for case in (*pool, *more)
        if case.family == "normal" and not case.enclosed and is_scored(case, submission.largest)
    ]
    small = [small[place] for place in random.permutation(len(small))[:ORDINARY]]
    always += small + [with_another_element(case, random) for case in small[:TWINS]]
    wide = [case for case in every if case.family == "wide"]
    wide = [wide[place] for place in random.permutation(len(wide))[:WIDE]]
    always += [case.part(slice(1)) for case in wide]
    one_each = [cases[random.integers(len(cases))] for cases in families.values()]
    order = [one_each[place] for place in random.permutation(len(one_each))]
    first = ("special", "subnormal", "ordinary")
    order.sort(key=lambda case: case.kind not in first)
    drawn = [*always, *order][: max(submission.cases, len(always))]
    return [drawn[place] for place in random.permutation(len(drawn))]


def _seeded(operation: Operation, dtype: str, random: np.random.Generator) -> list[Case]:
    """Return the cases of a seed; those that are the same with every seed are hidden."""
    seed = int(random.integers(1, 2**31))
    return [
        replace(case if case.name.endswith(f"-{seed}") else hidden(case, random), seeded=True)
        for case in operation.cases(dtype, "quick", seed)
        if not case.needs
    ]


def with_another_element(case: Case, random: np.random.Generator) -> Case:
    """Return a case that differs in one element of x: a cache must not know it."""
    array, place = case.x.copy(), int(random.integers(case.x.size))
    array.flat[place] += np.sign(array.flat[place]) * array.dtype.type(4)
    return replace(case.with_inputs(x=array), why=f"{case.why}, another element of x")


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
