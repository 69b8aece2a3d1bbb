"""Cases of formulas, by the roles of their inputs."""

from collections.abc import Iterator

from truenorm.verify.inputs.families import (
    LARGE_VALUES,
    PLAIN_X,
    UP_TO_LIMIT,
    Family,
    hard,
    ordinary,
    sweeps,
)
from truenorm.verify.inputs.patterns import Pattern, number
from truenorm.verify.operation import Case, Operation

ROWS_OF_SPECIAL = (
    [[0, 0, float("nan")], [1, 5, float("inf")], [2, 0, float("-inf")]],
    [[3, 1, float("inf")], [3, 2, float("-inf")], [4, 66, float("nan")]],
)
HARD: dict[str, tuple[Pattern, str]] = {
    "one-large": (
        {"pattern": "outlier", "outlier": 30.0, "scale": 0.5},
        "one element is far above all others",
    ),
    "one-hot": ({"pattern": "one-hot"}, "zeros and a one"),
    "zeros": ({"pattern": "zeros"}, "rows of zeros"),
    "signs": ({"pattern": "signs", "value": 2.0}, "two values: many elements are the largest"),
    "wide-spread": ({"pattern": "normal", "scale": 30.0}, "standard deviation 30"),
    "tiny-spread": ({"pattern": "normal", "scale": 2.0**-10}, "standard deviation 2^-10"),
    "below-zero": ({"pattern": "normal", "offset": -50.0, "scale": 8.0}, "all elements below 0"),
    "above-zero": ({"pattern": "normal", "offset": 50.0, "scale": 8.0}, "all elements above 0"),
}


def formula_cases(operation: Operation, dtype: str, level: str, seed: int) -> Iterator[Case]:
    """Yield the cases of a formula: families of a seed come first."""
    yield from ordinary(operation, dtype, level, seed)
    if operation.centred:
        yield from sweeps(operation, dtype, level, seed)
    yield from hard(operation, dtype, level, seed)
    large = {LARGE_VALUES: (UP_TO_LIMIT.x, UP_TO_LIMIT.why)}
    _, *others = operation.inputs_of("data")
    for slug, (x, why) in HARD.items():
        yield Family(slug, x, "hard", why).case(operation, dtype, 4, 67, seed)
    for name in (each for each in others if each not in operation.indices):
        for slug, (pattern, why) in (HARD | large).items():
            text, of_input = f"{name}: {why}", {name: pattern}
            family = Family(f"{slug}-{name}", PLAIN_X[0], "hard", text, of_input)
            yield family.case(operation, dtype, 4, 67, seed)
    tiny = {"pattern": "normal", "scale": 64 * number("smallest", dtype)}
    why = "numbers that a CPU may flush to zero"
    yield Family("subnormal", tiny, "subnormal", why).case(operation, dtype, 4, 67, seed)
    yield from _special(operation, dtype, seed)


def _special(operation: Operation, dtype: str, seed: int) -> Iterator[Case]:
    """Yield rows with NaN and infinity, unless an input has a range."""
    named = operation.inputs_of("data")[0]
    if named in operation.ranges:
        return
    for k, put in enumerate(ROWS_OF_SPECIAL):
        x = {**PLAIN_X[1], "put": put}
        family = Family(f"special-{k}", x, "special", "NaN and infinity")
        yield family.case(operation, dtype, 6, 67, seed)
    if operation.inputs_of("gradient"):
        others = {"pattern": "normal", "put": ROWS_OF_SPECIAL[0]}
        gradients = dict.fromkeys(operation.inputs_of("gradient"), others)
        family = Family("special-dy", PLAIN_X[0], "special", "NaN and infinity in dy", gradients)
        yield family.case(operation, dtype, 6, 67, seed)
