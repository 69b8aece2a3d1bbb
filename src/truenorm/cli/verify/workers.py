"""Processes that judge beside this one."""

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

__all__ = ["workers"]


@contextmanager
def workers(jobs: int | None) -> Iterator[Executor | None]:
    """Give an executor with so many processes; None where none are asked for."""
    if jobs is None:
        yield None
        return
    # Spawned, and not forked: this process has threads.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as executor:
        yield executor
