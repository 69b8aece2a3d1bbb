"""Programs on the C core that run in a process of their own."""

import textwrap

from programs import run_python

__all__ = ["run"]

PRELUDE = """
    import ctypes, os, signal, sys, threading, time, warnings
    import numpy as np
    import truenorm as tn

    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks
    random = np.random.default_rng(0)
    x, dy = (random.standard_normal((700, 300)).astype(np.float32) for _ in range(2))
    gamma, beta = (random.standard_normal(300).astype(np.float32) for _ in range(2))

    def count_threads():
        return len(os.listdir("/proc/self/task"))

    def compute(threads=4, backend="native", rounding="correct"):
        options = {"backend": backend, "threads": threads}
        y, saved = tn.layer_norm_forward(x, gamma, beta, rounding=rounding, **options)
        found = tn.layer_norm_backward(dy, saved, **options)
        return b"".join(each.tobytes() for each in (y, *found))
"""


def run(code: str, *arguments: str, seconds: float = 60) -> list[str]:
    """Return the lines that a program prints."""
    return run_python(
        textwrap.dedent(PRELUDE) + textwrap.dedent(code), *arguments, seconds=seconds
    )
