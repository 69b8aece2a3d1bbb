"""``told.py``: judge with the workers of an MPI, and print what a test compares.

Run by ``mpiexec -n 3 python -m mpi4py.futures told.py FILE``: rank 0 runs this file, the others
are workers.
"""

import sys
from pathlib import Path

from mpi4py.futures import MPIPoolExecutor

from engines.judging import judged

__all__: list[str] = []

if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        Path(sys.argv[1]).write_text(judged(executor), encoding="utf-8")
