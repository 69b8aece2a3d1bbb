"""``python -m benchmarks.peer.worker PEER THREADS``: the process of one peer.

It reads requests from its input and answers each with a line, both JSON. Between them it sleeps,
so that it takes nothing from the peer whose turn it is.
"""

import gc
import json
import os
import platform
import statistics
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.peer.environments import PEERS
from benchmarks.peer.implementations import IMPLEMENTATIONS
from benchmarks.peer.inputs import EPS, Array, Contestant, Inputs

# Loose: it tells a norm from something else, and judges nobody's last digits. In bfloat16 dgamma
# of PyTorch over 8192 rows is off by a tenth.
TOLERANCES = {"float64": 1e-3, "float32": 1e-3, "float16": 5e-2, "bfloat16": 3e-1}
BLOCK = 2**20  # elements checked at a time, for float64 copies of everything would take gigabytes
SHORTEST = 100e-6  # seconds that the clock is asked to measure
FIRST_CALLS, FIRST_SECONDS = 100, 2.0


class Worker:
    """What one peer is asked to do."""

    def __init__(self, peer: str, threads: int) -> None:
        self.peer, self.threads = peer, threads
        self.contestants: list[Contestant] = []

    def versions(self) -> dict[str, str]:
        """Say what runs here."""
        peer = PEERS[self.peer]
        names = [requirement.partition("==")[0] for requirement in peer.requirements]
        found = {"python": platform.python_version()} | {name: version(name) for name in names}
        if peer.needs_checkout:
            truenorm: Any = import_module("truenorm")
            chosen = next(status.name for status in truenorm.backends() if status.usable)
            found |= {"truenorm": truenorm.__version__, "backend": chosen}
        return found

    def prepare(self, shape: list[int], seed: int, dtype: str, operation: str) -> dict[str, Any]:
        """Make the arrays and every contestant, and check what they compute."""
        self.contestants = []  # the arrays of the last shape go first
        given = Inputs.normal(tuple(shape), seed, dtype, operation)
        self.contestants = IMPLEMENTATIONS[self.peer](given, self.threads)
        wanted = expected(given)
        described = []
        for each in self.contestants:
            check(each, wanted[each.direction], TOLERANCES[dtype])  # the first call
            described.append(
                {
                    "name": each.name,
                    "direction": each.direction,
                    "writes_to": each.writes_to,
                    "first_calls": first_calls(each.run),
                }
            )
        return {
            "checksum": zlib.crc32(given.x.tobytes()) ^ zlib.crc32(given.dy.tobytes()),
            "contestants": described,
        }

    def time(self, which: int, seconds: float) -> dict[str, float]:
        """Call one contestant again and again for about so long."""
        taken = timed(self.contestants[which].run, seconds)
        return {
            "p50": statistics.median(taken),
            "mean": statistics.fmean(taken),
            "min": min(taken),
            "samples": len(taken),
        }


def first_calls(run: Callable[[], object]) -> list[float]:
    """Return the times of the first 100 calls after the first, fewer if they take seconds."""
    taken: list[float] = []
    while len(taken) < FIRST_CALLS and sum(taken) < FIRST_SECONDS:
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return taken


def timed(run: Callable[[], object], seconds: float) -> list[float]:
    """Return the times of calls; of short ones, the means of as many as the clock needs."""
    run()  # the peers before it had the caches
    start = time.perf_counter()
    run()
    once = time.perf_counter() - start
    if once >= seconds:
        return [once]
    calls = range(max(1, round(SHORTEST / once)))
    taken = []
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            for _ in calls:
                run()
            taken.append((time.perf_counter() - start) / len(calls))
    finally:
        gc.enable()
    return taken


def expected(given: Inputs) -> dict[str, list[Array]]:
    """Return y and the gradients, computed in float64 by the formulas of the textbook."""
    x, dy = (given.rows(each).astype(np.float32) for each in (given.x, given.dy))
    y, dx = np.empty_like(x), np.empty_like(x)
    dgamma, dbeta = np.zeros((2, x.shape[1]))
    gamma, beta = given.gamma.astype(np.float64), given.beta.astype(np.float64)
    step = max(1, BLOCK // x.shape[1])
    for start in range(0, len(x), step):
        block = slice(start, start + step)
        slopes = dy[block].astype(np.float64)
        centred = x[block].astype(np.float64)
        if given.centred:
            centred -= centred.mean(axis=1, keepdims=True)
        rstd = 1 / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + EPS)
        xhat = centred * rstd
        y[block] = gamma * xhat + (beta if given.centred else 0)
        g = gamma * slopes
        slope = (g * xhat).mean(axis=1, keepdims=True)
        mean = g.mean(axis=1, keepdims=True) if given.centred else 0
        dx[block] = rstd * (g - mean - xhat * slope)
        dgamma += (slopes * xhat).sum(axis=0)
        dbeta += slopes.sum(axis=0)
    gradients = [dx, dgamma.astype(np.float32), dbeta.astype(np.float32)]
    return {"forward": [y], "backward": gradients if given.centred else gradients[:2]}


def check(contestant: Contestant, wanted: list[Array], tolerance: float) -> None:
    """Refuse to time something that computes anything else."""
    for got, want in zip(contestant.results(contestant.run()), wanted, strict=True):
        error = np.abs(got.reshape(want.shape).astype(np.float32) - want).max()
        if not error <= tolerance * max(1.0, float(np.abs(want).max())):
            raise ArithmeticError(
                f"{contestant.name}, {contestant.direction}: off by {error:.3g} in an array of "
                f"shape {got.shape}"
            )


def main() -> int:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library that prints must not answer for the worker
    worker = Worker(sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": getattr(worker, request.pop("do"))(**request)}
        except Exception:  # a peer may fail in any way; the command says who and how
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
