"""The kernels that are compiled, and how a plan becomes options of a compiler."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from truenorm.exact import BFLOAT16, FLOAT16, FLOAT32
from truenorm.kernels.gpu.plan import Plan

__all__ = ["NORMS", "SIZES", "TYPES", "Subject", "defines", "subjects"]

SIZES = (64, 256, 1024, 4096, 8192, 16384)
TYPES = {each.name: each for each in (FLOAT32, FLOAT16, BFLOAT16)}
NORMS = {"layer norm": True, "RMSNorm": False}


class Subject(NamedTuple):
    """A kernel, for rows of a length and a type, in correct mode."""

    kernel: str
    size: int
    dtype: str
    norm: str

    @property
    def plan(self) -> Plan:
        """How its rows are laid on threads."""
        return Plan.of(
            self.kernel, self.size, TYPES[self.dtype], centred=NORMS[self.norm], correct=True
        )


def subjects(
    kernels: Sequence[str], sizes: Sequence[int], dtypes: Sequence[str]
) -> Iterator[Subject]:
    """Yield what is launched: `run_sums` only where backward has no sums."""
    for found in map(Subject._make, product(kernels, sizes, dtypes, NORMS)):
        if found.kernel != "run_sums" or not found.plan.sums_in_registers:
            yield found


def defines(plan: Plan) -> list[str]:
    """Return the constants of a plan as options."""
    return [f"-D{name}={value}" for name, value in plan.macros.items()]
