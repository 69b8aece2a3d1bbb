"""Executors for tests, and reports without times."""

import pickle
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import truenorm.verify as tv
from truenorm.verify.report.json_report import to_json


def processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))


def text_of(report: tv.Report) -> str:
    """Return a report as JSON, without times."""
    return to_json(replace(report, seconds=0.0, machine={}))


def pickled(value: Any) -> Any:
    """Return a value as it arrives in another process."""
    return pickle.loads(pickle.dumps(value))


class Backwards(Executor):
    """Runs all tasks in this process when a result is needed, the last one first.

    Arguments and results are pickled, as by executors with processes.
    """

    def __init__(self) -> None:
        self.tasks: list[Callable[[], None]] = []
        self.done = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        executor = self

        class LazyFuture(Future[Any]):
            def result(self, timeout: float | None = None) -> Any:
                while executor.tasks:
                    executor.tasks.pop()()
                return super().result(timeout)

        future = LazyFuture()

        def work() -> None:
            executor.done += 1
            try:
                future.set_result(pickled(pickled(fn)(*pickled(args), **pickled(kwargs))))
            except Exception as raised:
                future.set_exception(pickled(raised))

        self.tasks.append(work)
        return future
