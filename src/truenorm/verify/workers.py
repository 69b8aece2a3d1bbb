"""Compute exact answers by processes, which get the names of an operation and of cases."""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import repeat
from multiprocessing import get_context, parent_process

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.operations import as_operation
from truenorm.verify.oracle import Arrays, compute_exact, load_or_compute
from truenorm.verify.running.records import CannotRunError
from truenorm.verify.suite import case as case_named

TASK_ELEMENTS = 2**13
"""Elements of x in the cases of a task: their exact answers take a second at most."""


def answers_by(jobs: int, suite: Sequence[Case]) -> Iterator[tuple[Case, Arrays]]:
    """Yield cases of one operation with their exact answers, which `jobs` processes compute."""
    tasks = list(_tasks(suite))
    names = [[case.name for case in task] for task in tasks]
    # Spawn instead of fork: this process has threads.
    spawn = get_context("spawn")
    try:
        with ProcessPoolExecutor(jobs, spawn, initializer=_end_with_parent) as pool:
            specs = repeat(suite[0].operation.spec)
            for task, answers in zip(tasks, pool.map(_compute, specs, names), strict=True):
                yield from zip(task, answers, strict=True)
    except BrokenProcessPool as broken:
        raise CannotRunError(
            f"a process that computes exact answers has ended: {broken}. It may have run out of "
            "memory: give fewer --jobs"
        ) from broken


def _compute(spec: str, names: Sequence[str]) -> list[Arrays]:
    operation = as_operation(spec)
    suite = [case_named(name, operation=operation) for name in names]
    return [load_or_compute(case, compute_exact) for case in suite]


def _end_with_parent() -> None:
    """End this process of a pool with the process that has the pool, however that one ends."""

    def watch() -> None:
        if parent := parent_process():
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _tasks(suite: Sequence[Case]) -> Iterator[list[Case]]:
    """Yield cases in groups of at least `TASK_ELEMENTS` elements."""
    task: list[Case] = []
    size = 0
    for case in suite:
        task.append(case)
        size += int(np.prod(case.shape)) // case.repeats
        if size >= TASK_ELEMENTS:
            yield task
            task, size = [], 0
    if task:
        yield task
