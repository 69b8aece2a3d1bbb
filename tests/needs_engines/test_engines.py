"""Real Dask and MPI workers: the report has the bytes of one process."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from needs_engines.judging import reports

WORKERS = 2
PROGRAM = Path(__file__).with_name("judging.py")

pytestmark = pytest.mark.skipif(
    find_spec("distributed") is None or find_spec("mpi4py") is None,
    reason="Dask and MPI are in the environment of the session 'engines' alone",
)


@pytest.fixture(scope="module")
def plain() -> str:
    return reports(None)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one file for each process that loaded the subject."""
    folder = tmp_path / "workers"
    folder.mkdir()
    monkeypatch.setenv("WORKERS", str(folder))
    return folder


def test_dask(plain: str, started: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        by_dask = reports(client.get_executor())
    assert by_dask == plain
    assert len(list(started.iterdir())) == WORKERS + 1  # and the trial call of the judge


def test_mpi(plain: str, started: Path, tmp_path: Path) -> None:
    file = tmp_path / "reports"
    mpiexec = Path(sys.executable).with_name("mpiexec")
    options = ["--oversubscribe", "--allow-run-as-root", "-n", str(WORKERS + 1)]
    ran = subprocess.run(
        [mpiexec, *options, sys.executable, "-m", "mpi4py.futures", PROGRAM, file],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert file.read_text(encoding="utf-8") == plain
    assert len(list(started.iterdir())) == WORKERS + 2  # the judge imports and calls it
