"""One case of `benchmarks.memory`, in a process of its own: Linux only, which tells the peak."""
# ruff: noqa: T201
# The process that started this one reads what is printed.

import contextlib
import ctypes
import gc
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import truenorm as tn

KIBIBYTE = 1024
FEW_ROWS = 64


def memory_in_use(name: str) -> int:
    """Return VmRSS, the resident memory, or VmHWM, the most that it ever was, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * KIBIBYTE
    raise OSError(f"/proc/self/status has no {name}")


def begin_anew() -> None:
    """Give back what was freed, or a call would use it again unseen; and forget the peak.

    Where the system does not permit the latter, the arrays have made it forget what compilers and
    imports took, being larger.
    """
    gc.collect()
    with contextlib.suppress(AttributeError):  # not every libc has it
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def call_once(rounding: str) -> None:
    """Call both passes on a small array, with rows that are normal and rows that are not."""
    x = np.random.default_rng(0).standard_normal((4096, 64), dtype=np.float32)
    x[0], x[1] = 0.1, x[1] + 1e7
    parameter = np.ones(64, np.float32)
    _, saved = tn.layer_norm_forward(x, parameter, parameter, rounding=rounding)
    tn.layer_norm_backward(x, saved)


def measure(direction: str, rounding: str, width: int, megabytes: float) -> dict[str, float]:
    """Return, in bytes, what a call takes beyond its result, which is in an array given to it."""
    call_once(rounding)
    rows = max(FEW_ROWS, int(megabytes * 2**20 / 4 / width))
    x, dy, out = (np.zeros((rows, width), np.float32) for _ in range(3))
    gamma, beta = np.zeros((2, width), np.float32)
    random = np.random.default_rng(1)
    for array in (x, dy, gamma, beta):
        random.standard_normal(dtype=np.float32, out=array)
    out.fill(1.0)  # zeros alone would not be resident

    def forward(count: int) -> tn.Saved:
        return tn.layer_norm_forward(x[:count], gamma, beta, rounding=rounding, out=out[:count])[1]

    def call(count: int) -> Callable[[], object]:
        if direction == "forward":
            return partial(forward, count)
        return partial(tn.layer_norm_backward, dy[:count], forward(count), out=out[:count])

    of_few_rows, of_all_rows = call(FEW_ROWS), call(rows)
    begin_anew()
    before = memory_in_use("VmRSS")
    if memory_in_use("VmHWM") - before > 2**20:
        raise OSError("the peak was higher before the call than at its start: use larger arrays")
    # First a few rows: what a width takes when it is first met is shown apart.
    of_few_rows()
    first_use = memory_in_use("VmRSS") - before
    returned = of_all_rows()
    extra = memory_in_use("VmHWM") - before
    return {
        "x": x.nbytes,
        "extra": extra,
        "first_use": first_use,
        "saved": returned.nbytes if isinstance(returned, tn.Saved) else 0,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))
