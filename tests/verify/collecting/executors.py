"""Executors for tests, and reports without what depends on the clock."""

import pickle
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import truenorm.verify as tv
from truenorm.verify.report.json_report import to_json

__all__ = ["Backwards", "processes", "text_of"]


def processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))


def text_of(found: tv.Report | tv.Campaign) -> str:
    """Return all that is told, but for times."""
    if isinstance(found, tv.Campaign):
        found = replace(found, worked=0.0, called=0.0)
    return to_json(replace(found, seconds=0.0, machine={}))


def sent(value: Any) -> Any:
    """Return what arrives in another process."""
    return pickle.loads(pickle.dumps(value))


class Backwards(Executor):
    """Does nothing until a result is asked for, then the last task first, in this process.

    What goes in and out is pickled, as it is by executors with processes.
    """

    def __init__(self) -> None:
        self.left: list[Callable[[], None]] = []
        self.done = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        executor = self

        class Asked(Future[Any]):
            def result(self, timeout: float | None = None) -> Any:
                while executor.left:
                    executor.left.pop()()
                return super().result(timeout)

        future = Asked()

        def work() -> None:
            executor.done += 1
            try:
                future.set_result(sent(sent(fn)(*sent(args), **sent(kwargs))))
            except Exception as raised:
                future.set_exception(sent(raised))

        self.left.append(work)
        return future
