"""What every benchmark says and asks of its surroundings: how many threads, and where it ran.

It needs the standard library and truenorm's tools, so that it can be imported before NumPy.
"""

from collections.abc import Mapping, Sequence

from truenorm.tools.machine import describe

__all__ = ["asking_for", "heading", "machine"]

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TRUENORM_THREADS")
PACKAGES = ("numpy", "truenorm")


def asking_for(threads: int) -> dict[str, str]:
    """Return variables that ask truenorm and the libraries under NumPy for so many threads.

    Those libraries look once, when they are loaded: set them before NumPy is imported.
    """
    return dict.fromkeys(THREADS, str(threads))


def machine(threads: int = 1, packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Say where, with what and when: no figure means anything without it."""
    found = describe("cpu", "cores", "platform", "python", *packages)
    return found | {"threads": str(threads)} | describe("date")


def heading(where: Mapping[str, str]) -> str:
    """Return the lines that stand above every table."""
    return "\n".join(f"{name:9s}{value}" for name, value in where.items())
