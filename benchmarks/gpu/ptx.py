"""Operations in float64, counted in PTX."""

import re
from collections import Counter

from benchmarks.gpu.compilers import ptx_of
from benchmarks.gpu.kernels import Subject
from truenorm.kernels.gpu.plan import source_of

__all__ = ["GROUPS", "count", "of_an_element"]

GROUPS = {
    "add": "sums and products",
    "sub": "sums and products",
    "mul": "sums and products",
    "fma": "sums and products",
    "div": "quotients and roots",
    "sqrt": "quotients and roots",
    "setp": "comparisons",
    "min": "comparisons",
    "max": "comparisons",
    "cvt": "conversions",
}
"""What counts, by the name of an instruction: neither signs nor moves."""

INSTRUCTION = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z]+)((?:\.\w+)*\.f64\b[.\w]*)", re.MULTILINE)
ITEMS, TEAM = 8, 128


def count(ptx: str) -> Counter[str]:
    """Return how many operations of each group the text has, each once wherever it stands."""
    return Counter(GROUPS[name] for name, _ in INSTRUCTION.findall(ptx) if name in GROUPS)


def of_an_element(kernel: str, dtype: str, norm: str, target: str = "sm_90") -> dict[str, float]:
    """Return operations an element: what a thread with twice as many has more, divided by them."""
    counts = []
    for size in (ITEMS * TEAM, 2 * ITEMS * TEAM):
        plan = Subject(kernel, ITEMS * TEAM, dtype, norm).plan._replace(size=size)
        assert plan.team == TEAM
        counts.append(count(ptx_of(source_of(kernel), plan, target)))
    few, many = counts
    return {group: (many[group] - few[group]) / ITEMS for group in dict.fromkeys(GROUPS.values())}
