"""The example with Dask and Zarr: a worker is killed, and every byte is that of one call."""

import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm as tn

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster" / "dask_zarr.py"
TASKS = 16

pytestmark = pytest.mark.skipif(
    find_spec("distributed") is None or find_spec("zarr") is None,
    reason="Dask and Zarr are in the environment of the session 'cluster' alone",
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run the example; return its folder and what it said."""
    folder = tmp_path_factory.mktemp("ran") / "arrays"
    command = [sys.executable, "-W", "error", str(EXAMPLE), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def array(folder: Path, name: str) -> Any:
    return pytest.importorskip("zarr").open_array(folder / name, mode="r")[:]


def test_work_was_lost_and_done_again(ran: tuple[Path, str]) -> None:
    said = re.search(rf"{TASKS} tasks, a worker killed after the first: (\d+) runs", ran[1])
    assert said is not None
    assert int(said[1]) > TASKS


def test_the_bytes_are_those_of_one_call(ran: tuple[Path, str]) -> None:
    folder, said = ran
    assert "have the bytes of one call: yes" in said
    x, dy = array(folder, "x"), array(folder, "dy")
    gamma, beta = np.ones(x.shape[1], np.float32), np.zeros(x.shape[1], np.float32)
    y, saved = tn.layer_norm_forward(x, gamma, beta)
    # Plain backward, whose sums are not those of partials.
    dx, dgamma, dbeta = tn.layer_norm_backward(dy, saved)
    total = tn.PartialGradients.frombuffer((folder / "partial").read_bytes())
    found = total.rounded()
    assert not len(found.undecided)
    assert total.rows == len(x)
    for mine, its in (
        (array(folder, "y"), y),
        (array(folder, "dx"), dx),
        (found.dgamma, dgamma),
        (found.dbeta, dbeta),
    ):
        assert mine is not None
        assert its is not None
        assert mine.tobytes() == its.tobytes()


@pytest.mark.parametrize("name", ["y", "dx", "dy"])
def test_a_wrong_bit_would_be_seen(ran: tuple[Path, str], name: str) -> None:
    folder, _ = ran
    compare = runpy.run_path(str(EXAMPLE))["is_that_of_one_call"]
    total = tn.PartialGradients.frombuffer((folder / "partial").read_bytes())
    arrays = {each: array(folder, each) for each in ("x", "dy", "y", "dx")}
    assert compare(total, arrays)
    arrays[name] = arrays[name].copy()
    arrays[name][3, 5] = np.nextafter(arrays[name][3, 5], np.float32(9))
    assert not compare(total, arrays)
