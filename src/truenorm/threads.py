"""A pool of threads for functions that release the interpreter's lock."""

import os
import threading
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import repeat
from queue import SimpleQueue

Work = Callable[[int, int], None]

# As text: pathlib takes a third of the time that the first call may take.
MEMBERSHIP, CGROUPS = "/proc/self/cgroup", "/sys/fs/cgroup"
# With so many queued jobs all threads are busy: further calls queue none.
QUEUE_LIMIT = 1000
MOST_THREADS = 2**31 - 1
"""The largest number of threads that a call accepts; the C core reads a long."""


def thread_count_in(text: str) -> int | None:
    """Return the number of threads in the text of a variable, or None if it is out of range."""
    try:
        count = int(text) if text.isdecimal() else 0
    except ValueError:  # more digits than Python converts
        return None
    return count if 1 <= count <= MOST_THREADS else None


def thread_count(limit: int | None) -> int:
    """Return the number of threads of a call: `limit`, or the default if that is None.

    The default is OMP_NUM_THREADS. If that is not set, or not a number of threads, it is the
    number of CPUs this process may run on, or the quota of its cgroup if that is smaller; this is
    read once.
    """
    if limit is not None:
        return limit
    return omp_num_threads() or _usable_cpus()


def omp_num_threads() -> int | None:
    """Return the number of threads of the outermost level in OMP_NUM_THREADS, or None."""
    return thread_count_in(os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip())


@cache
def _usable_cpus() -> int:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min([cpus or 1, *_quotas()])


def _quotas() -> Iterator[int]:
    """Yield the CPU quotas of the cgroup of this process and its parents, rounded up.

    In a container the path may be that of the host and not exist. The quota of the container is
    then at the root, which is a parent of every path.
    """
    inside = ""
    with suppress(OSError, ValueError), open(MEMBERSHIP, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("0::/"):  # other lines belong to cgroups version 1
                inside = line[4:].rstrip("\n")
    while True:
        # Without a quota there is no file, or the word "max".
        path = os.path.join(CGROUPS, inside, "cpu.max")
        with (
            suppress(OSError, ValueError, ZeroDivisionError),
            open(path, encoding="utf-8") as file,
        ):
            quota, period = map(int, file.read().split())
            yield max(1, -(-quota // period))
        if not inside:
            return
        inside = inside.rpartition("/")[0]


class _Job:
    """The blocks of one call, and the threads that work on them.

    An interrupt can hit the caller between any two of its steps. So helpers register themselves,
    and `finish` can be interrupted and called again.
    """

    def __init__(self, work: Work, blocks: Sequence[tuple[int, int]]) -> None:
        # Emptied at the end of the call, so that a queued job references no arrays.
        self.todo = deque(zip(repeat(work), blocks, strict=False))
        self.helpers: list[threading.Lock] = []  # each is locked while its helper works
        self.errors: list[BaseException] = []
        self.finished = False

    def help(self) -> None:
        """Work on blocks, in a thread of the pool."""
        working = threading.Lock()
        with working:
            self.helpers.append(working)  # before it takes a block: see finish
            self.run()

    def run(self) -> None:
        """Work on blocks until all are taken, or one fails."""
        try:
            while True:
                try:
                    work, (start, stop) = self.todo.popleft()
                except IndexError:
                    return
                work(start, stop)
        except BaseException as error:
            self.todo.clear()
            self.errors.append(error)

    def finish(self) -> None:
        """Cancel the blocks that are not started, and wait for the helpers that took one."""
        self.todo.clear()
        for working in self.helpers:
            with working:
                pass
        self.finished = True


class _Pool:
    """Threads that wait for jobs.

    Not a `ThreadPoolExecutor`: an interrupt in its `submit` can leave a thread that never ends,
    and the interpreter hangs at exit. Not `threading.Thread`: its `start` waits until the thread
    runs, for ever if that dies of MemoryError first. The interpreter does not wait for threads
    of `start_new_thread`. They are safe here because they work only while a caller waits for them.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start without threads: a forked child has none of those of its parent."""
        self.inbox: SimpleQueue[_Job] = SimpleQueue()
        self.workers = 0
        self.lock = threading.RLock()  # a signal handler may call while its thread holds it

    def submit(self, job: _Job, helpers: int) -> None:
        """Queue a job for so many threads. Busy threads join later, or not at all."""
        if self.workers < helpers:
            self._grow(helpers)
        if self.inbox.qsize() < QUEUE_LIMIT:
            for _ in range(min(helpers, self.workers)):
                self.inbox.put(job)

    def _grow(self, size: int) -> None:
        with self.lock, suppress(RuntimeError, MemoryError):  # no thread can be started
            while self.workers < size:
                start_new_thread(_serve, (self.inbox,))
                self.workers += 1


def _serve(inbox: SimpleQueue[_Job]) -> None:
    while True:
        inbox.get().help()


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.reset)


def for_each_block(work: Work, blocks: Sequence[tuple[int, int]], threads: int) -> None:
    """Call `work(start, stop)` once for each block, on up to `threads` threads.

    The caller's thread is one of them. `work` should release the interpreter's lock. It may run
    outside the context of the caller, whose `errstate` does not apply there. Blocks start in
    order. If one raises, or an interrupt arrives, no more blocks start. When all running blocks
    have ended, the first error is raised.
    """
    if threads <= 1 or len(blocks) <= 1:
        for start, stop in blocks:
            work(start, stop)
        return
    job = _Job(work, blocks)
    try:
        _pool.submit(job, min(threads, len(blocks)) - 1)
        job.run()
        job.finish()
    except BaseException as interrupt:
        job.errors += [interrupt]
    # Helpers write to the arrays of the caller, so interrupts must wait. They arrive at calls and
    # at the end of a loop body: every call must be inside a try.
    while not job.finished:
        try:
            job.finish()
        except BaseException:
            continue  # the first error is stored already
    if job.errors:
        job.errors.sort(key=lambda error: isinstance(error, Exception))  # interrupts come first
        del job.errors[1:]  # a traceback references the job, and so itself
        raise job.errors.pop()
