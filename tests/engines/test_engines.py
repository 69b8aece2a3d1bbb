"""Dask and MPI as engines, really started: the report of one process, to the byte."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from engines.judging import judged

WORKERS = 2
TOLD = Path(__file__).parent / "told.py"

pytestmark = pytest.mark.skipif(
    find_spec("distributed") is None or find_spec("mpi4py") is None,
    reason="Dask and MPI are in the environment of the session 'engines' alone",
)


@pytest.fixture(scope="module")
def plain() -> str:
    return judged(None)


@pytest.fixture
def worked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one file for each process that has run the subject."""
    folder = tmp_path / "workers"
    folder.mkdir()
    monkeypatch.setenv("WORKERS", str(folder))
    return folder


def test_dask(plain: str, worked: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        found = judged(client.get_executor())
    assert found == plain
    assert len(list(worked.iterdir())) == WORKERS + 1  # and the judge, who tries a call


def test_mpi(plain: str, worked: Path, tmp_path: Path) -> None:
    file = tmp_path / "told"
    mpiexec = Path(sys.executable).with_name("mpiexec")
    options = ["--oversubscribe", "--allow-run-as-root", "-n", str(WORKERS + 1)]
    ran = subprocess.run(
        [mpiexec, *options, sys.executable, "-m", "mpi4py.futures", TOLD, file],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert file.read_text(encoding="utf-8") == plain
    assert len(list(worked.iterdir())) == WORKERS + 2  # the judge imports it, and tries a call
