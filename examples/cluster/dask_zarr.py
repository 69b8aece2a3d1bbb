"""Layer norm of a Zarr array by Dask: one worker is killed, and the bytes do not change.

Run as ``python dask_zarr.py FOLDER``. Each task reads some rows of x and dy, writes y and dx, and
returns its partial; merging is a tree of tasks. It needs Dask, distributed and Zarr (the
dependency group "cluster").
"""

import argparse
import os
import platform
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from operator import add
from pathlib import Path
from typing import Any

import dask  # type: ignore[import-not-found]
import numpy as np
import zarr  # type: ignore[import-not-found]
from distributed import (  # type: ignore[import-not-found]
    Client,
    Future,
    LocalCluster,
    as_completed,
    wait,
)

import truenorm as tn

COLUMNS, ROWS_OF_TASK, TASKS = 256, 32, 16


def create(folder: Path) -> None:
    """Create random x and dy, and empty y and dx, with one chunk per task."""
    random = np.random.default_rng(0)
    shape = (TASKS * ROWS_OF_TASK, COLUMNS)
    for name in ("x", "dy", "y", "dx"):
        array = zarr.create_array(
            folder / name, shape=shape, chunks=(ROWS_OF_TASK, COLUMNS), dtype="float32"
        )
        if name in ("x", "dy"):
            array[:] = random.standard_normal(shape).astype(np.float32)
    (folder / "runs").mkdir()


def normalize(folder: Path, rows: slice) -> tn.PartialGradients:
    """Run forward and backward over some rows; a repeated task writes the same bytes."""
    (folder / "runs" / uuid.uuid4().hex).touch()
    x, dy, y, dx = (zarr.open_array(folder / name, mode="r+") for name in ("x", "dy", "y", "dx"))
    gamma, beta = np.ones(COLUMNS, np.float32), np.zeros(COLUMNS, np.float32)
    y[rows], saved = tn.layer_norm_forward(x[rows], gamma, beta)
    dx[rows], partial = tn.layer_norm_backward_partial(dy[rows], saved)
    return partial


def parts() -> list[slice]:
    """Return the rows of each task."""
    return [slice(k * ROWS_OF_TASK, (k + 1) * ROWS_OF_TASK) for k in range(TASKS)]


def kill_holder(client: Client, future: Future) -> None:
    """Kill the worker that holds a result."""
    (address, *_) = client.who_has([future])[future.key]
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)


def tree(client: Client, futures: Sequence[Future]) -> Future:
    """Merge in pairs; + is exact, so the order does not matter."""
    while len(futures) > 1:
        pairs = [futures[k : k + 2] for k in range(0, len(futures), 2)]
        futures = [client.submit(add, *two) if len(two) == 2 else two[0] for two in pairs]
    return futures[0]


def by_cluster(folder: Path) -> tuple[tn.PartialGradients, str]:
    """Return the partial of all rows, and a summary of the run."""
    begun = time.perf_counter()
    with (
        # On a busy machine a worker may take longer to start than the default timeout of 30 s.
        dask.config.set({"distributed.comm.timeouts.connect": "300s"}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs="CRITICAL",
            local_directory=str(folder / "spill"),
        ) as cluster,
        Client(cluster) as client,
    ):
        started = time.perf_counter() - begun
        leaves = client.map(normalize, [folder] * TASKS, parts(), pure=False)
        # That result has not been merged yet: it is lost with its worker, and computed again.
        kill_holder(client, next(iter(as_completed(leaves))))
        total = tree(client, leaves).result()
        empty = [client.submit(int, k, pure=False) for k in range(200)]
        begun = time.perf_counter()
        wait(empty)
        a_task = (time.perf_counter() - begun) / len(empty)
    runs = len(list((folder / "runs").iterdir()))
    summary = (
        f"start of 2 workers: {started:.1f} s; a task that does nothing: {a_task * 1e3:.1f} ms\n"
        f"{TASKS} tasks, a worker killed after the first: {runs} runs"
    )
    return total, summary


def costs(folder: Path, shape: tuple[int, int] = (1024, 4096)) -> Iterator[tuple[str, float]]:
    """Yield nanoseconds of processor time per element, for x of 16 MB in 4 chunks."""
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    gamma = np.ones(shape[1], np.float32)
    array = zarr.create_array(
        folder / "large", shape=shape, chunks=(shape[0] // 4, shape[1]), dtype="float32"
    )

    def write() -> None:
        array[:] = values

    def normalize_all() -> None:
        tn.layer_norm_forward(values, gamma, gamma, threads=1)

    for name, call in (("write", write), ("read", lambda: array[:]), ("forward", normalize_all)):
        taken = []
        for _ in range(5):
            begun = time.process_time()
            call()
            taken.append(time.process_time() - begun)
        yield name, min(taken) / values.size * 1e9


def versions_and_date() -> str:
    """Return the versions of Python and packages, and the date."""
    packages = ("dask", "distributed", "zarr", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"Python {platform.python_version()}, {versions}; {time.strftime('%Y-%m-%d')}"


def main(argv: list[str] | None = None) -> int:
    """Compare a cluster that loses a worker with one process."""
    parser = argparse.ArgumentParser(description="Layer norm of a Zarr array by Dask.")
    parser.add_argument("folder", type=Path, help="a new folder, for the arrays")
    folder: Path = parser.parse_args(argv).folder.resolve()
    folder.mkdir(parents=True)
    print(versions_and_date())
    create(folder)
    total, summary = by_cluster(folder)
    print(summary)
    (folder / "partial").write_bytes(total.tobytes())
    arrays = {name: zarr.open_array(folder / name, mode="r")[:] for name in ("x", "dy", "y", "dx")}
    same = is_that_of_one_call(total, arrays)
    print(f"y, dx and the partial have the bytes of one call: {'yes' if same else 'NO'}")
    for name, taken in costs(folder):
        print(f"{name:8s}{taken:6.1f} ns an element")
    return 0 if same else 1


def is_that_of_one_call(total: tn.PartialGradients, arrays: dict[str, Any]) -> bool:
    """Return True if one call with all rows returns the same bytes."""
    gamma, beta = np.ones(COLUMNS, np.float32), np.zeros(COLUMNS, np.float32)
    y, saved = tn.layer_norm_forward(arrays["x"], gamma, beta)
    dx, partial = tn.layer_norm_backward_partial(arrays["dy"], saved)
    expected = (y.tobytes(), dx.tobytes(), partial.tobytes())
    return expected == (arrays["y"].tobytes(), arrays["dx"].tobytes(), total.tobytes())


if __name__ == "__main__":
    sys.exit(main())
