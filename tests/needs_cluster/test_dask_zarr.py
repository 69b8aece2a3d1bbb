"""The example with Dask and Zarr: a worker is killed, and all bytes equal those of one call."""

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
    reason="needs Dask and Zarr, as in the session 'cluster'",
)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run the example; return its folder and its output."""
    folder = tmp_path_factory.mktemp("example") / "arrays"
    command = [sys.executable, "-W", "error", str(EXAMPLE), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def array(folder: Path, name: str) -> Any:
    return pytest.importorskip("zarr").open_array(folder / name, mode="r")[:]


def test_lost_work_is_repeated(example: tuple[Path, str]) -> None:
    runs = re.search(rf"{TASKS} tasks, a worker killed after the first: (\d+) runs", example[1])
    assert runs is not None
    assert int(runs[1]) > TASKS


def test_bytes_equal_those_of_one_call(example: tuple[Path, str]) -> None:
    folder, output = example
    assert "have the bytes of one call: yes" in output
    x, dy = array(folder, "x"), array(folder, "dy")
    gamma, beta = np.ones(x.shape[1], np.float32), np.zeros(x.shape[1], np.float32)
    y, saved = tn.layer_norm_forward(x, gamma, beta)
    # Backward without partials, whose sums have other code.
    dx, dgamma, dbeta = tn.layer_norm_backward(dy, saved)
    total = tn.PartialGradients.frombuffer((folder / "partial").read_bytes())
    rounded = total.rounded()
    assert not len(rounded.undecided)
    assert total.rows == len(x)
    for result, expected in (
        (array(folder, "y"), y),
        (array(folder, "dx"), dx),
        (rounded.dgamma, dgamma),
        (rounded.dbeta, dbeta),
    ):
        assert result is not None
        assert expected is not None
        assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["y", "dx", "dy"])
def test_wrong_bit_is_detected(example: tuple[Path, str], name: str) -> None:
    folder, _ = example
    compare = runpy.run_path(str(EXAMPLE))["is_that_of_one_call"]
    total = tn.PartialGradients.frombuffer((folder / "partial").read_bytes())
    arrays = {each: array(folder, each) for each in ("x", "dy", "y", "dx")}
    assert compare(total, arrays)
    arrays[name] = arrays[name].copy()
    arrays[name][3, 5] = np.nextafter(arrays[name][3, 5], np.float32(9))
    assert not compare(total, arrays)
