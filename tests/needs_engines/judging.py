"""A report without times, by any executor.

``mpiexec -n 3 python -m mpi4py.futures judging.py FILE`` writes them to a file: rank 0 runs this
file, the others are workers.
"""

import sys
from concurrent.futures import Executor
from pathlib import Path

import truenorm.verify as tv
from needs_engines.kernel import subject
from shared.verify.workers.executors import text_of


def reports(executor: Executor | None) -> str:
    return text_of(tv.verify(subject, executor=executor))


if __name__ == "__main__":
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor() as executor:
        Path(sys.argv[1]).write_text(reports(executor), encoding="utf-8")
