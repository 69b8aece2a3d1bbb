"""Threads for kernels that release the interpreter's lock: how many, and who does which rows."""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import repeat
from queue import SimpleQueue

__all__ = ["for_each_block", "thread_count"]

Work = Callable[[int, int], None]

# As text: pathlib takes a third of the time that the first call may take.
MEMBERSHIP, CGROUPS = "/proc/self/cgroup", "/sys/fs/cgroup"
# If so many invitations wait for a thread, all are busy: further calls invite nobody.
CROWDED = 1000


def thread_count(asked: int | None) -> int:
    """Tell how many threads a call may use: as many as asked for, if it asked.

    If not, OMP_NUM_THREADS decides, and if that is not set, the machine, which is looked at once:
    the CPUs this process may run on, or the quota of its cgroup if that is smaller.
    """
    if asked is not None:
        return asked
    outermost = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if outermost.isdecimal() and int(outermost) > 0:
        return int(outermost)
    return _usable_cpus()


@cache
def _usable_cpus() -> int:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min([cpus or 1, *_quotas()])


def _quotas() -> Iterator[int]:
    """Yield the CPU quotas of this process, rounded up: of its cgroup and of the groups above.

    In a container the path of a cgroup may be the host's, and not be there. The container's own
    quota then stands at the root, which is above every path.
    """
    inside = ""
    with suppress(OSError, ValueError), open(MEMBERSHIP, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("0::/"):  # other lines are of cgroups version 1
                inside = line[4:].rstrip("\n")
    while True:
        # No quota is no file, or the word "max".
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
    """The blocks of one call, and who works on them.

    An interrupt can hit the caller between any two of its steps. So it is the helpers who write
    down what it has to wait for, and `finish` can be left halfway and called again.
    """

    def __init__(self, work: Work, blocks: Sequence[tuple[int, int]]) -> None:
        # Emptied when the call is over: a job that still waits for a helper keeps no arrays alive.
        self.todo = deque(zip(repeat(work), blocks, strict=False))
        self.helpers: list[threading.Lock] = []  # each is held while its helper works
        self.errors: list[BaseException] = []
        self.finished = False

    def help(self) -> None:
        """Work on blocks, in a thread of the pool."""
        at_work = threading.Lock()
        with at_work:
            self.helpers.append(at_work)  # before it takes a block: see finish
            self.run()

    def run(self) -> None:
        """Work on blocks until none is left, or one fails."""
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
        """Hand out no more blocks, and wait for whoever took one: all are in the list by now."""
        self.todo.clear()
        for at_work in self.helpers:
            with at_work:
                pass
        self.finished = True


class _Pool:
    """Threads that wait for jobs.

    Not a `ThreadPoolExecutor`: an interrupt in the middle of its `submit` can leave a thread that
    nobody ends, and the interpreter then hangs when it exits. It never waits for daemon threads,
    and they are safe here because they work only while a caller waits for them.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin without threads, as a forked child does: it has none of the parent's."""
        self.inbox: SimpleQueue[_Job] = SimpleQueue()
        self.workers: list[threading.Thread] = []
        self.lock = threading.RLock()  # a signal handler may call while its thread holds it

    def invite(self, job: _Job, helpers: int) -> None:
        """Ask so many threads to help. Those that are busy come later, or too late."""
        if len(self.workers) < helpers:
            self._grow(helpers)
        if self.inbox.qsize() < CROWDED:
            for _ in range(min(helpers, len(self.workers))):
                self.inbox.put(job)

    def _grow(self, size: int) -> None:
        with self.lock, suppress(RuntimeError):  # if no thread can be started, do without
            # Python 3.11 would wait for ever for a thread started while it finalizes.
            while len(self.workers) < size and not sys.is_finalizing():
                name = f"truenorm-{len(self.workers)}"
                thread = threading.Thread(None, _serve, name, (self.inbox,), daemon=True)
                thread.start()
                self.workers.append(thread)


def _serve(inbox: SimpleQueue[_Job]) -> None:
    while True:
        inbox.get().help()


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.reset)


def for_each_block(work: Work, blocks: Sequence[tuple[int, int]], threads: int) -> None:
    """Call `work(start, stop)` once for each block, on up to `threads` threads, this one included.

    `work` gains by that only if it releases the interpreter's lock. It may run outside the context
    of the caller, whose `errstate` does not hold there. Blocks are begun in the order given. If
    one raises, or an interrupt arrives, no more are begun, and when those that others work on are
    done, the first error is raised.
    """
    if threads <= 1 or len(blocks) <= 1:
        for start, stop in blocks:
            work(start, stop)
        return
    job = _Job(work, blocks)
    try:
        _pool.invite(job, min(threads, len(blocks)) - 1)
        job.run()
        job.finish()
    except BaseException as interrupt:
        job.errors += [interrupt]
    # Helpers write to the caller's arrays, so interrupts have to wait. They arrive at calls and
    # where a loop turns back: a call outside of a try would let one get away.
    while not job.finished:
        try:
            job.finish()
        except BaseException:
            continue  # the first is kept already
    if job.errors:
        job.errors.sort(key=lambda error: isinstance(error, Exception))  # interrupts come first
        del job.errors[1:]  # the traceback of each leads to the job, and so to itself
        raise job.errors.pop()
